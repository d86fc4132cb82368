//! Provides what the tests share: durations, limits, limiters on a manual clock, custom algorithms.
#![allow(dead_code, unused_imports, reason = "no test binary uses all of it")]

mod full_size;
mod own_process;
pub(crate) mod rules;

use std::time::Duration;

pub(crate) use full_size::full_size;
pub(crate) use own_process::in_own_process;
use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

/// The number in the environment variable `variable`, else `quick`.
pub(crate) fn count_of(variable: &str, quick: u64) -> u64 {
    std::env::var(variable).map_or(quick, |number| number.parse().expect("a number"))
}

/// The engines of this build: the default, and with the feature `exact` the one that keeps keys.
pub(crate) const ENGINES: [Engine; 1 + cfg!(feature = "exact") as usize] = [
    Engine::LockFree,
    #[cfg(feature = "exact")]
    Engine::Exact,
];

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Admits `burst` units at once and refills them all in an hour.
pub(crate) fn hourly(burst: u64) -> Limit {
    Limit::new(burst, burst, seconds(3600)).unwrap()
}

/// One limit of each built-in algorithm: at most `burst` units at once, about one per `interval`.
pub(crate) fn limits_of_all(burst: u64, interval: Duration) -> [Limit; 4] {
    let times = |count: u64| interval * u32::try_from(count).unwrap();
    [
        Limit::new(burst, 1, interval).unwrap(),
        Limit::fixed_window(burst, times(burst)).unwrap(),
        Limit::token_bucket(burst, 2 * burst, times(2 * burst)).unwrap(),
        Limit::leaky_bucket(burst, 1, interval).unwrap(),
    ]
}

/// Limits by name, with ids that are strings.
pub(crate) fn limits(named: &[(&str, Limit)]) -> Limits {
    let mut builder = Limits::builder();
    for (name, limit) in named {
        builder = builder.limit(name, IdFormat::String, limit.clone()).unwrap();
    }
    builder.build()
}

/// Builds a limiter on a manual clock.
pub(crate) fn limiter(limits: Limits, engine: Engine) -> (Limiter, ManualClock) {
    limiter_with(limits, LimiterOptions::default().engine(engine))
}

/// Builds a limiter with `options` on a manual clock.
pub(crate) fn limiter_with(limits: Limits, options: LimiterOptions) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Limiter::with_options(limits, options.clock(clock)).unwrap(), hand)
}

/// Sweeps the whole table once.
pub(crate) fn sweep_all(limiter: &Limiter) {
    while !limiter.sweep(1000).finished {}
}

/// The bucket of the id "id", as a check of one unit reports it.
pub(crate) fn state(handle: &KeyedLimit) -> Decision {
    handle.check("id", 1).unwrap()
}
