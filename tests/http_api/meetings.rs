//! Layers within layers, refunds, and rules of one bucket, where two of them meet.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use tollgate::http::{
    Fields, PlugLimitNames, RateLimitLayer, Rejection, Report, Reset, Rule, Style, extract,
};
use tollgate::reload::ReloadOptions;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service, ServiceExt, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

fn gcra(burst: u64) -> Limit {
    Limit::new(burst, 1, MINUTE).unwrap()
}

fn limits(all: &[(&str, Limit)]) -> Limits {
    let add = |builder: tollgate::limits::LimitsBuilder, (name, limit): &(&str, Limit)| {
        builder.limit(name, IdFormat::String, limit.clone()).unwrap()
    };
    all.iter().fold(Limits::builder(), add).build()
}

fn limiter(all: &[(&str, Limit)]) -> Limiter {
    Limiter::with_options(limits(all), Clock::manual().0).unwrap()
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"))
}

fn layer(limiter: &Limiter, name: &str, style: Style) -> RateLimitLayer {
    let fields = Fields::new([style]).unwrap();
    RateLimitLayer::builder(limiter).rule(rule(limiter, name)).fields(fields).build().unwrap()
}

fn status(
    status: u16,
) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(move |_: Request<()>| async move {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(response)
    })
}

fn ask<S, B>(service: S) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(service.oneshot(Request::new(()))).unwrap()
}

fn field<'r, B>(response: &'r Response<B>, name: &str) -> &'r str {
    response.headers().get(name).map_or("none", |value| value.to_str().unwrap())
}

#[test]
fn policies_outlive_a_limit_that_is_gone() {
    let all = || [("a", gcra(5)), ("b", gcra(6)), ("c", gcra(7))];
    for by_switch in [false, true] {
        let limiter = limiter(&all());
        let refunds = |name| rule(&limiter, name).refund_if(|status| status.is_server_error());
        let layer = RateLimitLayer::builder(&limiter).rule(refunds("a")).rule(refunds("b"));
        let layer = layer.rule(rule(&limiter, "c")).build().unwrap();
        let within = limiter.clone();
        let first = service_fn(move |_: Request<()>| {
            if by_switch {
                within.set_enabled(false);
            } else {
                let removing = ReloadOptions::default().remove_missing(true);
                within.reload_with(limits(&all()[2..]), removing).unwrap();
            }
            let mut response = Response::new(String::new());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            async { Ok::<_, Infallible>(response) }
        });
        ask(layer.layer(first));
        limiter.set_enabled(true);
        limiter.reload(limits(&all())).unwrap();
        let later = ask(layer.layer(status(200)));
        let policies = field(&later, "ratelimit-policy");
        assert_eq!(policies, r#""a";q=5;w=300, "b";q=6;w=360, "c";q=7;w=420"#);
    }
}

#[test]
fn a_denial_within_stays_out_of_caches() {
    let limiter = limiter(&[("in", gcra(1)), ("out", gcra(9))]);
    let outer = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "out"));
    let outer = outer.on_response(|_| {
        |_, response: &mut http::response::Parts| {
            let cached = HeaderValue::from_static("max-age=60");
            response.headers.insert("cache-control", cached);
        }
    });
    let (outer, inner) = (outer.build().unwrap(), layer(&limiter, "in", Style::Ietf));
    let allowed = ask(outer.layer(inner.layer(status(200))));
    assert_eq!(field(&allowed, "cache-control"), "max-age=60");
    let denied = ask(outer.layer(inner.layer(status(200))));
    assert_eq!((denied.status().as_u16(), field(&denied, "cache-control")), (429, "no-store"));
}

#[test]
fn a_refund_leaves_the_other_rules_wait() {
    let bucket = Limit::token_bucket(3, 13, Duration::from_secs(30)).unwrap();
    let limiter = limiter(&[("a", gcra(5)), ("b", bucket)]);
    let names = PlugLimitNames::from_names(["x-l", "x-r", "x-left"]).unwrap();
    let fields = Fields::new([Style::PlugLimit(names)]).unwrap();
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule(&limiter, "a").refund_if(|status| status.is_server_error()))
        .rule(rule(&limiter, "b").cost(|_| 3).fields(fields).refund_if(|status| status == 404))
        .build()
        .unwrap();
    for (of_service, left, wait) in [(200, "10", "9"), (500, "10", "9"), (404, "13", "none")] {
        let _ = limiter.limit("b").unwrap().reset("all").unwrap();
        let response = ask(layer.layer(status(of_service)));
        assert_eq!((field(&response, "x-left"), field(&response, "retry-after")), (left, wait));
    }
}

#[test]
fn the_largest_cost_of_a_bucket_counts() {
    for (first, second, left) in [(1, 10, 90), (10, 1, 90), (0, 3, 97), (4, 4, 96)] {
        let limiter = limiter(&[("u", gcra(100))]);
        let with = |cost| rule(&limiter, "u").cost(move |_| cost);
        let layer = RateLimitLayer::builder(&limiter).rule(with(first)).rule(with(second));
        ask(layer.build().unwrap().layer(status(200)));
        let bucket = limiter.limit("u").unwrap().check("all", 0).unwrap();
        assert_eq!(bucket.remaining(), Some(left), "{first} and {second}");
    }
}

