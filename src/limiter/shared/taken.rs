//! Units that calls have taken from a lease of this node.

use crate::limiter::Limiter;
use crate::store::key::{Key, LimitTag};

/// Units that a batch has taken from a lease of this node.
pub(crate) struct TakenFromLease {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    /// The limits and the limit at that time. The next limit's leases may end at the same times.
    pub(super) generation: u64,
    pub(super) tag: LimitTag,
    pub(super) until_ns: u64,
    pub(super) units: u64,
}

impl TakenFromLease {
    /// Reads the limiter's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.limiter.inner.clock.now_ns()
    }

    /// Gives the units back to their lease, if the node still holds it; else they are lost until the store takes the lease
    /// for spent.
    pub(crate) fn give_back(&self) {
        let inner = &*self.limiter.inner;
        let Some(leases) = &inner.leases else { return };
        let now_ns = inner.clock.now_ns();
        inner.with_view(|view| {
            let (key, taken) = (self.key.as_ref(), (self.until_ns, self.units));
            let entry = view.generation.limits.entry(key.limit);
            let applies = entry.limit_for(key.id, view.limits_now_ns());
            let is_same = view.generation.number == self.generation;
            match applies.filter(|(_, tag)| is_same && *tag == self.tag) {
                Some((_, tag)) => {
                    leases.words.give_back(view, &leases.words.key(view, key, tag), taken, now_ns)
                }
                None => Ok(()),
            }
        });
    }
}
