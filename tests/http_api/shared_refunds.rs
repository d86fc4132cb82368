//! Refunds of layers whose limit several nodes share, beside those of a local limit: requests are answered late and in any
//! order.
#![cfg(all(feature = "tower", feature = "valkey"))]

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::sync::oneshot;
use tollgate::clock::ManualClock;
use tollgate::http::AsyncRateLimitLayer;
use tollgate::http::{RateLimitLayer, Rule, extract};
use tollgate::limit::Factor;
use tollgate::limits::{LimitMode, LimitOptions, Shared};
use tollgate::shared::{SharedLimit, Store, block_on};
use tollgate::{Clock, Decision, IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, ServiceExt};

use crate::full_size::full_size;
use crate::random::Random;

/// The histories of each limit.
fn histories() -> u64 {
    full_size(40, 5_000)
}

type Answer = oneshot::Receiver<StatusCode>;
type Responding = Pin<Box<dyn Future<Output = StatusCode>>>;

/// The cost of a request, and the factor of its client.
#[derive(Clone, Copy, Debug)]
struct Price {
    cost: u64,
    factor: Factor,
}

fn price(parts: &Parts) -> Price {
    parts.extensions.get().copied().unwrap()
}

/// A layer that refunds failed requests, and the handle of its limit.
struct Front {
    layer: AsyncRateLimitLayer,
    limit: SharedLimit,
}

/// A request that is under way.
struct Open {
    responding: Responding,
    answer: oneshot::Sender<StatusCode>,
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for a future that the store in memory makes ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(std::pin::pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the store in memory answers at once"),
    }
}

impl Front {
    fn new(limiter: &Limiter, name: &str) -> Front {
        let limit = limiter.shared(name).unwrap();
        let rule = Rule::shared(limit.clone(), extract::everyone("all"))
            .cost(|parts| price(parts).cost)
            .factor(|parts| price(parts).factor)
            .refund_if(|status| status == StatusCode::BAD_GATEWAY);
        let layer = RateLimitLayer::builder(limiter).rule(rule).build_shared().unwrap();
        Front { layer, limit }
    }

    /// Sends a request. The error is the status of one that was refused.
    fn open(&self, price: Price) -> Result<Open, StatusCode> {
        let service = self.layer.layer(tower::service_fn(|mut request: Request<()>| {
            let answer: Answer = request.extensions_mut().remove::<Shelf>().unwrap().take();
            async move {
                let mut response = Response::new(String::new());
                *response.status_mut() = answer.await.unwrap();
                Ok::<_, Infallible>(response)
            }
        }));
        let (answer, answered) = oneshot::channel();
        let mut request = Request::new(());
        request.extensions_mut().insert(price);
        request.extensions_mut().insert(Shelf::new(answered));
        let mut responding: Responding =
            Box::pin(async move { service.oneshot(request).await.unwrap().status() });
        match poll(responding.as_mut()) {
            Poll::Pending => Ok(Open { responding, answer }),
            Poll::Ready(status) => Err(status),
        }
    }

    fn check(&self) -> (bool, Option<u64>, Duration, Duration) {
        figures(block_on(self.limit.check("all", 1)).unwrap())
    }
}

impl Open {
    fn end(mut self, status: StatusCode) {
        self.answer.send(status).unwrap();
        assert_eq!(poll(self.responding.as_mut()), Poll::Ready(status));
    }
}

/// Carries the end of an answer in a request, whose parts are clones.
#[derive(Clone)]
struct Shelf(std::sync::Arc<std::sync::Mutex<Option<Answer>>>);

impl Shelf {
    fn new(answer: Answer) -> Shelf {
        Shelf(std::sync::Arc::new(std::sync::Mutex::new(Some(answer))))
    }

    fn take(&self) -> Answer {
        self.0.lock().unwrap().take().unwrap()
    }
}

fn figures(decision: Decision) -> (bool, Option<u64>, Duration, Duration) {
    (decision.allowed(), decision.remaining(), decision.retry_in(), decision.reset_in())
}

