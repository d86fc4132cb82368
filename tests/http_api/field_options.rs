//! Options of the fields: the unit of a limit, jitter of waits, and the responses that have fields.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use tollgate::http::{
    Denied, Fields, Jitter, QuotaUnit, RateLimitBuilder, RateLimitLayer, Reset, Rule, Style,
    extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// Makes `Calls` with 10 units in 60 s, and `Bytes` with 1,000 in 100 s.
fn limiter() -> Limiter {
    let limits = Limits::builder()
        .limit("Calls", IdFormat::String, Limit::new(10, 10, 60 * SECOND).unwrap())
        .unwrap()
        .limit("Bytes", IdFormat::String, Limit::new(1000, 1000, 100 * SECOND).unwrap())
        .unwrap();
    Limiter::with_options(limits.build(), Clock::manual().0).unwrap()
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"))
}

/// Sends a request. Returns the status, the fields, the text of the answer, and the wait of a denial.
fn ask(layer: &RateLimitLayer, grpc: bool) -> (u16, HeaderMap, String, Option<Duration>) {
    let mut request = Request::new(String::new());
    if grpc {
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    }
    let inner = tower::service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(layer.layer(inner).oneshot(request)).unwrap();
    let (parts, body) = response.into_parts();
    let body = runtime.block_on(body.collect()).unwrap().to_bytes();
    let wait = parts.extensions.get::<Denied>().map(|denied| denied.decision().retry_in());
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_vec()).unwrap(), wait)
}

