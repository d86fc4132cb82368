//! Changing the limits while calls go on.

#[cfg(feature = "boulder")]
#[path = "reload/accounts.rs"]
mod accounts;
#[path = "reload/debts.rs"]
mod debts;
#[path = "reload/expiry.rs"]
mod expiry;
#[path = "reload/factors.rs"]
mod factors;
#[path = "reload/names.rs"]
mod names;
#[path = "reload/newcomers.rs"]
mod newcomers;
#[path = "reload/oracle.rs"]
mod oracle;
#[path = "reload/overrides.rs"]
mod overrides;
mod own_process;
#[path = "reload/storm.rs"]
mod storm;
#[path = "reload/traffic.rs"]
mod traffic;

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

const ENGINES: [Engine; 2] = [Engine::LockFree, Engine::Exact];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// `burst` at once, and all of it back in an hour.
fn hourly(burst: u64) -> Limit {
    Limit::new(burst, burst, seconds(3600)).unwrap()
}

fn limits(named: &[(&str, Limit)]) -> Limits {
    let mut builder = Limits::builder();
    for (name, limit) in named {
        builder = builder.limit(name, IdFormat::String, limit.clone()).unwrap();
    }
    builder.build()
}

fn limiter(limits: Limits, engine: Engine) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).engine(engine);
    (Limiter::with_options(limits, options), hand)
}
