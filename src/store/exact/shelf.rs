//! A shelf: the part of the exact store that a sweep looks at in one go. It is a `DashMap`, or its stand-in under loom.

use super::KeyHashers;
use crate::store::cell::Cell;
use crate::store::key::{Key, KeyRef, LimitTag};

/// A cell with its limit tag, which changes only under the shard's lock for writing.
pub(crate) struct Tagged {
    pub(crate) cell: Cell,
    pub(crate) tag: LimitTag,
}

impl Tagged {
    /// Makes the cell of a bucket that was never charged.
    pub(crate) fn new(tag: LimitTag) -> Tagged {
        Tagged { cell: Cell::new(), tag }
    }

    /// Makes a cell with this word.
    pub(crate) fn with_word(tag: LimitTag, word: u64) -> Tagged {
        let tagged = Tagged::new(tag);
        tagged.cell.seed(word);
        tagged
    }
}

#[cfg(not(tollgate_loom))]
pub(crate) use dash::Shelf;
#[cfg(tollgate_loom)]
pub(crate) use modelled::Shelf;

#[cfg(not(tollgate_loom))]
mod dash {
    use crate::util::sync::{AtomicUsize, Ordering};

    use std::hash::BuildHasher;

    use dashmap::{DashMap, SharedValue};

    use super::*;

    /// A `DashMap` with two shards, the minimum.
    pub(crate) struct Shelf {
        map: DashMap<Key, Tagged, KeyHashers>,
        /// The heap bytes of keys that are too long to be stored inline.
        heap_bytes: AtomicUsize,
    }

    /// The bytes of an entry: key, cell and one control byte.
    const ENTRY_BYTES: usize = size_of::<(Key, Tagged)>() + 1;
    /// The bytes of two shards, each on its own cache lines.
    const SHARDS_BYTES: usize = 2 * 128;
    const _: () = assert!(size_of::<(Key, Tagged)>() <= 40);

    impl Shelf {
        /// Makes a shelf with room for this number of keys, if the system has the memory.
        pub(crate) fn new(hasher: KeyHashers, keys: usize) -> Shelf {
            const SHARDS: usize = 2;
            let mut map = DashMap::with_hasher_and_shard_amount(hasher, SHARDS);
            // Reserves as much for each shard. Without the memory the map grows as without a reserve.
            let _ = map.try_reserve(keys.div_ceil(SHARDS));
            Shelf { map, heap_bytes: AtomicUsize::new(0) }
        }

        #[inline(always)]
        pub(crate) fn find<R>(
            &self,
            hash: u64,
            key: KeyRef<'_>,
            visit: impl FnOnce(&Tagged) -> R,
        ) -> Option<R> {
            let shard = self.map.determine_shard(hash as usize);
            let table = self.map.shards()[shard].read();
            let (_, cell) = table.get(hash, |(known, _)| known.as_ref().is(key))?;
            Some(visit(cell.get()))
        }

        /// Like `find`, but inserts a cell if there is none. Returns whether the cell is new. The caller has found
        /// none, so this takes the lock for writing at once and looks again under it.
        #[cold]
        pub(crate) fn find_or_insert(
            &self,
            hash: u64,
            key: KeyRef<'_>,
            tag: LimitTag,
            visit: impl FnOnce(&Tagged),
        ) -> bool {
            let shard = self.map.determine_shard(hash as usize);
            let mut table = self.map.shards()[shard].write();
            if let Some((_, cell)) = table.get(hash, |(known, _)| known.as_ref().is(key)) {
                visit(cell.get());
                return false;
            }
            let cell = Tagged::new(tag);
            visit(&cell);
            let (key, hasher) = (Key::new(key), self.map.hasher());
            // Relaxed: a figure for people.
            self.heap_bytes.fetch_add(key.heap_bytes(), Ordering::Relaxed);
            table.insert(hash, (key, SharedValue::new(cell)), |(key, _)| hasher.hash_one(key));
            true
        }

        /// Like `find`, under the lock for writing.
        #[cold]
        pub(crate) fn find_mut<R>(
            &self,
            hash: u64,
            key: KeyRef<'_>,
            visit: impl FnOnce(&mut Tagged) -> R,
        ) -> Option<R> {
            let shard = self.map.determine_shard(hash as usize);
            let mut table = self.map.shards()[shard].write();
            let (_, cell) = table.get_mut(hash, |(known, _)| known.as_ref().is(key))?;
            Some(visit(cell.get_mut()))
        }

