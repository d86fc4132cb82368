//! Returns units of charges: for settlements, denied batches, cancels and refunds by status. docs/internals/returns.md has
//! the rule and the bound.
//!
//! A return is the refund of the word that is there now. It knows nothing of what came since the charge, so there is
//! nothing to record.

use crate::algorithm::gcra::Gcra;
use crate::core::places::{Place, PlacesOf};
use crate::core::spent::{Charge, ChargedTo, Spent};
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::store::key::KeyRef;
use crate::store::{
    Absent, Change, Fingerprint, Home, Outdated, Store, StoreKey, UpdateError, pin_briefly,
};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{Ordering, fence};

/// A charge whose units may be returned later.
#[derive(Clone)]
pub(crate) struct ReturnableCharge {
    pub(crate) charge: Charge,
    pub(crate) to: ChargedTo,
    /// The limit that applied to the key, without a factor. Once another one applies, nothing is returned.
    pub(crate) limit: Limit,
    /// The generation of limits in which the bucket was charged.
    pub(crate) generation: u64,
    /// The end of the override that applied, in ns of the clock.
    ends_ns: Option<u64>,
}

impl ReturnableCharge {
    /// Records a charge of `key` that was made in this view. `None` if nothing was charged.
    pub(crate) fn new(view: LimitsView<'_>, key: &StoreKey<'_>, spent: Spent) -> Option<Self> {
        let Spent { charge, to, .. } = spent;
        let limits = &view.generation.limits;
        let (limit, ends_ns) = (limits.limit_at(key.tag)?.clone(), limits.end_ns(key.tag));
        let generation = view.generation.number;
        Some(ReturnableCharge { charge: charge?, to, limit, generation, ends_ns })
    }

    /// Calls `then` with the bucket of the charge, if its limit still applies to the key. `None`: a reload has changed the
    /// limit, or its override has ended.
    pub(crate) fn with_bucket<R>(
        &self,
        inner: &LimiterState,
        key: KeyRef<'_>,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>) -> Result<R, Outdated>,
    ) -> Option<R> {
        inner.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running, and the charge was made under its limits.
                return Err(Outdated);
            }
            let entry = view.generation.limits.entry_of(key.limit, self.generation);
            let now_ns = view.limits_now_ns();
            if self.ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns) {
                return Ok(None);
            }
            match entry.limit_for(key.id, now_ns) {
                Some((limit, tag)) => {
                    // A default that has the limit of an override that has ended is another one.
                    let has_end = view.generation.limits.end_ns(tag).is_some();
                    // An override has no part in the bucket that untracked keys share.
                    let is_bucket = self.to != ChargedTo::Overflow || !tag.is_of_override();
                    let is_same = *limit == self.limit && has_end == self.ends_ns.is_some();
                    let is_same = is_same && is_bucket;
                    if !is_same && !fault::active(Fault::ReturnByOldLimit) {
                        return Ok(None);
                    }
                    then(view, &view.store_key(key, tag)).map(Some)
                }
                None => Ok(None),
            }
        })
    }

    /// Returns `units` units, if the limit still applies. Returns whether it does.
    pub(crate) fn give_back(&self, inner: &LimiterState, key: KeyRef<'_>, units: u64) -> bool {
        let read_ns = inner.clock.now_ns();
        let returned = self.with_bucket(inner, key, |view, key| {
            let now_ns = view.return_ns(read_ns);
            view.change_charged(key, self.to, |word| {
                coverage::hit(Race::Returned);
                self.limit.rule().returned(word, now_ns, units, self.charge.mark)
            })
        });
        returned.is_some()
    }
}

impl LimiterState {
    /// Drops the vacant places of a key whose bucket was refunded or reset by hand.
    #[inline(never)]
    pub(crate) fn forget_places(&self, key: KeyRef<'_>, fingerprint: Fingerprint) {
        if self.places.is_any() {
            self.places.forget(self.store.hash(key, fingerprint), key);
        }
    }
}

