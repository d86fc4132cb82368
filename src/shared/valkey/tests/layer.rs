//! The tower layer on real servers: a server that stands still, a request that is dropped, a text by hand.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use redis::Commands;
use tower::{Layer, Service, ServiceExt};

use super::server::{Server, with_each};
use super::wait_until;
use crate::http::AsyncRateLimitLayer;
use crate::http::{RateLimitLayer, Rule, extract};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::SharedLimit;
use crate::shared::block_on;
use crate::util::sync::{Figure, Ordering};

fn layer(server: &Server, timeout: &str, on_error: &str) -> (AsyncRateLimitLayer, SharedLimit) {
    let url = server.url("");
    let file = format!(
        "store: {{url: \"{url}\", timeout: {timeout}}}\n\
         All: {{burst: 5, count: 1, period: 1h, id: string, shared: exact, on_error: {on_error}}}\n"
    );
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let all = limiter.shared("All").unwrap();
    wait_until("connected", || block_on(all.blocked_for("none")).is_ok());
    let rule = Rule::shared(all.clone(), extract::everyone("all"));
    (RateLimitLayer::builder(&limiter).rule(rule).build_shared().unwrap(), all)
}

/// A service whose clones are not ready, and which counts its calls.
struct Ready {
    is_ready: bool,
    calls: Arc<Figure>,
}

impl Clone for Ready {
    fn clone(&self) -> Ready {
        Ready { is_ready: false, calls: self.calls.clone() }
    }
}

impl Service<Request<()>> for Ready {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called before it was ready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(String::new())))
    }
}

fn inner() -> Ready {
    Ready { is_ready: false, calls: Arc::default() }
}

fn status(layer: &AsyncRateLimitLayer, inner: &Ready) -> u16 {
    block_on(layer.layer(inner.clone()).oneshot(Request::new(()))).unwrap().status().as_u16()
}

#[test]
fn the_service_that_was_ready_is_called() {
    with_each(|binary| {
        let server = Server::start(binary);
        let ((layer, _), inner) = (layer(&server, "2s", "deny"), inner());
        let mut service = layer.layer(inner.clone());
        for wanted in [200, 200, 200, 200, 200, 429, 429] {
            let response = block_on(async { service.ready().await?.call(Request::new(())).await });
            assert_eq!(response.unwrap().status().as_u16(), wanted);
        }
        assert_eq!(inner.calls.load(Ordering::Relaxed), 5);
    });
}

#[test]
fn requests_of_an_outage_are_decided_in_time() {
    with_each(|binary| {
        for (on_error, wanted) in [("deny", 429), ("allow, for: 1m", 200)] {
            let server = Server::start(binary);
            let ((layer, _), inner) = (layer(&server, "100ms", on_error), inner());
            assert_eq!(status(&layer, &inner), 200);
            server.signal("-STOP");
            let in_time = || {
                let began = Instant::now();
                let status = status(&layer, &inner);
                assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
                status
            };
            assert_eq!(in_time(), 429, "late calls are denied at first");
            wait_until("decided by the policy", || in_time() == wanted);
            assert!((0..8).all(|_| in_time() == wanted), "{on_error}");
            server.signal("-CONT");
        }
    });
}

#[test]
fn a_dropped_request_is_charged_whole() {
    with_each(|binary| {
        let server = Server::start(binary);
        let ((layer, all), inner) = (layer(&server, "2s", "deny"), inner());
        server.signal("-STOP");
        let mut service = layer.layer(inner.clone());
        let mut sent = Box::pin(block_on(service.ready()).unwrap().call(Request::new(())));
        assert!(
            sent.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
        );
        drop(sent);
        server.signal("-CONT");
        wait_until("charged", || block_on(all.check("all", 0)).unwrap().remaining() == Some(4));
        assert_eq!(inner.calls.load(Ordering::Relaxed), 0, "the service is not called");
    });
}

#[test]
fn errors_of_the_store_are_not_shown() {
    with_each(|binary| {
        let server = Server::start(binary);
        let ((layer, _), inner) = (layer(&server, "2s", "allow, for: 1m"), inner());
        let () = server.connection().set("tollgate:All:all", "a secret").unwrap();
        let response = block_on(layer.layer(inner.clone()).oneshot(Request::new(()))).unwrap();
        assert_eq!(response.status().as_u16(), 500, "no free pass");
        let body = block_on(http_body_util::BodyExt::collect(response.into_body())).unwrap();
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        assert!(body.contains("the server could not handle this request"), "{body}");
        assert!(!body.contains("secret") && !body.contains("127."), "{body}");
        assert_eq!(inner.calls.load(Ordering::Relaxed), 0);
    });
}
