//! The function that a layer calls for every response.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tollgate::http::{Fields, RateLimitBuilder, RateLimitLayer, Rejection, Rule, Who, extract};
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes `a` with a burst of 2, `b` with one of 5, and `tried` with one of 1 in shadow mode; a unit a minute each.
fn limiter() -> Limiter {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let shadow = LimitOptions::default().mode(LimitMode::Shadow);
    let limits = Limits::builder()
        .limit("a", IdFormat::String, limit(2))
        .unwrap()
        .limit("b", IdFormat::String, limit(5))
        .unwrap()
        .limit_with("tried", IdFormat::String, limit(1), shadow)
        .unwrap();
    Limiter::with_options(limits.build(), Clock::manual().0).unwrap()
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"))
}

/// The lines that the layer's function has written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Makes a layer log each response, and give it the field `x-seen`.
    fn of(&self, builder: RateLimitBuilder) -> RateLimitLayer {
        let log = self.clone();
        let builder = builder.on_response(move |request| {
            let (log, path) = (log.clone(), request.uri.path().to_owned());
            move |outcome, response| {
                let limits: Vec<_> = outcome
                    .limits()
                    .map(|(name, decision)| {
                        format!(" {name} {} {:?}", decision.allowed(), decision.remaining())
                    })
                    .collect();
                let allowed = outcome.decision().allowed();
                let line = format!("{path} {} {allowed}{}", response.status, limits.join(""));
                log.0.lock().unwrap().push(line.replace("Some", ""));
                response.headers.insert("x-seen", "yes".parse().unwrap());
            }
        });
        builder.build().unwrap()
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Answers with the status in the request's field `status`, or fails.
async fn inner(request: Request<Empty<Bytes>>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let status = request.headers().get("status").map_or("200", |it| it.to_str().unwrap());
    match status {
        "error" => Err(std::io::Error::other("the service's own")),
        _ => Ok(Response::builder().status(status).body(Full::default()).unwrap()),
    }
}

fn get(path: &str, status: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header("status", status).body(Empty::new()).unwrap()
}

fn send(layer: &RateLimitLayer, request: Request<Empty<Bytes>>) -> (StatusCode, HeaderMap) {
    let response = block_on(layer.layer(tower::service_fn(inner)).oneshot(request)).unwrap();
    (response.status(), response.headers().clone())
}

#[test]
fn every_answer_is_seen_with_its_decisions() {
    let (limiter, log) = (limiter(), Log::default());
    let rules = ["a", "tried", "b"].map(|name| rule(&limiter, name));
    let builder = rules.into_iter().fold(RateLimitLayer::builder(&limiter), RateLimitBuilder::rule);
    let layer = log.of(builder);
    for status in ["200", "404", "200"] {
        let (_, headers) = send(&layer, get("/p", status));
        assert_eq!(headers["x-seen"], "yes");
        assert!(headers.contains_key("ratelimit"), "the layer's fields are there as well");
    }
    let lines = [
        "/p 200 OK true a true (1) b true (4)",
        "/p 404 Not Found true a true (0) b true (3)",
        "/p 429 Too Many Requests false a false (0) b true (3)",
    ];
    assert_eq!(log.take(), lines, "without the shadow limit");
}

#[test]
fn the_function_sees_the_written_fields_and_refunds() {
    let limiter = limiter();
    let refunding = rule(&limiter, "a").refund_if(|status| status == 503);
    let builder = RateLimitLayer::builder(&limiter).rule(refunding).on_response(|_| {
        |outcome, response| {
            let left = outcome.decision().remaining();
            assert_eq!(left, Some(2), "after the refund");
            let line = response.headers.remove("ratelimit").unwrap();
            assert_eq!(line, r#""a";r=2;t=0"#);
            response.status = StatusCode::BAD_GATEWAY;
        }
    });
    let (status, headers) = send(&builder.build().unwrap(), get("/", "503"));
    assert_eq!((status, headers.contains_key("ratelimit")), (StatusCode::BAD_GATEWAY, false));
}

#[test]
fn denial_stays_out_of_caches_whatever_it_does() {
    let limiter = limiter();
    let none = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "a")).fields(Fields::none());
    let layer = none.on_response(|_| {
        |_, response| _ = response.headers.insert("cache-control", "public".parse().unwrap())
    });
    let layer = layer.build().unwrap();
    let cached = [(); 3].map(|()| send(&layer, get("/", "200")).1["cache-control"].clone());
    assert_eq!(cached, ["public", "public", "no-store"]);
}

