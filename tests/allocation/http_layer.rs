//! The layer's only allocations for an allowed request are the values that depend on its decision.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use tollgate::http::{
    ClientAddress, Fields, Forwarding, Peer, PlugLimitNames, RateLimitLayer, Reset, Rule, Style,
    extract,
};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service};

/// A service whose responses have room for fields, so that only their values allocate.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(());
        *response.headers_mut() = HeaderMap::with_capacity(16);
        std::future::ready(Ok(response))
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    let proxy = SocketAddr::from(([10, 0, 0, 1], 80));
    request.extensions_mut().insert(Peer::from(proxy));
    request.headers_mut().insert("x-forwarded-for", "6.6.6.6, 192.0.2.1".parse().unwrap());
    request.headers_mut().insert("user", "alice".parse().unwrap());
    request
}

/// Returns the allocations of one call, without those of its request.
fn allocations<S, B>(service: &mut S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut request = Some(request());
    let mut response = None;
    let counted = measure(|| {
        let future = service.call(request.take().unwrap());
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => response = Some(ready),
            Poll::Pending => panic!("nothing waits here"),
        }
    });
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    counted.count_total
}

#[test]
fn allowed_request_allocates_only_its_own_values() {
    let limit = Limit::new(1_000_000, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder()
        .limit("PerClient", IdFormat::IpAddress, limit.clone())
        .unwrap()
        .limit("PerUser", IdFormat::String, limit)
        .unwrap()
        .build();
    let limiter = Limiter::new(limits);
    let clients = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    let by_client =
        || Rule::new(limiter.limit("PerClient").unwrap(), extract::client(clients.clone()));
    let by_user = || {
        let user = extract::header(HeaderName::from_static("user"));
        Rule::new(limiter.limit("PerUser").unwrap(), user)
    };
    let layer = |styles: Vec<Style>, two: bool, refunds: bool| {
        let builder = RateLimitLayer::builder(&limiter).fields(Fields::new(styles).unwrap());
        let by_client = by_client();
        let by_client = match refunds {
            true => by_client.refund_if(|status| status.is_server_error()),
            false => by_client,
        };
        let builder = builder.rule(by_client);
        let builder = if two { builder.rule(by_user()) } else { builder };
        builder.build().unwrap()
    };
    let bare = allocations(&mut Inner);
    // The styles, whether two rules apply, and the number of values that depend on the decision.
    let cases = [
        (vec![], false, 0),
        (vec![Style::Ietf], false, 1),
        (vec![Style::Draft06], false, 2),
        (vec![Style::Draft03], false, 2),
        (vec![Style::XRateLimit(Reset::Epoch)], false, 2),
        (vec![Style::PlugLimit(PlugLimitNames::default())], false, 2),
        (vec![Style::Sharkey], false, 2),
        (vec![], true, 0),
        (vec![Style::Ietf], true, 1),
        (vec![Style::Draft06], true, 2),
        // Draft03's first value is the strictest limit's, so it cannot be cached with two rules.
        (vec![Style::Draft03], true, 3),
        (vec![Style::XRateLimit(Reset::Delta)], true, 2),
    ];
    for ((styles, two, values), refunds) in
        cases.into_iter().flat_map(|it| [(it.clone(), false), (it, true)])
    {
        let shown = format!("{styles:?}, two: {two}, refunds: {refunds}");
        let mut service = layer(styles, two, refunds).layer(Inner);
        // The first request fills the caches.
        let _ = allocations(&mut service);
        // The charges that the response may refund are one allocation.
        assert_eq!(allocations(&mut service) - bare, values + u64::from(refunds), "{shown}");
    }
}
