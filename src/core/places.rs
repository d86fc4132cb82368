//! Lists vacant places, beside the buckets and independent of them.
//!
//! A place is a charge whose time is in the future. A place that its owner has cancelled while other charges were behind it
//! stays charged. The next reservation of its key takes it, or the first part of it, and charges nothing. Reservations,
//! cancels, settlements, refunds and resets by hand, sweeps and reloads look at the list, and only while it has a place.
//!
//! The list is built like that of the blocks: a key's hash picks a bin, and a thread replaces a bin's slice by a changed copy. The
//! places of a key are in a tree, so that a change copies few of them.

mod tree;

use std::sync::Arc;

use crate::algorithm::gcra::Gcra;
use crate::core::places::tree::PlaceTree;
#[cfg(all(test, not(tollgate_loom)))]
pub(crate) use crate::core::places::tree::steps;
use crate::store::key::{Key, KeyRef, LimitIndex};
use crate::store::{ReplacedBins, pin};
use crate::util::sync::{AtomicUsize, Ordering};

/// A part of a bucket's time that a charge has taken: from the TAT before the charge to the TAT after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// The limit under which places were charged, and the generation since which no reload has changed it. A place of another
/// limit is not taken any more, also if a later reload changes the limit back: the bucket's time was converted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacesOf {
    pub(crate) gcra: Gcra,
    pub(crate) since: u64,
}

impl PlacesOf {
    /// Returns the time at which a place that ends at this TAT is granted.
    pub(crate) fn granted_ns(&self, end_ns: u64) -> u64 {
        end_ns.saturating_sub(self.gcra.burst_offset_ns())
    }

    /// Returns the part of a place that a caller can take: the part after `now_ns`. So the time of a charge is never before the
    /// call that uses it, whether it is the call's own or a place's.
    fn present(place: Place, now_ns: u64) -> Option<Place> {
        let start_ns = place.start_ns.max(now_ns);
        (start_ns < place.end_ns).then_some(Place { start_ns, ..place })
    }
}

/// The units that a call wants of a vacant place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedUnits {
    pub(crate) units: u64,
    /// The time at which the units begin at the earliest.
    pub(crate) from_ns: u64,
    /// The time at which they are granted at the latest.
    pub(crate) latest_ns: u64,
}

/// Finds the place in which units are granted first, and its part: the first ones that begin at `from_ns` or later.
fn find_earliest(
    places: &PlaceTree,
    of: PlacesOf,
    now_ns: u64,
    wanted: WantedUnits,
) -> Option<(Place, Place)> {
    let length_ns = of.gcra.emission_interval_ns().checked_mul(wanted.units)?;
    let from_ns = now_ns.max(wanted.from_ns);
    let place = places.first_fitting(from_ns, length_ns)?;
    let start_ns = place.start_ns.max(from_ns);
    let part = Place { start_ns, end_ns: start_ns + length_ns };
    (of.granted_ns(part.end_ns) <= wanted.latest_ns).then_some((place, part))
}

/// Takes the units that [`find_earliest`] finds.
fn take_earliest(
    places: &mut PlaceTree,
    of: PlacesOf,
    now_ns: u64,
    wanted: WantedUnits,
) -> Option<Place> {
    places.drop_passed(now_ns);
    let (place, taken) = find_earliest(places, of, now_ns, wanted)?;
    places.remove(place);
    let before = Place { end_ns: taken.start_ns, ..place };
    let behind = Place { start_ns: taken.end_ns, ..place };
    [before, behind]
        .into_iter()
        .filter_map(|rest| PlacesOf::present(rest, now_ns))
        .for_each(|rest| places.insert(rest));
    Some(taken)
}

/// The vacant places of one key.
struct PlacesOfKey {
    key: Key,
    of: PlacesOf,
    places: PlaceTree,
}

/// About the bytes of the nodes that a change replaces.
const CHANGED_BYTES: usize = 1024;