fn small() -> [Limit; 4] {
    let ms = Duration::from_millis;
    [
        Limit::new(5, 1, ms(100)).unwrap(),
        Limit::fixed_window(5, ms(500)).unwrap(),
        Limit::token_bucket(3, 6, ms(400)).unwrap(),
        Limit::leaky_bucket(5, 2, ms(100)).unwrap(),
    ]
}

/// The hands of the nodes' clock and of the store's.
struct Hands([ManualClock; 2]);

impl Hands {
    fn advance(&self, by: Duration) {
        self.0.iter().for_each(|hand| hand.advance(by));
    }
}

/// A front of a local limit, and those of two nodes of a shared one. Nodes of an exact limit have a clock that is not the store's:
/// they keep no denials, so that both answer as one limiter. Those of a leased one have the store's.
fn fronts(limit: &Limit, options: &LimitOptions, shared: Shared) -> (Front, [Front; 2], Hands) {
    let ((clock, hand), (other, other_hand)) = (Clock::manual(), Clock::manual());
    let store = Store::in_memory(if shared == Shared::Exact { other } else { clock.clone() });
    let node = || {
        let own =
            Limits::builder().limit_with("Own", IdFormat::String, limit.clone(), options.clone());
        let all = options.clone().shared(shared);
        let limits = own.unwrap().limit_with("All", IdFormat::String, limit.clone(), all).unwrap();
        let options = LimiterOptions::default().store(store.clone()).clock(clock.clone());
        Limiter::with_options(limits.build(), options).unwrap()
    };
    let nodes = [node(), node()];
    let own = Front::new(&nodes[0], "Own");
    let hands = Hands([hand, other_hand]);
    (own, nodes.each_ref().map(|node| Front::new(node, "All")), hands)
}

const TIMES_MS: [u64; 8] = [0, 1, 20, 50, 99, 100, 101, 300];

#[test]
fn refunds_in_the_store_equal_local_ones() {
    for (limit, seed) in
        small().iter().flat_map(|limit| (0..histories()).map(move |at| (limit, at)))
    {
        let mode = if seed % 4 == 0 { LimitMode::Shadow } else { LimitMode::Enforce };
        let (own, nodes, hand) = fronts(limit, &LimitOptions::default().mode(mode), Shared::Exact);
        let (mut random, mut open) = (Random(seed), Vec::new());
        let has_factors = seed % 3 != 0;
        let mut calls = vec![format!("{limit} {mode:?} {seed}")];
        for _ in 0..40 {
            let front = &nodes[random.below(2) as usize];
            let cost = random.below(4);
            match random.below(10) {
                0 | 1 => {
                    let by = TIMES_MS[random.below(8) as usize];
                    hand.advance(Duration::from_millis(by));
                    calls.push(format!("{by} ms later"));
                }
                2..=4 => {
                    let drawn = random.below(6) as usize;
                    let drawn = if has_factors { drawn } else { 0 };
                    let factor = ["1", "1", "1", "0.5", "0.7", "2"][drawn];
                    let price = Price { cost, factor: factor.parse().unwrap() };
                    calls.push(format!("open {price:?}"));
                    match (own.open(price), front.open(price)) {
                        (Ok(one), Ok(other)) => open.push((one, other)),
                        (one, other) => assert_eq!(one.err(), other.err(), "{calls:#?}"),
                    }
                }
                5..=7 if !open.is_empty() => {
                    let at = random.below(open.len() as u64) as usize;
                    let (one, other): (Open, Open) = open.swap_remove(at);
                    let status =
                        [StatusCode::OK, StatusCode::BAD_GATEWAY][random.below(2) as usize];
                    calls.push(format!("end {at} by {status}"));
                    one.end(status);
                    other.end(status);
                }
                8 => {
                    calls.push(format!("spend {cost}"));
                    let one = block_on(own.limit.spend("all", cost)).unwrap();
                    let other = block_on(front.limit.spend("all", cost)).unwrap();
                    assert_eq!(figures(one), figures(other), "{calls:#?}");
                }
                9 if cost == 3 => {
                    calls.push("refund 1".into());
                    let one = block_on(own.limit.refund("all", 1)).unwrap();
                    let other = now(front.limit.refund("all", 1)).unwrap();
                    assert_eq!(figures(one), figures(other), "{calls:#?}");
                }
                _ => {}
            }
            assert_eq!(own.check(), front.check(), "{calls:#?}");
        }
    }
}

