//! Readers, writers, bodies and streams under a limit of bytes, on a manual clock.

#![cfg(all(feature = "io", not(tollgate_loom)))]

mod bounds;
mod edges;
mod endless;
#[path = "../support/random.rs"]
mod random;
mod rates;
#[path = "../support/mod.rs"]
mod support;
mod threads;
#[allow(dead_code, reason = "the tests of waiting share this")]
#[path = "../wait/virtual_time.rs"]
mod virtual_time;

use std::cell::RefCell;
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::io::{Sleeper, Throttle};
use tollgate::options::Engine;
use tollgate::{KeyedLimit, Limit, Limiter};

use virtual_time::{Sleep, World};

impl Sleeper for World {
    type Sleep = Sleep;

    fn sleep(&self, time: Duration) -> Sleep {
        self.sleep_for(time)
    }
}

/// A limit of bytes, its clock and the world of the tasks.
struct Bench {
    limiter: Limiter,
    bytes: KeyedLimit,
    world: World,
    burst: u64,
    rate: u64,
}

impl Bench {
    /// A limit of `burst` bytes at once, then `rate` a second.
    fn new(burst: u64, rate: u64) -> Bench {
        let limit = Limit::new(burst, rate, Duration::from_secs(1)).unwrap();
        let (limiter, hand): (Limiter, ManualClock) =
            support::limiter(support::limits(&[("Bytes", limit)]), Engine::LockFree);
        let bytes = limiter.limit("Bytes").unwrap();
        Bench { limiter, bytes, world: World::new(hand), burst, rate }
    }

    fn throttle(&self) -> Throttle<World> {
        Throttle::new(self.bytes.clone(), "id", self.world.clone()).unwrap()
    }

    fn left(&self) -> u64 {
        self.bytes.check("id", 0).unwrap().remaining().unwrap()
    }
}

/// The deliveries of all streams: the time, the number of the stream and the bytes.
type Log = RefCell<Vec<(u64, usize, u64)>>;

/// Checks that in no interval more is delivered than the burst and the rate allow, for each pair of deliveries.
fn assert_bound(bench: &Bench, log: &Log) {
    let interval_ns = 1_000_000_000 / i128::from(bench.rate);
    let (mut sum, mut least) = (0_i128, i128::MAX);
    for &(at_ns, stream, bytes) in &*log.borrow() {
        // For each earlier delivery: the bytes before it, and the time until it.
        least = least.min(sum * interval_ns - i128::from(at_ns));
        sum += i128::from(bytes);
        let over_ns = sum * interval_ns - i128::from(at_ns) - least;
        let burst_ns = i128::from(bench.burst) * interval_ns;
        assert!(
            over_ns <= burst_ns,
            "{} bytes too many at {at_ns} ns, stream {stream}",
            (over_ns - burst_ns) / interval_ns
        );
    }
}
