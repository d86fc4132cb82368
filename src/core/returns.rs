//! Returns units of charges: for settlements, denied batches, cancels and refunds by status. docs/internals/returns.md has
//! the rule and the bound.
//!
//! A return is a refund of the bucket's present word. It does not depend on the calls since the charge, so no call records
//! anything for a later return.

use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::gcra::Gcra;
use crate::core::places::{Place, PlacesOf, WantedUnits};
use crate::core::spent::{Charge, ChargedTo, Spent};
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::limits::Limits;
use crate::store::key::{KeyRef, LimitTag};
use crate::store::{
    Absent, Change, Fingerprint, Home, Outdated, Store, StoreKey, UpdateError, pin_briefly,
};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{Ordering, fence};

/// A charge whose units may be returned later.
#[derive(Clone, Copy)]
pub(crate) struct ReturnableCharge<'l> {
    /// The limits by which the bucket was charged, and their generation.
    pub(crate) limits: &'l Limits,
    pub(crate) generation: u64,
    /// The limit that applied to the key, without a factor. Once another limit applies, nothing is returned.
    pub(crate) tag: LimitTag,
    pub(crate) to: ChargedTo,
    pub(crate) mark: ChargeMark,
}

impl<'l> ReturnableCharge<'l> {
    /// Records a charge of `key` that was made in this view. `None` if nothing was charged.
    pub(crate) fn new(view: LimitsView<'l>, key: &StoreKey<'_>, spent: Spent) -> Option<Self> {
        let Charge { mark, .. } = spent.charge?;
        let (limits, generation) = (&*view.generation.limits, view.generation.number);
        Some(ReturnableCharge { limits, generation, tag: key.tag, to: spent.to, mark })
    }

