//! What becomes of new keys when there is no room for their buckets.

use crate::cell::Cell;
use crate::key::LimitIndex;
use crate::options::AtCap;
use crate::probe::{Fault, broken};
use crate::sync::{Figure, Ordering, fence};

/// The policy at the cap, with a bucket for each limit that newcomers share.
pub(crate) struct Overflow {
    pub(crate) at_cap: AtCap,
    shared: Box<[OwnLine]>,
    pub(crate) counts: OverflowCounts,
}

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
    pub(crate) fn new(at_cap: AtCap, limits: usize) -> Overflow {
        let shared = (0..limits).map(|_| OwnLine(Cell::new())).collect();
        Overflow { at_cap, shared, counts: OverflowCounts::default() }
    }

    /// The bucket that the newcomers of a limit share.
    pub(crate) fn shared(&self, limit: LimitIndex) -> &Cell {
        &self.shared[limit.0 as usize].0
    }

    /// The word that a new key of a limit starts with: what it may have spent as a newcomer.
    ///
    /// A newcomer that is charged to the shared bucket fences and then looks whether it has a cell by
    /// now; who decides on a new cell fences and then reads the shared word. One of them sees the other,
    /// so that no key is charged in both places without its cell starting from the debt.
    #[inline]
    pub(crate) fn debt(&self, limit: LimitIndex) -> u64 {
        if self.at_cap != AtCap::Share || broken(Fault::ForgetShared) {
            return 0;
        }
        self.fence();
        self.shared(limit).load()
    }

    /// The fence between the two sides.
    pub(crate) fn fence(&self) {
        if !broken(Fault::NoFence) {
            // SeqCst: the one place where a store must come before a load of another location, on
            // both sides (model `overflow_vs_eviction`).
            fence(Ordering::SeqCst);
        }
    }
}

impl OverflowCounts {
    pub(crate) fn count(counter: &Figure) {
        // Relaxed: a figure for people.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
