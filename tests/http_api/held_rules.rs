//! What several rules of one request hold.
#![cfg(feature = "tower")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{Charge, RateLimitLayer, Rule, extract};
use tower::{Layer, ServiceExt, service_fn};

use super::held::Gate;

#[tokio::test]
async fn failed_answers_cost_other_rules_their_estimates() {
    let gate = Gate::new();
    let rule = |id| Rule::new(gate.tokens.clone(), extract::everyone(id)).estimate(|_| 600);
    let refunded = rule("all").refund_if(|status| status.is_server_error());
    let layer = RateLimitLayer::builder(&gate.limiter).rule(refunded).rule(rule("team"));
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::builder().status(502).body(Empty::<Bytes>::new()).unwrap())
    });
    let _ = layer.build().unwrap().layer(inner).oneshot(Request::new(())).await.unwrap();
    let left_of_team = gate.tokens.check("team", 0).unwrap().remaining();
    assert_eq!((gate.used(), left_of_team), (0, Some(400)));
}

/// Of a user and of a team, for example.
#[tokio::test]
async fn estimates_of_one_limit_settle_together() {
    let gate = Gate::new();
    let rule = |id| Rule::new(gate.tokens.clone(), extract::everyone(id)).estimate(|_| 600);
    let layer = RateLimitLayer::builder(&gate.limiter).rule(rule("all")).rule(rule("team"));
    let handler = service_fn(|request: Request<()>| {
        assert!(Charge::of(request.extensions()).settle("Tokens", 7).unwrap().allowed());
        async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let _ = layer.build().unwrap().layer(handler).oneshot(Request::new(())).await.unwrap();
    let left_of_team = gate.tokens.check("team", 0).unwrap().remaining();
    assert_eq!((gate.used(), left_of_team), (7, Some(993)));
}

/// A body that says at its last frame that it has ended. A cache keeps it.
#[tokio::test]
async fn permits_return_with_the_last_data_frame() {
    let gate = Gate::new();
    let layer = RateLimitLayer::builder(&gate.limiter).rule(gate.streams()).build().unwrap();
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("all"))))
    });
    let response = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(gate.out(), 1);
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert_eq!(gate.out(), 0, "before it is dropped");
    assert!(body.frame().await.is_none());
}
