//! Maps keys to cells, behind one interface for both engines.

pub(crate) mod capacity;
pub(crate) mod cell;
#[cfg(feature = "exact")]
mod exact;
#[cfg(not(feature = "exact"))]
#[path = "no_exact.rs"]
mod exact;
pub(crate) mod hash;
pub(crate) mod key;
mod next_room;
#[cfg(feature = "snapshot")]
pub(crate) mod persist;
mod searches;
pub(crate) mod table;

#[cfg(feature = "snapshot")]
pub(crate) use persist::{PersistedCell, PersistedKey};
pub(crate) use table::{
    AccountBits, Fingerprint, Guard, Home, Known, Published, ReplacedBins, Table, pin, pin_briefly,
    read,
};

use crate::store::capacity::{LimitPart, Reservations};
use crate::store::key::{Key, KeyRef, LimitIndex, LimitTag};

/// Holds a cell for each key. A store knows keys and words but no limits: its caller's [`Rules`] say which word is
/// full.
///
/// # The eviction time floor
///
/// A store may drop a full cell at any time. The key's next cell starts at the word 0, which says nothing of the
/// dropped charges. So a decision on the word 0 is made no earlier than the eviction time floor ([`Store::floor_ns`]):
/// the latest time of a sweep that dropped a cell. Without it a caller whose clock is behind the sweep's could spend
/// again the units that the dropped cell had admitted. A sweep raises the floor before it drops its first cell.
#[expect(
    clippy::large_enum_variant,
    reason = "a limiter has one; a box would cost each call a step"
)]
pub(crate) enum Store {
    LockFree(Table),
    #[cfg_attr(not(feature = "exact"), expect(dead_code, reason = "it has no value"))]
    Exact(exact::Boxed),
}

/// A key in the form that each engine needs, and the tag of the limit that applies to it.
#[derive(Clone, Copy)]
pub(crate) struct StoreKey<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) tag: LimitTag,
}

/// The key of a cell, as far as the store has it.
#[derive(Clone, Copy)]
pub(crate) enum CellKey<'a> {
    /// From the lock-free table, which keeps no ids.
    Fingerprint(Fingerprint),
    Id(&'a [u8]),
}

impl<'a> StoreKey<'a> {
    /// Returns the key by its id.
    pub(crate) fn cell_key(&self) -> CellKey<'a> {
        CellKey::Id(self.key.id)
    }
}

/// Which table holds the buckets.
///
/// ```
/// # #[cfg(feature = "exact")] {
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits, options::Engine};
///
/// let limit = Limit::new(10, 10, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("Requests", IdFormat::String, limit)?.build();
/// let options = LimiterOptions::default().engine(Engine::Exact);
/// let requests = Limiter::with_options(limits, options)?.limit("Requests")?;
/// assert!(requests.spend("alice", 1)?.allowed());
/// assert_eq!(requests.ids(), Some(vec!["alice".to_owned()]));
/// # }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// A lock-free table. It stores 126 bits of keyed hash of each key, not the key.
    #[default]
    LockFree,
    /// A `DashMap`, which stores the keys, so that [`KeyedLimit::ids`](crate::KeyedLimit::ids) can list them. Each call
    /// takes a shard's lock. This variant exists only with the feature `exact`.
    #[cfg(feature = "exact")]
    Exact,
}

#[cfg(test)]
impl Engine {
    /// All engines of this build.
    pub(crate) const ALL: &[Engine] = &[
        Engine::LockFree,
        #[cfg(feature = "exact")]
        Engine::Exact,
    ];
}

