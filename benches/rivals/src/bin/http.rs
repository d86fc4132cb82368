//! Measures the time that Tollgate's layer and tower_governor's add to a request, compared with a service without a
//! layer, in one run.
//!
//!     cargo run --release --manifest-path benches/rivals/Cargo.toml --bin http
//!
//! Each call consists of `poll_ready`, `call`, one `poll` and the drop of its response. The requests are built before
//! the clock starts, and come from 1,024 clients in turn. At the end, the medians of interleaved rounds show the time
//! that each layer adds, and whether Tollgate's layers add at most a microsecond. `-- --quick --rounds 1` is too short
//! to measure, and only checks the answers.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use clap::Parser;
use criterion::{BatchSize, Criterion};
use http::{Request, Response, StatusCode};
use rivals::verdict::print_at_most;
use tollgate::http::{ClientAddress, Fields, RateLimitLayer, Reset, Rule, Style, extract};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const CLIENTS: u32 = 1_024;
/// The number of requests that are built before the clock starts. They fit into the processor's first caches, in which
/// a server also has a request that it has just read from a connection.
const BATCH: u32 = 32;
const BATCHES: u32 = 100;
/// The most that Tollgate's layer may add to a request, in nanoseconds.
const ADDED_NS_MAX: f64 = 1000.0;

/// Measures the time that each layer adds to a request.
#[derive(Parser)]
struct Args {
    /// The number of interleaved rounds.
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Leaves out criterion's own measurement of each layer.
    #[arg(long)]
    quick: bool,
}

type Call = Box<dyn FnMut(Request<()>) -> StatusCode>;

/// The service behind each layer: it answers with an empty response.
#[derive(Clone)]
struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(&request);
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

fn boxed<S, B>(mut service: S) -> Call
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + 'static,
{
    Box::new(move |request| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        match pin!(service.call(request)).poll(&mut context) {
            Poll::Ready(Ok(response)) => response.status(),
            Poll::Pending => panic!("the service did not answer in one poll"),
        }
    })
}

fn request(client: u32) -> Request<()> {
    let mut request = Request::new(());
    let [.., a, b] = client.to_be_bytes();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, a, b], 80))));
    request
}

fn requests(first: u32) -> impl FnMut() -> Request<()> {
    let mut client = first;
    move || {
        client = (client + 1) % CLIENTS;
        request(client)
    }
}

/// Makes Tollgate's layer with these styles and this number of limits. `burst` is 1, or more than the calls of the run.
fn ours(styles: Vec<Style>, limits: usize, burst: u64) -> Call {
    let day = Duration::from_secs(86_400);
    let limit = Limit::new(burst, if burst > 1 { 1_000_000 } else { 1 }, day).expect("a limit");
    let mut builder = Limits::builder();
    for nth in 0..limits {
        let name = format!("PerClient{nth}");
        builder = builder.limit(&name, IdFormat::IpAddress, limit.clone()).expect("a new name");
    }
    let limiter = Limiter::new(builder.build());
    let fields = Fields::new(styles).expect("the styles write different fields");
    let mut layer = RateLimitLayer::builder(&limiter).fields(fields);
    for nth in 0..limits {
        let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
        let handle = limiter.limit(&format!("PerClient{nth}")).expect("a known name");
        layer = layer.rule(Rule::new(handle, extract::client(clients)));
    }
    boxed(layer.build().expect("rules").layer(Bare))
}

fn governor(burst: u32) -> Call {
    let period = Duration::from_millis(if burst > 1 { 1 } else { 86_400_000 });
    let config = GovernorConfigBuilder::default().period(period).burst_size(burst).finish();
    boxed(GovernorLayer::new(config.expect("a quota")).layer(Bare))
}

fn governor_with_headers(burst: u32) -> Call {
    let period = Duration::from_millis(if burst > 1 { 1 } else { 86_400_000 });
    let config =
        GovernorConfigBuilder::default().period(period).burst_size(burst).use_headers().finish();
    boxed(GovernorLayer::new(config.expect("a quota")).layer(Bare))
}

/// A case: its name, whether it has a target, the call, and the expected status.
type Case = (&'static str, bool, Call, StatusCode);

fn cases() -> Vec<Case> {
    const MANY: u32 = 1 << 30;
    let (ok, no) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let many = u64::from(MANY);
    let x = || vec![Style::XRateLimit(Reset::Delta)];
    vec![
        ("bare", false, boxed(Bare), ok),
        ("tollgate, no fields", true, ours(vec![], 1, many), ok),
        ("tollgate, RateLimit", true, ours(vec![Style::Ietf], 1, many), ok),
        ("tollgate, X-RateLimit", true, ours(x(), 1, many), ok),
        ("tollgate, 2 limits, RateLimit", true, ours(vec![Style::Ietf], 2, many), ok),
        ("tower_governor", false, governor(MANY), ok),
        ("tower_governor, headers", false, governor_with_headers(MANY), ok),
        ("tollgate, denied", false, ours(vec![Style::Ietf], 1, 1), no),
        ("tower_governor, denied", false, governor_with_headers(1), no),
    ]
}

/// Returns the mean time of a call in one round.
fn round(call: &mut Call, expected: StatusCode) -> Duration {
    let mut spent = Duration::ZERO;
    for batch in 0..BATCHES {
        let first = batch * BATCH;
        let requests: Vec<_> =
            (first..first + BATCH).map(|client| request(client % CLIENTS)).collect();
        let start = Instant::now();
        for request in requests {
            assert_eq!(call(request), expected);
        }
        spent += start.elapsed();
    }
    spent / (BATCH * BATCHES)
}

fn main() {
    let args = Args::parse();
    let mut cases = cases();
    for (_, _, call, _) in &mut cases {
        // The first call of each client; with a burst of 1, later calls are denied.
        (0..CLIENTS).for_each(|client| assert_eq!(call(request(client)), StatusCode::OK));
    }
    if !args.quick {
        measure(&mut cases);
    }
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); cases.len()];
    for _ in 0..args.rounds {
        for ((_, _, call, expected), times) in cases.iter_mut().zip(&mut times) {
            times.push(round(call, *expected));
        }
    }
    let medians = times.iter_mut().map(|times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let medians: Vec<_> = medians.collect();
    println!("added to a bare request of {:?}, median of {} rounds:", medians[0], args.rounds);
    for ((name, is_ours, ..), median) in cases.iter().zip(&medians).skip(1) {
        let added_ns = median.saturating_sub(medians[0]).as_nanos() as f64;
        if *is_ours {
            print_at_most(name, added_ns, ADDED_NS_MAX, " ns");
        } else {
            println!("{name}: {added_ns:.2} ns");
        }
    }
}

/// Measures each case with criterion, one after the other.
fn measure(cases: &mut [Case]) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    let mut group = criterion.benchmark_group("layer");
    for (name, _, call, expected) in cases {
        group.bench_function(*name, |bencher| {
            bencher.iter_batched(
                requests(0),
                |request| assert_eq!(call(request), *expected),
                BatchSize::NumIterations(u64::from(BATCH)),
            );
        });
    }
    group.finish();
    println!();
}
