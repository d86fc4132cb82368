//! Defines [`Stats`], the figures of a limiter's table and sweeps.

use std::time::Instant;

/// Holds figures about a limiter's table and sweeps. Made by [`Limiter::stats`](crate::Limiter::stats). All counts
/// start when the limiter is made.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
/// let stats = limiter.stats();
/// assert_eq!((stats.cells, stats.swept, stats.denied_at_cap), (1, 0, 0));
/// assert!(stats.bytes > 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Cells in the table; each is the bucket of a key. Those of ids with an override of their own are beside
    /// [`max_keys`](crate::LimiterOptions::max_keys).
    pub cells: usize,
    /// Bytes of the table and its keys, including free cells and memory that is not freed yet.
    pub bytes: usize,
    /// Those of [`bytes`](Stats::bytes) that the table got from the operating system directly, not from the program's
    /// allocator. Large parts of the lock-free table do, so that no call waits for housekeeping of an allocator.
    pub mapped_bytes: usize,
    /// Bytes that the lock-free table [reserved](crate::LimiterOptions::reserve) when it was made: 0 if it has reserved
    /// none, or if the system did not have the memory. Those in use are counted in [`bytes`](Stats::bytes) as well.
    pub reserved_bytes: usize,
    /// Full cells that sweeps dropped.
    pub swept: u64,
    /// Steps of sweeps.
    pub steps: u64,
    /// Passes of the sweeper's thread that panicked.
    pub panics: u64,
    /// Caught panics of custom algorithms. If `is_full` panics, the sweep keeps the cell and goes on. If the algorithm
    /// panics while a call processes another call's [cancel](crate::reserve::Reservation::cancel), that
    /// reservation stays charged.
    pub rule_panics: u64,
    /// Steps that were skipped because the clock was wrongly ahead, also the steps of calls that found the table full:
    /// see [`Limiter::sweep`](crate::Limiter::sweep).
    pub clock_skips: u64,
    /// The end of the last step.
    pub last_run: Option<Instant>,
    /// Migrations: how often a part of the table was moved to a larger or smaller part.
    pub migrations: u64,
    /// Retired parts: parts that were moved and are not freed yet. A thread may still read them, or they are being
    /// returned to the system piece by piece, by the next calls and sweeps.
    ///
    /// A thread that is stalled in a call, of this limiter or another, holds back all parts that are retired after the
    /// call began. If the retired parts have as many bytes as the table has in use, and at least 16 MiB, then a part is
    /// retired only to make room for buckets that are not full. So [`bytes`](Stats::bytes) is at most three times the
    /// bytes in use, plus 16 MiB; a reload beside such a thread retires the whole table once more.
    pub retired: usize,
    /// Migrations that were put off because of that bound. If dropped buckets have used up the slots of a part, the
    /// part counts as full for untracked keys ([`AtCap`](crate::options::AtCap)) until the stalled thread goes on.
    pub put_off: u64,
    /// Calls for untracked keys that the overflow bucket has decided: charged there because the table was full, or denied by its debt.
    pub overflowed: u64,
    /// Calls for untracked keys that were denied because the table was full.
    pub denied_at_cap: u64,
    /// Calls for untracked keys that were allowed, and charged to no bucket, because the table was full.
    pub allowed_at_cap: u64,
}
