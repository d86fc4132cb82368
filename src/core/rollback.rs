//! Rolling a charge back: what a denied batch, a settlement and a cancel do to the bucket that was charged.
//! docs/internals/rollback.md has the rule and why the bound holds.

use crate::algorithm::Charge;
use crate::core::ledger::Entry;
use crate::core::view::{ChargedTo, LimitsView, Spent};
use crate::limit::Limit;
use crate::store::{Absent, Change, Home, Outdated, Store, StoreKey, Undone, pin_briefly};
use crate::util::coverage::{self, Race};

impl<'g> LimitsView<'g> {
    /// Takes back what a call of this caller's own was charged.
    pub(crate) fn roll_back(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
    ) -> Result<(), Outdated> {
        let Some(charge) = spent.charge else { return Ok(()) };
        let entry = self.entry(key, spent);
        // This call's own attempts have not lowered the word.
        let mut noted = spent.noted;
        // Places are taken by the limit's own numbers, whatever the factor that was charged by.
        let own = self.generation.limits.limit_at(key.tag).filter(|own| *own != limit);
        let rolled_back = |word, charge, now_ns: &dyn Fn() -> u64| {
            let taken = limit.rule().roll_back(word, charge, now_ns)?;
            let Some(own) = own else { return Some(taken) };
            let by_own = own.rule().roll_back(word, charge, now_ns)?;
            let lowered_by = |taken| limit.rule().measure(word, taken);
            Some(if lowered_by(by_own) < lowered_by(taken) { by_own } else { taken })
        };
        let step = |word| {
            // Both are asked after the word was read: what has lowered it counts.
            if entry.is_refunded_since(noted) {
                return None;
            }
            let lowered = entry.lowered_since(noted);
            let charge = Charge { lowered, ..charge };
            coverage::hit(if word == charge.after {
                Race::RolledBack
            } else {
                Race::RolledBackBeneath
            });
            // The one reading that is made late: after all charges that are in the word. No earlier
            // than a sweep that may have been before the cell's other charges.
            let now_ns = || self.inner.clock.now_after_loads_ns().max(self.inner.store.floor_ns());
            let taken = rolled_back(word, charge, &now_ns)?;
            if charge.is_last(word) && !spent.is_part {
                return Some(taken);
            }
            let by = limit.rule().measure(word, taken);
            let announced = entry.announce(by, noted);
            noted = noted.and_own(by);
            if announced == lowered {
                return Some(taken);
            }
            rolled_back(word, Charge { lowered: announced, ..charge }, &now_ns)
        };
        self.change_charged(key, spent, step)
    }

    /// The ledger's entry of the bucket that was charged.
    pub(crate) fn entry(self, key: &StoreKey<'_>, spent: &Spent) -> &'g Entry {
        match spent.to {
            ChargedTo::Shared => self.inner.ledger.of_shared(key.key.limit),
            ChargedTo::OwnCell | ChargedTo::Nothing => self.inner.ledger.of(key),
        }
    }

    /// Changes the word of the bucket that was charged, if it is there still.
    pub(crate) fn change_charged(
        self,
        key: &StoreKey<'_>,
        spent: &Spent,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        match spent.to {
            ChargedTo::Nothing => Ok(()),
            ChargedTo::Shared => self.generation.update_shared(key.key.limit, step),
            ChargedTo::OwnCell => {
                // A cell that was swept since was full: its charge had drained.
                let mut step = |word| if word == 0 { None } else { step(word) };
                if self.change_known(key, &mut step) {
                    return Ok(());
                }
                let now_ns = spent.charge.map_or(1, |charge| charge.now_ns);
                let change = Change { key, absent: Absent::Leave, now_ns };
                match self.inner.store.update(change, &self, step) {
                    Err(Undone::Outdated) => Err(Outdated),
                    Ok(()) | Err(Undone::AtCap) => Ok(()),
                }
            }
        }
    }

    /// Changes the word of a key that the lock-free table knows; returns whether it does. There is no look
    /// before it, so that a step is an attempt.
    fn change_known(self, key: &StoreKey<'_>, step: impl FnMut(u64) -> Option<u64>) -> bool {
        let Store::LockFree(table) = &self.inner.store else { return false };
        let guard = pin_briefly();
        let known = table.home(&guard, key.fingerprint).and_then(Home::known);
        // The note beside the word is of one generation of limits, and of the key's own numbers.
        known.is_some_and(|known| known.tag() == key.tag && known.update(step))
    }

    /// As [`roll_back`](LimitsView::roll_back), where the limits may have changed since `then`, the turn in which
    /// it was charged. Over more than one reload, which took longer than this call's few steps, nothing is
    /// taken back: what a bucket owed in between is not known.
    pub(crate) fn roll_back_after_reload(
        self,
        then: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
    ) -> Result<(), Outdated> {
        let (before, now) = (then.generation, self.generation);
        let Some(charge) = spent.charge else { return Ok(()) };
        if before.number == now.number {
            // A bucket that the reload has not come to.
            return self.roll_back(key, limit, spent);
        }
        let Some(tag) = now
            .limits
            .tag_of(key.key, self.limits_now_ns())
            .filter(|_| now.number == before.number + 1)
        else {
            return Ok(());
        };
        if spent.to == ChargedTo::Shared && tag.is_of_override() {
            // The bucket is in the units of the default.
            return Ok(());
        }
        let Some(new) = now.limits.limit_at(tag) else { return Ok(()) };
        let is_same = before.limits.limit_at(key.tag).is_some_and(|old| old.rule() == new.rule());
        if !is_same && self.entry(key, spent).lowered_since(spent.noted) > 0 {
            // In which units is not known.
            return Ok(());
        }
        let words = [charge.before, charge.after].map(|word| match (word, spent.to) {
            (0, _) | (_, ChargedTo::Nothing) => Ok(Some(word)),
            (_, ChargedTo::OwnCell) => now.under_since(before, key, word, tag),
            (_, ChargedTo::Shared) => Ok(now.shared_changed(before, key.key.limit, word)),
        });
        let [before, after] = words;
        // What nothing is left of needs no taking back.
        let (Some(before), Some(after)) = (before?, after?) else { return Ok(()) };
        let charge = Some(Charge { before, after, ..charge });
        self.roll_back(&StoreKey { tag, ..*key }, new, &Spent { charge, ..*spent })
    }
}
