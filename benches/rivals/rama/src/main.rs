//! Prints what `--bin bandwidth` of the rivals does, for rama's throttled reader and for Tollgate's.

#[allow(dead_code, reason = "the rivals measure streams as well")]
#[path = "../../src/chunks.rs"]
mod chunks;
#[path = "../../src/machine.rs"]
mod machine;

use std::time::Duration;

use chunks::{Free, SIZES, reads};
use rama_net::stream::layer::{ThrottleMode, ThrottledIo};
use rama_utils::rate::{Rate, RateLimiter};
use tollgate::io::Throttle;
use tollgate::{KeyedLimit, Limit};

const ROUNDS: usize = 15;
const CHUNKS: usize = 500_000;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!("{}", machine::description());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    // rama takes the time of tokio's clock.
    let _entered = runtime.enter();
    // 1 GB/s, and a burst that no run uses up.
    let limit = Limit::new(1 << 52, 1_000_000_000, Duration::from_secs(1)).expect("a limit");
    let bytes = KeyedLimit::new("Bytes", limit).expect("a name");
    let throttle = Throttle::new(bytes, "alice", tokio::time::sleep).expect("gcra");
    let limiter = RateLimiter::new(Rate::per_sec(1_000_000_000), 1 << 52);
    for size in SIZES {
        let (mut ours, mut ramas) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(reads(throttle.reader(Free(size)), CHUNKS, size));
            let mode = ThrottleMode::shared(limiter.clone());
            ramas.push(reads(ThrottledIo::new(Free(size)).with_read_mode(mode), CHUNKS, size));
        }
        let (ours, ramas) = (median(ours), median(ramas));
        println!("a chunk of {size} bytes: tollgate {ours:.1} ns, rama {ramas:.1} ns");
    }
}