/// The questions about limits that a store asks its caller.
pub(crate) trait Rules {
    /// Returns the tag and the word of a cell under the limit that applies to it at `at_ns`. The cell's tag is of the
    /// caller's generation. `None`: the bucket is full.
    fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)>;

    /// Returns the number of the caller's generation of limits.
    fn generation(&self) -> u64;

    /// Returns the tag and the word of a cell under the limits of the caller's generation. A cell of the generation
    /// before is converted; a cell of the caller's stays as it is. `None`: the bucket is full.
    ///
    /// The result depends on the arguments and the generation alone, so that all callers that migrate a cell agree.
    fn migrated(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)>;

    /// Converts the word of a cell to the units of `to`, a limit of the caller's generation that applies to the key at
    /// the same time as `tag` or later.
    ///
    /// The result is always the same for the same cell. The word can be 0: a cell without a charge. `Outdated`: `to`
    /// applied to the key before `tag` did, because the caller's clock is behind.
    fn converted(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated>;

    /// Returns the time from `at_ns` until a cell is full, if it is not full at `at_ns` and no call charges it meanwhile. The
    /// cell's tag is of the caller's generation.
    fn full_in_ns(&self, key: CellKey<'_>, tag: LimitTag, word: u64, at_ns: u64) -> Option<u64> {
        let _ = (key, tag, word, at_ns);
        None
    }

    /// Returns whether a caller that needs a place may sweep at this reading of its clock.
    fn may_sweep_at(&self, now_ns: u64) -> bool {
        let _ = now_ns;
        true
    }

    /// Records that the limit of `tag` has ended, before a cell leaves its units. From then on no caller applies that
    /// limit, whatever its clock shows.
    fn record_end(&self, tag: LimitTag);
}

/// The action of an update for a key without a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Inserts a cell.
    Insert,
    /// Inserts no cell.
    Leave,
}

/// Which key an update changes, and how.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a StoreKey<'a>,
    pub(crate) absent: Absent,
    /// The call's time. If the table is full, the update drops some cells whose buckets are full by then.
    pub(crate) now_ns: u64,
}

/// Why an update changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateError {
    /// The key has no cell, and there is no place for a new one.
    TableFull,
    /// See [`Outdated`].
    Outdated,
}

/// The store has words under newer limits than the caller's. The call begins again with the newer limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated;

impl From<Outdated> for UpdateError {
    fn from(_: Outdated) -> UpdateError {
        UpdateError::Outdated
    }
}

/// The result of one bounded step of a sweep ([`Limiter::sweep`](crate::Limiter::sweep)).
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(1))?;
/// let limits = Limits::builder().limit("Requests", IdFormat::String, limit)?.build();
/// let (clock, hand) = Clock::manual();
/// let limiter = Limiter::with_options(limits, LimiterOptions::default().clock(clock))?;
/// assert!(limiter.limit("Requests")?.spend("alice", 1)?.allowed());
/// hand.advance(Duration::from_secs(1)); // alice's bucket is full again
/// while !limiter.sweep(1000).finished {}
/// assert_eq!(limiter.stats().cells, 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The number of cells, or of slots for cells, that the step looked at.
    pub looked_at: usize,
    /// The number of full cells that the step dropped.
    pub dropped: usize,
    /// Whether the step reached the end of the table. The next step starts at its beginning.
    pub finished: bool,
}

/// For how many keys a store is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreSize {
    pub(crate) max_keys: usize,
    /// The number of keys for which it has memory at the start.
    pub(crate) reserved: usize,
}

/// The size of a store, and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
    pub(crate) mapped_bytes: usize,
    pub(crate) reserved_bytes: usize,
    pub(crate) dropped: u64,
    pub(crate) migrations: u64,
    pub(crate) retired: usize,
    pub(crate) put_off: u64,
}

impl Store {
    pub(crate) fn new(engine: Engine, size: StoreSize) -> Store {
        match engine {
            Engine::LockFree => Store::LockFree(Table::new(size)),
            #[cfg(feature = "exact")]
            Engine::Exact => Store::Exact(Box::new(exact::Exact::new(size))),
        }
    }

    /// Returns whether the store identifies keys by their fingerprints, without their ids.
    pub(crate) fn has_fingerprints(&self) -> bool {
        matches!(self, Store::LockFree(_))
    }

