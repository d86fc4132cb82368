//! Searches for a full bucket among many, for a call that finds no place in a full table.

use crate::util::sync::{AtomicU64, Ordering};

/// When a call last searched in vain; 0: never, or a later search has found a bucket.
#[derive(Default)]
pub(super) struct Searches {
    last_ns: AtomicU64,
}

impl Searches {
    /// The time from a search in vain to the next one, so that a flood of new keys does not make calls dear.
    pub(super) const PAUSE_NS: u64 = 1_000_000;

    /// Returns the time until a call may search.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> u64 {
        // Relaxed: it only picks the call that searches.
        match self.last_ns.load(Ordering::Relaxed) {
            0 => 0,
            // A step of the clock back ends the pause like a step forward.
            last_ns => Searches::PAUSE_NS.saturating_sub(now_ns.abs_diff(last_ns)),
        }
    }

    /// Calls `search` if this call is the one that may search now. If it returns `None`, the next search comes after a pause.
    pub(super) fn search<T>(&self, now_ns: u64, search: impl FnOnce() -> Option<T>) -> Option<T> {
        // Relaxed: as in `due_in_ns`.
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let (order, lost) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_due = self.due_in_ns(now_ns) == 0;
        if !is_due || self.last_ns.compare_exchange(last_ns, now_ns, order, lost).is_err() {
            return None;
        }
        let found = search()?;
        self.last_ns.store(0, Ordering::Relaxed);
        Some(found)
    }
}
