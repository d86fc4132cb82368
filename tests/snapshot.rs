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
#[path = "snapshot/overrides.rs"]
mod overrides;
#[path = "snapshot/refused.rs"]
mod refused;
mod support;
#[path = "snapshot/traffic.rs"]
mod traffic;
#[path = "snapshot/untracked.rs"]
mod untracked;

use support::{ENGINES, full_size, limiter, limits, seconds};
use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, Limit, Limiter, LimiterOptions};

/// A limit that refills one unit an hour, which no test lasts.
fn slow(burst: u64) -> Limit {
    Limit::new(burst, 1, seconds(3600)).unwrap()
}

/// Options with a clock that stands still.
fn options(engine: Engine) -> (LimiterOptions, ManualClock) {
    let (clock, manual) = Clock::manual();
    (LimiterOptions::default().clock(clock).engine(engine), manual)
}

/// The used units of a bucket that holds `burst`, rounded up.
fn used(limiter: &Limiter, name: &str, id: &str, burst: u64) -> u64 {
    burst - limiter.limit(name).unwrap().check(id, 0).unwrap().remaining().unwrap()
}
