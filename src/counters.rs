//! What a limiter has done, as numbers for operators.

#[cfg(feature = "metrics")]
mod facade;
mod prometheus;
mod stripes;
mod tally;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::limiter::Limiter;
use crate::store::pin;
use crate::sync::Ordering;
use crate::{Limit, LimitMode, Stats};

pub(crate) use stripes::Stripes;
pub(crate) use tally::{Tallies, Tally};

/// What a limiter has done so far. Made by [`Limiter::counters`].
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
    /// The number of the limits that apply: see [`Reloaded::generation`](crate::Reloaded).
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

impl Limiter {
    /// What the limiter has done so far: for a page of one's own, or one's own way to publish it. Sums
    /// over all threads, so that it costs some 0.2 us a limit; calls do not wait for it.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(2, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().counting(true));
    /// let users = limiter.limit("PerUser")?;
    /// for _ in 0..3 {
    ///     let _ = users.spend("alice", 1)?;
    /// }
    /// let of_users = &limiter.counters().limits[0];
    /// assert_eq!((of_users.allowed, of_users.denied, of_users.cost), (2, 1, 2));
    /// assert_eq!(of_users.near, 1, "the second left nothing");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn counters(&self) -> Counters {
        let inner = &*self.inner;
        let guard = pin();
        let generation = inner.generation.get(&guard);
        let given = generation.limits.by_index().filter(|(_, entry)| entry.is_given());
        let limits = given
            .map(|(index, entry)| {
                let tally = generation.tallies.of(index);
                let counted = tally.counted();
                LimitCounters {
                    name: entry.name.to_string(),
                    mode: entry.terms.options.mode,
                    numbers: entry.default.clone(),
                    shadow: entry.terms.options.shadow.clone(),
                    allowed: counted.allowed,
                    denied: counted.denied,
                    near: counted.near,
                    cost: counted.cost,
                    shadow_denied: tally.shadow_denied(),
                    errors: tally.errors(),
                }
            })
            .collect();
        Counters {
            limits,
            is_counting: generation.tallies.is_counting(),
            stats: inner.stats(),
            generation: generation.number,
            // Relaxed: a figure for people.
            reload_errors: inner.reloads.refused.load(Ordering::Relaxed),
            last_reload: inner.reloads.last(),
        }
    }
}

impl Counters {
    /// When a reload was last done, in whole seconds since 1970.
    fn since_last_reload(&self) -> Option<u64> {
        let since = self.last_reload?.duration_since(UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    }
}
