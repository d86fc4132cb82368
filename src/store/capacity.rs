//! Holds the cap on keys exactly, and divides it among the limits: a call reserves a place before it inserts a key.
//!
//! Half of the cap is divided equally among the limits, and each limit's part is its own. The other half is common: it
//! goes to the keys that come first. So no limit can take the places that another needs. An id with its own
//! override has a place beside the cap, because there are only as many such ids as overrides.
//!
//! Each cell is counted in one room, which its [tag](LimitTag::room) names. A tag never changes while its cell is in a
//! slot, so the call that ends a cell knows where the cell is counted.

use std::sync::OnceLock;

use crate::store::key::{LimitIndex, LimitTag, Room};
use crate::store::searches::Searches;
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, FigureUsize, Ordering, Switch};

/// Counts the places of keys that have a cell or are about to get one.
pub(crate) struct Reservations {
    max: usize,
    /// The places that calls may take: `max`, or more while a snapshot is read.
    cap: FigureUsize,
    /// The places under the cap, of all limits.
    taken: AtomicU64,
    /// The places of ids that have their own override.
    beside: AtomicU64,
    common: Common,
    parts: Parts,
    pub(super) searches: Searches,
}

/// A place for one key. Dropping it releases the place.
#[must_use]
pub(crate) struct Reservation<'t> {
    /// `None`: the place was passed on to a cell.
    of: Option<&'t Reservations>,
    room: Room,
}

/// The places that a limit has for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitPart {
    pub(crate) own: usize,
    /// Whether the limit takes no common places.
    pub(crate) is_closed: bool,
}

/// The places that no limit has for itself. The number that is taken is the sum of the places that each limit has above
/// its own part.
struct Common {
    taken: AtomicU64,
    /// Changes in reloads only. A call that reads the number before acts as before the reload.
    max: FigureUsize,
}

/// The places of one limit.
#[derive(Default)]
struct Part {
    /// The places that are taken in the low half, and the limit's part in the high half. One swap decides whether a
    /// place is within the part, also while a reload changes the part.
    counts: AtomicU64,
    is_closed: Switch,
}

/// The places that a limit could take, and how many are taken.
pub(super) struct RoomOfLimit {
    pub(super) taken: usize,
    cap: usize,
    pub(super) own_taken: usize,
    own: usize,
    pub(super) common_taken: usize,
    /// 0 for a limit that takes no common places.
    common: usize,
}

impl RoomOfLimit {
    /// Whether more than `ends` buckets have to end before a place of the cap is left.
    pub(super) fn lacks_more_than(&self, ends: usize) -> bool {
        self.taken >= self.cap.saturating_add(ends)
    }

    pub(super) fn takes_common(&self) -> bool {
        self.common > 0
    }

    /// Whether at most a quarter of the places that the limit can take is left.
    fn is_nearly_none(&self) -> bool {
        let left = |max: usize, taken: usize| max.saturating_sub(taken);
        let of_limit = left(self.own, self.own_taken) + left(self.common, self.common_taken);
        let most = (self.own + self.common).min(self.cap);
        of_limit.min(left(self.cap, self.taken)) <= most / 4
    }

    /// Whether a place is left.
    pub(super) fn is_any(&self) -> bool {
        self.taken < self.cap && (self.own_taken < self.own || self.common_taken < self.common)
    }
}

/// The two halves of [`Part::counts`].
#[derive(Clone, Copy)]
struct Counts {
    taken: u64,
    own: u64,
}

/// The parts of limits, by index. A part stays where it is while others are added: the `n`th list has `2^n`.
struct Parts([OnceLock<Box<[Part]>>; Parts::LISTS]);

impl Counts {
    const HALF: u32 = 32;
    /// A place that is taken, in the bits of both.
    const ONE: u64 = 1;

    fn from_bits(bits: u64) -> Counts {
        Counts { taken: bits & (u64::MAX >> Counts::HALF), own: bits >> Counts::HALF }
    }

    fn bits(self) -> u64 {
        self.own << Counts::HALF | self.taken
    }

    /// The places above the part, which are common ones.
    fn above(self) -> u64 {
        self.taken.saturating_sub(self.own)
    }
}

