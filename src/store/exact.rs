//! The exact store: cells in `DashMap`s, with their keys, so that they can be listed.
//!
//! A look-up takes a shard's lock for reading, and an insert for writing. A `DashMap` can only be
//! swept whole, so there are many small ones: a sweep holds one lock at a time, for a few cells.

use std::hash::{BuildHasher, Hash, Hasher};

use ahash::RandomState;

use crate::cell::Cell;
use crate::key::{Key, KeyRef};
use crate::store::reservations::Reservations;
use crate::store::shelf::Shelf;
use crate::store::{Absent, AtCap, Change, Rules, Size, Swept};
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

impl Exact {
    pub(crate) fn look(&self, key: KeyRef<'_>) -> Option<u64> {
        let hash = self.hash(key);
        self.shelf(hash).find(hash, key, Cell::load)
    }

    pub(crate) fn update(
        &self,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), AtCap> {
        let hash = self.hash(key.key);
        let shelf = self.shelf(hash);
        // While the cell is in hand its shard's lock is held, so that no sweep drops it.
        let mut visit = |cell: &Cell| {
            cell.update(|word| (step(word), ()));
        };
        if shelf.find(hash, key.key, &mut visit).is_some() {
            return Ok(());
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
            let mut visit = |cell: &Cell| {
                cell.update(|word| (step(word), ()));
            };
            return shelf.find(hash, key.key, &mut visit).ok_or(AtCap);
        };
        let mut visit = |cell: &Cell| {
            cell.update(|word| (step(word), ()));
        };
        if shelf.find_or_insert(hash, key.key, &mut visit) {
            reservation.hand_over();
        }
        Ok(())
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
                let word = cell.load();
                if word != 0 && !rules.is_full(rules.meta_of(key.as_ref()), word, now_ns) {
                    return true;
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
            shelf.for_each_key(&mut visit);
        }
    }
}
