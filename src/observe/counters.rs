//! Defines [`Counters`], the figures of a limiter for operators.

use std::time::SystemTime;

use crate::limit::Limit;
use crate::limits::LimitMode;
#[cfg(feature = "tower")]
use crate::observe::rejections::RejectionKind;
use crate::observe::shared::{SharedCounts, StoreCounters};
use crate::observe::stats::Stats;

/// Holds a limiter's figures at one moment. Made by [`Limiter::counters`](crate::Limiter::counters), which has an
/// example.
///
/// All counts start when the limiter is made, and wrap at 2^64.
///
/// # Example
///
/// ```
/// # use tollgate::{Limiter, LimiterOptions, Limits};
/// let limiter = Limiter::with_options(Limits::builder().build(), LimiterOptions::default().counting(true))?;
/// limiter.reload(Limits::builder().build())?;
/// let counters = limiter.counters();
/// assert!(counters.is_counting && counters.last_reload.is_some());
/// assert_eq!(counters.reload_errors, 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// The declared limits, in the order of [`Limits::names`](crate::Limits::names).
    pub limits: Vec<LimitCounters>,
    /// Whether calls are [counted](crate::LimiterOptions::counting).
    pub is_counting: bool,
    /// The table, its sweeps, and the calls that found the table full. Shadow buckets count as cells.
    pub stats: Stats,
    /// The generation of the limits that apply: see [`Reloaded::generation`](crate::reload::Reloaded).
    pub generation: u64,
    #[allow(dead_code, reason = "for shared limits")]
    pub(crate) store: Option<StoreCounters>,
    /// Reloads that failed, including files that a watcher could not apply.
    pub reload_errors: u64,
    /// The limits that reloads have removed: see [`Reloaded::removed`](crate::reload::Reloaded::removed). A limit that
    /// returned and went again counts again.
    pub limits_removed: u64,
    /// The time of the last successful reload by the system's clock, even if it changed nothing.
    pub last_reload: Option<SystemTime>,
    /// In the order of [`RejectionKind::ALL`]; `None` if the limiter has no layer.
    #[cfg(feature = "tower")]
    pub(crate) rejected: Option<[u64; RejectionKind::ALL.len()]>,
}

#[cfg(feature = "tower")]
impl Counters {
    /// Returns the number of requests that the limiter's [layers](crate::http::RateLimitLayer) have rejected for this
    /// reason, before a limit decided. Requests that a permissive layer served in spite of that are included. Always
    /// counted.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, Limits};
    /// use tollgate::http::RejectionKind;
    ///
    /// # let limiter = Limiter::new(Limits::builder().build());
    /// assert_eq!(limiter.counters().rejected(RejectionKind::ClientAddress), 0);
    /// ```
    pub fn rejected(&self, kind: RejectionKind) -> u64 {
        self.rejected.map_or(0, |counts| counts[kind as usize])
    }
}

/// Holds the counts of one limit. A reload keeps them with the limit's name. They begin again at 0 if a limit without a
/// handle went, and returns.
///
/// Checks, refunds and resets are not counted. Nor are calls to which no limit applies: those of a limiter that is
/// switched off, for an id without a limit, or with a factor of 0.
///
/// # Example
///
/// ```
/// # use tollgate::LimiterOptions;
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
/// let limiter = Limiter::with_options(limits, LimiterOptions::default().counting(true))?;
/// assert!(limiter.limit("PerUser")?.spend("alice", 3)?.allowed());
/// assert!(limiter.limit("PerUser")?.spend("alice", 6).is_err(), "above the burst");
/// let users = &limiter.counters().limits[0];
/// assert_eq!((&*users.name, users.allowed, users.cost, users.errors), ("PerUser", 1, 3, 1));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitCounters {
    /// The limit's name.
    pub name: String,
    /// Whether the limit is enforced or in shadow mode.
    pub mode: LimitMode,
    /// Whether the limit is switched on: `enabled: false` in a file switches it off.
    pub enabled: bool,
    /// The default; `None` is no limit.
    pub limit: Option<Limit>,
    /// The shadow limit beside this one, if any.
    pub shadow: Option<Limit>,
    /// Allowed spends. Each member of an allowed batch counts as one. All spends of a limit in shadow mode are
    /// allowed. 0 unless the limiter [counts](Counters::is_counting).
    pub allowed: u64,
    /// Denied spends. A denied batch counts once, for the member that denied it. 0 unless the limiter counts.
    pub denied: u64,
    /// Allowed spends that left less than a fifth of the burst: `5 * remaining < burst`. 0 unless the limiter counts.
    pub near: u64,
    /// The units of the allowed spends, without the spends that a limit in shadow mode would have denied. Refunds and
    /// settlements are not subtracted. 0 unless the limiter counts.
    pub cost: u64,
    /// Spends that a limit in shadow mode, or the shadow beside an enforced limit, would have denied. Always counted.
    pub shadow_denied: u64,
    /// Calls that failed: an invalid id, or a cost above the burst. 0 unless the limiter counts.
    pub errors: u64,
    /// The permits that are out, of a limit of [concurrency](crate::Limit::concurrency); else `None`.
    pub in_flight: Option<u64>,
    #[allow(dead_code, reason = "for shared limits")]
    pub(crate) shared: Option<SharedCounts>,
}
