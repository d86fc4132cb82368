//! Ids that are blocked: denied for a time, whatever their buckets hold.
#![cfg(not(tollgate_loom))]

#[path = "blocks/promises.rs"]
mod promises;

use std::time::Duration;

use tollgate::{
    Clock, Decision, Engine, Hand, Handle, IdFormat, Limit, Limiter, LimiterOptions, Limits,
};

const NS: Duration = Duration::from_nanos(1);
const ENGINES: [Engine; 2] = [Engine::LockFree, Engine::Exact];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limits(limit: &Limit) -> Limits {
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let other = Limit::new(9, 1, ms(1)).unwrap();
    limits.limit("Other", IdFormat::String, other).unwrap().build()
}

fn on(limit: &Limit, engine: Engine) -> (Limiter, Handle, Hand) {
    let (clock, hand) = Clock::manual();
    // Some time after the origin: windows may begin before a block does.
    hand.set(ms(1000));
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limiter = Limiter::with_options(limits(limit), options);
    let handle = limiter.limit("Own").unwrap();
    (limiter, handle, hand)
}

fn standing(handle: &Handle) -> Decision {
    handle.check("id", 1).unwrap()
}