/// Stores the number that `step` returns for the current one, if it returns one. Returns whether it did. Repeats only if
/// the number changed meanwhile.
fn update(number: &AtomicU64, step: impl Fn(u64) -> Option<u64>) -> bool {
    // Relaxed: the number publishes nothing. The same holds for all numbers here.
    let order = Ordering::Relaxed;
    if fault::active(Fault::CapUnreserved) {
        let next = step(number.load(order));
        return next.map(|next| number.store(next, order)).is_some();
    }
    // An older number only lets the swap fail, which loom need not explore.
    #[cfg(tollgate_loom)]
    let mut current = number.fetch_add(0, order);
    #[cfg(not(tollgate_loom))]
    let mut current = number.load(order);
    while let Some(next) = step(current) {
        match number.compare_exchange(current, next, order, order) {
            Ok(_) => return true,
            Err(changed) => current = changed,
        }
    }
    false
}

impl Common {
    fn reserve(&self) -> bool {
        // Relaxed: as in `update`.
        let max = self.max.load(Ordering::Relaxed) as u64;
        update(&self.taken, |taken| (taken < max).then_some(taken + 1))
    }

    /// Reserves places even if there is no room.
    fn add(&self, places: u64) {
        // Relaxed: as in `reserve`.
        self.taken.fetch_add(places, Ordering::Relaxed);
    }

    fn release(&self, places: u64) {
        // Relaxed: as in `reserve`.
        let before = self.taken.fetch_sub(places, Ordering::Relaxed);
        debug_assert!(before >= places, "a common place was released twice");
    }
}

impl Part {
    fn counts(&self) -> Counts {
        // Relaxed: as in `update`.
        Counts::from_bits(self.counts.load(Ordering::Relaxed))
    }

    /// Reserves a place: one of the limit's own, else a common one.
    fn reserve(&self, common: &Common) -> bool {
        let own = |bits| {
            let counts = Counts::from_bits(bits);
            (counts.taken < counts.own).then_some(bits + Counts::ONE)
        };
        let is_own = if fault::active(Fault::PartUnreserved) {
            let bits = self.counts.load(Ordering::Relaxed);
            let next = own(bits);
            self.counts.store(next.unwrap_or(bits), Ordering::Relaxed);
            next.is_some()
        } else {
            update(&self.counts, own)
        };
        if is_own {
            return true;
        }
        // Relaxed: a call beside the reload that closes the part counts as before it.
        if self.is_closed.load(Ordering::Relaxed) || !common.reserve() {
            return false;
        }
        self.add_reserved(common);
        true
    }

    /// Takes a place for which the caller has reserved a common one.
    fn add_reserved(&self, common: &Common) {
        // Relaxed: as in `update`.
        let before = Counts::from_bits(self.counts.fetch_add(Counts::ONE, Ordering::Relaxed));
        if before.taken < before.own {
            // One of the limit's own was released meanwhile.
            common.release(1);
        }
    }

    fn release(&self, common: &Common) {
        // Relaxed: as in `update`.
        let before = Counts::from_bits(self.counts.fetch_sub(Counts::ONE, Ordering::Relaxed));
        debug_assert!(before.taken > 0, "a place was released twice");
        if before.taken > before.own {
            common.release(1);
        }
    }

    /// Sets the limit's part. Places that are above it by now are common ones, and those that are not any more are released.
    fn set(&self, part: LimitPart, common: &Common) {
        self.is_closed.store(part.is_closed, Ordering::Relaxed);
        let own = part.own.min(Reservations::MAX) as u64;
        // Repeats only if a place was reserved or released meanwhile.
        loop {
            let old = self.counts();
            let new = Counts { own, ..old };
            // Common places are reserved before they are needed, and released after.
            common.add(new.above().saturating_sub(old.above()));
            let (order, lost) = (Ordering::Relaxed, Ordering::Relaxed);
            // Relaxed: as in `update`.
            if self.counts.compare_exchange(old.bits(), new.bits(), order, lost).is_ok() {
                return common.release(old.above().saturating_sub(new.above()));
            }
            common.release(new.above().saturating_sub(old.above()));
        }
    }
}

