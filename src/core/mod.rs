//! The state that all calls of a limiter share, and each call's view of it: decisions, returns, places, blocks, reloads.

pub(crate) mod at_cap;
pub(crate) mod block_list;
mod charge_at_cap;
pub(crate) mod generation;
pub(crate) mod largest_factors;
#[cfg(any(feature = "valkey", all(test, tollgate_loom)))]
pub(crate) mod lease_words;
pub(crate) mod places;
pub(crate) mod reloads;
pub(crate) mod returns;
#[cfg(feature = "valkey")]
pub(crate) mod shared;
pub(crate) mod spent;
pub(crate) mod state;
pub(crate) mod sweep_clock;
pub(crate) mod sweep_record;
pub(crate) mod view;
