//! The state that all calls of a limiter share, and each call's view of it: decisions, returns, places, blocks, reloads.

pub(crate) mod at_cap;
pub(crate) mod block_list;
mod charge_at_cap;
pub(crate) mod generation;
pub(crate) mod largest_factors;
#[cfg(any(feature = "valkey", all(test, tollgate_loom)))]
pub(crate) mod lease_words;
#[cfg(not(feature = "valkey"))]
mod no_store;
pub(crate) mod permits;
pub(crate) mod places;
pub(crate) mod reloads;
pub(crate) mod returns;
pub(crate) mod shared_part;
pub(crate) mod spent;
pub(crate) mod state;
pub(crate) mod sweep_clock;
pub(crate) mod sweep_record;
pub(crate) mod view;
pub(crate) mod waiters;