/// Whether in no time more units were charged than a bucket of 50 with one each 100 ms has, and than were refunded.
fn assert_within_bound(charges: &[(u64, u64)], refunds: &[(u64, u64)], calls: &[String]) {
    for (first, (start_ms, _)) in charges.iter().enumerate() {
        let mut units = 0;
        for (at_ms, cost) in &charges[first..] {
            units += cost;
            let is_since = |it: &&(u64, u64)| (*start_ms..=*at_ms).contains(&it.0);
            let back: u64 = refunds.iter().filter(is_since).map(|it| it.1).sum();
            let most = 50 + (at_ms - start_ms) / 100 + back;
            assert!(units <= most, "{units} from {start_ms} to {at_ms}: {calls:#?}");
        }
    }
}

#[test]
fn refunds_beside_leases_keep_the_bound() {
    let limit = Limit::new(50, 1, Duration::from_millis(100)).unwrap();
    let mut refunded = 0;
    for seed in 0..histories() {
        let (_, nodes, hand) = fronts(&limit, &LimitOptions::default(), Shared::Leased);
        let (mut random, mut now_ms) = (Random(seed), 0);
        let (mut charges, mut refunds): (Vec<(u64, u64)>, _) = (Vec::new(), Vec::new());
        let (mut open, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let front = &nodes[random.below(2) as usize];
            match random.below(8) {
                0 => {
                    let by = [1, 1, 20, 100, 300, 1500][random.below(6) as usize];
                    hand.advance(Duration::from_millis(by));
                    now_ms += by;
                    calls.push(format!("{by} ms later"));
                }
                1..=5 => {
                    let price = Price { cost: 1 + random.below(3), factor: Factor::ONE };
                    if let Ok(one) = front.open(price) {
                        calls.push(format!("{} open {}", charges.len(), price.cost));
                        open.push((charges.len(), one));
                        charges.push((now_ms, price.cost));
                    }
                }
                _ if !open.is_empty() => {
                    let at = random.below(open.len() as u64) as usize;
                    let (charged, one): (usize, Open) = open.swap_remove(at);
                    let left = block_on(front.limit.check("all", 0)).unwrap().remaining();
                    if random.below(2) == 0 {
                        one.end(StatusCode::BAD_GATEWAY);
                        refunds.push((now_ms, charges[charged].1));
                        let after = block_on(front.limit.check("all", 0)).unwrap().remaining();
                        refunded += u64::from(after > left);
                        calls.push(format!("refund {charged}: {left:?} {after:?}"));
                    } else {
                        one.end(StatusCode::OK);
                    }
                }
                _ => {}
            }
        }
        assert_within_bound(&charges, &refunds, &calls);
    }
    assert!(refunded > histories(), "{refunded}");
}

/// The lease of the next limit may end at the same time as that of the limit before.
#[test]
fn refunds_after_a_reload_return_nothing() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let limits = |limit: Limit| {
        let leased = LimitOptions::default().shared(Shared::Leased);
        Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap().build()
    };
    let minutely = Limit::new(100, 1, Duration::from_secs(60)).unwrap();
    let options = LimiterOptions::default().store(store).clock(clock);
    let limiter = Limiter::with_options(limits(minutely), options).unwrap();
    let front = Front::new(&limiter, "All");
    hand.advance(Duration::from_secs(3600));
    let price = Price { cost: 1, factor: Factor::ONE };
    let open: Vec<Open> = (0..40).map(|_| front.open(price).unwrap()).collect();
    let hourly = Limit::new(100, 1, Duration::from_secs(36)).unwrap();
    limiter.reload(limits(hourly)).unwrap();
    let is_allowed = || block_on(front.limit.spend("all", 1)).unwrap().allowed();
    let mut spent = (0..3).filter(|_| is_allowed()).count();
    assert!(block_on(front.limit.check("all", 1)).unwrap().allowed(), "the node holds a lease");
    open.into_iter().for_each(|one| one.end(StatusCode::BAD_GATEWAY));
    while is_allowed() {
        spent += 1;
    }
    // 40 charges of a minute are 66 units of 36 s, and a part of one.
    assert_eq!(spent, 33);
}
