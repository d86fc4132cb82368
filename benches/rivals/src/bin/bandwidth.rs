//! Measures what throttling adds to a read of a chunk, at a limit that never waits.

use std::time::Duration;

use async_speed_limit::Limiter as SpeedLimiter;
use clap::Parser;
use comfy_table::Table;
use governor::state::StreamRateLimitExt;
use governor::{Quota, RateLimiter};
use rivals::chunks::{Free, SIZES, items, reads};
use rivals::machine;
use tollgate::io::Throttle;
use tollgate::{KeyedLimit, Limit};

/// Nanoseconds of the processor per chunk: the throttled readers of Tollgate and async-speed-limit, and governor's throttled
/// stream of chunks, which counts items and not bytes. rama is measured by the package in `rama/`.
#[derive(Parser)]
struct Args {
    /// Rounds of each contender; the figure is their median.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Chunks a round.
    #[arg(long, default_value_t = 500_000)]
    chunks: usize,
}

fn main() {
    let args = Args::parse();
    println!("{}", machine::description());
    let second = Duration::from_secs(1);
    // 1 GB/s, the largest rate in bytes, and a burst that no run uses up.
    let limit = Limit::new(1 << 52, 1_000_000_000, second).expect("a limit");
    let bytes = KeyedLimit::new("Bytes", limit).expect("a name");
    let throttle = Throttle::new(bytes, "alice", tokio::time::sleep).expect("gcra");
    let speed = <SpeedLimiter>::new(1e15);
    let quota = Quota::per_second(u32::MAX.try_into().expect("not 0"));
    let items_limit = RateLimiter::direct(quota);
    let names = ["nothing", "tollgate", "async-speed-limit", "governor, items"];
    let mut table = Table::new();
    table.set_header(
        ["reader"]
            .into_iter()
            .map(String::from)
            .chain(SIZES.map(|size| format!("ns a chunk of {size} bytes"))),
    );
    let mut rows = names.map(|name| vec![name.to_owned()]);
    for size in SIZES {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..args.rounds {
            times[0].push(reads(Free(size), args.chunks, size));
            times[1].push(reads(throttle.reader(Free(size)), args.chunks, size));
            times[2].push(reads(speed.clone().limit(Free(size)), args.chunks, size));
            times[3].push(items(Free(size).ratelimit_stream(&items_limit), args.chunks, size));
        }
        for (row, mut times) in rows.iter_mut().zip(times) {
            times.sort_by(f64::total_cmp);
            row.push(format!("{:.1}", times[times.len() / 2]));
        }
    }
    table.add_rows(rows);
    println!("{table}");
}
