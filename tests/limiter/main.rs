//! The limiter: its promises, one behaviour a test, on each engine; explanations; any clock.
#![allow(clippy::duplicate_mod, reason = "cases.rs runs once on each engine")]

mod any_cap_wait;
mod any_clock;
mod cap;
mod cap_wait;
mod clock_back;
mod ends;
#[cfg(all(feature = "boulder", feature = "exact"))]
#[path = "cases.rs"]
mod exact;
#[cfg(all(feature = "yaml", feature = "boulder"))]
mod explain;
#[cfg(feature = "exact")]
mod known_batches;
mod leaving;
#[cfg(feature = "boulder")]
#[path = "cases.rs"]
mod lock_free;
mod networks;
mod permits;
mod permits_found;
mod priority;
mod returned_batches;
#[path = "../support/mod.rs"]
mod support;
mod unlimited;
