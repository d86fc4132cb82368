//! Shared by the benches: the measured calls, keys, limits, limiters, layers, and a meter of single calls.

pub mod chunks;
mod contenders;
mod floor;
mod ids;
pub mod keys;
mod layers;
pub mod limiters;
pub mod machine;
pub mod meter;
mod others;
pub mod random;
pub mod rule;
pub mod turns;
pub mod verdict;
pub mod work;
