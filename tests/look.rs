//! Tests what operators see of a limiter: counters, events, denied ids; and shadow limits.

#[path = "look/counters.rs"]
mod counters;
#[cfg(feature = "tracing")]
#[path = "look/events.rs"]
mod events;
#[cfg(feature = "metrics")]
#[path = "look/facade.rs"]
mod facade;
#[path = "look/prometheus.rs"]
mod prometheus;
#[path = "look/shadow.rs"]
mod shadow;
mod support;
#[path = "look/top_denied.rs"]
mod top_denied;
#[path = "look/waiting.rs"]
mod waiting;

use std::time::Duration;

use support::{ENGINES, hourly};
use tollgate::clock::ManualClock;
use tollgate::limits::{LimitMode, LimitOptions, LimitsBuilder};
use tollgate::metrics::LimitCounters;
use tollgate::options::Engine;
use tollgate::{Clock, IdFormat, Limiter, LimiterOptions, Limits};

fn add(builder: LimitsBuilder, name: &str, burst: u64, options: LimitOptions) -> LimitsBuilder {
    builder.limit_with(name, IdFormat::String, hourly(burst), options).unwrap()
}

/// The options of a limit in shadow mode.
fn shadow_mode() -> LimitOptions {
    LimitOptions::default().mode(LimitMode::Shadow)
}

/// The options of an enforced limit with a shadow limit of `burst` units.
fn shadow_beside(burst: u64) -> LimitOptions {
    LimitOptions::default().shadow(hourly(burst))
}

fn limiter(limits: LimitsBuilder, engine: Engine) -> (Limiter, ManualClock) {
    support::limiter_with(limits.build(), LimiterOptions::default().engine(engine).counting(true))
}

fn counters_of(limiter: &Limiter, name: &str) -> LimitCounters {
    let counters = limiter.counters();
    counters.limits.into_iter().find(|limit| limit.name == name).unwrap()
}

fn allowed(limiter: &Limiter, name: &str, id: &str, cost: u64) -> bool {
    limiter.limit(name).unwrap().spend(id, cost).unwrap().allowed()
}

fn no_limits() -> LimitsBuilder {
    Limits::builder()
}
