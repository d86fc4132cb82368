//! Blocks in a tower layer.

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
async fn layer_denies_blocked_id_until_block_ends() {
    let (limiter, handle, hand) = on(&limits_of_all()[0], tollgate::options::Engine::LockFree);
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
    // A responder can tell a block from another denial.
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

/// As `docs/http.md` says.
#[tokio::test]
async fn blocked_ipv6_client_is_answered_per_guide() {
    use std::net::IpAddr;
    use tollgate::http::{ClientAddress, Peer};
    use tollgate::{IdFormat, Limit, Limiter, Limits};

    let limit = Limit::new(20, 10, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit).unwrap().build();
    let limiter = Limiter::with_options(limits, tollgate::Clock::manual().0).unwrap();
    let handle = limiter.limit("PerClient").unwrap();
    let client: IpAddr = "2001:db8:1:2::7".parse().unwrap();
    let id = ClientAddress::new().find(Some(client), &http::HeaderMap::new()).unwrap();
    // The address itself is no id of the layer.
    handle.block(client, 9 * HOUR).unwrap();
    let rule = Rule::new(handle.clone(), extract::client(ClientAddress::new()));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).grpc().build().unwrap();
    let ask = async |content_type: &str| {
        let inner = service_fn(async |_: Request<Empty<Bytes>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("inner")))
        });
        let mut request =
            Request::post("/").header("content-type", content_type).body(Empty::new());
        request.as_mut().unwrap().extensions_mut().insert(Peer::from(client));
        let Ok(response) = layer.layer(inner).oneshot(request.unwrap()).await;
        let (parts, body) = response.into_parts();
        let field =
            |name: &str| parts.headers.get(name).map_or("", |it| it.to_str().unwrap()).to_owned();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let names =
            ["retry-after", "cache-control", "grpc-status", "grpc-retry-pushback-ms", "ratelimit"];
        (parts.status.as_u16(), names.map(field), body)
    };
    assert_eq!(ask("text/plain").await.0, 200);
    handle.block(id, HOUR).unwrap();
    let (status, [retry_after, cache, _, _, fields], body) = ask("text/plain").await;
    assert_eq!((status, &*retry_after, &*cache), (429, "3600", "no-store"));
    assert!(body.contains("#quota-exceeded") && body.contains("[\"PerClient\"]"), "{body}");
    assert!(fields.contains("\"PerClient\";r=0"), "{fields}");
    let (status, [_, cache, code, pushback, _], _) = ask("application/grpc").await;
    assert_eq!((status, &*cache, &*code, &*pushback), (200, "no-store", "8", "3600000"));
    handle.block(id, 25 * 24 * HOUR).unwrap();
    assert_eq!(ask("application/grpc").await.1[3], "-1");
}

/// As documented at `Limiter::set_enabled` and `Switch`.
#[tokio::test]
async fn disabled_limiter_leaves_the_layers_refusals() {
    let (limiter, handle, _hand) = on(&limits_of_all()[0], tollgate::options::Engine::LockFree);
    let rule = || Rule::new(handle.clone(), extract::header(HeaderName::from_static("other")));
    limiter.set_enabled(false);
    let layer = RateLimitLayer::builder(&limiter).rule(rule()).build().unwrap();
    let status = async || {
        let inner = service_fn(async |_: Request<Empty<Bytes>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("inner")))
        });
        layer.layer(inner).oneshot(asked("alice")).await.unwrap().status()
    };
    assert_eq!(status().await, StatusCode::BAD_REQUEST, "it has no field `other`");
    layer.switch().set_enabled(false);
    assert_eq!(status().await, StatusCode::OK);
}
