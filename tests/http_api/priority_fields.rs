//! The fields of rules whose requests have a priority: units of the floor are not the client's.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Empty;
use tollgate::clock::ManualClock;
use tollgate::http::{Fields, PlugLimitNames, RateLimitLayer, Reset, Rule, Style, extract};
use tollgate::limits::{Floor, LimitOptions};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

fn limits(limit: Limit, floor: Floor) -> Limits {
    let options = LimitOptions::default().floor("batch", floor);
    Limits::builder().limit_with("Calls", IdFormat::String, limit, options).unwrap().build()
}

/// A limiter on a clock that stands still.
fn limiter(limit: Limit, floor: Floor) -> (Limiter, ManualClock) {
    let (clock, manual) = Clock::manual();
    (Limiter::with_options(limits(limit, floor), clock).unwrap(), manual)
}

/// A gcra limit of 8 units, one a second, of which 7 are not for the batch.
fn gcra() -> (Limiter, ManualClock) {
    limiter(Limit::new(8, 1, SECOND).unwrap(), Floor::Units(7))
}

fn rule(limiter: &Limiter) -> Rule {
    Rule::new(limiter.limit("Calls").unwrap(), extract::everyone("all"))
}

fn layer(limiter: &Limiter, rule: Rule, style: Style) -> RateLimitLayer {
    let fields = Fields::new([style]).unwrap();
    RateLimitLayer::builder(limiter).rule(rule).fields(fields).build().unwrap()
}

async fn send(layer: &RateLimitLayer) -> (StatusCode, HeaderMap) {
    let handler = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
    (response.status(), response.headers().clone())
}

/// The fields of these names, of an allowed request and of a denied one.
async fn fields_of_both(style: Style, names: &[&str]) -> [Vec<String>; 2] {
    let (limiter, _manual) = gcra();
    let layer = layer(&limiter, rule(&limiter).priority("batch"), style);
    let mut both = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].map(|status| (status, vec![]));
    for (status, fields) in &mut both {
        let (given, headers) = send(&layer).await;
        assert_eq!(given, *status);
        let text =
            |name: &&str| headers.get(*name).map_or("", |it| it.to_str().unwrap()).to_owned();
        fields.extend(names.iter().map(text));
    }
    both.map(|(_, fields)| fields)
}

/// The service denies a request that the limit has let in. Seven units remain, and none of them is the client's.
#[tokio::test]
async fn denials_of_the_service_tell_a_wait() {
    let (limiter, _manual) = gcra();
    let layer = layer(&limiter, rule(&limiter).priority("batch"), Style::Ietf);
    let handler = service_fn(|_: Request<()>| async {
        let denial = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
        Ok::<_, Infallible>(denial.body(Empty::<Bytes>::new()).unwrap())
    });
    let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], r#""Calls";r=0;t=1"#);
}

