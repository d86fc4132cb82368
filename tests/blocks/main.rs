//! Blocked ids: denied for a time, whatever their buckets hold.
#![cfg(not(tollgate_loom))]

mod calls;
#[cfg(feature = "tower")]
mod layer;
mod listed;
mod promises;
#[cfg(feature = "snapshot")]
mod snapshots;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{KeyedLimit, Limit, Limiter, Limits};

use support::ms;

const NS: Duration = Duration::from_nanos(1);

/// Limits of 4 units at once, about one per 10 ms.
fn limits_of_all() -> [Limit; 4] {
    support::limits_of_all(4, ms(10))
}

/// The limit under test, "Own", and another.
fn limits(limit: &Limit) -> Limits {
    support::limits(&[("Own", limit.clone()), ("Other", Limit::new(9, 1, ms(1)).unwrap())])
}

/// A limiter whose clock is some time after its origin, so that a window may begin before a block does.
fn on(limit: &Limit, engine: Engine) -> (Limiter, KeyedLimit, ManualClock) {
    let (limiter, hand) = support::limiter(limits(limit), engine);
    hand.set(ms(1000));
    let handle = limiter.limit("Own").unwrap();
    (limiter, handle, hand)
}
