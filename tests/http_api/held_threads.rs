//! What requests of several threads hold, beside reloads, lifts, sweeps, bodies that are dropped and handlers that fail.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use tollgate::http::{Charge, RateLimitLayer, ResponseBody, Rule, extract};
use tollgate::options::Engine;
use tollgate::{
    Clock, ConcurrencyLimit, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits,
};
use tower::{Layer, ServiceExt, service_fn};

use super::frames::Frames;
use super::full_size::full_size;
use super::random::Random;

const MAX: u64 = 3;
const ESTIMATE: u64 = 8;
/// No request is denied by its tokens.
const TOKENS: u64 = 100_000_000;
const THREADS: u64 = 4;
/// The times in which the limit applies: it is lifted between two of them.
const TIMES: usize = 10_000;
/// The lifts that are waited for.
const FEW_LIFTS: usize = 10;

fn limits(max: Option<u64>, other: u64) -> Limits {
    let hour = Duration::from_secs(3600);
    let streams = max.map(|max| Limit::concurrency(max).unwrap());
    Limits::builder()
        .limit("Streams", IdFormat::String, streams)
        .unwrap()
        .limit("Tokens", IdFormat::String, Limit::new(TOKENS, TOKENS, hour).unwrap())
        .unwrap()
        .limit("Other", IdFormat::String, Limit::new(other, other, hour).unwrap())
        .unwrap()
        .build()
}

struct Gate {
    limiter: Limiter,
    layer: RateLimitLayer,
    streams: ConcurrencyLimit,
    tokens: KeyedLimit,
    /// Twice the number of lifts; odd while the limit may be lifted.
    time: AtomicUsize,
    /// The requests that are served, by the time in which they were admitted: counted from the handler's call on.
    served: Vec<AtomicU64>,
    /// The units that must be charged in the end.
    settled: AtomicU64,
    is_done: AtomicBool,
}

impl Gate {
    fn new(engine: Engine) -> Gate {
        let options = LimiterOptions::default().engine(engine).clock(Clock::manual().0);
        let limiter = Limiter::with_options(limits(Some(MAX), 5), options).unwrap();
        let (streams, tokens) =
            (limiter.concurrency("Streams").unwrap(), limiter.limit("Tokens").unwrap());
        let all = || extract::everyone("all");
        let layer = RateLimitLayer::builder(&limiter)
            .rule(Rule::in_flight(streams.clone(), all()))
            .rule(Rule::new(tokens.clone(), all()).estimate(|_| ESTIMATE))
            .build()
            .unwrap();
        let served = (0..TIMES).map(|_| AtomicU64::new(0)).collect();
        let (time, settled) = (AtomicUsize::new(0), AtomicU64::new(0));
        let is_done = AtomicBool::new(false);
        Gate { limiter, layer, streams, tokens, time, served, settled, is_done }
    }

    fn reload(&self, max: Option<u64>, other: u64) {
        self.limiter.reload(limits(max, other)).unwrap();
    }

