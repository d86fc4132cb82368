//! The exact store: cells in `DashMap`s, with their keys, so that they can be listed.
//!
//! A look-up takes a shard's lock for reading, and an insert for writing. A `DashMap` can only be
//! swept whole, so there are many small ones: a sweep holds one lock at a time, for a few cells.

pub(crate) mod shelf;

use std::hash::{BuildHasher, Hash, Hasher};

use ahash::RandomState;

use crate::store::capacity::Reservations;
use crate::store::exact::shelf::{Shelf, Tagged};
use crate::store::key::{Key, KeyRef};
use crate::store::{Absent, CellKey, Change, Outdated, Rules, Size, StoreKey, Swept, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Figure, Ordering};

/// Every key with its cell.
pub(crate) struct Exact {
    shelves: [Shelf; SHELVES],
    /// The newest generation of limits that any cell of a shelf is under.
    generations: [AtomicU64; SHELVES],
    hasher: RandomState,
    /// The latest time that anything was swept at.
    floor_ns: AtomicU64,
    /// The shelf that the next step of the sweep begins with.
    next: AtomicU64,
    dropped: Figure,
    /// When a caller last swept at the cap; 0: never.
    at_cap_ns: AtomicU64,
    reservations: Reservations,
}

/// A power of two. More would be swept in shorter steps, but their locks would not stay in the first
/// level of the cache: 128 made a check of one of 100,000 keys 10 % dearer. At 4 million keys a lock is
/// held over 62,500 cells, for some 200 us.
const SHELVES: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

impl Exact {
    pub(crate) fn new(max_keys: usize) -> Exact {
        let hasher = RandomState::new();
        Exact {
            shelves: std::array::from_fn(|_| Shelf::new(hasher.clone())),
            generations: std::array::from_fn(|_| AtomicU64::new(0)),
            hasher,
            floor_ns: AtomicU64::new(0),
            next: AtomicU64::new(0),
            dropped: Figure::new(0),
            at_cap_ns: AtomicU64::new(0),
            reservations: Reservations::new(max_keys),
        }
    }

