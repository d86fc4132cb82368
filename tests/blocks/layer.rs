//! Blocks behind a tower layer.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{RateLimitBuilder, RateLimitLayer, Rule, extract, responder};
use tower::{Layer, ServiceExt, service_fn};

use super::{limits_of_all, on};

const HOUR: Duration = Duration::from_secs(3600);

fn asked(user: &str) -> Request<Empty<Bytes>> {
    Request::builder().header("user", user).body(Empty::new()).unwrap()
}

async fn answer(builder: RateLimitBuilder, user: &str) -> (StatusCode, String, String) {
    let inner = service_fn(async |_: Request<Empty<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::from("inner")))
    });
    let layer = builder.build().unwrap();
    let response = layer.layer(inner).oneshot(asked(user)).await.unwrap();
    let (parts, body) = response.into_parts();
    let retry_after = parts.headers.get("retry-after").map_or("", |it| it.to_str().unwrap());
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, retry_after.to_owned(), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_layer_denies_a_blocked_id_until_its_block_ends() {
    let (limiter, handle, hand) = on(&limits_of_all()[0], tollgate::Engine::LockFree);
    let layer = || {
        let user = |name: &str| {
            let id = extract::header(HeaderName::from_static("user"));
            Rule::new(limiter.limit(name).unwrap(), id)
        };
        RateLimitLayer::builder(&limiter).rule(user("Other")).rule(user("Own"))
    };
    handle.block("mallory", HOUR).unwrap();
    let (status, retry_after, body) = answer(layer(), "mallory").await;
    assert_eq!((status, &*retry_after), (StatusCode::TOO_MANY_REQUESTS, "3600"));
    assert!(body.contains("\"violated-policies\":[\"Own\"]"), "{body}");
    let other = limiter.limit("Other").unwrap();
    assert_eq!(other.check("mallory", 0).unwrap().remaining(), Some(9), "nothing is charged");
    assert_eq!(answer(layer(), "alice").await.0, StatusCode::OK);
    // A responder may tell it from a denial.
    let telling = layer().respond(|denial| {
        let mut response = responder::plain_text(denial);
        if denial.decision().blocked() {
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
        response
    });
    assert_eq!(answer(telling, "mallory").await.0, StatusCode::FORBIDDEN);
    hand.advance(HOUR);
    assert_eq!(answer(layer(), "mallory").await.0, StatusCode::OK);
}
