//! The exact store: cells in `DashMap`s, with their keys, so that they can be listed.
//!
//! A look-up takes a shard's lock for reading, and an insert for writing. A `DashMap` can only be
//! swept whole, so there are many small ones: a sweep holds one lock at a time, for a few cells.

use std::hash::{BuildHasher, Hash, Hasher};

use ahash::RandomState;

use crate::cell::Cell;
use crate::key::{Key, KeyRef};
use crate::store::shelf::Shelf;
use crate::store::{Size, Store, Swept};
use crate::sync::{AtomicU64, Ordering};

/// Every key with its cell.
pub(crate) struct Exact {
    shelves: [Shelf; SHELVES],
    hasher: RandomState,
    /// The latest time that anything was swept at.
    floor_ns: AtomicU64,
    /// The shelf that the next step of the sweep begins with.
    next: AtomicU64,
}

/// A power of two. More would be swept in shorter steps, but their locks would not stay in the first
/// level of the cache: 128 made a check of one of 100,000 keys 10 % dearer. At 4 million keys a lock is
/// held over 62,500 cells, for some 200 us.
const SHELVES: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

impl Exact {
    pub(crate) fn new() -> Exact {
        let hasher = RandomState::new();
        Exact {
            shelves: std::array::from_fn(|_| Shelf::new(hasher.clone())),
            hasher,
            floor_ns: AtomicU64::new(0),
            next: AtomicU64::new(0),
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

impl Store for Exact {
    #[inline]
    fn find<R>(&self, key: KeyRef<'_>, visit: impl FnOnce(&Cell) -> R) -> Option<R> {
        let hash = self.hash(key);
        self.shelf(hash).find(hash, key, visit)
    }

    #[inline(always)]
    fn find_or_insert<R>(&self, key: KeyRef<'_>, visit: impl Fn(&Cell) -> R) -> R {
        let hash = self.hash(key);
        let shelf = self.shelf(hash);
        match shelf.find(hash, key, &visit) {
            Some(said) => said,
            None => shelf.find_or_insert(hash, key, visit),
        }
    }

    #[inline]
    fn floor_ns(&self) -> u64 {
        // Relaxed: whoever has a cell in hand, or found none, has held its shard's lock after the
        // sweep that dropped the cell before it, and that sweep raised the floor before it took the
        // lock.
        self.floor_ns.load(Ordering::Relaxed)
    }

    fn sweep(&self, cells: usize, now_ns: u64, is_full: impl Fn(KeyRef<'_>, u64) -> bool) -> Swept {
        // Relaxed: as in `floor_ns`, the shard's lock publishes it. Raised before anything goes.
        self.floor_ns.fetch_max(now_ns, Ordering::Relaxed);
        let mut swept = Swept::default();
        while swept.looked_at < cells.max(1) {
            // Relaxed: two sweeps at once may share a pass; a shelf is swept under its own locks.
            let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % SHELVES;
            swept.looked_at += self.shelves[at].retain(|key, cell| {
                if !is_full(key.as_ref(), cell.load()) {
                    return true;
                }
                swept.dropped += 1;
                false
            });
            if at == SHELVES - 1 {
                swept.finished = true;
                break;
            }
        }
        swept
    }

    fn size(&self) -> Size {
        let mut size = Size { cells: 0, bytes: size_of::<Exact>() };
        for shelf in self.shelves.iter() {
            let of_shelf = shelf.size();
            size.cells += of_shelf.cells;
            size.bytes += of_shelf.bytes;
        }
        size
    }

    fn for_each_key(&self, mut visit: impl FnMut(&Key)) {
        for shelf in self.shelves.iter() {
            shelf.for_each_key(&mut visit);
        }
    }
}
