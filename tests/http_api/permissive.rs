//! A permissive layer charges nothing for a request that it serves although a limit denies it.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use tollgate::http::{Charge, RateLimitLayer, Report, Rule, extract};
use tower::{Layer, ServiceExt, service_fn};

use super::held::Gate;

#[tokio::test]
async fn denied_requests_have_no_estimate_to_settle() {
    for estimate in [600, 0] {
        let gate = Gate::new();
        let rule = |limit| Rule::new(limit, extract::everyone("all"));
        let tokens = rule(gate.tokens.clone()).estimate(move |_| estimate);
        // At an estimate of 0 another rule denies the second request.
        let layer = RateLimitLayer::builder(&gate.limiter).rule(tokens).rule(gate.streams());
        let layer = layer.permissive(true).build().unwrap();
        let handler = service_fn(|request: Request<()>| async move {
            let is_allowed = request.extensions().get::<Report>().unwrap().allowed();
            let charge = Charge::of(request.extensions());
            assert_eq!(charge.settle("Tokens", 300).is_some(), is_allowed);
            Ok::<_, Infallible>(Response::new(is_allowed.to_string()))
        });
        let mut served = Vec::new();
        for (is_allowed, used) in [("true", 300), ("true", 600), ("false", 600)] {
            let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
            assert_eq!(gate.used(), used, "{estimate}: {is_allowed}");
            served.push(response);
        }
    }
}

#[tokio::test]
async fn denied_requests_are_not_refunded_into_allowed() {
    let gate = Gate::new();
    let tokens = Rule::new(gate.tokens.clone(), extract::everyone("all")).cost(|_| 600);
    let told = Arc::new(Mutex::new(Vec::new()));
    let of_layer = told.clone();
    let layer = RateLimitLayer::builder(&gate.limiter)
        .rule(tokens.refund_if(|status| status == 202))
        .on_response(move |_| {
            let told = of_layer.clone();
            move |outcome, _| told.lock().unwrap().push(outcome.decision().allowed())
        })
        .permissive(true)
        .build()
        .unwrap();
    for status in [200, 202] {
        let handler = service_fn(|_: Request<()>| async move {
            Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap())
        });
        let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
        assert_eq!((response.status().as_u16(), gate.used()), (status, 600));
    }
    assert_eq!(*told.lock().unwrap(), [true, false]);
}
