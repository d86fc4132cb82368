//! Reads a store's words for a snapshot, and makes the store that a snapshot is restored to.

use crate::store::hash::HashKeys;
use crate::store::key::{Key, LimitTag};
use crate::store::{CellKey, Fingerprint, Rules, Store, StoreSize, Table};

/// A bucket that is not full: its key, its limit tag and its word.
pub(crate) struct PersistedCell {
    pub(crate) key: PersistedKey,
    pub(crate) tag: LimitTag,
    pub(crate) word: u64,
}

/// A key as a snapshot has it.
pub(crate) enum PersistedKey {
    /// From the lock-free table, which keeps no ids.
    Fingerprint(Fingerprint),
    /// From the exact store.
    Key(Key),
}

impl Store {
    /// Makes a lock-free store that hashes keys with another store's seeds.
    pub(crate) fn from_seeds(size: StoreSize, seeds: HashKeys) -> Store {
        Store::LockFree(Table::from_seeds(size, seeds))
    }

    /// Returns the seeds of the fingerprints. `None`: the store keeps the keys.
    pub(crate) fn seeds(&self) -> Option<HashKeys> {
        match self {
            Store::LockFree(table) => Some(table.seeds()),
            Store::Exact(_) => None,
        }
    }

    /// Returns the number of parts that [`scan`](Store::scan) reads, one a call.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Store::LockFree(table) => table.parts(),
            Store::Exact(exact) => exact.parts(),
        }
    }

    /// Adds to `cells` the buckets of one part that are not full at `now_ns`, while calls go on. Each word is its key's
    /// at some time during the scan. A key may come twice.
    pub(crate) fn scan(
        &self,
        part: usize,
        now_ns: u64,
        rules: &impl Rules,
        cells: &mut Vec<PersistedCell>,
    ) {
        let owed = |key: CellKey<'_>, tag, word| rules.owed(key, tag, word, now_ns);
        match self {
            Store::LockFree(table) => table.scan(part, &mut |fingerprint, tag, word| {
                if let Some((tag, word)) = owed(CellKey::Fingerprint(fingerprint), tag, word) {
                    let key = PersistedKey::Fingerprint(fingerprint);
                    cells.push(PersistedCell { key, tag, word });
                }
            }),
            Store::Exact(exact) => exact.scan(part, &mut |key, tag, word| {
                let id = CellKey::Id(key.as_ref().id);
                if let Some((tag, word)) = owed(id, tag, word) {
                    cells.push(PersistedCell { key: PersistedKey::Key(key.clone()), tag, word });
                }
            }),
        }
    }

    /// Makes room for `keys` keys, as far as memory allows, in a store that no other thread has yet.
    pub(crate) fn make_room(&self, keys: usize, rules: &impl Rules) {
        match self {
            Store::LockFree(table) => table.make_room(keys, rules),
            // Each shelf grows by itself.
            Store::Exact(_) => {}
        }
    }

    /// Raises the eviction time floor to another store's.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        match self {
            Store::LockFree(table) => table.set_floor(floor_ns),
            Store::Exact(exact) => exact.set_floor(floor_ns),
        }
    }
}