/// The keys of one bin that have vacant places, sorted.
struct Bin(Box<[Arc<PlacesOfKey>]>);

/// The vacant places of a limiter.
pub(crate) struct VacantPlaces {
    bins: ReplacedBins<Bin>,
    /// The number of places that are listed or about to be. A call raises it before it lists a place, and lowers it after it
    /// has removed one. So if it is 0, no place is listed.
    count: AtomicUsize,
    max: usize,
}

impl VacantPlaces {
    /// Makes a list that takes places up to `max`, and up to twice that of limits below their equal part. A place that is taken in
    /// part may leave two.
    pub(crate) fn new(max: usize) -> VacantPlaces {
        const BINS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };
        VacantPlaces { bins: ReplacedBins::new(BINS), count: AtomicUsize::new(0), max }
    }

    /// Whether any place may be listed.
    pub(crate) fn is_any(&self) -> bool {
        // Relaxed: a caller that must not miss a place has a fence in front.
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Lists a place as vacant. If the list is full, the place stays empty, unless its limit has fewer places than an equal part
    /// of the list for each of `limits` limits: the callers of another limit cannot take this part away.
    pub(crate) fn put(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        now_ns: u64,
        (place, limits): (Place, impl FnOnce() -> usize),
    ) {
        if !self.reserve(self.max) {
            self.drop_passed(now_ns);
            let has_part = || self.count_of(key.limit) < self.max / limits().max(1);
            let is_listed =
                self.reserve(self.max) || has_part() && self.reserve(self.max.saturating_mul(2));
            if !is_listed {
                return;
            }
        }
        self.change(hash, key, of, |places| places.add(place));
        self.release(1);
    }

    /// Finds the units that [`take`](Self::take) would take.
    pub(crate) fn find(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        now_ns: u64,
        wanted: WantedUnits,
    ) -> Option<Place> {
        self.with_places(hash, key, of, |places| find_earliest(places, of, now_ns, wanted))?
            .map(|(_, part)| part)
    }

    /// Calls `then` with the places of a key, if it has any.
    fn with_places<R>(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        then: impl FnOnce(&PlaceTree) -> R,
    ) -> Option<R> {
        let guard = pin();
        let keys = &self.bins.get(self.bin(hash), &guard)?.0;
        let at = keys.binary_search_by(|of_key| of_key.key.as_ref().cmp(&key)).ok()?;
        Some(&keys[at]).filter(|of_key| of_key.of == of).map(|listed| then(&listed.places))
    }

    /// Takes units, the earliest there are.
    pub(crate) fn take(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        now_ns: u64,
        wanted: WantedUnits,
    ) -> Option<Place> {
        self.change(hash, key, of, |places| take_earliest(places, of, now_ns, wanted))
    }

    /// Returns the number of units of the key's earliest place that has one.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn units_of_earliest(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        now_ns: u64,
    ) -> Option<u64> {
        let interval_ns = of.gcra.emission_interval_ns();
        let place =
            self.with_places(hash, key, of, |places| places.first_fitting(now_ns, interval_ns))??;
        let place = PlacesOf::present(place, now_ns)?;
        Some((place.end_ns - place.start_ns) / interval_ns)
    }

    /// Takes the last place if no charge is behind it, that is if `word`, the bucket's TAT, is at most its end.
    pub(crate) fn take_last(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        now_ns: u64,
        word: u64,
    ) -> Option<Place> {
        self.change(hash, key, of, |places| {
            places.drop_passed(now_ns);
            let last = places.last().filter(|last| word <= last.end_ns)?;
            places.remove(last);
            PlacesOf::present(last, now_ns)
        })
    }

    /// Drops the key's places: its bucket was refunded or reset by hand.
    #[cold]
    pub(crate) fn forget(&self, hash: u64, key: KeyRef<'_>) {
        self.replace_bin(self.bin(hash), |keys| {
            let at = keys.binary_search_by(|of_key| of_key.key.as_ref().cmp(&key)).ok()?;
            let mut new = keys.to_vec();
            new.remove(at);
            Some(new)
        });
    }

    /// Drops places whose times have passed.
    pub(crate) fn drop_passed(&self, now_ns: u64) {
        if !self.is_any() {
            return;
        }
        for bin in 0..self.bins.len() {
            self.replace_bin(bin, |keys| {
                let has_passed = |of_key: &PlacesOfKey| {
                    of_key.places.first().is_some_and(|place| place.end_ns <= now_ns)
                };
                if !keys.iter().any(|of_key| has_passed(of_key)) {
                    return None;
                }
                let present = keys.iter().filter_map(|of_key| {
                    let mut places = of_key.places.clone();
                    match places.drop_passed(now_ns) {
                        true => PlacesOfKey::new(of_key.key.clone(), of_key.of, places),
                        false => Some(of_key.clone()),
                    }
                });
                Some(present.collect())
            });
        }
    }

    /// Drops the places of limits that have changed, after a reload. `since` returns the generation since which a limit is the
    /// same.
    pub(crate) fn drop_changed(&self, since: impl Fn(LimitIndex) -> u64) {
        if !self.is_any() {
            return;
        }
        let is_same = |of_key: &PlacesOfKey| of_key.of.since == since(of_key.key.as_ref().limit);
        for bin in 0..self.bins.len() {
            self.replace_bin(bin, |keys| {
                let is_any_changed = keys.iter().any(|of_key| !is_same(of_key));
                let same = || keys.iter().filter(|of_key| is_same(of_key)).cloned().collect();
                is_any_changed.then(same)
            });
        }
    }

    /// Counts the places of a limit.
    fn count_of(&self, limit: LimitIndex) -> usize {
        let guard = pin();
        let bins = (0..self.bins.len()).filter_map(|bin| self.bins.get(bin, &guard));
        let keys = bins.flat_map(|bin| bin.0.iter());
        let of_limit = keys.filter(|of_key| of_key.key.as_ref().limit == limit);
        of_limit.map(|of_key| of_key.places.len()).sum()
    }

    /// Frees replaced slices that no call reads any more.
    pub(crate) fn collect(&self) {
        self.bins.collect(&pin());
    }

    fn bin(&self, hash: u64) -> usize {
        // The lowest bits of a fingerprint may be the table's marks.
        (hash >> 8) as usize & (self.bins.len() - 1)
    }

    /// Changes the places of a key. `step` may run several times; the result is that of the last run.
    fn change<R>(
        &self,
        hash: u64,
        key: KeyRef<'_>,
        of: PlacesOf,
        mut step: impl FnMut(&mut PlaceTree) -> R,
    ) -> R {
        let mut result = None;
        self.replace_bin(self.bin(hash), |keys| {
            let at = keys.binary_search_by(|of_key| of_key.key.as_ref().cmp(&key));
            let listed = at.ok().map(|at| &keys[at]).filter(|of_key| of_key.of == of);
            let before = listed.map_or_else(PlaceTree::default, |of_key| of_key.places.clone());
            let mut places = before.clone();
            result = Some(step(&mut places));
            if places.is_same(&before) {
                return None;
            }
            let (at, after) = at.map_or_else(|at| (at, at), |at| (at, at + 1));
            let changed = PlacesOfKey::new(Key::new(key), of, places);
            let behind = keys[after..].iter().cloned();
            Some(keys[..at].iter().cloned().chain(changed).chain(behind).collect())
        });
        // The bin was read at least once.
        result.unwrap_or_else(|| step(&mut PlaceTree::default()))
    }

    /// Replaces the slice of a bin by the one that `changed` makes of it; `None` leaves it as it is.
    fn replace_bin(
        &self,
        bin: usize,
        mut changed: impl FnMut(&[Arc<PlacesOfKey>]) -> Option<Vec<Arc<PlacesOfKey>>>,
    ) {
        // Repeats only if another thread has changed the bin.
        loop {
            let guard = pin();
            let found = self.bins.get(bin, &guard);
            let keys = found.map_or(&[][..], |bin| &bin.0);
            let Some(new) = changed(keys) else { return };
            let [before, after] = [count_of(keys), count_of(&new)];
            // Most nodes of the trees stay.
            let bytes = found.map_or(0, |_| size_of::<Bin>() + size_of_val(keys) + CHANGED_BYTES);
            let added = after.saturating_sub(before);
            // Relaxed: the swap of the bin publishes the places, and its caller fences.
            self.count.fetch_add(added, Ordering::Relaxed);
            let new = (!new.is_empty()).then(|| Box::new(Bin(new.into())));
            if self.bins.replace(bin, &guard, found, new, bytes) {
                self.release(before.saturating_sub(after));
                return;
            }
            self.release(added);
        }
    }

    /// Raises the count by one if it is below `most`.
    fn reserve(&self, most: usize) -> bool {
        // Relaxed: the count publishes nothing.
        let reserved = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < most).then_some(count + 1)
        });
        reserved.is_ok()
    }

    fn release(&self, places: usize) {
        if places > 0 {
            // Relaxed: as in `reserve`.
            self.count.fetch_sub(places, Ordering::Relaxed);
        }
    }
}