#[tokio::test]
async fn fields_leave_out_the_units_of_the_floor() {
    let list = ["ratelimit-policy", "ratelimit"];
    let ietf = [r#""Calls";q=1;w=1"#, r#""Calls";r=0;t=1"#];
    assert_eq!(fields_of_both(Style::Ietf, &list).await, [ietf, ietf]);

    let x = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let style = Style::XRateLimit(Reset::Delta);
    assert_eq!(fields_of_both(style, &x).await, [["1", "0", "1"]; 2]);

    let sharkey = ["x-ratelimit-remaining", "x-ratelimit-clear", "x-ratelimit-reset"];
    let expected = [["0", "1.000", ""], ["0", "1.000", "1.000"]];
    assert_eq!(fields_of_both(Style::Sharkey, &sharkey).await, expected);

    let draft = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    assert_eq!(fields_of_both(Style::Draft06, &draft).await, [["1", "0", "1"]; 2]);
    assert_eq!(fields_of_both(Style::Draft03, &draft).await, [["1, 1;w=1", "0", "1"]; 2]);

    let plug = ["x-limit", "x-remaining"];
    let names = PlugLimitNames::from_names(["X-Limit", "X-Reset", "X-Remaining"]).unwrap();
    assert_eq!(fields_of_both(Style::PlugLimit(names), &plug).await, [["1", "0"]; 2]);
}

/// A client that waits as long as `t` says while `r` is 0 is never denied, and gets each unit.
#[tokio::test]
async fn a_client_that_obeys_t_is_admitted() {
    let (limiter, manual) = gcra();
    let layer = layer(&limiter, rule(&limiter).priority("batch"), Style::Ietf);
    for _ in 0..20 {
        let (status, headers) = send(&layer).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["ratelimit"], r#""Calls";r=0;t=1"#);
        manual.advance(SECOND);
    }
}

/// Each algorithm's quota, and the time in which that comes back.
#[tokio::test]
async fn quotas_leave_out_floors_of_each_algorithm() {
    let ms = Duration::from_millis;
    for (limit, floor, expected) in [
        (Limit::new(20, 10, SECOND), Floor::Percent(50), "q=10;w=1"),
        (Limit::new(20, 1, SECOND), Floor::Units(15), "q=5;w=5"),
        (Limit::fixed_window(20, SECOND * 60), Floor::Units(15), "q=5;w=60"),
        (Limit::token_bucket(10, 20, SECOND * 60), Floor::Units(4), "q=16;w=60"),
        (Limit::leaky_bucket(10, 2, ms(1_000)), Floor::Units(4), "q=6;w=3"),
        (Limit::new(20, 10, SECOND), Floor::Units(0), "q=20;w=2"),
    ] {
        let (limiter, _manual) = limiter(limit.unwrap(), floor);
        let layer = layer(&limiter, rule(&limiter).priority("batch"), Style::Ietf);
        let (_, headers) = send(&layer).await;
        assert_eq!(headers["ratelimit-policy"], format!("\"Calls\";{expected}"));
    }
}

#[tokio::test]
async fn decisions_and_other_rules_count_all_units() {
    let (limiter, _manual) = gcra();
    let plain = layer(&limiter, rule(&limiter), Style::Ietf);
    let (_, headers) = send(&plain).await;
    assert_eq!(headers["ratelimit"], r#""Calls";r=7;t=1"#);
    assert_eq!(headers["ratelimit-policy"], r#""Calls";q=8;w=8"#);
    let calls = limiter.limit("Calls").unwrap();
    let denied = calls.priority("batch").unwrap().spend("all", 1).unwrap();
    assert_eq!((denied.allowed(), denied.remaining()), (false, Some(7)));
}

/// A reload that changes the floor alone, and an id whose limit is smaller than the floor.
#[tokio::test]
async fn fields_have_the_floor_in_force() {
    let limit = Limit::new(8, 1, SECOND).unwrap();
    let (limiter, _manual) = limiter(limit.clone(), Floor::Units(7));
    let free = rule(&limiter).priority("batch").cost(|_| 0);
    let layer = layer(&limiter, free, Style::Ietf);
    let shown = |headers: &HeaderMap| {
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        (text("ratelimit-policy"), text("ratelimit"))
    };
    for (floor, policy, left) in
        [(7, "q=1;w=1", "r=1"), (3, "q=5;w=5", "r=5"), (8, "q=0;w=1", "r=0")]
    {
        limiter.reload(limits(limit.clone(), Floor::Units(floor))).unwrap();
        let (status, headers) = send(&layer).await;
        let (policies, items) = shown(&headers);
        assert_eq!((status, policies), (StatusCode::OK, format!("\"Calls\";{policy}")));
        assert!(items.starts_with(&format!("\"Calls\";{left};t=")), "{items}");
    }
}

/// The limit with the fewest units for the client is the one in the fields with one number.
#[tokio::test]
async fn single_numbers_are_of_the_strictest_limit() {
    let options = LimitOptions::default().floor("batch", Floor::Units(7));
    let calls = Limit::new(10, 1, SECOND).unwrap();
    let limits = Limits::builder().limit_with("Calls", IdFormat::String, calls, options).unwrap();
    let other = Limit::new(6, 1, SECOND).unwrap();
    let limits = limits.limit("Other", IdFormat::String, other).unwrap().build();
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let other = Rule::new(limiter.limit("Other").unwrap(), extract::everyone("all"));
    let fields = Fields::new([Style::Ietf, Style::XRateLimit(Reset::Delta)]).unwrap();
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule(&limiter).priority("batch"))
        .rule(other)
        .fields(fields)
        .build()
        .unwrap();
    for (left, others) in [(2, 5), (1, 4)] {
        let (_, headers) = send(&layer).await;
        assert_eq!(headers["ratelimit-policy"], r#""Calls";q=3;w=3, "Other";q=6;w=6"#);
        let items = format!("\"Calls\";r={left};t=1, \"Other\";r={others};t=1");
        assert_eq!(headers["ratelimit"], items);
        assert_eq!(headers["x-ratelimit-remaining"], left.to_string());
        assert_eq!(headers["x-ratelimit-limit"], "3");
    }
}