impl LimitsView<'_> {
    /// Returns the time of a return whose caller has read `read_ns`: at least the eviction time floor, because a sweep may have
    /// come before the charges in the bucket.
    fn return_ns(self, read_ns: u64) -> u64 {
        read_ns.max(self.inner.store.floor_ns())
    }

    /// Undoes a charge of the bucket that a limit's untracked keys share, which replaced the word `before`.
    pub(super) fn undo_overflow(self, key: &StoreKey<'_>, before: u64, spent: Spent) {
        let Some(charged) = ReturnableCharge::new(self, key, spent) else { return };
        let (rule, charge, read_ns) =
            (charged.limit.rule(), charged.charge, self.inner.clock.now_ns());
        charged.with_bucket(self.inner, key.key, |now, key| {
            let times = (charge.now_ns, now.return_ns(read_ns));
            let undo = |word| rule.undone(word, (before, charge.word), times);
            now.change_charged(key, spent.to, undo)
        });
    }

    /// Changes the word of the bucket that was charged, if the bucket still exists.
    fn change_charged(
        self,
        key: &StoreKey<'_>,
        to: ChargedTo,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        // The word 0: a sweep has dropped the cell since, because the bucket was full.
        let mut step = |word| if word == 0 { None } else { step(word) };
        match to {
            ChargedTo::Nothing => Ok(()),
            ChargedTo::Overflow => self.generation.update_overflow(key.key.limit, step),
            ChargedTo::OwnCell => {
                if self.change_known(key, &mut step) {
                    return Ok(());
                }
                let change = Change { key, absent: Absent::Leave, now_ns: 1 };
                match self.inner.store.update(change, &self, step) {
                    Err(UpdateError::Outdated) => Err(Outdated),
                    Ok(()) | Err(UpdateError::TableFull) => Ok(()),
                }
            }
        }
    }

    /// Changes the word of a key that the lock-free table finds at once, and returns whether it does.
    fn change_known(self, key: &StoreKey<'_>, step: impl FnMut(u64) -> Option<u64>) -> bool {
        let Store::LockFree(table) = &self.inner.store else { return false };
        let guard = pin_briefly();
        // The generation and the limit of the word must be the caller's. The tag does not have all bits of the
        // generation.
        let home = table.home(&guard, key.fingerprint);
        let home = home.filter(|home| home.generation() == self.generation.number);
        let known = home.and_then(Home::known);
        known.is_some_and(|known| known.tag() == key.tag && known.update(step))
    }

    /// Returns what the list of vacant places needs to know of the key's bucket.
    fn places_of(self, gcra: &Gcra) -> PlacesOf {
        PlacesOf { gcra: *gcra, generation: self.generation.number }
    }

    /// Takes the earliest vacant place of the key that has `cost` units, is granted within `at_most_ns`, and is not later
    /// than a new place.
    pub(crate) fn take_vacant(
        self,
        key: &StoreKey<'_>,
        gcra: &Gcra,
        cost: u64,
        now_ns: u64,
        at_most_ns: u64,
    ) -> Result<Option<Place>, Outdated> {
        let places = &self.inner.places;
        if !places.is_any() {
            return Ok(None);
        }
        let word = self.inner.store.look(key, &self)?.unwrap_or(0);
        let new_ns = gcra.reserve(word, now_ns, cost).map_or(u64::MAX, |new| new.at_ns);
        let latest_ns = new_ns.min(now_ns.saturating_add(at_most_ns));
        let hash = self.inner.store.hash(key.key, key.fingerprint);
        let of = self.places_of(gcra);
        Ok(places.take(hash, key.key, of, now_ns, (cost, latest_ns)))
    }

    /// Vacates a place whose time has not come. If no charge in the bucket is behind it, it is returned, with the vacant places of
    /// which that is true by then. Else it is listed as vacant, unless `is_listed` is false.
    pub(crate) fn vacate(
        self,
        key: &StoreKey<'_>,
        gcra: &Gcra,
        (place, to): (Place, ChargedTo),
        read_ns: u64,
        is_listed: bool,
    ) -> Result<(), Outdated> {
        let now_ns = self.return_ns(read_ns);
        if !self.return_last(key, (place, to), now_ns)? {
            if !is_listed || to != ChargedTo::OwnCell {
                return Ok(());
            }
            coverage::hit(Race::VacatedBeneath);
            let hash = self.inner.store.hash(key.key, key.fingerprint);
            self.inner.places.put(hash, key.key, self.places_of(gcra), now_ns, place);
        }
        // `Outdated`: a reload has come, which empties the list.
        let _ = self.return_vacant(key, gcra, now_ns);
        Ok(())
    }

    /// Returns the vacant places that no charge in the bucket is behind.
    ///
    /// Of two cancels of a bucket one must see the other's change. Each changes the word or the list, fences, and looks at the
    /// other.
    fn return_vacant(self, key: &StoreKey<'_>, gcra: &Gcra, now_ns: u64) -> Result<(), Outdated> {
        let (places, of) = (&self.inner.places, self.places_of(gcra));
        let hash = self.inner.store.hash(key.key, key.fingerprint);
        // Repeats for each place that is returned, and if another call has charged the bucket meanwhile.
        loop {
            if !fault::active(Fault::VacantUnfenced) {
                // SeqCst: the store to the word or to the list comes before the loads of both (model `cancel_vs_cancel`).
                fence(Ordering::SeqCst);
            }
            if !places.is_any() || fault::active(Fault::VacantNotLookedFor) {
                return Ok(());
            }
            let word = self.inner.store.look(key, &self)?.unwrap_or(0);
            let Some(place) = places.take_last(hash, key.key, of, now_ns, word) else {
                return Ok(());
            };
            if self.return_last(key, (place, ChargedTo::OwnCell), now_ns)? {
                coverage::hit(Race::VacatedLater);
            } else {
                places.put(hash, key.key, of, now_ns, place);
            }
        }
    }

    /// Returns a place if no charge in the bucket is behind it: the word is the one that its reservation wrote, or a lower one,
    /// because other units have been returned since. Returns whether it was so; also if the bucket is full, and has no charge.
    fn return_last(
        self,
        key: &StoreKey<'_>,
        (place, to): (Place, ChargedTo),
        now_ns: u64,
    ) -> Result<bool, Outdated> {
        let mut was_last = true;
        self.change_charged(key, to, |word| {
            was_last = word <= place.end_ns || fault::active(Fault::RefundForCancel);
            let length_ns = place.end_ns - place.start_ns;
            if was_last { Gcra::lowered(word, now_ns, length_ns) } else { None }
        })?;
        Ok(was_last)
    }
}
