//! Ids that are blocked: denied for a time, whatever their buckets hold.
#![cfg(not(tollgate_loom))]

#[path = "blocks/calls.rs"]
mod calls;
#[cfg(feature = "tower")]
#[path = "blocks/layer.rs"]
mod layer;
#[path = "blocks/listed.rs"]
mod listed;
#[path = "blocks/promises.rs"]
mod promises;
#[cfg(feature = "snapshot")]
#[path = "blocks/snapshots.rs"]
mod snapshots;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

const NS: Duration = Duration::from_nanos(1);
const ENGINES: [Engine; 2] = [Engine::LockFree, Engine::Exact];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limit of each algorithm, one unit every 10 ms or so, at most 4 at once.
fn limits_of_all() -> [Limit; 4] {
    [
        Limit::new(4, 1, ms(10)).unwrap(),
        Limit::fixed_window(4, ms(40)).unwrap(),
        Limit::token_bucket(8, ms(80), 4).unwrap(),
        Limit::leaky_bucket(4, ms(10), 1).unwrap(),
    ]
}

fn limits(limit: &Limit) -> Limits {
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let other = Limit::new(9, 1, ms(1)).unwrap();
    limits.limit("Other", IdFormat::String, other).unwrap().build()
}

fn on(limit: &Limit, engine: Engine) -> (Limiter, KeyedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    // Some time after the origin: windows may begin before a block does.
    hand.set(ms(1000));
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limiter = Limiter::with_options(limits(limit), options);
    let handle = limiter.limit("Own").unwrap();
    (limiter, handle, hand)
}

fn standing(handle: &KeyedLimit) -> Decision {
    handle.check("id", 1).unwrap()
}
