//! Threads on one limiter while its sweeper runs, on each engine.
#![cfg(not(tollgate_loom))]
#![allow(clippy::duplicate_mod, reason = "cases.rs runs once on each engine")]

#[cfg(feature = "exact")]
#[path = "cases.rs"]
mod exact;
#[path = "cases.rs"]
mod lock_free;
#[path = "../support/mod.rs"]
mod support;
