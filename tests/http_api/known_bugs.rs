//! The bugs of eight projects that wrote limits of tokens and streams by themselves, as tests of this crate.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::Barrier;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tollgate::http::{Charge, RateLimitLayer, ResponseBody, Rule, extract};
use tollgate::limits::LimitOptions;
use tollgate::{Clock, ConcurrencyLimit, IdFormat, KeyedLimit, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use super::frames::{Frames, Polled};

struct Gateway {
    limiter: Limiter,
    tokens: KeyedLimit,
    tenants: KeyedLimit,
    streams: ConcurrencyLimit,
}

/// Tokens by user, 1000 at once, and by tenant, 1500 at once, each with debt; one stream.
fn gateway() -> Gateway {
    let tokens = |most| Limit::new(most, most, Duration::from_secs(60)).unwrap();
    let debt = || LimitOptions::default().max_debt(500);
    let limits =
        Limits::builder().limit_with("User", IdFormat::String, tokens(1000), debt()).unwrap();
    let limits = limits.limit_with("Tenant", IdFormat::String, tokens(1500), debt()).unwrap();
    let streams = Limit::concurrency(1).unwrap();
    let limits = limits.limit("Streams", IdFormat::String, streams).unwrap().build();
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let [tokens, tenants] = ["User", "Tenant"].map(|name| limiter.limit(name).unwrap());
    let streams = limiter.concurrency("Streams").unwrap();
    Gateway { limiter, tokens, tenants, streams }
}

impl Gateway {
    fn layer(&self) -> RateLimitLayer {
        let all = || extract::everyone("a");
        RateLimitLayer::builder(&self.limiter)
            .rule(Rule::in_flight(self.streams.clone(), all()))
            .rule(Rule::new(self.tokens.clone(), all()).estimate(|_| 600))
            .rule(Rule::new(self.tenants.clone(), all()).estimate(|_| 600))
            .build()
            .unwrap()
    }

    fn left(&self) -> [u64; 2] {
        [&self.tokens, &self.tenants].map(|it| it.check("a", 0).unwrap().remaining().unwrap())
    }
}

/// A stream of this many tokens, a frame each, which settles by what was sent.
struct Tokens {
    left: u64,
    sent: u64,
    charge: Charge,
}

impl Tokens {
    fn next(&mut self) -> Polled<Infallible> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        (self.left, self.sent) = (self.left - 1, self.sent + 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"t")))))
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = ["User", "Tenant"].map(|limit| self.charge.settle(limit, self.sent));
    }
}

async fn stream(
    gateway: &Gateway,
    length: u64,
) -> Response<ResponseBody<Frames<Tokens, Infallible>>> {
    let handler = service_fn(|request: Request<()>| async move {
        let charge = Charge::of(request.extensions());
        let tokens = Tokens { left: length, sent: 0, charge };
        Ok::<_, Infallible>(Response::new(Frames::new(tokens, |tokens, _| tokens.next())))
    });
    gateway.layer().layer(handler).oneshot(Request::new(())).await.unwrap()
}

#[test]
fn denial_by_second_limit_charges_first_nothing() {
    let gateway = gateway();
    assert!(gateway.tenants.spend("a", 1200).unwrap().allowed());
    let members = [gateway.tokens.member("a").cost(600), gateway.tenants.member("a").cost(600)];
    let (denied, receipt) = gateway.limiter.batch(&members).spend_estimate().unwrap();
    assert_eq!((denied.denied_by(), receipt.is_none()), (Some(1), true));
    assert_eq!(gateway.left(), [1000, 300]);
}

#[tokio::test]
async fn head_of_a_stream_frees_no_permit() {
    let gateway = gateway();
    let response = stream(&gateway, 3).await;
    assert_eq!(gateway.streams.in_flight("a").unwrap(), 1);
    let second = gateway.layer().layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::Empty::<Bytes>::new()))
    }));
    let second = second.oneshot(Request::new(())).await.unwrap();
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(response);
    assert_eq!(gateway.streams.in_flight("a").unwrap(), 0);
}

#[tokio::test]
async fn cost_of_a_stream_is_settled() {
    let gateway = gateway();
    let _ = stream(&gateway, 50).await.into_body().collect().await.unwrap();
    assert_eq!(gateway.left(), [950, 1450]);
}

#[tokio::test]
async fn debt_is_owed_and_not_forgotten() {
    let gateway = gateway();
    assert!(gateway.tokens.spend("a", 300).unwrap().allowed());
    let _ = stream(&gateway, 900).await.into_body().collect().await.unwrap();
    let owing = gateway.tokens.check("a", 1).unwrap();
    // 200 tokens below zero, and one to spend: 201 at 60 ms each.
    assert_eq!((owing.allowed(), owing.retry_in()), (false, Duration::from_millis(60 * 201)));
}

#[test]
fn requests_at_once_see_each_others_estimates() {
    let gateway = gateway();
    let barrier = Barrier::new(8);
    let admitted: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let members = [
                        gateway.tokens.member("a").cost(300),
                        gateway.tenants.member("a").cost(300),
                    ];
                    barrier.wait();
                    gateway.limiter.batch(&members).spend_estimate().unwrap().1
                })
            })
            .collect();
        callers.into_iter().filter_map(|caller| caller.join().unwrap()).count()
    });
    assert_eq!((admitted, gateway.left()), (3, [100, 600]));
}

#[tokio::test]
async fn clients_that_go_away_pay_what_was_sent() {
    let gateway = gateway();
    let mut body = stream(&gateway, 500).await.into_body();
    for _ in 0..20 {
        assert!(body.frame().await.unwrap().is_ok());
    }
    drop(body);
    assert_eq!(gateway.left(), [980, 1480]);
    assert_eq!(gateway.streams.in_flight("a").unwrap(), 0);
}

#[test]
fn cost_above_the_burst_is_no_denial() {
    let gateway = gateway();
    let members = [gateway.tokens.member("a").cost(1001), gateway.tenants.member("a").cost(1001)];
    let error = gateway.limiter.batch(&members).spend_estimate().unwrap_err();
    assert!(error.is_cost_above_burst(), "{error}");
    assert!(gateway.streams.acquire("a", 2).unwrap_err().is_cost_above_burst());
    assert_eq!(gateway.left(), [1000, 1500]);
}

#[tokio::test]
async fn panicking_handler_frees_its_permit() {
    let gateway = gateway();
    let handler = service_fn(|request: Request<()>| async move {
        if request.uri() == "/" {
            panic!("planned");
        }
        Ok::<_, Infallible>(Response::new(http_body_util::Empty::<Bytes>::new()))
    });
    let call = tokio::spawn(gateway.layer().layer(handler).oneshot(Request::new(())));
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(gateway.streams.in_flight("a").unwrap(), 0);
}
