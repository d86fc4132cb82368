//! Shared by the benches: keys, limits, limiters, layers, and a meter of single calls.

pub mod keys;
pub mod layers;
pub mod limiters;
pub mod meter;
pub mod random;
pub mod rule;
pub mod turns;
pub mod verdict;
