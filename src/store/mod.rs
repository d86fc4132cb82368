//! Where the cells are: the seam between limits and memory.

pub(crate) mod capacity;
pub(crate) mod cell;
mod exact;
pub(crate) mod key;
#[cfg(feature = "snapshot")]
pub(crate) mod persist;
pub(crate) mod table;

pub(crate) use exact::Exact;
#[cfg(feature = "snapshot")]
pub(crate) use persist::{Kept, Whose};
#[cfg(feature = "snapshot")]
pub(crate) use table::SeedBits;
pub(crate) use table::{
    AccountBits, Fingerprint, Guard, Home, Published, ReplacedBins, Stack, Table, pin, pin_briefly,
};

use crate::store::key::{Key, KeyRef, LimitTag};

/// Keeps a cell for each key. It knows keys and words, and no limits: what is full it is told.
///
/// A full cell may go at any time, and carries nothing. What comes back in its place starts at the
/// word 0, and a decision on the word 0 is made no earlier than the store's floor: the latest time at
/// which anything was dropped. So a caller with an older clock cannot spend again what was spent before.
#[expect(clippy::large_enum_variant, reason = "one a limiter, and no step more on the way to it")]
pub(crate) enum Store {
    LockFree(Table),
    Exact(Box<Exact>),
}

/// A key, as each of the stores wants it.
#[derive(Clone, Copy)]
pub(crate) struct StoreKey<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) fingerprint: Fingerprint,
    /// Which numbers apply.
    pub(crate) tag: LimitTag,
}

/// What is known of the key of a cell.
#[derive(Clone, Copy)]
pub(crate) enum CellKey<'a> {
    /// Of a store that keeps no ids.
    Fingerprint(Fingerprint),
    Id(&'a [u8]),
}

impl<'a> StoreKey<'a> {
    /// The key, for one whose id is at hand.
    pub(crate) fn cell_key(&self) -> CellKey<'a> {
        CellKey::Id(self.key.id)
    }
}

/// The table that keeps the buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// A table without locks. It keeps 128 keyed bits of each key, not the key.
    #[default]
    LockFree,
    /// A `DashMap` that keeps the keys, so that [`KeyedLimit::ids`](crate::KeyedLimit::ids) can list them. Each
    /// call takes a lock of its shard.
    Exact,
}

/// What a store asks of the limiter around it.
pub(crate) trait Rules {
    /// The tag and the word of a cell by the numbers that apply to it at `at_ns`, in the caller's generation, which
    /// its tag is of. `None`: it is full, and so carries nothing.
    fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)>;

    /// The number of the generation of limits that the caller has.
    fn generation(&self) -> u64;

    /// The tag and the word of a cell under the limits of the caller's generation, if they are of the one
    /// before; else what they are. `None`: the bucket is full.
    ///
    /// A function of what the cell says and of nothing else, so that all callers that move a cell agree.
    fn carried(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)>;

    /// The word of a cell in the units of `to`, numbers of the caller's generation that apply to its key at
    /// the same time as `tag` or later.
    ///
    /// Always the same for the same cell. `Outdated`: `to` applied before, because the caller's clock is
    /// behind.
    fn under(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated>;

    /// Whether a caller that needs a place may sweep at this time of its clock.
    fn may_sweep_at(&self, now_ns: u64) -> bool {
        let _ = now_ns;
        true
    }

    /// Says that a cell is about to leave the units of `tag`, numbers that have ended: from now on no
    /// caller takes them for numbers that apply, whatever its clock shows.
    fn note_end(&self, tag: LimitTag);
}

/// What becomes of a key that has no cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It gets one.
    Insert,
    /// It is left without.
    Leave,
}

/// What a call wants changed.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a StoreKey<'a>,
    pub(crate) absent: Absent,
    /// The call's time: where there is no room for a cell, some that are full by then are dropped.
    pub(crate) now_ns: u64,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// As many keys are kept as may be, and this is not one of them.
    AtCap,
    Outdated,
}

/// The store has words under newer limits than the caller's: the call begins again with those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated;

impl From<Outdated> for Undone {
    fn from(_: Outdated) -> Undone {
        Undone::Outdated
    }
}

