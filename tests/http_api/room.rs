//! The answers to a request of a client for which the table has no room.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{RateLimitBuilder, RateLimitLayer, Rule, extract};
use tollgate::options::AtCap;
use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, ServiceExt};

type Builder = fn(RateLimitBuilder) -> RateLimitBuilder;

/// Answers a client without a bucket, beside one that refills in 180 s: status, `Retry-After`, `grpc-status` and body.
fn answer(build: Builder, is_grpc: bool) -> (u16, String, Option<String>, String) {
    let limit = Limit::new(3, 1, Duration::from_secs(60)).unwrap();
    let limits = Limits::builder().limit("PerKey", IdFormat::String, limit).unwrap().build();
    let (clock, _hand) = tollgate::Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(AtCap::Deny);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let keys = limiter.limit("PerKey").unwrap();
    assert!(keys.spend("known", 3).unwrap().allowed());
    let rule = Rule::new(keys, extract::everyone("new"));
    let layer = build(RateLimitLayer::builder(&limiter).rule(rule)).build().unwrap();
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("served"))))
    });
    let request = Request::post("/")
        .header("content-type", if is_grpc { "application/grpc" } else { "text/plain" });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let response =
            layer.layer(inner).oneshot(request.body(Empty::new()).unwrap()).await.unwrap();
        let field = |name| {
            let value: Option<&http::HeaderValue> = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let (status, wait, grpc) =
            (response.status().as_u16(), field("retry-after").unwrap(), field("grpc-status"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, wait, grpc, String::from_utf8(body.to_vec()).unwrap())
    })
}

#[test]
fn denial_without_room_is_503_by_option() {
    let waits = "180".to_owned();
    let (status, wait, _, body) = answer(|builder| builder, false);
    assert_eq!((status, &wait), (429, &waits), "{body}");
    assert!(body.contains("#quota-exceeded"), "{body}");
    let (status, wait, _, body) = answer(|builder| builder.unavailable_without_room(), false);
    assert_eq!((status, &wait), (503, &waits), "{body}");
    assert!(
        body.contains("#temporary-reduced-capacity\"") && body.contains("\"status\":503"),
        "{body}"
    );
    assert!(body.contains("\"violated-policies\":[\"PerKey\"]"), "{body}");
    let (status, _, _, body) =
        answer(|builder| builder.plain_text().unavailable_without_room(), false);
    assert_eq!((status, &*body), (503, "no room for a new client: try again in 180 s\n"));
}

#[test]
fn denial_of_client_with_a_bucket_stays_429() {
    let limit = Limit::new(1, 1, Duration::from_secs(60)).unwrap();
    let limits = Limits::builder().limit("PerKey", IdFormat::String, limit).unwrap().build();
    let limiter = Limiter::with_options(limits, tollgate::Clock::manual().0).unwrap();
    let rule = Rule::new(limiter.limit("PerKey").unwrap(), extract::everyone("all"));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).unavailable_without_room();
    let layer = layer.build().unwrap();
    let inner = tower::service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ask = || runtime.block_on(layer.layer(inner).oneshot(Request::new(()))).unwrap().status();
    assert_eq!([ask(), ask()].map(|status| status.as_u16()), [200, 429]);
}

#[test]
fn denial_without_room_is_unavailable_in_grpc() {
    let (status, _, grpc, _) = answer(|builder| builder.grpc(), true);
    assert_eq!((status, grpc.as_deref()), (200, Some("8")));
    let (status, _, grpc, _) = answer(|builder| builder.grpc().unavailable_without_room(), true);
    assert_eq!((status, grpc.as_deref()), (200, Some("14")));
}