        /// Drops the cells for which `keep` returns false. Returns the number of cells that it looked at.
        pub(crate) fn retain(&self, mut keep: impl FnMut(&Key, &mut Tagged) -> bool) -> usize {
            let mut looked_at = 0;
            self.map.retain(|key, cell| {
                looked_at += 1;
                let stays = keep(key, cell);
                if !stays {
                    // Relaxed: a figure for people.
                    self.heap_bytes.fetch_sub(key.heap_bytes(), Ordering::Relaxed);
                }
                stays
            });
            // Frees memory if the map is less than a quarter full.
            if self.map.capacity() / 4 > self.map.len() {
                self.map.shrink_to_fit();
            }
            looked_at
        }

        /// Returns the bytes of memory.
        pub(crate) fn bytes(&self) -> usize {
            let buckets = self.map.capacity() * 8 / 7;
            // Relaxed: a figure for people.
            let keys = self.heap_bytes.load(Ordering::Relaxed);
            SHARDS_BYTES + buckets * ENTRY_BYTES + keys
        }

        /// Calls `visit` with the first `most` keys and their cells, like `for_each`. Returns their number.
        pub(crate) fn look_at(&self, most: usize, mut visit: impl FnMut(&Key, &Tagged)) -> usize {
            let entries = self.map.iter().take(most);
            entries.map(|entry| visit(entry.key(), entry.value())).count()
        }

        /// Calls `visit` with each key and its cell, under a lock for reading of one shard at a time.
        pub(crate) fn for_each(&self, mut visit: impl FnMut(&Key, &Tagged)) {
            self.map.iter().for_each(|entry| visit(entry.key(), entry.value()));
        }
    }
}

#[cfg(tollgate_loom)]
mod modelled {
    use loom::sync::RwLock;

    use super::*;
    use crate::util::coverage::{self, Race};
    use crate::util::fault::{self, Fault};

    /// The stand-in for a `DashMap`: a list behind loom's lock. The models show what the store does with such a lock.
    /// They do not show that DashMap has one.
    pub(crate) struct Shelf(RwLock<Vec<(Key, Tagged)>>);

    impl Shelf {
        pub(crate) fn new(_: KeyHashers, _: usize) -> Shelf {
            Shelf(RwLock::new(Vec::new()))
        }

        pub(crate) fn find<R>(
            &self,
            _: u64,
            key: KeyRef<'_>,
            visit: impl FnOnce(&Tagged) -> R,
        ) -> Option<R> {
            let table = self.0.read().unwrap();
            let (_, cell) = table.iter().find(|(known, _)| known.as_ref().is(key))?;
            Some(visit(cell))
        }

        pub(crate) fn find_or_insert(
            &self,
            _: u64,
            key: KeyRef<'_>,
            tag: LimitTag,
            visit: impl FnOnce(&Tagged),
        ) -> bool {
            let mut table = self.0.write().unwrap();
            if let Some((_, cell)) = table.iter().find(|(known, _)| known.as_ref().is(key))
                && !fault::active(Fault::InsertBlindly)
            {
                coverage::hit(Race::InsertLost);
                visit(cell);
                return false;
            }
            let cell = Tagged::new(tag);
            visit(&cell);
            table.push((Key::new(key), cell));
            true
        }

        pub(crate) fn find_mut<R>(
            &self,
            _: u64,
            key: KeyRef<'_>,
            visit: impl FnOnce(&mut Tagged) -> R,
        ) -> Option<R> {
            let mut table = self.0.write().unwrap();
            let (_, cell) = table.iter_mut().find(|(known, _)| known.as_ref().is(key))?;
            Some(visit(cell))
        }

        pub(crate) fn retain(&self, mut keep: impl FnMut(&Key, &mut Tagged) -> bool) -> usize {
            if fault::active(Fault::SweepBeforeLock) {
                let table = self.0.read().unwrap();
                let mut keep_copy = |(key, tagged): &(Key, Tagged)| {
                    let mut copy = Tagged::new(tagged.tag);
                    if tagged.cell.load() != 0 {
                        copy = Tagged::with_word(tagged.tag, tagged.cell.load());
                    }
                    keep(key, &mut copy)
                };
                let stays: Vec<bool> = table.iter().map(&mut keep_copy).collect();
                drop(table);
                let mut stays = stays.into_iter();
                self.0.write().unwrap().retain(|_| stays.next().unwrap_or(true));
                return 0;
            }
            let mut table = self.0.write().unwrap();
            let looked_at = table.len();
            table.retain_mut(|(key, cell)| keep(key, cell));
            looked_at
        }

        pub(crate) fn bytes(&self) -> usize {
            0
        }

        pub(crate) fn look_at(&self, most: usize, mut visit: impl FnMut(&Key, &Tagged)) -> usize {
            let entries = self.0.read().unwrap();
            entries.iter().take(most).map(|(key, cell)| visit(key, cell)).count()
        }

        pub(crate) fn for_each(&self, mut visit: impl FnMut(&Key, &Tagged)) {
            self.0.read().unwrap().iter().for_each(|(key, cell)| visit(key, cell));
        }
    }
}
