//! Waiting until it is allowed, giving places up, and settling what was estimated.

#![cfg(not(tollgate_loom))]

#[path = "wait/dropped.rs"]
mod dropped;
#[path = "wait/given_back.rs"]
mod given_back;
#[path = "wait/herd.rs"]
mod herd;
#[path = "wait/histories.rs"]
mod histories;
#[path = "wait/places.rs"]
mod places;
#[path = "wait/settle.rs"]
mod settle;
#[path = "wait/stalled.rs"]
mod stalled;
#[path = "wait/threads.rs"]
mod threads;
#[path = "wait/virtual_time.rs"]
mod virtual_time;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::reserve::Reservation;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limit of each algorithm: some at once, and one every ms or so.
fn limits_of_all(burst: u64) -> [Limit; 4] {
    [
        Limit::new(burst, 1, ms(1)).unwrap(),
        Limit::fixed_window(burst, ms(burst)).unwrap(),
        Limit::token_bucket(2 * burst, ms(2 * burst), burst).unwrap(),
        Limit::leaky_bucket(burst as u32, ms(1), 1).unwrap(),
    ]
}

fn limiter_on(limit: &Limit, clock: Clock, engine: Engine) -> Limiter {
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let options = LimiterOptions::default().clock(clock).engine(engine);
    Limiter::with_options(limits.build(), options)
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

/// What the bucket says to whoever asks for one unit.
fn standing(handle: &KeyedLimit) -> (bool, Option<u64>, Duration, Duration) {
    let said = handle.check("id", 1).unwrap();
    (said.allowed(), said.remaining(), said.retry_in(), said.reset_in())
}
