//! What becomes of new keys when there is no room for their buckets.

use crate::store::Outdated;
use crate::store::cell::{Cell, Word};
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{Figure, Ordering, Switch, fence};

/// What becomes of a new key when [`max_keys`](crate::LimiterOptions::max_keys) buckets are there and none of
/// those that were looked at is full. A bucket that is not full is never dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCap {
    /// Newcomers share one bucket per limit. Nobody is admitted beyond a limit; a newcomer may be denied
    /// by what others spent. When it gets a bucket of its own, that starts with the shared one's debt.
    ///
    /// The bucket has the limit's default. A new id that has an override, or whose account has one, or that is charged
    /// with a factor, is denied while there is no room for its bucket: what others owe cannot be told in its units. A
    /// batch in which several new ids of one limit share the bucket needs as many units as all of them ask for; where
    /// that is more than the burst, it is denied until there is room.
    #[default]
    Share,
    /// Newcomers are denied.
    Deny,
    /// Newcomers are allowed, and nothing is charged to them.
    Allow,
}

/// The policy at the cap, and what it has done.
pub(crate) struct Overflow {
    pub(crate) at_cap: AtCap,
    /// Whether buckets that newcomers shared were restored from a file.
    has_restored: Switch,
    pub(crate) counts: OverflowCounts,
}

/// A bucket for each limit that newcomers share.
pub(crate) struct SharedBuckets(Box<[OwnLine]>);

/// A cell on a cache line of its own.
#[repr(align(64))]
struct OwnLine(Cell);

/// How many calls for new keys found no room, by what was done.
#[derive(Default)]
pub(crate) struct OverflowCounts {
    pub(crate) shared: Figure,
    pub(crate) denied: Figure,
    pub(crate) allowed: Figure,
}

impl Overflow {
    pub(crate) fn new(at_cap: AtCap) -> Overflow {
        let has_restored = Switch::new(false);
        Overflow { at_cap, has_restored, counts: OverflowCounts::default() }
    }

    /// Whether newcomers share a bucket, or did, so that their debts come before those of a new cell.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Relaxed: set while nobody else has the limiter.
        let is_any = self.at_cap == AtCap::Share || self.has_restored.load(Ordering::Relaxed);
        is_any && !fault::active(Fault::ForgetShared)
    }

    /// Notes that a shared bucket was restored: what its newcomers owe stays, whatever the policy is now.
    #[cfg(feature = "snapshot")]
    pub(crate) fn note_restored(&self) {
        // Relaxed: as in `is_shared`.
        self.has_restored.store(true, Ordering::Relaxed);
    }

    /// The fence between the two sides.
    ///
    /// A newcomer that is charged to the shared bucket fences and then looks whether it has a cell by
    /// now; who decides on a new cell fences and then reads the shared word. One of them sees the other,
    /// so that no key is charged in both places without its cell starting from the debt.
    pub(crate) fn fence(&self) {
        if !fault::active(Fault::NoFence) {
            // SeqCst: the one place where a store must come before a load of another location, on
            // both sides (model `overflow_vs_eviction`).
            fence(Ordering::SeqCst);
        }
    }
}

impl SharedBuckets {
    pub(crate) fn new(limits: usize) -> SharedBuckets {
        SharedBuckets((0..limits).map(|_| OwnLine(Cell::new())).collect())
    }

    fn cell(&self, limit: LimitIndex) -> Option<&Cell> {
        self.0.get(limit.0 as usize).map(|line| &line.0)
    }

    /// The word that the newcomers of a limit have. They have moved on once there are newer limits.
    #[inline]
    pub(crate) fn word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) => Ok(word),
            Word::Frozen(_) => Err(Outdated),
        }
    }

    /// The word that the newcomers of a limit have, or had last.
    pub(crate) fn last_word(&self, limit: LimitIndex) -> u64 {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) | Word::Frozen(word) => word,
        }
    }

    /// Puts the word to `step`, until what `step` asks for is stored or it asks for none.
    pub(crate) fn update(
        &self,
        limit: LimitIndex,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        let is_live = self.cell(limit).is_some_and(|cell| cell.update_live(step));
        if is_live { Ok(()) } else { Err(Outdated) }
    }

    /// Ends a limit's bucket; returns its word.
    fn freeze(&self, limit: LimitIndex) -> u64 {
        self.cell(limit).map_or(0, |cell| cell.freeze().0)
    }

    /// Brings a limit's word over from the buckets before these, once, whoever does it first.
    pub(crate) fn carry(
        &self,
        limit: LimitIndex,
        before: &SharedBuckets,
        converted: impl FnOnce(u64) -> Option<u64>,
    ) {
        let Some(cell) = self.cell(limit) else { return };
        if cell.load() != 0 {
            return;
        }
        let word = before.freeze(limit);
        if word != 0
            && let Some(word) = converted(word)
        {
            cell.seed(word);
        }
    }
}

impl OverflowCounts {
    pub(crate) fn count_shared(&self) {
        count(&self.shared, "shared");
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
