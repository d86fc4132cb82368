//! The state that all calls of a limiter share, and each call's view of it: decisions, rollbacks, blocks, reloads.

pub(crate) mod at_cap;
pub(crate) mod block_list;
pub(crate) mod cancel;
mod charge_at_cap;
pub(crate) mod generation;
pub(crate) mod largest_factors;
#[cfg(any(feature = "valkey", all(test, tollgate_loom)))]
pub(crate) mod lease_words;
pub(crate) mod ledger;
pub(crate) mod reloads;
pub(crate) mod rollback;
#[cfg(feature = "valkey")]
pub(crate) mod shared;
pub(crate) mod spent;
pub(crate) mod state;
pub(crate) mod sweep_clock;
pub(crate) mod sweep_record;
pub(crate) mod turns;
pub(crate) mod view;