impl Parts {
    const LISTS: usize = u32::BITS as usize;

    fn new() -> Parts {
        Parts(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Returns the list and the position of a limit's part.
    fn place(limit: LimitIndex) -> (usize, usize) {
        let nth = limit.0.saturating_add(1);
        let list = nth.ilog2();
        (list as usize, (nth - (1 << list)) as usize)
    }

    fn get(&self, limit: LimitIndex) -> Option<&Part> {
        let (list, at) = Parts::place(limit);
        self.0[list].get()?.get(at)
    }

    fn get_or_add(&self, limit: LimitIndex) -> Option<&Part> {
        let (list, at) = Parts::place(limit);
        let make = || (0..1_usize << list).map(|_| Part::default()).collect();
        self.0[list].get_or_init(make).get(at)
    }
}

impl Reservations {
    /// The largest cap: the halves of [`Part::counts`] have room for more.
    pub(crate) const MAX: usize = 4_000_000_000;

    /// Makes the count of a table for `max` keys, all of which are common places.
    pub(crate) fn new(max: usize) -> Reservations {
        let max = max.min(Reservations::MAX);
        let common = Common { taken: AtomicU64::new(0), max: FigureUsize::new(max) };
        let (taken, beside) = (AtomicU64::new(0), AtomicU64::new(0));
        let cap = FigureUsize::new(max);
        let (parts, searches) = (Parts::new(), Searches::default());
        Reservations { max, cap, taken, beside, common, parts, searches }
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Divides the cap among the limits: `parts` by index, of which the sum is at most the cap. Places that are taken stay
    /// taken. Calls of this function come one after the other.
    pub(crate) fn divide(&self, parts: &[LimitPart]) {
        let own: usize = parts.iter().map(|part| part.own).sum();
        // Relaxed: as in `update`. Until the last part is set, `taken` alone holds the cap.
        self.cap.store(self.max, Ordering::Relaxed);
        self.common.max.store(self.max.saturating_sub(own), Ordering::Relaxed);
        for (at, part) in parts.iter().enumerate() {
            if let Some(of_limit) = self.parts.get_or_add(LimitIndex::new(at)) {
                of_limit.set(*part, &self.common);
            }
        }
    }

    /// Gives each limit `cap` places, all of them common, in a store that no other thread has yet.
    #[cfg(feature = "snapshot")]
    pub(crate) fn open(&self, cap: usize, limits: usize) {
        self.divide(&vec![LimitPart::default(); limits]);
        let cap = cap.min(Reservations::MAX);
        // Relaxed: no other thread has the store yet.
        self.cap.store(cap, Ordering::Relaxed);
        self.common.max.store(cap, Ordering::Relaxed);
    }

    fn cap(&self) -> usize {
        // Relaxed: as in `update`.
        self.cap.load(Ordering::Relaxed)
    }

    /// The part of a limit. A limit that no call of `divide` had has none, and takes common places.
    fn part(&self, limit: LimitIndex) -> Option<&Part> {
        self.parts.get(limit)
    }

    /// Reserves a place for a key with this tag if there is one. Repeats only if another reservation or release came in
    /// between.
    pub(crate) fn reserve(&self, tag: LimitTag) -> Option<Reservation<'_>> {
        let room = tag.room();
        let Room::UnderCap(limit) = room else { return Some(self.reserve_another(tag)) };
        let part = self.part(limit);
        let is_reserved = match part {
            Some(part) => part.reserve(&self.common),
            None => self.common.reserve(),
        };
        if !is_reserved {
            return None;
        }
        // A place of a part counts from before it is taken until after it is released here. So if the parts and the common
        // places are at most `max` together, this never fails for a call that got one.
        if self.take() {
            return Some(Reservation { of: Some(self), room });
        }
        self.release_part(limit);
        None
    }

    /// Takes one of the cap's places if one is left.
    fn take(&self) -> bool {
        let cap = self.cap() as u64;
        update(&self.taken, |taken| (taken < cap).then_some(taken + 1))
    }

    /// Reserves a place for a cell that moves to another tag, even if there is no room.
    pub(crate) fn reserve_another(&self, tag: LimitTag) -> Reservation<'_> {
        let room = tag.room();
        match room {
            // Relaxed: as in `update`.
            Room::BesideCap => self.beside.fetch_add(1, Ordering::Relaxed),
            Room::UnderCap(limit) => {
                self.common.add(1);
                if let Some(part) = self.part(limit) {
                    part.add_reserved(&self.common);
                }
                self.taken.fetch_add(1, Ordering::Relaxed)
            }
        };
        Reservation { of: Some(self), room }
    }

    /// Releases the place of a dead cell. Only the call that ended the cell may call this.
    pub(crate) fn release(&self, tag: LimitTag) {
        self.release_room(tag.room());
    }

    fn release_room(&self, room: Room) {
        // Relaxed: as in `update`.
        match room {
            Room::BesideCap => {
                let before = self.beside.fetch_sub(1, Ordering::Relaxed);
                debug_assert!(before > 0, "a place was released twice");
            }
            Room::UnderCap(limit) => {
                let before = self.taken.fetch_sub(1, Ordering::Relaxed);
                debug_assert!(before > 0, "a place was released twice");
                self.release_part(limit);
            }
        }
    }

    fn release_part(&self, limit: LimitIndex) {
        match self.part(limit) {
            Some(part) => part.release(&self.common),
            None => self.common.release(1),
        }
    }

    /// Returns whether [`reserve`](Self::reserve) would find a place.
    pub(crate) fn has_room(&self, tag: LimitTag) -> bool {
        match tag.room() {
            Room::BesideCap => true,
            Room::UnderCap(limit) => self.room_of(limit).is_any(),
        }
    }

    /// Returns how many common places the limit has taken. `None`: all of its places are common.
    pub(super) fn common_places_of(&self, limit: LimitIndex) -> Option<usize> {
        self.part(limit).map(|part| part.counts().above() as usize)
    }

    /// Returns whether at most a quarter of the places is left that a key with this tag can have.
    pub(super) fn is_nearly_full(&self, tag: LimitTag) -> bool {
        match tag.room() {
            Room::BesideCap => false,
            // Loom would try each number that each load can return. One load suffices for a guess.
            Room::UnderCap(_) if cfg!(tollgate_loom) => {
                self.taken.load(Ordering::Relaxed) as usize >= self.max - self.max / 4
            }
            Room::UnderCap(limit) => self.room_of(limit).is_nearly_none(),
        }
    }

    /// Reads the numbers that decide whether a limit gets a place.
    pub(super) fn room_of(&self, limit: LimitIndex) -> RoomOfLimit {
        // Relaxed: as in `update`.
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        let common_taken = self.common.taken.load(Ordering::Relaxed) as usize;
        let part = self.part(limit);
        let counts = part.map_or(Counts { taken: 0, own: 0 }, Part::counts);
        let is_closed = part.is_some_and(|part| part.is_closed.load(Ordering::Relaxed));
        let common = if is_closed { 0 } else { self.common.max.load(Ordering::Relaxed) };
        let (own_taken, own) = (counts.taken as usize, counts.own as usize);
        RoomOfLimit { taken, cap: self.cap(), own_taken, own, common_taken, common }
    }

    /// Returns the number of places beside the cap that are taken.
    #[cfg(all(test, tollgate_loom))]
    pub(crate) fn taken_beside_cap(&self) -> u64 {
        self.beside.load(Ordering::Relaxed)
    }

    /// Returns the number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        // Relaxed: as in `update`.
        let (taken, beside) =
            (self.taken.load(Ordering::Relaxed), self.beside.load(Ordering::Relaxed));
        (taken + beside) as usize
    }
}

impl Reservation<'_> {
    /// Passes the place on to a cell: the call that ends the cell releases it.
    pub(crate) fn hand_over(mut self) {
        self.of = None;
    }

    /// Makes this the place of a cell with this tag.
    pub(crate) fn move_to(&mut self, tag: LimitTag) {
        if let Some(of) = self.of
            && self.room != tag.room()
            && !fault::active(Fault::PlaceNotMoved)
        {
            coverage::hit(Race::PlaceMoved);
            *self = of.reserve_another(tag);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of {
            of.release_room(self.room);
        }
    }
}
