//! Reloads while calls go on.

#[cfg(feature = "boulder")]
mod accounts;
mod at_once;
mod chosen_networks;
mod debts;
mod denied;
mod expiry;
mod factors;
mod floors;
mod names;
mod networks;
mod overrides;
mod removal;
mod returns;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod traffic;
mod untracked;
mod wrapped;