    /// Returns the limit of the charge.
    pub(super) fn limit(&self) -> Option<&'l Limit> {
        self.limits.limit_at(self.tag)
    }

    /// Calls `then` with the bucket of the charge and its limit, if that limit still applies to the key. `None`: a reload has
    /// changed the key's limit, or the override of the charge has ended.
    pub(crate) fn with_bucket<R>(
        &self,
        inner: &LimiterState,
        key: KeyRef<'_>,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<R, Outdated>,
    ) -> Option<R> {
        let own = self.limit()?;
        let ends_ns = self.limits.end_ns(self.tag);
        inner.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running. The charge was made under the new limits, and this view has the old ones.
                return Err(Outdated);
            }
            let entry = view.generation.limits.entry_of(key.limit, self.generation);
            let now_ns = view.limits_now_ns();
            if ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns) {
                return Ok(None);
            }
            match entry.limit_for(key.id, now_ns) {
                Some((limit, tag)) => {
                    // An override with an end is another limit than the default, even if both have the same parameters.
                    let has_end = view.generation.limits.end_ns(tag).is_some();
                    // The overflow bucket counts in the default's units. Under an override it gets nothing back.
                    let is_in_its_units = self.to != ChargedTo::Overflow || !tag.is_of_override();
                    let is_same = limit == own && has_end == ends_ns.is_some();
                    let is_same = is_same && is_in_its_units;
                    if !is_same && !fault::active(Fault::ReturnByOldLimit) {
                        return Ok(None);
                    }
                    then(view, &view.store_key(key, tag), own).map(Some)
                }
                None => Ok(None),
            }
        })
    }

    /// Gives `units` units back to the bucket if the limit of the charge still applies. Returns whether it does;
    /// for permits always true, because they go back to the bucket that counted them.
    pub(crate) fn give_back(&self, inner: &LimiterState, key: KeyRef<'_>, units: u64) -> bool {
        if self.is_of_permits() {
            self.release(inner, key, units);
            return true;
        }
        let read_ns = inner.clock.now_ns();
        let returned = self.with_bucket(inner, key, |view, key, limit| {
            let now_ns = view.return_ns(read_ns);
            view.change_charged(key, self.to, |word| {
                coverage::hit(Race::Returned);
                limit.rule().returned(word, now_ns, units, self.mark)
            })
        });
        returned.is_some()
    }

    /// Gives back the units of those vacant places of the key that have no charge behind them.
    pub(crate) fn return_vacant(&self, inner: &LimiterState, key: KeyRef<'_>) {
        let gcra = self.limit().and_then(|limit| limit.rule().gcra());
        let Some(gcra) = gcra.filter(|_| self.to == ChargedTo::OwnCell) else { return };
        let read_ns = inner.clock.now_ns();
        self.with_bucket(inner, key, |view, key, _| {
            view.return_vacant(key, gcra, view.return_ns(read_ns))
        });
    }

    /// Vacates a place of the charge, whose time has not come. If no charge in the bucket is behind the place, its units are given
    /// back, with those of the vacant places in front of it. Otherwise the place is listed as vacant. A place of the overflow
    /// bucket, or from before a reload that changed the limit, stays empty. Returns whether the limit of the charge still applies.
    pub(crate) fn vacate(
        &self,
        inner: &LimiterState,
        key: KeyRef<'_>,
        place: Place,
        read_ns: u64,
    ) -> bool {
        let Some(gcra) = self.limit().and_then(|limit| limit.rule().gcra()) else { return false };
        let is_vacated = self.with_bucket(inner, key, |view, key, _| {
            let now_ns = view.return_ns(read_ns);
            let is_same = view.places_of(key, gcra).since <= self.generation;
            let is_last = view.return_last(key, (place, self.to), now_ns)?;
            if !is_last && is_same && self.to == ChargedTo::OwnCell {
                coverage::hit(Race::VacatedBeneath);
                view.put_vacant(key, gcra, place, now_ns);
            }
            Ok(())
        });
        if is_vacated.is_some() {
            self.return_vacant(inner, key);
        }
        is_vacated.is_some()
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
    /// Returns the time as of which a return is made: the caller's reading `read_ns`, or the eviction time floor if that is
    /// later. The bucket may have been charged as of the floor, because a new cell begins no earlier.
    fn return_ns(self, read_ns: u64) -> u64 {
        read_ns.max(self.inner.store.floor_ns())
    }

    /// Undoes a charge of a limit's overflow bucket. `before` is the word that the charge replaced.
    pub(crate) fn undo_overflow(self, key: &StoreKey<'_>, before: u64, spent: Spent) {
        let Some(charged) = ReturnableCharge::new(self, key, spent) else { return };
        let Some(charge) = spent.charge else { return };
        let read_ns = self.inner.clock.now_ns();
        charged.with_bucket(self.inner, key.key, |now, key, limit| {
            let times = (charge.now_ns, now.return_ns(read_ns));
            let undo = |word| limit.rule().undone(word, (before, charge.word), times);
            now.change_charged(key, spent.to, undo)
        });
    }

    /// Changes the word of the bucket that was charged, if the bucket still exists.
    pub(super) fn change_charged(
        self,
        key: &StoreKey<'_>,
        to: ChargedTo,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        // The word is 0 if a sweep has dropped the cell since. The bucket was full then, so nothing is returned.
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

    /// Changes the word of a key if the lock-free table finds the key at once. Returns whether it did.
    fn change_known(self, key: &StoreKey<'_>, step: impl FnMut(u64) -> Option<u64>) -> bool {
        let Store::LockFree(table) = &self.inner.store else { return false };
        let guard = pin_briefly();
        // The word must be of the caller's generation and limit. The tag has only some bits of the generation, so the whole
        // generation is compared first.
        let home = table.home(&guard, key.fingerprint);
        let home = home.filter(|home| home.generation() == self.generation.number);
        let known = home.and_then(Home::known);
        known.is_some_and(|known| known.tag() == key.tag && known.update(step))
    }

    /// Returns the limit by which the list has the vacant places of the key, and the generation since which it is the same.
    fn places_of(self, key: &StoreKey<'_>, gcra: &Gcra) -> PlacesOf {
        let since = self.generation.limits.entry(key.key.limit).unchanged_since;
        PlacesOf { gcra: *gcra, since }
    }

    /// Lists a place as vacant.
    pub(crate) fn put_vacant(self, key: &StoreKey<'_>, gcra: &Gcra, place: Place, now_ns: u64) {
        let hash = self.inner.store.hash(key.key, key.fingerprint);
        let (of, limits) =
            (self.places_of(key, gcra), || self.generation.limits.count_with_buckets());
        self.inner.places.put(hash, key.key, of, now_ns, (place, limits));
    }

    /// Returns the number of units of the key's earliest vacant place.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn vacant_units(self, key: &StoreKey<'_>, gcra: &Gcra, now_ns: u64) -> Option<u64> {
        let places = &self.inner.places;
        if !places.is_any() {
            return None;
        }
        let hash = self.inner.store.hash(key.key, key.fingerprint);
        places.units_of_earliest(hash, key.key, self.places_of(key, gcra), now_ns)
    }

    /// Takes `cost` units from the key's earliest vacant place that has enough of them at `from_ns` or later. The place must be due
    /// within `at_most_ns`, and no later than a new place. With `looks` it only searches.
    pub(crate) fn take_vacant(
        self,
        key: &StoreKey<'_>,
        gcra: &Gcra,
        cost: u64,
        now_ns: u64,
        (at_most_ns, from_ns, looks): (u64, u64, bool),
    ) -> Result<Option<Place>, Outdated> {
        let places = &self.inner.places;
        if !places.is_any() {
            return Ok(None);
        }
        let word = self.inner.store.look(key, &self)?.unwrap_or(0);
        let new_ns =
            gcra.reserve(word, now_ns.max(from_ns), cost).map_or(u64::MAX, |new| new.at_ns);
        let latest_ns = new_ns.min(now_ns.saturating_add(at_most_ns));
        let hash = self.inner.store.hash(key.key, key.fingerprint);
        let of = self.places_of(key, gcra);
        let wanted = WantedUnits { units: cost, from_ns, latest_ns };
        Ok(match looks {
            true => places.find(hash, key.key, of, now_ns, wanted),
            false => places.take(hash, key.key, of, now_ns, wanted),
        })
    }

    /// Gives back the units of the listed places that have no charge behind them.
    ///
    /// If two calls cancel places of one bucket at the same time, at least one must see the other's change. So each first
    /// changes the word or the list, then fences, and then reads both.
    fn return_vacant(self, key: &StoreKey<'_>, gcra: &Gcra, now_ns: u64) -> Result<(), Outdated> {
        let (places, of) = (&self.inner.places, self.places_of(key, gcra));
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
            let returned = self.return_last(key, (place, ChargedTo::OwnCell), now_ns);
            match returned {
                Ok(true) => coverage::hit(Race::VacatedLater),
                Ok(false) | Err(Outdated) => self.put_vacant(key, gcra, place, now_ns),
            }
            returned?;
        }
    }

    /// Gives the units of a place back if no charge in the bucket is behind the place. That is so if the word is at most the
    /// place's end; returns may have made it lower. Returns whether no charge was behind it; a full bucket has none.
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
