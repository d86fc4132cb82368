//! Snapshots: their content, the files that are refused, and a file's state after kills and full disks.
#![cfg(feature = "snapshot")]

#[path = "snapshot/beside.rs"]
mod beside;
#[path = "snapshot/damage.rs"]
mod damage;
#[path = "snapshot/figures.rs"]
mod figures;
#[path = "snapshot/golden.rs"]
mod golden;
#[cfg(unix)]
#[path = "snapshot/kill.rs"]
mod kill;
#[path = "snapshot/refused.rs"]
mod refused;
#[path = "snapshot/traffic.rs"]
mod traffic;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

const ENGINES: [Engine; 2] = [Engine::LockFree, Engine::Exact];

/// A limit that refills one unit an hour, which no test lasts.
fn slow(burst: u64) -> Limit {
    Limit::new(burst, 1, Duration::from_secs(3600)).unwrap()
}

fn limits(named: &[(&str, Limit)]) -> Limits {
    let mut builder = Limits::builder();
    for (name, limit) in named {
        builder = builder.limit(name, IdFormat::String, limit.clone()).unwrap();
    }
    builder.build()
}

/// Options with a clock that stands still.
fn options(engine: Engine) -> (LimiterOptions, ManualClock) {
    let (clock, manual) = Clock::manual();
    (LimiterOptions::default().clock(clock).engine(engine), manual)
}

fn limiter(limits: Limits, engine: Engine) -> (Limiter, ManualClock) {
    let (options, manual) = options(engine);
    (Limiter::with_options(limits, options), manual)
}

/// Returns the used units of a bucket of `burst`, rounded up.
fn used(limiter: &Limiter, name: &str, id: &str, burst: u64) -> u64 {
    burst - limiter.limit(name).unwrap().check(id, 0).unwrap().remaining().unwrap()
}
