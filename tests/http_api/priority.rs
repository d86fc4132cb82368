//! Rules whose requests have a priority.
#![cfg(feature = "tower")]

use std::convert::Infallible;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tollgate::http::{RateLimitLayer, Rule, WaitOptions, extract};
use tollgate::limits::{Floor, LimitOptions};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

/// A limit of 10 requests, of which 40 % are not for the batch.
fn calls() -> KeyedLimit {
    let limit = Limit::new(10, 10, std::time::Duration::from_secs(3600)).unwrap();
    let options = LimitOptions::default().floor("batch", Floor::Percent(40));
    let limits = Limits::builder().limit_with("Calls", IdFormat::String, limit, options).unwrap();
    let limits = limits.limit("Streams", IdFormat::String, Limit::concurrency(2).unwrap());
    let clock = Clock::manual().0;
    Limiter::with_options(limits.unwrap().build(), clock).unwrap().limit("Calls").unwrap()
}

fn is_batch(request: &Parts) -> bool {
    request.headers.contains_key("x-batch")
}

fn rule(calls: &KeyedLimit) -> Rule {
    Rule::new(calls.clone(), extract::everyone("all"))
}

/// The status of a request, and the units that the layer shows.
async fn send(layer: &RateLimitLayer, batch: bool) -> (StatusCode, String) {
    let handler = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let mut request = Request::new(());
    if batch {
        request.headers_mut().insert("x-batch", "1".parse().unwrap());
    }
    let response = layer.layer(handler).oneshot(request).await.unwrap();
    let shown = response.headers().get("ratelimit").map_or("r=;", |it| it.to_str().unwrap());
    let left = shown.split("r=").nth(1).unwrap().split(';').next().unwrap();
    (response.status(), left.to_owned())
}

#[tokio::test]
async fn a_rule_gives_its_requests_a_priority() {
    let calls = calls();
    let layer = RateLimitLayer::builder(calls.limiter())
        .rule(rule(&calls).when(|request| !is_batch(request)))
        .rule(rule(&calls).when(is_batch).priority("batch"))
        .build()
        .unwrap();
    // The 4 units of the floor are not the batch's.
    for left in (0..6).rev() {
        assert_eq!(send(&layer, true).await, (StatusCode::OK, left.to_string()));
    }
    assert_eq!(send(&layer, true).await, (StatusCode::TOO_MANY_REQUESTS, "0".into()));
    for left in (0..4).rev() {
        assert_eq!(send(&layer, false).await, (StatusCode::OK, left.to_string()));
    }
    assert_eq!(send(&layer, false).await.0, StatusCode::TOO_MANY_REQUESTS);
}

/// Alone, and beside a rule of the same bucket for all requests.
#[tokio::test]
async fn the_priority_outlasts_a_rule_without_one() {
    for (before, after) in [(false, false), (true, false), (false, true)] {
        let calls = calls();
        let mut builder = RateLimitLayer::builder(calls.limiter());
        if before {
            builder = builder.rule(rule(&calls));
        }
        builder = builder.rule(rule(&calls).when(is_batch).priority("batch"));
        if after {
            builder = builder.rule(rule(&calls));
        }
        let layer = builder.build().unwrap();
        for _ in 0..6 {
            assert_eq!(send(&layer, true).await.0, StatusCode::OK);
        }
        assert_eq!(send(&layer, true).await, (StatusCode::TOO_MANY_REQUESTS, "0".into()));
    }
}

#[tokio::test]
async fn estimates_costs_and_refunds_have_priorities() {
    let calls = calls();
    let all = rule(&calls).cost(|_| 3).priority("batch").refund_if(|status| status.is_success());
    let layer = RateLimitLayer::builder(calls.limiter()).rule(all).build().unwrap();
    for _ in 0..3 {
        assert_eq!(send(&layer, true).await, (StatusCode::OK, "6".into()));
    }
    let estimated = rule(&calls).estimate(|_| 3).priority("batch");
    let layer = RateLimitLayer::builder(calls.limiter()).rule(estimated).build().unwrap();
    assert_eq!(send(&layer, true).await, (StatusCode::OK, "3".into()));
    assert_eq!(send(&layer, true).await, (StatusCode::OK, "0".into()));
    assert_eq!(send(&layer, true).await.0, StatusCode::TOO_MANY_REQUESTS);
    let soft = rule(&calls).priority("batch").soft();
    let layer = RateLimitLayer::builder(calls.limiter()).rule(soft).build().unwrap();
    assert_eq!(send(&layer, true).await.0, StatusCode::OK);
    assert_eq!(calls.check("all", 0).unwrap().remaining(), Some(4));
}

#[test]
fn build_refuses_an_unknown_priority() {
    let calls = calls();
    let of = |rule: Rule| RateLimitLayer::builder(calls.limiter()).rule(rule).build().unwrap_err();
    assert_eq!(
        of(rule(&calls).priority("bath")).to_string(),
        "Calls has no floor \"bath\"; did you mean batch?; its floors: {batch: 40%}"
    );
    let streams = calls.limiter().concurrency("Streams").unwrap();
    let streams = Rule::in_flight(streams, extract::everyone("all")).priority("batch");
    assert!(of(streams).to_string().contains("Streams has no floor"));
}

/// A denial of a layer that waits says the same as one of a layer that does not.
#[tokio::test]
async fn a_denied_wait_keeps_the_priority() {
    let calls = calls();
    let of = |rule: Rule| RateLimitLayer::builder(calls.limiter()).rule(rule.priority("batch"));
    let denies = of(rule(&calls)).build().unwrap();
    let options = WaitOptions::at_most(std::time::Duration::from_secs(1));
    let waits = of(rule(&calls)).build_waiting(options, tokio::time::sleep).unwrap();
    assert!(calls.spend("all", 6).unwrap().allowed());
    let handler = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let denied = denies.layer(handler).oneshot(Request::new(())).await.unwrap();
    let refused = waits.layer(handler).oneshot(Request::new(())).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers(), refused.headers());
}
