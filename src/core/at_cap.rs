//! The policy for a full table, the overflow buckets, and their counters. `charge_at_cap` decides the calls.

use crate::store::Outdated;
use crate::store::cell::{Cell, Word};
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{Figure, Ordering, Switch, fence};

/// How calls for untracked keys are decided while the table is full.
///
/// A key is untracked if it has no bucket. The table is full for a limit if the limit's [part of
/// `max_keys`](crate::LimiterOptions::max_keys) and the common places are taken, and the call found no
/// bucket that is full and can be dropped. A bucket that is not full is never dropped.
///
/// An id with an override of its own always gets a bucket, beside `max_keys`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits, options::AtCap};
///
/// let limit = Limit::new(2, 1, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("Requests", IdFormat::String, limit)?.build();
/// let options = LimiterOptions::default().max_keys(1).at_cap(AtCap::Deny);
/// let requests = Limiter::with_options(limits, options)?.limit("Requests")?;
/// assert!(requests.spend("alice", 1)?.allowed());
/// assert!(!requests.spend("bob", 1)?.allowed()); // alice has the only bucket
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCap {
    /// The untracked keys of a limit share one bucket, which keeps the limit's bound. So a key may be denied because
    /// other keys have used the units. When a key gets its own bucket, that bucket starts with the overflow bucket's
    /// debt.
    ///
    /// The overflow bucket counts in units of the limit's default. A call that another limit decides cannot use it, and is
    /// denied for [lack of room](crate::Decision::out_of_room): a call with a factor, or for an id whose account has an
    /// override, and the id itself none. A batch in which several untracked ids of one
    /// limit share the bucket needs the sum of their units. If that is more than the burst, the batch is denied until
    /// the table has room.
    ///
    /// Under a limit of [concurrency](crate::Limit::concurrency) no bucket is shared: calls for untracked keys are denied
    /// for lack of room, as under `Deny`. A bucket whose permits are all back is full, so it can be dropped and makes room.
    #[default]
    Share,
    /// Calls for untracked keys are denied for [lack of room](crate::Decision::out_of_room).
    Deny,
    /// Calls for untracked keys are allowed, and charged to no bucket.
    Allow,
}

/// The policy for a full table, and counters of the calls that it decided.
pub(crate) struct Overflow {
    pub(crate) at_cap: AtCap,
    /// Whether a restore brought debts of untracked keys: overflow buckets, or debts of ids that have an override now.
    has_restored: Switch,
    pub(crate) counts: OverflowCounts,
}

/// The bucket of each limit that its untracked keys share.
pub(crate) struct OverflowBuckets(Box<[OwnLine]>);

/// A cell on its own cache line.
#[repr(align(64))]
struct OwnLine(Cell);

/// The numbers of calls for untracked keys that found the table full, by how they were decided.
#[derive(Default)]
pub(crate) struct OverflowCounts {
    pub(crate) overflowed: Figure,
    pub(crate) denied: Figure,
    pub(crate) allowed: Figure,
}

impl Overflow {
    pub(crate) fn new(at_cap: AtCap) -> Overflow {
        let has_restored = Switch::new(false);
        Overflow { at_cap, has_restored, counts: OverflowCounts::default() }
    }

    /// Returns whether overflow buckets can have debts, with which a new cell has to start.
    #[inline]
    pub(crate) fn has_overflow(&self) -> bool {
        // Relaxed: set before any other thread has the limiter.
        let is_any = self.at_cap == AtCap::Share || self.has_restored.load(Ordering::Relaxed);
        is_any && !fault::active(Fault::ForgetShared)
    }

    /// Records that a restore brought debts of untracked keys. They count under any policy.
    #[cfg(feature = "snapshot")]
    pub(crate) fn note_restored(&self) {
        // Relaxed: as in `has_overflow`.
        self.has_restored.store(true, Ordering::Relaxed);
    }

    /// Orders a call's store before its next load, on both sides of the overflow bucket.
    ///
    /// One side charges the overflow bucket, fences, and looks whether the key has a cell by now. The other side inserts
    /// a cell, fences, and reads the overflow bucket's word. One of them sees the other. So a key that was charged to
    /// the overflow bucket gets a cell only with that bucket's debt.
    pub(crate) fn fence(&self) {
        if !fault::active(Fault::NoFence) {
            // SeqCst: on both sides a store must come before a load of another location (model
            // `overflow_vs_eviction`).
            fence(Ordering::SeqCst);
        }
    }
}

impl OverflowBuckets {
    pub(crate) fn new(limits: usize) -> OverflowBuckets {
        OverflowBuckets((0..limits).map(|_| OwnLine(Cell::new())).collect())
    }

    fn cell(&self, limit: LimitIndex) -> Option<&Cell> {
        self.0.get(limit.0 as usize).map(|line| &line.0)
    }

    /// Returns the word of a limit's bucket. `Outdated`: newer limits have replaced the bucket.
    #[inline]
    pub(crate) fn word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) => Ok(word),
            Word::Frozen(_) => Err(Outdated),
        }
    }

    /// Returns the word of a limit's bucket, the last one if the bucket was replaced.
    pub(crate) fn last_word(&self, limit: LimitIndex) -> u64 {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) | Word::Frozen(word) => word,
        }
    }

    /// Calls `step` with the current word until the new word of `step` is stored, or `step` returns `None`.
    pub(crate) fn update(
        &self,
        limit: LimitIndex,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        let is_live = self.cell(limit).is_some_and(|cell| cell.update_live(step));
        if is_live { Ok(()) } else { Err(Outdated) }
    }

    /// Freezes a limit's bucket in `before`, and seeds the limit's bucket here with the converted word. Of several
    /// calls the first has an effect.
    pub(crate) fn migrate(
        &self,
        limit: LimitIndex,
        before: &OverflowBuckets,
        converted: impl FnOnce(u64) -> Option<u64>,
    ) {
        let Some(cell) = self.cell(limit) else { return };
        if cell.load() != 0 {
            return;
        }
        let word = before.cell(limit).map_or(0, |cell| cell.freeze().0);
        if word != 0
            && let Some(word) = converted(word)
        {
            cell.seed(word);
        }
    }
}

impl OverflowCounts {
    pub(crate) fn count_overflowed(&self) {
        count(&self.overflowed, "overflowed");
    }

    pub(crate) fn count_denied(&self) {
        count(&self.denied, "denied");
    }

    pub(crate) fn count_allowed(&self) {
        count(&self.allowed, "allowed");
    }
}

fn count(counter: &Figure, outcome: &'static str) {
    // Relaxed: a figure for people.
    let before = counter.fetch_add(1, Ordering::Relaxed);
    #[cfg(feature = "tracing")]
    crate::observe::events::overflow(outcome, before + 1);
    #[cfg(not(feature = "tracing"))]
    let _ = (before, outcome);
}
