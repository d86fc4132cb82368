//! Counts and shows the work of a limiter: counters, Prometheus, the ids denied most, events.

pub(crate) mod counters;
#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
pub(crate) mod facade;
pub(crate) mod families;
pub(crate) mod prometheus;
#[cfg(feature = "tower")]
pub(crate) mod rejections;
mod sample;
#[cfg(feature = "valkey")]
pub(crate) mod shared;
#[cfg(not(feature = "valkey"))]
#[path = "no_shared.rs"]
pub(crate) mod shared;
pub(crate) mod stats;
#[cfg(feature = "valkey")]
pub(crate) mod store_counters;
pub(crate) mod stripes;
pub(crate) mod tally;
pub(crate) mod top_denied;
