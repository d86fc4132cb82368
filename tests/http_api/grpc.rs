//! The answers to gRPC requests and to requests that resemble them, and their `Cache-Control`.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{
    Denied, RateLimitBuilder, RateLimitLayer, Rejection, Rule, extract, responder,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt};

/// Makes a limit of one call every 1.5 s, with nothing left for alice.
fn spent() -> Limiter {
    let limit = Limit::new(1, 2, Duration::from_secs(3)).unwrap();
    let limits = Limits::builder().limit("n", IdFormat::String, limit).unwrap().build();
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    assert!(limiter.limit("n").unwrap().spend("alice", 1).unwrap().allowed());
    limiter
}

fn builder(limiter: &Limiter) -> RateLimitBuilder {
    let user = extract::header(HeaderName::from_static("user"));
    RateLimitLayer::builder(limiter).rule(Rule::new(limiter.limit("n").unwrap(), user))
}

type Builder = fn(RateLimitBuilder) -> RateLimitBuilder;

/// Returns the answer to a request by alice, or without a user.
fn ask(options: Builder, method: Method, content_type: &str, user: bool) -> Response<String> {
    let limiter = spent();
    let layer = options(builder(&limiter)).build().unwrap();
    let mut request = Request::builder().method(method);
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    if user {
        request = request.header("user", "alice");
    }
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("inner")))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let request = request.body(Empty::new()).unwrap();
        let (parts, body) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(parts, String::from_utf8(body.to_vec()).unwrap())
    })
}

fn field<'r>(response: &'r Response<String>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn grpc_is_post_with_content_type_if_enabled() {
    for (content_type, answer_type) in [
        ("application/grpc", "application/grpc"),
        ("Application/gRPC+proto", "application/grpc"),
        ("application/grpc;charset=utf-8", "application/grpc"),
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text+proto"),
    ] {
        let denied = ask(|builder| builder.grpc(), Method::POST, content_type, true);
        assert_eq!((denied.status(), denied.body().as_str()), (StatusCode::OK, ""));
        assert_eq!(field(&denied, "content-type"), answer_type, "{content_type}");
        assert_eq!(field(&denied, "grpc-status"), "8");
        assert_eq!(field(&denied, "grpc-message"), "too many requests: try again in 2 s");
        assert_eq!(field(&denied, "grpc-retry-pushback-ms"), "1500");
        assert_eq!(field(&denied, "retry-after"), "2");
        let refused = ask(|builder| builder.grpc(), Method::POST, content_type, false);
        assert_eq!((refused.status(), field(&refused, "grpc-status")), (StatusCode::OK, "3"));
        assert_eq!(field(&refused, "content-type"), answer_type);
        assert_eq!(field(&refused, "grpc-retry-pushback-ms"), "", "no wait would help");

        let off = ask(|builder| builder, Method::POST, content_type, true);
        assert_eq!(off.status(), StatusCode::TOO_MANY_REQUESTS, "not switched on");
    }
    for (method, content_type) in [
        (Method::GET, "application/grpc"),
        (Method::HEAD, "application/grpc"),
        (Method::PUT, "application/grpc"),
        (Method::POST, "application/grpcfoo"),
        (Method::POST, "application/grpc-webfoo"),
        (Method::POST, "application/json"),
        (Method::POST, ""),
    ] {
        let denied = ask(|builder| builder.grpc(), method.clone(), content_type, true);
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS, "{method} {content_type}");
        let refused = ask(|builder| builder.grpc(), method.clone(), content_type, false);
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{method} {content_type}");
        for response in [denied, refused] {
            assert_eq!(field(&response, "content-type"), "application/problem+json");
            assert_eq!(field(&response, "grpc-status"), "");
        }
    }
}

#[test]
fn custom_responder_may_use_the_grpc_answer() {
    let own: Builder =
        |builder| builder.grpc().respond(|_| Response::builder().status(403).body("mine").unwrap());
    for (method, content_type) in [(Method::POST, "application/grpc"), (Method::GET, "text/html")] {
        let denied = ask(own, method, content_type, true);
        assert_eq!((denied.status().as_u16(), denied.body().as_str()), (403, "mine"));
        assert_eq!(field(&denied, "grpc-status"), "");
    }
    let asks: Builder = |builder| {
        builder.respond(|denial| {
            responder::grpc(denial).unwrap_or_else(|| responder::plain_text(denial))
        })
    };
    let denied = ask(asks, Method::POST, "application/grpc-web", true);
    assert_eq!((field(&denied, "grpc-status"), denied.status()), ("8", StatusCode::OK));
    let denied = ask(asks, Method::GET, "application/grpc-web", true);
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn denials_and_refusals_are_never_cached() {
    let cached: Builder = |builder| {
        builder.respond(|_| {
            Response::builder()
                .status(200)
                .header("cache-control", "public")
                .header("cache-control", "max-age=600")
                .body("try later")
                .unwrap()
        })
    };
    let all: [Builder; 5] = [
        |builder| builder,
        |builder| builder.plain_text(),
        |builder| builder.grpc(),
        |builder| builder.respond(|_| Response::new("200, and nothing of caches")),
        cached,
    ];
    for options in all {
        for method in [Method::GET, Method::POST] {
            for content_type in
                ["", "application/grpc", "application/grpc-web", "application/grpcfoo"]
            {
                for user in [true, false] {
                    let response = ask(options, method.clone(), content_type, user);
                    assert_ne!(response.body(), "inner");
                    let all: Vec<_> = response.headers().get_all("cache-control").iter().collect();
                    assert_eq!(all, ["no-store"], "{method} {content_type} {user}");
                }
            }
        }
    }
}

#[test]
fn outer_layer_finds_denials_and_refusals() {
    let denied = ask(|builder| builder.grpc(), Method::POST, "application/grpc", true);
    let found = denied.extensions().get::<Denied>().expect("a denial");
    assert_eq!(found.violated(), ["n"]);
    assert_eq!(found.decision().retry_in(), Duration::from_millis(1500));
    let refused = ask(|builder| builder, Method::GET, "", false);
    assert!(refused.extensions().get::<Denied>().is_none());
    let found = refused.extensions().get::<Rejection>().expect("a refusal");
    assert_eq!(found.to_string(), "400: the field user is missing");
}

#[test]
fn an_unknown_route_is_unimplemented() {
    let limiter = spent();
    let rule = Rule::new(limiter.limit("n").unwrap(), extract::everyone("all"));
    let rule = rule.route(|route: &String| route, "/a.Service/Method");
    let layer = RateLimitLayer::builder(&limiter).rule(rule).grpc().build().unwrap();
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("inner")))
    });
    let request = Request::post("/").header("content-type", "application/grpc");
    let answer = layer.layer(inner).oneshot(request.body(Empty::new()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(answer).unwrap().headers()["grpc-status"], "12");
}