    #[inline]
    #[allow(clippy::manual_hash_one, reason = "ahash's own is a call that is not put in line")]
    pub(crate) fn hash(&self, key: KeyRef<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether newer limits than the caller's have come to a shelf. Asked while the lock of one of its cells is held, or
/// after it was.
fn is_newer(generation: &AtomicU64, rules: &impl Rules) -> bool {
    // Acquire: pairs with `raise`: a caller that begins again finds the newer limits.
    generation.load(Ordering::Acquire) > rules.generation()
}

/// Says that these limits come to a shelf, before any of its cells is under them: calls with older ones leave it alone
/// from then on, once they have its lock.
fn raise(generation: &AtomicU64, rules: &impl Rules) {
    // Release: pairs with `is_newer`: the limits were published before.
    generation.fetch_max(rules.generation(), Ordering::Release);
}

/// What a call found in a cell.
enum Charged {
    Done,
    /// The cell, or others beside it, are under newer limits than the caller's.
    Outdated,
    /// The cell's word is in the units of other numbers than those of its key.
    Retag,
}

impl Exact {
    /// The shelf of a key with this hash, and its generation: by bits that pick neither the shard (the 8th from
    /// the top) nor the slot (the lowest) nor its tag (the highest seven).
    #[inline]
    fn shelf_at(&self, hash: u64) -> (&Shelf, &AtomicU64) {
        let at = (hash >> 48) as usize % SHELVES;
        (&self.shelves[at], &self.generations[at])
    }

    /// The word of `key`: 0 if it was never charged or nothing is left of it, `None` if it has no cell.
    pub(crate) fn look(
        &self,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<Option<u64>, Outdated> {
        let hash = self.hash(key.key);
        let (shelf, generation) = self.shelf_at(hash);
        let look = |tagged: &Tagged| {
            if is_newer(generation, rules) {
                return Err(Outdated);
            }
            // Acquired: a call that goes on to read the floor or the clock does so after the word's last charge.
            let (word, ()) = tagged.cell.update(|_| (None, ()));
            if word == 0 || tagged.tag == key.tag {
                return Ok(word);
            }
            rules.converted(key.cell_key(), tagged.tag, word, key.tag)
        };
        match shelf.find(hash, key.key, look) {
            Some(word) => word.map(Some),
            // A shelf that newer limits have come to has the newer limits' cells only.
            None if is_newer(generation, rules) => Err(Outdated),
            None => Ok(None),
        }
    }

    pub(crate) fn update(
        &self,
        change: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        let key = change.key;
        let hash = self.hash(key.key);
        let (shelf, generation) = self.shelf_at(hash);
        let mut charge = |tagged: &Tagged| {
            if is_newer(generation, rules) && !fault::active(Fault::ChargeBeforeRenewal) {
                coverage::hit(Race::Outdated);
                return Charged::Outdated;
            }
            if tagged.tag != key.tag && !fault::active(Fault::ChargeBeforeRenewal) {
                return Charged::Retag;
            }
            tagged.cell.update(|word| (step(word), ()));
            Charged::Done
        };
        // Repeats only after the cell was put under the key's numbers, or others have done so or dropped it.
        loop {
            let charged = match shelf.find(hash, key.key, &mut charge) {
                Some(charged) => charged,
                None => self.charge_new(hash, change, rules, &mut charge)?,
            };
            match charged {
                Charged::Done => return Ok(()),
                Charged::Outdated => return Err(UpdateError::Outdated),
                Charged::Retag => self.retag(hash, key, rules)?,
            }
        }
    }

    /// Charges a key that was found without a cell.
    fn charge_new(
        &self,
        hash: u64,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
        charge: &mut impl FnMut(&Tagged) -> Charged,
    ) -> Result<Charged, UpdateError> {
        let (shelf, generation) = self.shelf_at(hash);
        let mut asked = Charged::Done;
        let fresh = Tagged::new(key.tag);
        asked = match charge(&fresh) {
            Charged::Done => asked,
            other => return Ok(other),
        };
        if fresh.cell.load() == 0 || absent == Absent::Leave {
            return Ok(asked);
        }
        let reservation = self.reservations.reserve().or_else(|| {
            self.sweep_at_cap(now_ns, rules);
            self.reservations.reserve()
        });
        let Some(reservation) = reservation else {
            // One look more: the key may have got its cell in between.
            return shelf.find(hash, key.key, charge).ok_or(UpdateError::TableFull);
        };
        // A cell under these limits is about to be there.
        raise(generation, rules);
        let mut charged = Charged::Done;
        if shelf.find_or_insert(hash, key.key, key.tag, |tagged| charged = charge(tagged)) {
            reservation.hand_over();
        }
        Ok(charged)
    }

    /// Puts the word of a key under the numbers that apply to it.
    fn retag(&self, hash: u64, key: &StoreKey<'_>, rules: &impl Rules) -> Result<(), Outdated> {
        let (shelf, generation) = self.shelf_at(hash);
        raise(generation, rules);
        let retag = |tagged: &mut Tagged| {
            let word = tagged.cell.load();
            if is_newer(generation, rules) {
                return Err(Outdated);
            }
            *tagged = match word {
                0 => Tagged::new(key.tag),
                _ => {
                    let word = rules.converted(key.cell_key(), tagged.tag, word, key.tag)?;
                    coverage::hit(Race::Renumbered);
                    rules.record_end(tagged.tag);
                    Tagged::with_word(key.tag, word)
                }
            };
            Ok(())
        };
        shelf.find_alone(hash, key.key, retag).unwrap_or(Ok(()))
    }

    /// Brings all words under the limits of `rules`, a shelf at a time.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        for (shelf, generation) in self.shelves.iter().zip(&self.generations) {
            raise(generation, rules);
            shelf.retain(|key, tagged| {
                if tagged.tag.is_of_generation(rules.generation()) {
                    return true;
                }
                coverage::hit(Race::ShardRenewed);
                let word = tagged.cell.load();
                let id = CellKey::Id(key.as_ref().id);
                let carried = (word != 0).then(|| rules.migrated(id, tagged.tag, word)).flatten();
                match carried {
                    Some((tag, word)) => *tagged = Tagged::with_word(tag, word),
                    None => self.reservations.release(),
                }
                carried.is_some()
            });
        }
    }

    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        // Relaxed: whoever has a cell in hand, or found none, has held its shard's lock after the
        // sweep that dropped the cell before it, and that sweep raised the floor before it took the
        // lock.
        self.floor_ns.load(Ordering::Relaxed)
    }

