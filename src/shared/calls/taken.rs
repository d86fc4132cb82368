//! Units that calls have taken from a lease of this node.

use crate::algorithm::factor::Factor;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::shared::calls::charged::ChargedInStore;
use crate::store::key::{Key, LimitTag};

/// Units that a batch has taken from a lease of this node.
pub(crate) struct TakenFromLease {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    /// The limits and the limit at that time. The next limit's leases may end at the same times.
    pub(super) generation: u64,
    pub(super) tag: LimitTag,
    pub(super) limit: Limit,
    /// The end of the override that applied, in ns of the limiter's clock.
    pub(super) ends_ns: Option<u64>,
    pub(super) until_ns: u64,
    pub(super) units: u64,
}

impl TakenFromLease {
    /// Gives the units back to their lease, if the node still holds it, else to the bucket in the store, which only begins.
    pub(crate) fn give_back(&self) {
        if !self.is_back_in_lease() {
            self.in_store().begin_return();
        }
    }

    fn is_back_in_lease(&self) -> bool {
        let inner = &*self.handle.limiter.inner;
        let Some(leases) = inner.leases() else { return false };
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
                None => Ok(false),
            }
        })
    }

    /// Returns the units as a charge of the bucket in the store, which the lease was.
    fn in_store(&self) -> ChargedInStore {
        ChargedInStore {
            handle: self.handle.clone(),
            key: self.key.clone(),
            limit: self.limit.clone(),
            factor: Factor::ONE,
            cost: self.units,
            // A lease charges by the limit without a factor, so a charge of any word has the same mark.
            mark: Some(self.limit.rule().charge_mark(0)),
            reserved: None,
            ends_ns: self.ends_ns,
        }
    }
}
