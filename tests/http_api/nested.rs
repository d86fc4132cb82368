//! Nested layers: a global limit around a stricter one, in every style.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tollgate::http::{
    Denied, Fields, PlugLimitNames, RateLimitBuilder, RateLimitLayer, Reset, Rule, Style, extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// Makes `Global` with a burst of 20 and one unit a second, and `Login` with 2 and one every 30 s.
fn limiter() -> Limiter {
    limiter_of(Limit::new(20, 1, SECOND).unwrap(), Limit::new(2, 2, 60 * SECOND).unwrap())
}

fn limiter_of(global: Limit, login: Limit) -> Limiter {
    let limits = Limits::builder()
        .limit("Global", IdFormat::String, global)
        .unwrap()
        .limit("Login", IdFormat::String, login)
        .unwrap()
        .build();
    Limiter::with_options(limits, Clock::manual().0).unwrap()
}

fn layer(limiter: &Limiter, name: &str, style: Style, edit: fn(Rule) -> Rule) -> RateLimitBuilder {
    let rule = Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"));
    RateLimitLayer::builder(limiter).rule(edit(rule)).fields(Fields::new([style]).unwrap())
}

type TestRequest = Request<Empty<Bytes>>;

/// Answers with the status that its request names, panics, or never answers.
async fn inner(request: TestRequest) -> Result<Response<Full<Bytes>>, Infallible> {
    match request.headers().get("do").map(|what| what.to_str().unwrap()) {
        None => Ok(Response::new(Full::from("inner"))),
        Some("panic") => panic!("the service's own"),
        Some("hang") => std::future::pending().await,
        Some(status) => Ok(Response::builder().status(status).body(Full::default()).unwrap()),
    }
}