    /// A step ends with the part of the table in which the number is reached.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        // Relaxed: as in `floor_ns`, the shard's lock publishes it. Raised before anything goes.
        self.floor_ns.fetch_max(now_ns, Ordering::Relaxed);
        let mut swept = Swept::default();
        while swept.looked_at < cells.max(1) {
            // Relaxed: two sweeps at once may share a pass; a shelf is swept under its own locks.
            let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % SHELVES;
            swept.looked_at += self.shelves[at].retain(|key, tagged| {
                let word = tagged.cell.load();
                if word != 0 {
                    // By other limits nothing is dropped: by its own ones it may not be full.
                    let id = CellKey::Id(key.as_ref().id);
                    let is_own = tagged.tag.is_of_generation(rules.generation())
                        || fault::active(Fault::SweepByOldLimits);
                    if !is_own || rules.owed(id, tagged.tag, word, now_ns).is_some() {
                        return true;
                    }
                }
                swept.dropped += 1;
                self.reservations.release();
                false
            });
            if at == SHELVES - 1 {
                swept.finished = true;
                break;
            }
        }
        // Relaxed: a figure for people.
        self.dropped.fetch_add(swept.dropped as u64, Ordering::Relaxed);
        swept
    }

    /// At the cap full cells go first: those of the next part of the table. Not at every call: a part is
    /// looked through whole, under its locks.
    fn sweep_at_cap(&self, now_ns: u64, rules: &impl Rules) {
        const MIN_CELLS: usize = 1024;
        const MIN_WAIT_NS: u64 = 1_000_000;
        if !rules.may_sweep_at(now_ns) {
            return;
        }
        // Relaxed: whoever sets it, sweeps; the shard's locks do the rest.
        let last_ns = self.at_cap_ns.load(Ordering::Relaxed);
        let is_due = last_ns == 0 || now_ns >= last_ns.saturating_add(MIN_WAIT_NS);
        let (order, lost) = (Ordering::Relaxed, Ordering::Relaxed);
        if is_due && self.at_cap_ns.compare_exchange(last_ns, now_ns, order, lost).is_ok() {
            self.sweep(MIN_CELLS, now_ns, rules);
        }
    }

    pub(crate) fn size(&self) -> Size {
        let bytes = self.shelves.iter().map(Shelf::bytes).sum::<usize>() + size_of::<Exact>();
        // Relaxed: a figure for people.
        let dropped = self.dropped.load(Ordering::Relaxed);
        Size { cells: self.reservations.taken(), bytes, dropped, ..Size::default() }
    }

    pub(crate) fn for_each_key(&self, mut visit: impl FnMut(&Key)) {
        for shelf in self.shelves.iter() {
            shelf.for_each(|key, _| visit(key));
        }
    }
}

/// For files of buckets.
#[cfg(feature = "snapshot")]
impl Exact {
    /// The number of parts that [`scan`](Exact::scan) is done in.
    pub(crate) fn parts(&self) -> usize {
        SHELVES
    }

    /// Puts every word of one part to `visit` that is not 0, with its tag, under a lock for reading: as they are
    /// at some time during the call.
    pub(crate) fn scan(
        &self,
        part: usize,
        visit: &mut dyn FnMut(&Key, crate::store::key::LimitTag, u64),
    ) {
        self.shelves[part].for_each(|key, tagged| {
            let word = tagged.cell.load();
            if word != 0 {
                visit(key, tagged.tag, word);
            }
        });
    }

    /// Says that things were dropped at this time, as another table did.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        // Relaxed: nobody else has the table yet.
        self.floor_ns.fetch_max(floor_ns, Ordering::Relaxed);
    }
}
