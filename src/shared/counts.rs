//! Counts calls for limits that nodes share, and shows the counts.

use crate::observe::counters::{Counters, LimitCounters};
use crate::observe::shared::{SharedCounts, StoreCounters};
use crate::observe::stripes::{SHARED, Stripes, add, own_slot};
use crate::observe::tally::Tally;
use crate::util::sync::Ordering;

impl Stripes {
    /// Counts a call that a lease or a kept denial has decided, beside its other counts.
    #[inline(always)]
    pub(crate) fn count_by_lease(&self, is_allowed: bool) {
        let slot = own_slot();
        let figure = self.0[slot].by_lease.figure(is_allowed);
        match slot {
            SHARED => {
                // Relaxed: a figure for operators.
                figure.fetch_add(1, Ordering::Relaxed);
            }
            _ => add(figure, 1),
        }
    }
}

impl Tally {
    /// Counts a call that a policy has decided.
    pub(crate) fn count_without_store(&self, is_allowed: bool) {
        // Relaxed: a figure for operators.
        self.without_store.figure(is_allowed).fetch_add(1, Ordering::Relaxed);
    }
}

impl LimitCounters {
    /// Returns the counts that only a limit that nodes share has; `None` for a local limit.
    pub fn shared(&self) -> Option<SharedCounts> {
        self.shared
    }
}

impl Counters {
    /// Returns the figures of the store of the shared limits; `None` if the limiter has none.
    pub fn store(&self) -> Option<StoreCounters> {
        self.store
    }
}