fn request(what: Option<&'static str>) -> TestRequest {
    let mut request = Request::new(Empty::new());
    if let Some(what) = what {
        request.headers_mut().insert("do", what.parse().unwrap());
    }
    request
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// An outer layer and an inner one.
struct Nested {
    limiter: Limiter,
    outer: RateLimitLayer,
    inner: RateLimitLayer,
}

impl Nested {
    fn new(limiter: Limiter, style: Style) -> Nested {
        Nested::with(limiter, [style.clone(), style], |rule| rule)
    }

    fn with(limiter: Limiter, [outer, inner]: [Style; 2], edit: fn(Rule) -> Rule) -> Nested {
        let outer = layer(&limiter, "Global", outer, edit).build().unwrap();
        let inner = layer(&limiter, "Login", inner, |rule| rule).build().unwrap();
        Nested { limiter, outer, inner }
    }

    fn ask(&self, what: Option<&'static str>) -> (StatusCode, HeaderMap) {
        let service = self.outer.layer(self.inner.layer(tower::service_fn(inner)));
        let response = block_on(service.oneshot(request(what))).unwrap();
        (response.status(), response.headers().clone())
    }

    /// Makes a number of calls. Returns the last one's status and limit fields, separated by `|`.
    fn lines(&self, calls: u32) -> String {
        let mut last = String::new();
        for _ in 0..calls {
            let (status, headers) = self.ask(None);
            let mut lines: Vec<_> = headers
                .iter()
                .filter(|(name, _)| {
                    name.as_str() == "retry-after" || name.as_str().contains("ratelimit")
                })
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            lines.sort();
            lines.insert(0, status.as_str().to_owned());
            last = lines.join(" | ");
        }
        last
    }

    fn remaining(&self, name: &str) -> u64 {
        self.limiter.limit(name).unwrap().check("all", 0).unwrap().remaining().unwrap()
    }
}

#[test]
fn the_inner_denial_stays_in_every_style() {
    let table = [
        (
            Style::Ietf,
            r#"429 | ratelimit-policy: "Login";q=2;w=60, "Global";q=20;w=20 | ratelimit: "Login";r=0;t=30, "Global";r=17 | retry-after: 30"#,
        ),
        (
            Style::Draft06,
            "429 | ratelimit-limit: 2 | ratelimit-policy: 2;w=60, 20;w=20 | ratelimit-remaining: 0 | ratelimit-reset: 30 | retry-after: 30",
        ),
        (
            Style::Draft03,
            "429 | ratelimit-limit: 2, 2;w=60, 20;w=20 | ratelimit-remaining: 0 | ratelimit-reset: 30 | retry-after: 30",
        ),
        (
            Style::XRateLimit(Reset::Delta),
            "429 | retry-after: 30 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
        ),
        (
            Style::PlugLimit(PlugLimitNames::default()),
            "429 | retry-after: 30 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 60",
        ),
        (
            Style::Sharkey,
            "429 | retry-after: 30 | x-ratelimit-clear: 60.000 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30.000",
        ),
    ];
    for (style, expected) in table {
        let nested = Nested::new(limiter(), style.clone());
        assert_eq!(nested.lines(3), expected, "{style:?}");
    }
}

#[test]
fn of_two_allowed_the_stricter_number_stays() {
    let x = || Style::XRateLimit(Reset::Delta);
    let (few, many) = (|| Limit::new(3, 1, SECOND).unwrap(), || Limit::new(9, 1, SECOND).unwrap());
    let line = "200 | x-ratelimit-limit: 3 | x-ratelimit-remaining: 2 | x-ratelimit-reset: 1";
    assert_eq!(Nested::new(limiter_of(many(), few()), x()).lines(1), line, "the inner one");
    assert_eq!(Nested::new(limiter_of(few(), many()), x()).lines(1), line, "the outer one");
    let draft03 = |global, login| Nested::new(limiter_of(global, login), Style::Draft03).lines(1);
    assert_eq!(
        draft03(few(), many()),
        "200 | ratelimit-limit: 3, 9;w=9, 3;w=3 | ratelimit-remaining: 2 | ratelimit-reset: 1"
    );
    assert_eq!(
        draft03(many(), few()),
        "200 | ratelimit-limit: 3, 3;w=3, 9;w=9 | ratelimit-remaining: 2 | ratelimit-reset: 1"
    );
    // A token bucket denies with quota left. The outer limit allows and has fewer units left.
    let login = Limit::token_bucket(2, 12, 30 * SECOND).unwrap();
    let nested = Nested::new(limiter_of(Limit::new(9, 1, SECOND).unwrap(), login), x());
    let line = "429 | retry-after: 3 | x-ratelimit-limit: 12 | x-ratelimit-remaining: 10 | x-ratelimit-reset: 3";
    assert_eq!(nested.lines(3), line);
}

#[test]
fn stricter_set_of_sharkey_fields_stands_whole() {
    let limit = |burst| Limit::new(burst, 1, 3600 * SECOND).unwrap();
    let limiter = limiter_of(limit(3), limit(10));
    let outer = layer(&limiter, "Global", Style::Sharkey, |rule| rule).build().unwrap();
    let inner = layer(&limiter, "Login", Style::Sharkey, |rule| rule.cost(|_| 6));
    let inner = inner.permissive(true).build().unwrap();
    let nested = Nested { limiter, outer, inner };
    // The permissive inner layer has 4 of the 6 units for a second call, and writes the time at which it would allow it.
    // The outer layer has 1 of 3 left, and allows.
    let line = "200 | x-ratelimit-clear: 7200.000 | x-ratelimit-remaining: 1";
    assert_eq!(nested.lines(2), line);
}

/// An outer layer recognizes a denial with another status than 429 by the extension.
#[test]
fn a_denial_with_another_status_also_stays() {
    let login = || Limit::token_bucket(2, 12, 30 * SECOND).unwrap();
    let x = || Style::XRateLimit(Reset::Delta);
    let own: fn(RateLimitBuilder) -> RateLimitBuilder =
        |builder| builder.respond(|_| Response::builder().status(403).body("no").unwrap());
    let grpc: fn(RateLimitBuilder) -> RateLimitBuilder = |builder| builder.grpc();
    for (options, status) in [(own, 403), (grpc, 200)] {
        let limiter = limiter_of(Limit::new(9, 1, SECOND).unwrap(), login());
        let outer = layer(&limiter, "Global", x(), |rule| rule).build().unwrap();
        let inner_layer = options(layer(&limiter, "Login", x(), |rule| rule)).build().unwrap();
        let service = || outer.layer(inner_layer.layer(tower::service_fn(inner)));
        for call in 1..=3 {
            let mut request = request(None);
            *request.method_mut() = http::Method::POST;
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            let response = block_on(service().oneshot(request)).unwrap();
            if call == 3 {
                assert_eq!(response.status().as_u16(), status);
                assert_eq!(response.headers()["x-ratelimit-limit"], "12", "{status}");
                assert_eq!(response.headers()["x-ratelimit-remaining"], "10", "{status}");
            }
        }
    }
}

#[test]
fn three_layers_two_styles_name_limits_once() {
    let nested =
        Nested::with(limiter(), [Style::Ietf, Style::XRateLimit(Reset::Delta)], |rule| rule);
    let line = r#"200 | ratelimit-policy: "Global";q=20;w=20 | ratelimit: "Global";r=19;t=1 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 1 | x-ratelimit-reset: 30"#;
    assert_eq!(nested.lines(1), line);

    let limiter = limiter();
    let one = |name| layer(&limiter, name, Style::Ietf, |rule| rule);
    let inner_layer = one("Login").build().unwrap();
    let middle = one("Global").build().unwrap();
    let shown = |rule: Rule| rule.shown_as("All");
    let outer = layer(&limiter, "Global", Style::Ietf, shown).build().unwrap();
    let service = outer.layer(middle.layer(inner_layer.layer(tower::service_fn(inner))));
    let response = block_on(service.oneshot(request(None))).unwrap();
    let fields: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(fields, [r#""Login";r=1;t=30, "Global";r=18;t=1, "All";r=19;t=1"#]);
}

#[test]
fn service_fields_are_kept_if_stricter() {
    let limiter = limiter();
    let says = |fields: &'static [(&'static str, &'static str)], status: u16, style: Style| {
        let service = tower::service_fn(move |_: TestRequest| async move {
            let mut response = Response::builder().status(status);
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
        });
        let layer = layer(&limiter, "Global", style, |rule| rule).build().unwrap();
        let headers = block_on(layer.layer(service).oneshot(request(None))).unwrap();
        let _ = limiter.limit("Global").unwrap().reset("all").unwrap();
        move |name: &'static str| -> String {
            let all = headers.headers().get_all(name).iter();
            all.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(" + ")
        }
    };
    // An upstream server may have limits and write their fields in two lines.
    let upstream = &[("ratelimit", r#""up";r=1"#), ("ratelimit", r#""there";r=2;t=9"#)];
    let said = says(upstream, 200, Style::Ietf);
    assert_eq!(said("ratelimit"), r#""up";r=1, "there";r=2;t=9, "Global";r=19;t=1"#);
    let x = || Style::XRateLimit(Reset::Delta);
    let said = says(&[("x-ratelimit-remaining", "5"), ("x-ratelimit-limit", "6")], 200, x());
    assert_eq!((said("x-ratelimit-limit"), said("x-ratelimit-reset")), ("6".into(), "".into()));
    let said = says(&[("x-ratelimit-remaining", "50"), ("x-ratelimit-limit", "60")], 200, x());
    assert_eq!((said("x-ratelimit-limit"), said("x-ratelimit-reset")), ("20".into(), "1".into()));
    let said = says(&[("x-ratelimit-remaining", "50"), ("x-ratelimit-limit", "60")], 429, x());
    assert_eq!(said("x-ratelimit-limit"), "60", "which denied");
    let said = says(&[("x-ratelimit-remaining", "many")], 429, x());
    assert_eq!(said("x-ratelimit-remaining"), "19", "a text that is no number is replaced");
}

#[test]
fn inner_denial_refunds_the_outer_charge() {
    let refunds = |rule: Rule| rule.refund_if_denied_within();
    for style in [Style::Ietf, Style::Sharkey] {
        let nested = Nested::with(limiter(), [style.clone(), style], refunds);
        for _ in 0..2 {
            assert_eq!(nested.ask(None).0, StatusCode::OK);
        }
        for _ in 0..50 {
            let (status, headers) = nested.ask(None);
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
            if let Some(said) = headers.get("ratelimit") {
                assert_eq!(said, r#""Login";r=0;t=30, "Global";r=18"#, "after the refund");
            }
        }
        assert_eq!(nested.remaining("Global"), 18, "two were served");
    }
    // Without the option each denied call charges the outer limit, until the outer layer denies.
    let nested = Nested::new(limiter(), Style::Ietf);
    for _ in 0..20 {
        let _ = nested.ask(None);
    }
    assert_eq!(nested.remaining("Global"), 0);
    let (status, headers) = nested.ask(None);
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["ratelimit"], r#""Global";r=0;t=1"#, "the inner one was not asked");
}

#[test]
fn only_denial_by_an_inner_layer_refunds() {
    let refunds = |rule: Rule| rule.refund_if_denied_within();
    let nested = Nested::with(limiter(), [Style::Ietf, Style::Ietf], refunds);
    // The service's own 429 and its errors are not denials of a layer.
    assert_eq!(nested.ask(Some("429")).0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(nested.ask(Some("500")).0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!((nested.remaining("Global"), nested.remaining("Login")), (18, 0));

    // A response that never comes refunds nothing: the service panics, or the client leaves.
    let nested = Nested::with(limiter(), [Style::Ietf, Style::Ietf], refunds);
    let service = || nested.outer.layer(nested.inner.layer(tower::service_fn(inner)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(service().oneshot(request(Some("panic"))))
    }));
    assert!(panicked.is_err());
    assert_eq!(nested.remaining("Global"), 19);
    let mut left = Box::pin(service().oneshot(request(Some("hang"))));
    assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(left);
    assert_eq!(nested.remaining("Global"), 18);
    // The layer decides a denial in `call`. A future that is dropped before it is polled refunds nothing; a response that
    // has come does, also if its body is not read.
    let mut inner_service = service();
    drop(inner_service.call(request(None)));
    assert_eq!(nested.remaining("Global"), 17);
    let response = pin!(inner_service.call(request(None)))
        .poll(&mut Context::from_waker(Waker::noop()))
        .map(Result::unwrap);
    let std::task::Poll::Ready(response) = response else { panic!("a denial is ready at once") };
    assert!(response.extensions().get::<Denied>().is_some());
    drop(response);
    assert_eq!(nested.remaining("Global"), 17);
}

#[test]
fn layer_dropping_extensions_leaves_charge_and_fields() {
    let limiter = limiter();
    let refunds = |rule: Rule| rule.refund_if_denied_within();
    let outer =
        layer(&limiter, "Global", Style::XRateLimit(Reset::Delta), refunds).build().unwrap();
    let inner_layer =
        layer(&limiter, "Login", Style::XRateLimit(Reset::Delta), |rule| rule).build().unwrap();
    let between = tower::util::MapResponseLayer::new(|response: Response<_>| {
        let (parts, body) = response.into_parts();
        let mut made = Response::builder().status(parts.status).body(body).unwrap();
        *made.headers_mut() = parts.headers;
        made
    });
    let mut last = None;
    for _ in 0..3 {
        let service = outer.layer(between.layer(inner_layer.layer(tower::service_fn(inner))));
        last = Some(block_on(service.oneshot(request(None))).unwrap());
    }
    let last = last.unwrap();
    assert_eq!(last.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(last.headers()["x-ratelimit-limit"], "2", "a 429 counts as a denial");
    let global = limiter.limit("Global").unwrap();
    assert_eq!(global.check("all", 0).unwrap().remaining(), Some(17));
}

#[test]
fn two_rules_of_which_one_refunds() {
    let limiter = limiter();
    let user = |name: &str, id: &'static str| {
        let rule = Rule::new(limiter.limit(name).unwrap(), extract::everyone(id));
        rule.when(|parts| parts.headers.contains_key(HeaderName::from_static("host")))
    };
    let outer = RateLimitLayer::builder(&limiter)
        .rule(user("Global", "kept"))
        .rule(user("Global", "back").refund_if_denied_within())
        .build()
        .unwrap();
    let inner_layer = layer(&limiter, "Login", Style::Ietf, |rule| rule).build().unwrap();
    for _ in 0..5 {
        let mut request = request(None);
        request.headers_mut().insert("host", "a".parse().unwrap());
        let service = outer.layer(inner_layer.layer(tower::service_fn(inner)));
        let _ = block_on(service.oneshot(request)).unwrap();
    }
    let left = |id| limiter.limit("Global").unwrap().check(id, 0).unwrap().remaining();
    assert_eq!((left("kept"), left("back")), (Some(15), Some(18)));
}

#[test]
fn of_two_empty_layers_the_longer_wait_stays() {
    let one = |seconds| Limit::new(1, 1, seconds * SECOND).unwrap();
    let table: [(Style, &str); 6] = [
        (Style::Draft06, "ratelimit-reset: 60"),
        (Style::Draft03, "ratelimit-reset: 60"),
        (Style::XRateLimit(Reset::Delta), "x-ratelimit-reset: 60"),
        (Style::XRateLimit(Reset::Epoch), "x-ratelimit-reset: "),
        (Style::PlugLimit(PlugLimitNames::default()), "x-ratelimit-reset: 60"),
        (Style::Sharkey, "x-ratelimit-clear: 60.000"),
    ];
    for (style, expected) in table {
        for (global, login) in [(60, 2), (2, 60)] {
            let limiter = limiter_of(one(global), one(login));
            let line = Nested::new(limiter, style.clone()).lines(1);
            assert!(line.starts_with("200 | ") && line.contains(expected), "{style:?} {line}");
            assert!(line.contains("remaining: 0"), "{line}");
            if let Some((_, reset)) = line.split_once("x-ratelimit-reset: 1") {
                let reset: u64 = format!("1{reset}").parse().unwrap();
                let now = std::time::SystemTime::now();
                let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
                assert!(reset > now + 30, "{line}");
            }
        }
    }
}

/// The outer limit has no unit left for the retry, so the client has to wait for both.
#[test]
fn a_denial_tells_an_empty_outer_layers_wait() {
    let table = [
        (
            Style::Ietf,
            r#"429 | ratelimit-policy: "Login";q=1;w=2, "Global";q=2;w=120 | ratelimit: "Login";r=0;t=2, "Global";r=0;t=60 | retry-after: 60"#,
        ),
        (
            Style::Draft06,
            "429 | ratelimit-limit: 2 | ratelimit-policy: 1;w=2, 2;w=120 | ratelimit-remaining: 0 | ratelimit-reset: 60 | retry-after: 60",
        ),
        (
            Style::Draft03,
            "429 | ratelimit-limit: 2, 1;w=2, 2;w=120 | ratelimit-remaining: 0 | ratelimit-reset: 60 | retry-after: 60",
        ),
        (
            Style::XRateLimit(Reset::Delta),
            "429 | retry-after: 60 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 60",
        ),
        (
            Style::PlugLimit(PlugLimitNames::default()),
            "429 | retry-after: 60 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 120",
        ),
        (
            Style::Sharkey,
            "429 | retry-after: 60 | x-ratelimit-clear: 120.000 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 60.000",
        ),
    ];
    let limiter = || {
        let global = Limit::new(2, 2, 120 * SECOND).unwrap();
        limiter_of(global, Limit::new(1, 1, 2 * SECOND).unwrap())
    };
    for (style, expected) in table {
        let nested = Nested::new(limiter(), style.clone());
        assert_eq!(nested.lines(2), expected, "{style:?}");
    }
    // A third layer leaves the longest wait, also with other names of fields, and gRPC's wait is the same.
    let one = |limiter: &Limiter, name, style| layer(limiter, name, style, |rule| rule);
    for (outer_seconds, wait) in [(30, "60"), (90, "90")] {
        let limits = [("Outer", outer_seconds), ("Middle", 60), ("Inner", 2)];
        let mut builder = Limits::builder();
        for (name, seconds) in limits {
            let burst = if name == "Inner" { 1 } else { 2 };
            let limit = Limit::new(burst, 1, seconds * SECOND).unwrap();
            builder = builder.limit(name, IdFormat::String, limit).unwrap();
        }
        let limiter = Limiter::with_options(builder.build(), Clock::manual().0).unwrap();
        let x = Style::XRateLimit(Reset::Delta);
        let outer = one(&limiter, "Outer", x).build().unwrap();
        let middle = one(&limiter, "Middle", Style::Ietf).build().unwrap();
        let innermost = one(&limiter, "Inner", Style::Ietf).grpc().build().unwrap();
        let service = || outer.layer(middle.layer(innermost.layer(tower::service_fn(inner))));
        let ask = || {
            let mut request = request(None);
            *request.method_mut() = http::Method::POST;
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            block_on(service().oneshot(request)).unwrap()
        };
        assert_eq!(ask().status(), StatusCode::OK);
        let denied = ask();
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert_eq!(denied.headers()["retry-after"], wait);
        assert_eq!(denied.headers()["x-ratelimit-reset"], wait);
        assert_eq!(denied.headers()["grpc-retry-pushback-ms"], format!("{wait}000").as_str());
        assert_eq!(denied.headers()["ratelimit"], r#""Inner";r=0;t=2, "Middle";r=0;t=60"#);
    }
}

/// An outer layer that only reports, or whose charge comes back, makes no wait longer.
#[test]
fn inner_denial_keeps_its_wait_beside_units() {
    let limiter = || {
        let global = Limit::new(2, 2, 120 * SECOND).unwrap();
        limiter_of(global, Limit::new(1, 1, 2 * SECOND).unwrap())
    };
    let nested =
        Nested::with(limiter(), [Style::Ietf, Style::Ietf], |rule| rule.refund_if_denied_within());
    let line = nested.lines(2);
    assert!(line.ends_with(r#""Login";r=0;t=2, "Global";r=1 | retry-after: 2"#), "{line}");
    let limiter = limiter();
    let outer = layer(&limiter, "Global", Style::Ietf, |rule| rule).permissive(true);
    let outer = outer.build().unwrap();
    let inner = layer(&limiter, "Login", Style::Ietf, |rule| rule).build().unwrap();
    let line = Nested { limiter, outer, inner }.lines(2);
    assert!(line.ends_with(r#""Login";r=0;t=2, "Global";r=0 | retry-after: 2"#), "{line}");
}