impl PlacesOfKey {
    /// Returns `None` if there are no places.
    fn new(key: Key, of: PlacesOf, places: PlaceTree) -> Option<Arc<PlacesOfKey>> {
        (places.len() > 0).then(|| Arc::new(PlacesOfKey { key, of, places }))
    }
}

fn count_of(keys: &[Arc<PlacesOfKey>]) -> usize {
    keys.iter().map(|of_key| of_key.places.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::tree::tests::{parts, tree};
    use super::*;

    /// 10 ns a unit, a burst of 3.
    const OF: PlacesOf = PlacesOf { gcra: Gcra::new(3, 10, 30), since: 0 };

    #[test]
    fn earliest_units_that_fit_are_taken() {
        let mut all = tree(&[(100, 150), (60, 70)]);
        let take = |all: &mut _, units, latest_ns| {
            take_earliest(all, OF, 1, WantedUnits { units, from_ns: 0, latest_ns })
        };
        assert_eq!(take(&mut all, 1, 39), None, "the first is granted at 40");
        assert_eq!(take(&mut all, 1, 40), Some(Place { start_ns: 60, end_ns: 70 }));
        assert_eq!(take(&mut all, 2, 90), Some(Place { start_ns: 100, end_ns: 120 }));
        assert_eq!(parts(&all), [(120, 150)]);
        assert_eq!(take(&mut all, 3, 119), None);
        assert_eq!(take(&mut all, 3, 120), Some(Place { start_ns: 120, end_ns: 150 }));
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn units_from_a_time_on_leave_the_rest() {
        let mut all = tree(&[(40, 60), (100, 150)]);
        let take = |all: &mut _, from_ns| {
            let wanted = WantedUnits { units: 2, from_ns, latest_ns: u64::MAX };
            take_earliest(all, OF, 1, wanted)
        };
        assert_eq!(take(&mut all, 41), Some(Place { start_ns: 100, end_ns: 120 }));
        assert_eq!(take(&mut all, 125), Some(Place { start_ns: 125, end_ns: 145 }));
        assert_eq!(take(&mut all, 125), None);
        assert_eq!(parts(&all), [(40, 60), (120, 125), (145, 150)]);
    }

    /// What the clock has passed of a place is gone.
    #[test]
    fn place_behind_the_clock_is_cut() {
        let place = Place { start_ns: 50, end_ns: 120 };
        assert_eq!(PlacesOf::present(place, 50), Some(place));
        assert_eq!(PlacesOf::present(place, 65), Some(Place { start_ns: 65, ..place }));
        assert_eq!(PlacesOf::present(place, 119), Some(Place { start_ns: 119, ..place }));
        assert_eq!(PlacesOf::present(place, 120), None);
    }
}