/// What one bounded step of a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Cells that were looked at, or places for them.
    pub looked_at: usize,
    /// Cells that were full and were dropped.
    pub dropped: usize,
    /// Whether the step reached the end of the table: the next one starts over.
    pub finished: bool,
}

/// The size of a store, and what it has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
    pub(crate) mapped_bytes: usize,
    pub(crate) dropped: u64,
    pub(crate) migrations: u64,
    pub(crate) retired: usize,
    pub(crate) put_off: u64,
}

impl Store {
    pub(crate) fn new(engine: Engine, max_keys: usize) -> Store {
        match engine {
            Engine::LockFree => Store::LockFree(Table::new(max_keys)),
            Engine::Exact => Store::Exact(Box::new(Exact::new(max_keys))),
        }
    }

    /// Whether keys are told by their fingerprints, and not kept.
    pub(crate) fn tells_by_fingerprint(&self) -> bool {
        matches!(self, Store::LockFree(_))
    }

    /// What the store tells a key by, whose id is not composite.
    #[inline(always)]
    pub(crate) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        match self {
            Store::LockFree(table) => table.fingerprint(key),
            Store::Exact(_) => Fingerprint::NONE,
        }
    }

    /// What the store tells a key by; `account` is the account's part of a composite id.
    #[inline]
    pub(crate) fn fingerprint_with(&self, key: KeyRef<'_>, account: Option<&[u8]>) -> Fingerprint {
        match (self, account) {
            (Store::LockFree(table), Some(account)) => table.composite(key, account),
            _ => self.fingerprint(key),
        }
    }

    /// A keyed hash of a key, for what is kept beside the cells.
    #[inline]
    pub(crate) fn hash(&self, key: KeyRef<'_>, fingerprint: Fingerprint) -> u64 {
        match self {
            Store::LockFree(_) => fingerprint.bits(),
            Store::Exact(exact) => exact.hash(key),
        }
    }

    /// Fetches the line of a key's cell, as far as that can be known.
    #[inline]
    pub(crate) fn prefetch(&self, fingerprint: Fingerprint) {
        if let Store::LockFree(table) = self {
            table.prefetch(fingerprint);
        }
    }

    /// The word of `key`: 0 if it was never charged, `None` if it has no cell.
    pub(crate) fn look(
        &self,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<Option<u64>, Outdated> {
        match self {
            Store::LockFree(table) => table.look(key, rules),
            Store::Exact(exact) => exact.look(key, rules),
        }
    }

    /// Puts to `step` the word of a key, until the word that `step` asks for is stored or it asks for
    /// none. 0 stands for no cell, too.
    pub(crate) fn update(
        &self,
        change: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Undone> {
        match self {
            Store::LockFree(table) => table.update(change, rules, &mut step),
            Store::Exact(exact) => exact.update(change, rules, step),
        }
    }

    /// The latest time at which anything was dropped, as far as it matters for a cell that the caller
    /// has in hand, or has just not found.
    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        match self {
            Store::LockFree(table) => table.floor_ns(),
            Store::Exact(exact) => exact.floor_ns(),
        }
    }

    /// Looks at the next cells, about `cells` of them, and drops those that are full at `now_ns`. Goes
    /// on where the last call ended.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        match self {
            Store::LockFree(table) => table.sweep(cells, now_ns, rules),
            Store::Exact(exact) => exact.sweep(cells, now_ns, rules),
        }
    }

    /// Brings all words under the limits of `rules`, which are the newest; calls go on beside it.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        match self {
            Store::LockFree(table) => table.renew(rules),
            Store::Exact(exact) => exact.renew(rules),
        }
    }

    /// Frees memory that no call uses any more, at the end of a sweep's pass: without a pin over it.
    pub(crate) fn free_unread(&self) {
        if let Store::LockFree(table) = self {
            table.free_unused();
        }
    }

    /// How many cells there are, and the bytes of memory they take.
    pub(crate) fn size(&self) -> Size {
        match self {
            Store::LockFree(table) => table.size(),
            Store::Exact(exact) => exact.size(),
        }
    }

    /// Calls `visit` with every key, and returns whether the store keeps them. No cell may be visited
    /// from within.
    pub(crate) fn for_each_key(&self, visit: impl FnMut(&Key)) -> bool {
        match self {
            Store::LockFree(_) => false,
            Store::Exact(exact) => {
                exact.for_each_key(visit);
                true
            }
        }
    }
}