#[test]
fn the_stricter_layer_shows_the_services_429() {
    let plug = || Style::PlugLimit(PlugLimitNames::default());
    let styles = [
        (Style::XRateLimit(Reset::Delta), "x-ratelimit-remaining"),
        (Style::Draft06, "ratelimit-remaining"),
        (Style::Sharkey, "x-ratelimit-remaining"),
        (plug(), "x-ratelimit-remaining"),
    ];
    for (style, name) in styles {
        for of_service in [200, 429] {
            let limiter = limiter(&[("in", gcra(10)), ("out", gcra(3))]);
            let inner = layer(&limiter, "in", style.clone());
            let outer = layer(&limiter, "out", style.clone());
            let response = ask(outer.layer(inner.layer(status(of_service))));
            assert_eq!(field(&response, name), "2", "{of_service}");
        }
    }
    // The service's own fields of its denial stay.
    let limiter = limiter(&[("in", gcra(10)), ("out", gcra(3))]);
    let inner = layer(&limiter, "in", plug());
    let outer = layer(&limiter, "out", plug());
    let denies = service_fn(|_: Request<()>| async {
        let response = Response::builder().status(429).header("x-ratelimit-remaining", "7");
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let response = ask(outer.layer(inner.layer(denies)));
    assert_eq!(field(&response, "x-ratelimit-remaining"), "7");
}

#[test]
fn an_own_wait_belongs_to_its_set() {
    let names = || PlugLimitNames::from_names(["x-l", "x-r", "x-left", "x-wait"]).unwrap();
    let tokens =
        |quota, s, burst| Limit::token_bucket(burst, quota, Duration::from_secs(s)).unwrap();
    let window = Limit::fixed_window(5, MINUTE).unwrap();
    for (inner, outer) in [(tokens(13, 30, 3), window), (tokens(100, 30, 3), tokens(5, 600, 1))] {
        let limiter = limiter(&[("in", inner), ("out", outer)]);
        let style = || Style::PlugLimit(names());
        let outer = layer(&limiter, "out", style());
        // It empties its bucket, so that it has a wait.
        let inner = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "in").cost(|_| 3));
        let inner = inner.fields(Fields::new([style()]).unwrap()).build().unwrap();
        let set = |response: Response<()>| {
            ["x-l", "x-left", "x-wait"].map(|name| field(&response, name).to_owned())
        };
        let nested = set(ask(outer.layer(inner.layer(status(200)))).map(drop));
        let _ = limiter.limit("out").unwrap().reset("all").unwrap();
        let alone = set(ask(outer.layer(status(200))).map(drop));
        assert_eq!(nested, alone, "the outer layer's set");
    }
}

#[test]
fn names_with_another_meaning_are_refused() {
    for name in ["ETag", "Expires", "Age", "WWW-Authenticate", "Authorization", "Refresh", "Link"]
        .into_iter()
        .chain(["Access-Control-Max-Age", "X-Accel-Expires", "CDN-Cache-Control", "Alt-Svc"])
        .chain(["Surrogate-Control", "Sec-WebSocket-Accept", "Strict-Transport-Security"])
    {
        let names = PlugLimitNames::from_names([name, "x-b", "x-c"]);
        assert!(names.is_err(), "{name}");
    }
    assert!(PlugLimitNames::from_names(["x-quota", "RateLimit-Reset", "x-left"]).is_ok());
}

#[test]
fn permissive_layers_report_together() {
    let limiter = limiter(&[("in", gcra(10)), ("out", gcra(1))]);
    let permissive = |name| {
        let builder = RateLimitLayer::builder(&limiter).rule(rule(&limiter, name));
        builder.permissive(true).build().unwrap()
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let handler = service_fn(move |request: Request<()>| {
        let report = request.extensions().get::<Report>().unwrap().clone();
        log.lock().unwrap().push((report.allowed(), report.violated().to_vec()));
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    for _ in 0..2 {
        ask(permissive("out").layer(permissive("in").layer(handler.clone())));
    }
    let denied = (false, vec!["out".to_owned()]);
    assert_eq!(*seen.lock().unwrap(), [(true, Vec::new()), denied]);
}

#[test]
fn a_rejection_names_the_rule_of_its_cost() {
    let limiter = limiter(&[("a", gcra(2))]);
    let other = Rule::new(limiter.limit("a").unwrap(), extract::everyone("other"));
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule(&limiter, "a").shown_as("per-ip"))
        .rule(other.shown_as("per-user").cost(|_| 3))
        .build()
        .unwrap();
    let response = ask(layer.layer(status(200)));
    let reason = response.extensions().get::<Rejection>().unwrap().reason();
    assert_eq!(reason, "cost 3 is above the burst 2 of per-user");
}

#[test]
fn a_tab_is_not_printable() {
    let name = http::HeaderName::from_static("x-api-key");
    let key = extract::header(name);
    let request = Request::builder().header("x-api-key", "a\tb").body(()).unwrap();
    let (parts, ()) = request.into_parts();
    assert!(
        matches!(key(&parts), tollgate::http::Who::Refused(refused) if refused.status() == 400)
    );
}