fn build(builder: RateLimitBuilder) -> RateLimitLayer {
    builder.build().unwrap()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn a_cost_in_bytes_is_announced_as_bytes() {
    let limiter = limiter();
    let bytes = || rule(&limiter, "Bytes").cost(|_| 500).unit(QuotaUnit::ContentBytes);
    let both = || RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls")).rule(bytes());
    let list = r#""Calls";q=10;w=60, "Bytes";q=1000;qu="content-bytes";w=100"#;
    let ietf = build(both());
    let (_, headers, ..) = ask(&ietf, false);
    assert_eq!(text(&headers, "ratelimit-policy"), list);
    assert_eq!(text(&headers, "ratelimit"), r#""Calls";r=9;t=6, "Bytes";r=500;t=1"#);
    let one = build(
        RateLimitLayer::builder(&limiter)
            .rule(bytes().shown_as("Upload").partition(|_| Some(b"a".to_vec()))),
    );
    let policy = r#""Upload";q=1000;qu="content-bytes";w=100;pk=:YQ==:"#;
    assert_eq!(text(&ask(&one, false).1, "ratelimit-policy"), policy);
    // The other styles have no unit.
    let draft06 = build(both().fields(Fields::new([Style::Draft06]).unwrap()));
    assert_eq!(text(&ask(&draft06, false).1, "ratelimit-policy"), "10;w=60, 1000;w=100");
}

#[test]
fn jitter_is_bounded_and_in_all_fields() {
    let styles = || Fields::new([Style::Ietf, Style::XRateLimit(Reset::Delta)]).unwrap();
    let jittered = |max, seed: u64| {
        let limiter = limiter();
        let rules = RateLimitLayer::builder(&limiter)
            .rule(rule(&limiter, "Calls").cost(|_| 10))
            .rule(rule(&limiter, "Bytes"));
        let layer =
            build(rules.fields(styles()).grpc().retry_jitter(Jitter::up_to(max).seed(seed)));
        let (status, headers, ..) = ask(&layer, false);
        assert_eq!((status, headers.contains_key("retry-after")), (200, false));
        let waits: Vec<Duration> = (0..200)
            .map(|nth| {
                let grpc = nth % 2 == 1;
                let (_, headers, body, wait) = ask(&layer, grpc);
                let wait = wait.unwrap();
                assert!((60 * SECOND..=60 * SECOND + max).contains(&wait), "{wait:?}");
                let seconds = text(&headers, "retry-after");
                assert_eq!(seconds, wait.as_nanos().div_ceil(1_000_000_000).to_string());
                let item = format!("\"Calls\";r=0;t={seconds}, \"Bytes\";r=999");
                assert_eq!(text(&headers, "ratelimit"), item);
                assert_eq!(text(&headers, "x-ratelimit-reset"), seconds);
                if grpc {
                    let ms = wait.as_nanos().div_ceil(1_000_000).to_string();
                    assert_eq!(text(&headers, "grpc-retry-pushback-ms"), ms);
                } else {
                    assert!(body.contains(&format!("try again in {seconds} s")), "{body}");
                }
                wait
            })
            .collect();
        waits
    };
    let waits = jittered(30 * SECOND, 7);
    assert_eq!(waits, jittered(30 * SECOND, 7), "the seed repeats them");
    assert_ne!(waits, jittered(30 * SECOND, 8));
    let of_tenth =
        |nth| waits.iter().filter(|wait| (**wait - 60 * SECOND).as_secs() / 3 == nth).count();
    assert!((0..10).all(|nth| of_tenth(nth) > 5), "{waits:?}");
    // A limit of the denied request that allows it has no wait.
    let limiter = limiter();
    let rules = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls").cost(|_| 10));
    let layer =
        rules.rule(rule(&limiter, "Bytes")).retry_jitter(Jitter::up_to(30 * SECOND).seed(7));
    let layer = layer.on_response(|_| {
        |outcome, _| {
            for (name, decision) in outcome.limits() {
                assert!(name == "Calls" || decision.retry_in().is_zero(), "{name}: {decision:?}");
            }
        }
    });
    let layer = build(layer);
    assert_eq!([ask(&layer, false).0, ask(&layer, false).0], [200, 429]);
    let unseeded = || {
        let limiter = self::limiter();
        let rules = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls").cost(|_| 10));
        let layer = build(rules.retry_jitter(Jitter::up_to(30 * SECOND)));
        [ask(&layer, false).3, ask(&layer, false).3]
    };
    assert_ne!(unseeded(), unseeded(), "two servers");
    assert!(jittered(Duration::ZERO, 7).iter().all(|wait| *wait == 60 * SECOND));
}

#[test]
fn fields_are_left_out_while_enough_is_left() {
    let of = |fields: fn(Fields) -> Fields| {
        let limiter = limiter();
        let rules = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls"));
        let rules = rules.rule(rule(&limiter, "Bytes").cost(|_| 10));
        let layer = build(rules.fields(fields(Fields::new([Style::Ietf]).unwrap())));
        let shown = |_| {
            let (status, headers, ..) = ask(&layer, false);
            assert_eq!(headers.contains_key("ratelimit"), headers.contains_key("ratelimit-policy"));
            assert_eq!(status == 429, headers.contains_key("retry-after"));
            headers.contains_key("ratelimit")
        };
        (0..11).map(shown).filter(|is_shown| *is_shown).count()
    };
    assert_eq!(of(|fields| fields), 11);
    assert_eq!(of(Fields::only_on_denials), 1);
    assert_eq!(of(|fields| fields.only_near_limit(30).unwrap()), 4, "2, 1, 0 and the denial");
    assert_eq!(
        of(|fields| fields.only_near_limit(1).unwrap()),
        2,
        "nothing is left, and the denial"
    );
    // The same call would be denied, whatever is left.
    let half = limiter();
    let near = Fields::new([Style::Ietf]).unwrap().only_near_limit(10).unwrap();
    let dear = rule(&half, "Bytes").cost(|_| 400);
    let layer = build(RateLimitLayer::builder(&half).rule(dear).fields(near));
    let shown = || ask(&layer, false).1.contains_key("ratelimit");
    assert_eq!([shown(), shown()], [false, true]);
    for percent in [0, 100] {
        let error = Fields::none().only_near_limit(percent).unwrap_err().to_string();
        assert_eq!(error, format!("fields below {percent} percent: from 1 to 99 is allowed"));
    }
    // Rules with one style have it in the same responses.
    let limiter = limiter();
    let some = Fields::new([Style::Ietf]).unwrap().only_on_denials();
    let rules = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls"));
    let error = rules.rule(rule(&limiter, "Bytes").fields(some.clone())).build().unwrap_err();
    let text = "the rules Calls and Bytes write the field ratelimit-policy in different responses: show this style in the \
                same responses for both";
    assert_eq!(error.to_string(), text);
    let x = Fields::new([Style::XRateLimit(Reset::Delta)]).unwrap();
    let rules = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Calls").fields(x));
    let layer = build(rules.rule(rule(&limiter, "Bytes").fields(some).cost(|_| 600)));
    let shown = || {
        let headers = ask(&layer, false).1;
        (headers.contains_key("x-ratelimit-reset"), headers.contains_key("ratelimit"))
    };
    assert_eq!([shown(), shown()], [(true, false), (true, true)]);
}
