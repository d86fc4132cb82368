//! Waiting, reserving, cancelling, and settling estimates.

#![cfg(not(tollgate_loom))]

mod batch_meetings;
mod batches;
mod batches_found;
mod dropped;
mod goes_away;
mod herd;
mod kept;
mod meetings;
mod permits;
mod places;
#[path = "../support/random.rs"]
mod random;
mod retry;
mod rounds;
mod settle;
mod share;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod vacant;
mod virtual_time;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::reserve::Reservation;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use random::Random;
use support::{ENGINES, ms, state};

const MS: u64 = 1_000_000;

/// Limits of `burst` units at once, about one per ms.
fn limits_of_all(burst: u64) -> [Limit; 4] {
    support::limits_of_all(burst, ms(1))
}

fn limiter_on(limit: &Limit, clock: Clock, engine: Engine) -> Limiter {
    let options = LimiterOptions::default().clock(clock).engine(engine);
    Limiter::with_options(support::limits(&[("Own", limit.clone())]), options).unwrap()
}

fn handle_on(limit: &Limit, clock: Clock) -> KeyedLimit {
    limiter_on(limit, clock, Engine::LockFree).limit("Own").unwrap()
}

fn by_hand(limit: &Limit) -> (KeyedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    (handle_on(limit, clock), hand)
}

fn place(handle: &KeyedLimit, cost: u64) -> Reservation {
    handle.reserve("id", cost, Duration::MAX).unwrap()
}
