//! What a limiter has done, as numbers for operators.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::observe::stats::Stats;

/// What a limiter has done so far. Made by [`Limiter::counters`](crate::Limiter::counters).
///
/// Everything counts from when the limiter was made, and wraps at 2^64.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Each limit that was given, in the order of [`Limits::names`](crate::Limits::names).
    pub limits: Vec<LimitCounters>,
    /// Whether calls are [counted](crate::LimiterOptions::counting).
    pub is_counting: bool,
    /// The table, its sweeps, and what found no room in it. Cells of shadows are among its cells.
    pub stats: Stats,
    /// The number of the limits that apply: see [`Reloaded::generation`](crate::reload::Reloaded).
    pub generation: u64,
    /// Reloads that were refused, and files that a watcher could not take.
    pub reload_errors: u64,
    /// When a reload last was done, by the system's clock; one that changed nothing is one.
    pub last_reload: Option<SystemTime>,
}

/// What one limit has done so far. It stays with the limit's name over reloads.
///
/// Calls to which no limit applies are not counted: those of a limiter that is switched off, for an id
/// without numbers, or with a factor of 0. Nor are checks, refunds and resets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitCounters {
    /// The limit's name.
    pub name: String,
    /// Whether it denies.
    pub mode: LimitMode,
    /// The numbers that apply by default; `None` is no limit.
    pub numbers: Option<Limit>,
    /// The numbers that are tried beside them.
    pub shadow: Option<Limit>,
    /// Spends that were allowed; each member of an allowed batch is one. Those of a limit in shadow mode
    /// are among them, whatever the bucket said. 0 unless the limiter [counts](Counters::is_counting).
    pub allowed: u64,
    /// Spends that were denied; a batch counts at the member that denied it, and at no other. 0 unless
    /// the limiter counts.
    pub denied: u64,
    /// Of those allowed, the ones that left less than a fifth of the burst: `5 * remaining < burst`. 0
    /// unless the limiter counts.
    pub near: u64,
    /// The cost of those allowed, in units, save what a limit in shadow mode would have denied. What was
    /// given back is not taken off. 0 unless the limiter counts.
    pub cost: u64,
    /// Spends that would have been denied by a limit in shadow mode, or by the shadow beside an enforced
    /// one. Always counted.
    pub shadow_denied: u64,
    /// Calls that failed: an id that is none, or a cost above the burst. 0 unless the limiter counts.
    pub errors: u64,
}

impl Counters {
    /// When a reload was last done, in whole seconds since 1970.
    pub(crate) fn since_last_reload(&self) -> Option<u64> {
        let since = self.last_reload?.duration_since(UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }
}