#[test]
fn no_limit_and_permissive_answers_are_seen() {
    let (limiter, log) = (limiter(), Log::default());
    let builder = || {
        let rule = rule(&limiter, "a").when(|request| request.uri.path() == "/p");
        RateLimitLayer::builder(&limiter).rule(rule).fields(Fields::none())
    };
    let layer = log.of(builder().permissive(true));
    for path in ["/other", "/p", "/p", "/p"] {
        let (status, headers) = send(&layer, get(path, "200"));
        assert_eq!((status, headers.len()), (StatusCode::OK, 1), "only x-seen: no style is set");
    }
    let lines = ["/other 200 OK true", "/p 200 OK true a true (1)", "/p 200 OK true a true (0)"];
    let served = "/p 200 OK false a false (0)";
    assert_eq!(log.take(), [&lines[..], &[served]].concat());
    limiter.set_enabled(false);
    let _ = send(&layer, get("/p", "200"));
    assert_eq!(log.take(), ["/p 200 OK true"]);
    layer.switch().set_enabled(false);
    assert!(send(&layer, get("/p", "200")).1.is_empty());
    assert!(log.take().is_empty(), "the layer is off");
}

#[test]
fn rejections_and_missing_responses_are_not_seen() {
    let (limiter, log) = (limiter(), Log::default());
    let refused = |permissive| {
        let a = limiter.limit("a").unwrap();
        let rejection = || Rejection::new(StatusCode::BAD_REQUEST, "no id");
        let rule = Rule::new(a, move |_| Who::Refused(rejection()));
        log.of(RateLimitLayer::builder(&limiter).rule(rule).permissive(permissive))
    };
    assert_eq!(send(&refused(false), get("/", "200")).0, StatusCode::BAD_REQUEST);
    assert_eq!(send(&refused(true), get("/", "200")).0, StatusCode::OK);
    let layer = log.of(RateLimitLayer::builder(&limiter).rule(rule(&limiter, "b")));
    let service = || layer.layer(tower::service_fn(inner));
    assert!(block_on(service().oneshot(get("/", "error"))).is_err());
    let pending = tower::service_fn(|_: Request<Empty<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut left = Box::pin(layer.layer(pending).oneshot(get("/", "200")));
    assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(left);
    assert!(log.take().is_empty());
    let left = limiter.limit("b").unwrap().check("all", 0).unwrap().remaining();
    assert_eq!(left, Some(3), "both were charged");
}

/// A panic of the function for requests charges nothing.
#[test]
fn the_request_is_seen_before_the_charge() {
    let limiter = limiter();
    let layer =
        RateLimitLayer::builder(&limiter).rule(rule(&limiter, "a")).on_response(|request| {
            assert_ne!(request.uri.path(), "/panic", "the function's own");
            |_, _| {}
        });
    let layer = layer.build().unwrap();
    let call = || {
        let future = layer.layer(tower::service_fn(inner)).oneshot(get("/panic", "200"));
        let _: Poll<_> = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    assert_eq!(limiter.limit("a").unwrap().check("all", 0).unwrap().remaining(), Some(2));
}

#[test]
fn nested_layers_are_each_seen_inner_first() {
    let (limiter, log) = (limiter(), Log::default());
    let layer = |name| log.of(RateLimitLayer::builder(&limiter).rule(rule(&limiter, name)));
    let (outer, inner_layer) = (layer("b"), layer("a"));
    for _ in 0..3 {
        let service = outer.layer(inner_layer.layer(tower::service_fn(inner)));
        let _ = block_on(service.oneshot(get("/p", "200"))).unwrap();
    }
    let lines = log.take();
    let last =
        ["/p 429 Too Many Requests false a false (0)", "/p 429 Too Many Requests true b true (2)"];
    assert_eq!(lines[4..], last);
}
