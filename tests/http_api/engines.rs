//! The layer on both engines: the same answers to the same requests. On the lock-free table requests of known clients take
//! the fast path.
#![cfg(all(feature = "exact", feature = "tower"))]

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::Full;
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::http::{Fields, RateLimitLayer, Report, Reset, Rule, Style, Who, extract};
use tollgate::options::Engine;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, Service};

const NAMES: [&str; 4] = ["Fast", "Slow", "Window", "Trial"];
const CLIENTS: [&str; 3] = ["alice", "bob", "many"];

/// The rules and options of a layer.
#[derive(Clone, Debug)]
struct Plan {
    /// Positions in `NAMES`, each at most once.
    rules: Vec<usize>,
    style: usize,
    refunds: bool,
    permissive: bool,
    partitions: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Ask { client: usize, cost: u64, status: u16 },
    Advance(u64),
    Block(usize),
    Unblock(usize),
}

/// Answers with the status that the request names.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let mut response = Response::new(Full::default());
        *response.status_mut() =
            StatusCode::from_bytes(request.headers()["status"].as_bytes()).unwrap();
        if let Some(report) = request.extensions().get::<Report>() {
            response.extensions_mut().insert(report.clone());
        }
        std::future::ready(Ok(response))
    }
}

struct Side {
    limiter: Limiter,
    layer: RateLimitLayer,
    hand: ManualClock,
}

fn user() -> HeaderName {
    HeaderName::from_static("user")
}

fn number(request: &http::request::Parts, name: &str) -> u64 {
    request.headers[name].to_str().unwrap().parse().unwrap()
}

impl Side {
    fn new(engine: Engine, plan: &Plan) -> Side {
        let (clock, hand) = Clock::manual();
        let gcra = |burst, seconds| Limit::new(burst, 1, Duration::from_secs(seconds)).unwrap();
        let limits = Limits::builder()
            .limit("Fast", IdFormat::String, gcra(3, 1))
            .unwrap()
            .limit("Slow", IdFormat::String, gcra(5, 7))
            .unwrap()
            .limit(
                "Window",
                IdFormat::String,
                Limit::fixed_window(4, Duration::from_secs(5)).unwrap(),
            )
            .unwrap()
            .limit_with("Trial", IdFormat::String, gcra(2, 3), trial())
            .unwrap()
            .override_id("Fast", "many", gcra(9, 2))
            .unwrap();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let styles = [
            vec![],
            vec![Style::Ietf],
            vec![Style::Draft06, Style::XRateLimit(Reset::Delta)],
            vec![Style::Sharkey],
        ];
        let fields = Fields::new(styles[plan.style].clone()).unwrap();
        let mut builder =
            RateLimitLayer::builder(&limiter).fields(fields).permissive(plan.permissive);
        for &at in &plan.rules {
            let mut rule = Rule::new(limiter.limit(NAMES[at]).unwrap(), extract::header(user()))
                .cost(|request| number(request, "cost"));
            if plan.refunds {
                rule = rule.refund_if(|status| status.is_server_error());
            }
            if plan.partitions {
                rule = rule.partition(|request| Some(request.headers["user"].as_bytes().to_vec()));
            }
            builder = builder.rule(rule);
        }
        Side { layer: builder.build().unwrap(), limiter, hand }
    }

    /// Makes the call. Returns its answer and all buckets after it, as text.
    fn run(&self, op: &Op) -> String {
        let said = match *op {
            Op::Ask { client, cost, status } => {
                let mut request = Request::new(());
                let fields = [
                    ("user", CLIENTS[client].to_owned()),
                    ("cost", cost.to_string()),
                    ("status", status.to_string()),
                ];
                for (name, value) in fields {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
                let answer = answer(&self.layer, request);
                let report = answer.extensions().get::<Report>();
                format!("{} {:?} {report:?}", answer.status(), answer.headers())
            }
            Op::Advance(ms) => {
                self.hand.advance(Duration::from_millis(ms));
                String::new()
            }
            Op::Block(client) => {
                let fast = self.limiter.limit("Fast").unwrap();
                format!("{:?}", fast.block(CLIENTS[client], Duration::from_secs(4)).is_ok())
            }
            Op::Unblock(client) => {
                format!("{:?}", self.limiter.limit("Fast").unwrap().unblock(CLIENTS[client]))
            }
        };
        let look = |name, client| {
            format!("{:?}", self.limiter.limit(name).unwrap().check(client, 0).unwrap())
        };
        let buckets: Vec<_> =
            NAMES.iter().flat_map(|name| CLIENTS.map(|client| look(name, client))).collect();
        format!("{said} {buckets:?}")
    }
}

fn trial() -> tollgate::limits::LimitOptions {
    tollgate::limits::LimitOptions::default().mode(tollgate::limits::LimitMode::Shadow)
}

fn answer(layer: &RateLimitLayer, request: Request<()>) -> Response<()> {
    let mut service = layer.layer(Inner);
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let future = std::pin::pin!(service.call(request));
    match future.poll(&mut context) {
        Poll::Ready(Ok(response)) => response.map(drop),
        Poll::Pending => panic!("nothing waits here"),
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let rules = prop::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_shuffle();
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (rules, 0..4_usize, flags).prop_map(|(rules, style, (refunds, permissive, partitions))| Plan {
        rules,
        style,
        refunds,
        permissive,
        partitions,
    })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let status = prop_oneof![4 => Just(200_u16), 1 => Just(503), 1 => Just(429)];
    let cost = prop_oneof![6 => Just(1_u64), 2 => 0..4_u64, 1 => Just(8)];
    let client = || 0..CLIENTS.len();
    let op = prop_oneof![
        12 => (client(), cost, status).prop_map(|(client, cost, status)| Op::Ask { client, cost, status }),
        4 => (0..3_000_u64).prop_map(Op::Advance),
        1 => client().prop_map(Op::Block),
        1 => client().prop_map(Op::Unblock),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #[test]
    fn layers_answer_alike_on_both_engines(plan in plans(), ops in ops()) {
        let [lock_free, exact] =
            [Engine::LockFree, Engine::Exact].map(|engine| Side::new(engine, &plan));
        for op in &ops {
            prop_assert_eq!(lock_free.run(op), exact.run(op), "{:?}", op);
        }
    }
}

/// A rule's closures are called before the charge.
#[test]
fn panicking_closures_charge_nothing() {
    for (engine, has_second) in
        [Engine::LockFree, Engine::Exact].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let plan =
            Plan { rules: vec![0], style: 1, refunds: false, permissive: false, partitions: false };
        let limiter = Side::new(engine, &plan).limiter;
        let (fast, slow) = (limiter.limit("Fast").unwrap(), limiter.limit("Slow").unwrap());
        let rule = || {
            Rule::new(fast.clone(), |_| Who::from("alice"))
                .partition(|_| panic!("as a closure may"))
        };
        let builder = RateLimitLayer::builder(&limiter);
        let builder = match has_second {
            false => builder.rule(rule()),
            true => builder.rule(Rule::new(slow.clone(), |_| Who::from("alice"))).rule(rule()),
        };
        let layer = builder.build().unwrap();
        assert!(fast.spend("alice", 1).unwrap().allowed(), "so that the bucket is known");
        assert!(slow.spend("alice", 1).unwrap().allowed());
        let asked = catch_unwind(AssertUnwindSafe(|| answer(&layer, Request::new(()))));
        assert!(asked.is_err());
        assert_eq!(fast.check("alice", 0).unwrap().remaining(), Some(2), "{engine:?}");
        assert_eq!(slow.check("alice", 0).unwrap().remaining(), Some(4), "{engine:?}");
    }
}
