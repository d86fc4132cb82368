//! What a file of buckets needs of a store: its words, part by part, and a store to put them in.

use crate::store::key::{Key, LimitTag};
use crate::store::{CellKey, Fingerprint, Rules, SeedBits, Store, Table};

/// A word that owes something, whose it is, and in the units of which numbers.
pub(crate) struct Kept {
    pub(crate) whose: Whose,
    pub(crate) tag: LimitTag,
    pub(crate) word: u64,
}

pub(crate) enum Whose {
    /// Of a store that tells keys by their fingerprints.
    Fingerprint(Fingerprint),
    Key(Key),
}

impl Store {
    /// Makes a lock-free store for `max_keys` keys, with the seeds of another store's fingerprints.
    pub(crate) fn from_seeds(max_keys: usize, seeds: SeedBits) -> Store {
        Store::LockFree(Table::from_seeds(max_keys, seeds))
    }

    /// The seeds of the fingerprints, and the check of what is made of them. `None`: keys are kept.
    pub(crate) fn seeds(&self) -> Option<(SeedBits, [u64; 2])> {
        match self {
            Store::LockFree(table) => Some((table.seeds(), table.check())),
            Store::Exact(_) => None,
        }
    }

    /// The number of parts that [`scan`](Store::scan) is done in.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Store::LockFree(table) => table.parts(),
            Store::Exact(exact) => exact.parts(),
        }
    }

    /// Adds all words of one part to `kept` that are not full at `now_ns`, while calls go on. Each is what
    /// its key's word was at some time during the call; a key may come twice.
    pub(crate) fn scan(&self, part: usize, now_ns: u64, rules: &impl Rules, kept: &mut Vec<Kept>) {
        let owed = |key: CellKey<'_>, tag, word| rules.owed(key, tag, word, now_ns);
        match self {
            Store::LockFree(table) => table.scan(part, &mut |fingerprint, tag, word| {
                if let Some((tag, word)) = owed(CellKey::Fingerprint(fingerprint), tag, word) {
                    kept.push(Kept { whose: Whose::Fingerprint(fingerprint), tag, word });
                }
            }),
            Store::Exact(exact) => exact.scan(part, &mut |key, tag, word| {
                let id = CellKey::Id(key.as_ref().id);
                if let Some((tag, word)) = owed(id, tag, word) {
                    kept.push(Kept { whose: Whose::Key(key.clone()), tag, word });
                }
            }),
        }
    }

    /// Makes room for so many keys, as far as it can be made, in a store that nobody else has yet.
    pub(crate) fn make_room(&self, keys: usize, rules: &impl Rules) {
        match self {
            Store::LockFree(table) => table.make_room(keys, rules),
            // Each part grows by itself.
            Store::Exact(_) => {}
        }
    }

    /// Says that things were dropped at this time, as another store did.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        match self {
            Store::LockFree(table) => table.set_floor(floor_ns),
            Store::Exact(exact) => exact.set_floor(floor_ns),
        }
    }
}
