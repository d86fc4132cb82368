//! Soft rules: they let a request pass and mark it.
#![cfg(feature = "tower")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use tollgate::http::{RateLimitLayer, Report, Rule, extract};
use tower::{Layer, ServiceExt, service_fn};

use super::held::Gate;

#[tokio::test]
async fn soft_rules_mark_and_let_pass() {
    let gate = Gate::new();
    let usual = Rule::new(gate.tokens.clone(), extract::everyone("all")).cost(|_| 700).soft();
    let layer = RateLimitLayer::builder(&gate.limiter).rule(gate.streams()).rule(usual);
    let layer = layer.build().unwrap();
    let handler = service_fn(|request: Request<()>| {
        let report = request.extensions().get::<Report>().expect("enforced layers report as well");
        assert!(report.allowed());
        let violated = report.violated().join(" ");
        async { Ok::<_, Infallible>(Response::new(violated)) }
    });
    let mut held = Vec::new();
    for (violated, used) in [("", 700), ("Tokens", 700)] {
        let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let fields = response.headers().clone();
        assert!(!fields.contains_key(header::RETRY_AFTER), "{fields:?}");
        let (parts, body) = response.into_parts();
        assert_eq!(body.collect().await.unwrap().to_bytes(), violated);
        assert_eq!(gate.used(), used);
        held.push(parts);
    }
}

#[tokio::test]
async fn hard_rules_outlast_soft_ones_of_their_bucket() {
    let gate = Gate::new();
    let of_tokens = || Rule::new(gate.tokens.clone(), extract::everyone("all"));
    for (soft, hard) in [(400, 400), (900, 400)] {
        assert!(gate.tokens.reset("all").unwrap().allowed());
        let layer = RateLimitLayer::builder(&gate.limiter)
            .rule(of_tokens().cost(move |_| soft).soft())
            .rule(of_tokens().cost(move |_| hard))
            .build()
            .unwrap();
        let handler = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(layer.layer(handler).oneshot(Request::new(())).await.unwrap().status());
        }
        assert_eq!(statuses, [200, 200, 429], "{soft}");
    }
}
