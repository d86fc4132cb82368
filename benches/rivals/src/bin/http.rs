//! Measures the time that Tollgate's layer and tower_governor's add to a request, compared with a service without a
//! layer, in one run.
//!
//!     cargo run --release --manifest-path benches/rivals/Cargo.toml --bin http
//!
//! Each call consists of `poll_ready`, `call`, one `poll` and the drop of its response. The requests are built before
//! the clock starts, and come from 1,024 clients in turn. At the end, the medians of interleaved rounds show the time
//! that each layer adds, and whether Tollgate's layers add at most a microsecond. `-- --quick --rounds 1` is too short
//! to measure, and only checks the answers.

use std::time::{Duration, Instant};

use clap::Parser;
use criterion::{BatchSize, Criterion};
use http::{Request, StatusCode};
use rivals::layers::{Call, bare, governor, request, tollgate};
use rivals::verdict::print_at_most;
use tollgate::http::{Reset, Style};

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

fn requests(first: u32) -> impl FnMut() -> Request<()> {
    let mut client = first;
    move || {
        client = (client + 1) % CLIENTS;
        request(client)
    }
}

/// A case: its name, whether it has a target, the call, and the expected status.
type Case = (&'static str, bool, Call, StatusCode);

fn cases() -> Vec<Case> {
    const MANY: u32 = 1 << 30;
    let (ok, no) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let many = u64::from(MANY);
    let x = || vec![Style::XRateLimit(Reset::Delta)];
    vec![
        ("bare", false, bare(), ok),
        ("tollgate, no fields", true, tollgate(vec![], 1, many), ok),
        ("tollgate, RateLimit", true, tollgate(vec![Style::Ietf], 1, many), ok),
        ("tollgate, X-RateLimit", true, tollgate(x(), 1, many), ok),
        ("tollgate, 2 limits, RateLimit", true, tollgate(vec![Style::Ietf], 2, many), ok),
        ("tower_governor", false, governor(false, MANY), ok),
        ("tower_governor, headers", false, governor(true, MANY), ok),
        ("tollgate, denied", false, tollgate(vec![Style::Ietf], 1, 1), no),
        ("tower_governor, denied", false, governor(true, 1), no),
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