    /// Computes the fingerprint of a key whose id is not composite.
    #[inline(always)]
    pub(crate) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        match self {
            Store::LockFree(table) => table.fingerprint(key),
            Store::Exact(_) => Fingerprint::NONE,
        }
    }

    /// Computes the fingerprint of a key; `account` is the account's part of a composite id.
    #[inline]
    pub(crate) fn fingerprint_with(&self, key: KeyRef<'_>, account: Option<&[u8]>) -> Fingerprint {
        match (self, account) {
            (Store::LockFree(table), Some(account)) => table.composite(key, account),
            _ => self.fingerprint(key),
        }
    }

    /// Computes a keyed hash of a key, for data that lies beside the cells.
    #[inline]
    pub(crate) fn hash(&self, key: KeyRef<'_>, fingerprint: Fingerprint) -> u64 {
        match self {
            Store::LockFree(_) => fingerprint.bits(),
            Store::Exact(exact) => exact.hash(key),
        }
    }

    /// Prefetches the cache line where a search for the key begins. The exact store does nothing.
    #[inline]
    pub(crate) fn prefetch(&self, fingerprint: Fingerprint) {
        if let Store::LockFree(table) = self {
            table.prefetch(fingerprint);
        }
    }

    /// Returns the word of `key`: 0 if it was never charged, `None` if it has no cell.
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

    /// Calls `step` with the word of a key, 0 if it has no cell, and stores the word that it returns. Repeats until a
    /// word is stored or `step` returns none.
    pub(crate) fn update(
        &self,
        change: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        match self {
            Store::LockFree(table) => table.update(change, rules, &mut step),
            Store::Exact(exact) => exact.update(change, rules, step),
        }
    }

    /// Returns the [eviction time floor](Store#the-eviction-time-floor). It is current for a cell that the caller has
    /// just read, or has just not found.
    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        match self {
            Store::LockFree(table) => table.floor_ns(),
            Store::Exact(exact) => exact.floor_ns(),
        }
    }

    /// Looks at about `cells` cells, beginning where the last call ended, and drops those that are full at `now_ns`.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        match self {
            Store::LockFree(table) => table.sweep(cells, now_ns, rules),
            Store::Exact(exact) => exact.sweep(cells, now_ns, rules),
        }
    }

    /// Converts all words to the limits of `rules`, which are the newest, while calls go on.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        match self {
            Store::LockFree(table) => table.renew(rules),
            Store::Exact(exact) => exact.renew(rules),
        }
    }

    /// Frees retired memory that no call reads any more, at the end of a sweep's pass. The caller holds no pin.
    pub(crate) fn free_unread(&self) {
        if let Store::LockFree(table) = self {
            table.free_unused();
        }
    }

    fn reservations(&self) -> &Reservations {
        match self {
            Store::LockFree(table) => table.reservations(),
            Store::Exact(exact) => exact.reservations(),
        }
    }

    /// Returns the cap on keys.
    pub(crate) fn max_keys(&self) -> usize {
        self.reservations().max()
    }

    /// Opens all places to all limits: see [`Reservations::open`].
    #[cfg(feature = "snapshot")]
    pub(crate) fn open(&self, cap: usize, limits: usize) {
        self.reservations().open(cap, limits);
    }

    /// Divides the places of the cap among the limits: see [`Reservations::divide`].
    pub(crate) fn divide(&self, parts: &[LimitPart]) {
        self.reservations().divide(parts);
    }

    /// Whether some key of the limit has a cell under the cap.
    pub(crate) fn has_cells(&self, limit: LimitIndex) -> bool {
        self.reservations().room_of(limit).own_taken > 0
    }

    /// Returns the time from `now_ns` until a key with this tag can have a cell, computed from the buckets that its next call
    /// would look at: 0 if a call now would get one, `None` if none of these buckets makes room.
    pub(crate) fn room_in_ns(&self, tag: LimitTag, now_ns: u64, rules: &impl Rules) -> Option<u64> {
        if self.reservations().has_room(tag) {
            return Some(0);
        }
        match self {
            Store::LockFree(table) => table.room_in_ns(tag, now_ns, rules),
            Store::Exact(exact) => exact.room_in_ns(tag, now_ns, rules),
        }
    }

    /// Returns the number of cells, the bytes of memory that they take, and the store's counters.
    pub(crate) fn size(&self) -> Size {
        match self {
            Store::LockFree(table) => table.size(),
            Store::Exact(exact) => exact.size(),
        }
    }

    /// Calls `visit` with every key. Returns false, without a call, if the store has no keys. `visit` must not use the
    /// store: it runs under a lock.
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