    /// Reloads, lifts and sweeps until the requests are done.
    fn change(&self) {
        for time in 0.. {
            if self.is_done.load(Ordering::SeqCst) {
                return;
            }
            let other = 5 + time as u64 % 2;
            self.limiter.sweep(16);
            self.reload(Some(MAX - 1), other);
            self.reload(Some(MAX), other);
            if time + 1 < TIMES {
                self.time.fetch_add(1, Ordering::SeqCst);
                self.reload(None, other);
                self.reload(Some(MAX), other);
                self.time.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A body of this number of frames.
fn frames(count: u64) -> Frames<u64, Infallible> {
    Frames::new(count, |left, _| {
        let frame = left.checked_sub(1).map(|now| *left = now);
        Poll::Ready(frame.map(|()| Ok(Frame::data(Bytes::from_static(b"x")))))
    })
}

/// A request that is served.
struct Open {
    response: Response<ResponseBody<Frames<u64, Infallible>>>,
    /// The time in which it was admitted, if the limit applied.
    time: Option<usize>,
    charge: Charge,
    is_settled: bool,
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// One thread's requests.
struct Client<'g> {
    gate: &'g Gate,
    random: Random,
    open: Vec<Open>,
    made: u64,
    admitted: u64,
    denied: u64,
}

impl Client<'_> {
    fn request(&mut self) {
        let gate = self.gate;
        let way = self.random.below(8);
        let before = gate.time.load(Ordering::SeqCst);
        let charge = Arc::new(Mutex::new(None));
        let kept = charge.clone();
        let handler = service_fn(move |request: Request<()>| {
            *kept.lock().unwrap() = Some(Charge::of(request.extensions()));
            async move {
                match way {
                    0 => Err("failed"),
                    1 => std::future::pending().await,
                    _ => Ok(Response::new(frames(3))),
                }
            }
        });
        let mut call = pin!(gate.layer.layer(handler).oneshot(Request::new(())));
        let answer = poll_once(call.as_mut());
        let Some(charge) = charge.lock().unwrap().take() else {
            assert!(answer.is_some_and(|it| it.unwrap().status() == 429), "no handler was called");
            self.denied += 1;
            return;
        };
        self.admitted += 1;
        let is_lifted = before % 2 == 1 || before != gate.time.load(Ordering::SeqCst);
        let time = (!is_lifted).then_some(before / 2);
        if let Some(Ok(response)) = answer {
            if let Some(time) = time {
                let served = gate.served[time].fetch_add(1, Ordering::SeqCst) + 1;
                assert!(served <= MAX, "{served} at once");
            }
            self.open.push(Open { response, time, charge, is_settled: false });
        } else {
            // The call has failed, or the client goes away: the estimate stays.
            assert_eq!(answer.is_none(), way == 1);
            gate.settled.fetch_add(ESTIMATE, Ordering::SeqCst);
        }
    }

    fn settle(&mut self, open: &mut Open) {
        let actual = self.random.below(2 * ESTIMATE);
        assert!(open.charge.settle("Tokens", actual).is_some(), "once");
        assert!(open.charge.settle("Tokens", actual).is_none(), "not twice");
        open.is_settled = true;
        self.gate.settled.fetch_add(actual, Ordering::SeqCst);
    }

    /// Ends a response: reads it, or drops it in the middle.
    fn end(&mut self, at: usize) {
        let mut open = self.open.swap_remove(at);
        let settles = self.random.below(4);
        if settles == 0 {
            self.settle(&mut open);
        }
        let frames = self.random.below(4);
        for _ in 0..frames {
            let body = pin!(open.response.body_mut());
            assert!(body.poll_frame(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        if settles == 1 {
            self.settle(&mut open);
        }
        // Before the permit goes back.
        if let Some(time) = open.time {
            self.gate.served[time].fetch_sub(1, Ordering::SeqCst);
        }
        if frames == 3 {
            let body = pin!(open.response.body_mut());
            let end = body.poll_frame(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(end, Poll::Ready(None)));
        }
        let Open { response, charge, is_settled, .. } = open;
        drop(response);
        match (is_settled, settles) {
            (true, _) => {}
            // After the response, by the clone that a task of the handler would keep.
            (false, 2) => {
                let actual = self.random.below(2 * ESTIMATE);
                assert!(charge.settle("Tokens", actual).is_some(), "later");
                self.gate.settled.fetch_add(actual, Ordering::SeqCst);
            }
            (false, _) => {
                self.gate.settled.fetch_add(ESTIMATE, Ordering::SeqCst);
            }
        }
    }

    fn run(mut self, requests: u64) -> (u64, u64) {
        let has_few_lifts = |gate: &Gate| gate.time.load(Ordering::SeqCst) < 2 * FEW_LIFTS;
        while self.made < requests || has_few_lifts(self.gate) {
            self.made += 1;
            self.request();
            while self.open.len() > 2 || !self.open.is_empty() && self.random.chance(1, 2) {
                let at = self.random.below(self.open.len() as u64) as usize;
                self.end(at);
            }
        }
        while !self.open.is_empty() {
            self.end(0);
        }
        (self.admitted, self.denied)
    }
}

fn requests_of_threads(engine: Engine) {
    let gate = Gate::new(engine);
    let requests = full_size(5_000, 200_000);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|seed| {
                let (gate, random, open) = (&gate, Random(seed), Vec::new());
                let client = Client { gate, random, open, made: 0, admitted: 0, denied: 0 };
                scope.spawn(move || client.run(requests))
            })
            .collect();
        scope.spawn(|| gate.change());
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        gate.is_done.store(true, Ordering::SeqCst);
        let ended = ended.into_iter().map(Result::unwrap);
        let (admitted, denied) =
            ended.fold((0, 0), |all, (admitted, denied)| (all.0 + admitted, all.1 + denied));
        let lifts = gate.time.load(Ordering::SeqCst) / 2;
        println!("{engine:?}: {admitted} admitted, {denied} denied, {lifts} lifts");
        assert!(admitted > requests && denied > requests / 20, "{admitted} and {denied}");
    });
    assert_eq!((gate.streams.in_flight("all").unwrap(), gate.streams.total_in_flight()), (0, 0));
    let (decision, all) = gate.streams.acquire("all", MAX).unwrap();
    assert!(decision.allowed(), "{engine:?}: all are back");
    drop(all);
    let left = gate.tokens.check("all", 0).unwrap().remaining().unwrap();
    assert_eq!(TOKENS - left, gate.settled.load(Ordering::SeqCst), "{engine:?}: units");
}

#[test]
fn threads_of_requests_settle_and_give_back() {
    requests_of_threads(Engine::LockFree);
    #[cfg(feature = "exact")]
    requests_of_threads(Engine::Exact);
}
