//! The exact store: cells in `DashMap`s, with their keys, so that they can be listed.
//!
//! A look-up takes a shard's lock for reading, and an insert for writing. A `DashMap` can only be
//! swept whole, so there are many small ones: a sweep holds one lock at a time, for a few cells.

use std::hash::{BuildHasher, Hash, Hasher};

use ahash::RandomState;

use crate::cell::Cell;
use crate::key::{Key, KeyRef};
use crate::probe::{Fault, Place, broken, reached};
use crate::store::reservations::Reservations;
use crate::store::shelf::Shelf;
use crate::store::{Absent, Change, Outdated, Rules, Size, Swept, Undone};
use crate::sync::{AtomicU64, Figure, Ordering};

/// Every key with its cell.
pub(crate) struct Exact {
    shelves: [Shelf; SHELVES],
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
    fn hash(&self, key: KeyRef<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// The shelf of a key with this hash: bits that pick neither the shard (the 8th from the top)
    /// nor the slot (the lowest) nor its tag (the highest seven).
    #[inline]
    fn shelf(&self, hash: u64) -> &Shelf {
        &self.shelves[(hash >> 48) as usize % SHELVES]
    }
}

/// Where a word is neither carried nor dropped in place, its top bit tells the generation of limits that
/// it is under: the number's lowest bit. Two generations are all that there can be at once, because no
/// reload begins before the last one has brought all words over.
#[derive(Clone, Copy)]
struct Marked(u64);

const NEWER: u64 = 1 << 63;

impl Marked {
    fn of_generation(word: u64, generation: u64) -> u64 {
        word | if generation & 1 == 1 { NEWER } else { 0 }
    }

    fn word(self) -> u64 {
        self.0 & !NEWER
    }

    /// Whether it is under the limits of this generation. A word that was never charged is under any.
    fn is_of(self, generation: u64) -> bool {
        self.word() == 0 || self.0 == Marked::of_generation(self.word(), generation)
    }

    /// The word of a key under the limits of `rules`, which are the newest; 0 if nothing is left of it.
    fn under(self, key: KeyRef<'_>, rules: &impl Rules) -> u64 {
        if self.is_of(rules.generation()) {
            return self.word();
        }
        reached(Place::ShardRenewed);
        rules.converted(rules.meta_before(key), self.word(), rules.meta_of(key)).unwrap_or(0)
    }
}

/// Puts to `step` the word of a cell whose shard's lock is held, so that no sweep drops it, and no reload
/// passes by.
fn charge(
    cell: &Cell,
    key: KeyRef<'_>,
    rules: &impl Rules,
    step: &mut impl FnMut(u64) -> Option<u64>,
) -> Result<(), Undone> {
    if !rules.is_current() && !broken(Fault::ChargeBeforeRenewal) {
        return Err(Undone::Outdated);
    }
    let (_, done) = cell.update(|bits| {
        let marked = Marked(bits);
        // Asked once more where the mark is another: a call with newer limits may have been here since.
        // The lock keeps it to one generation.
        let is_newer = !marked.is_of(rules.generation()) && !rules.is_current();
        if is_newer && !broken(Fault::ChargeBeforeRenewal) {
            reached(Place::Outdated);
            return (None, Err(Undone::Outdated));
        }
        let stored = step(marked.under(key, rules));
        (stored.map(|word| Marked::of_generation(word, rules.generation())), Ok(()))
    });
    done
}

impl Exact {
    pub(crate) fn look(
        &self,
        key: KeyRef<'_>,
        rules: &impl Rules,
    ) -> Result<Option<u64>, Outdated> {
        let hash = self.hash(key);
        let look = |cell: &Cell| {
            // Under the lock, without which no reload goes on.
            // Acquired, and asked after it: by a newer mark there are newer limits.
            let marked = Marked(cell.update(|_| (None, ())).0);
            if rules.is_current() { Ok(marked.under(key, rules)) } else { Err(Outdated) }
        };
        self.shelf(hash).find(hash, key, look).transpose()
    }

    pub(crate) fn update(
        &self,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Undone> {
        let hash = self.hash(key.key);
        let shelf = self.shelf(hash);
        if let Some(done) =
            shelf.find(hash, key.key, |cell| charge(cell, key.key, rules, &mut step))
        {
            return done;
        }
        if step(0).is_none() || absent == Absent::Leave {
            return Ok(());
        }
        let reservation = self.reservations.reserve().or_else(|| {
            self.sweep_at_cap(now_ns, rules);
            self.reservations.reserve()
        });
        let Some(reservation) = reservation else {
            // One look more: the key may have got its cell in between.
            let visit = |cell: &Cell| charge(cell, key.key, rules, &mut step);
            return shelf.find(hash, key.key, visit).unwrap_or(Err(Undone::AtCap));
        };
        let mut done = Ok(());
        let visit = |cell: &Cell| done = charge(cell, key.key, rules, &mut step);
        if shelf.find_or_insert(hash, key.key, visit) {
            reservation.hand_over();
        }
        done
    }

    /// Brings all words under the limits of `rules`, a shelf at a time.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        let generation = rules.generation();
        for shelf in &self.shelves {
            shelf.retain(|key, cell| {
                let marked = Marked(cell.load());
                if marked.is_of(generation) {
                    return true;
                }
                let word = marked.under(key.as_ref(), rules);
                if word == 0 {
                    self.reservations.release();
                    return false;
                }
                // The lock is held for writing: nobody else has the cell.
                cell.update(|_| (Some(Marked::of_generation(word, generation)), ()));
                true
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
            swept.looked_at += self.shelves[at].retain(|key, cell| {
                let marked = Marked(cell.load());
                if marked.word() != 0 {
                    // By old limits nothing is dropped: by the new ones it may not be full.
                    let key = key.as_ref();
                    let is_full =
                        |word| word == 0 || rules.is_full(rules.meta_of(key), word, now_ns);
                    if !rules.is_current() || !is_full(marked.under(key, rules)) {
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
        const LEAST_CELLS: usize = 1024;
        const LEAST_WAIT_NS: u64 = 1_000_000;
        // Relaxed: whoever sets it, sweeps; the shard's locks do the rest.
        let last_ns = self.at_cap_ns.load(Ordering::Relaxed);
        let is_due = last_ns == 0 || now_ns >= last_ns.saturating_add(LEAST_WAIT_NS);
        let (order, lost) = (Ordering::Relaxed, Ordering::Relaxed);
        if is_due && self.at_cap_ns.compare_exchange(last_ns, now_ns, order, lost).is_ok() {
            self.sweep(LEAST_CELLS, now_ns, rules);
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

    /// Puts every word of one part to `visit` that is not 0, under a lock for reading: as they are at some
    /// time during the call.
    pub(crate) fn scan(&self, part: usize, visit: &mut dyn FnMut(&Key, u64)) {
        self.shelves[part].for_each(|key, cell| {
            let word = Marked(cell.load()).word();
            if word != 0 {
                visit(key, word);
            }
        });
    }

    /// Says that things were dropped at this time, as another table did.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        // Relaxed: nobody else has the table yet.
        self.floor_ns.fetch_max(floor_ns, Ordering::Relaxed);
    }
}
