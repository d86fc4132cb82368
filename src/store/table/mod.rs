//! The lock-free hash table: the cells of keys, in segments that grow and shrink while calls go on.
//!
//! docs/internals/table.md describes the protocol and the reason for each rule. This folder has all
//! unsafe code of the crate: `block.rs`, `region.rs` and `arena.rs` get memory and free it, `segment.rs` makes
//! slots of it, `shard.rs` turns a shard's pointer into a segment, `migration.rs` retires segments,
//! and `readers.rs` lists the readers, and asks the system for a memory fence of all threads. `published.rs` and
//! `stack.rs` are separate structures that use the same reclamation.

mod arena;
mod block;
mod epoch;
mod fingerprint;
mod insert;
mod memory;
mod migration;
#[cfg(all(test, tollgate_loom, not(crossbeam_loom)))]
mod models;
#[cfg(all(test, not(tollgate_loom)))]
mod pressure_tests;
mod published;
#[cfg_attr(crossbeam_loom, allow(dead_code, reason = "the model on crossbeam-epoch has pins only"))]
mod readers;
#[cfg(all(test, tollgate_loom, crossbeam_loom))]
mod reclaim_model;
mod region;
mod renumber;
mod retired;
#[cfg(feature = "snapshot")]
mod scan;
#[cfg(all(test, not(tollgate_loom)))]
mod second_look_tests;
mod segment;
mod shard;
mod slot;
mod stack;
mod sweep;
pub(crate) use epoch::{Guard, pin, pin_briefly, read};
pub(crate) use fingerprint::{AccountBits, Fingerprint};
pub(crate) use published::{Published, ReplacedBins};

use self::fingerprint::Seeds;
use self::insert::SlotOutcome;
use self::memory::Memory;
use self::migration::MigrationGoal;
use self::segment::{Lookup, Segment};
use self::shard::{Shard, ShardView};
use self::slot::{A_LINE, Slot};
use crate::store::capacity::Reservations;
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{Change, Outdated, Rules, Size, StoreKey, StoreSize, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Figure, Ordering};

/// The lock-free table.
pub(crate) struct Table {
    shards: Box<[Shard]>,
    first_log2: u32,
    /// Whether there is reserved memory for segments of the first size.
    is_reserved: bool,
    seeds: Seeds,
    /// log2 of the most slots that a segment ever needs.
    #[cfg(feature = "snapshot")]
    max_log2: u32,
    written: Written,
    _alive: epoch::Alive,
}

/// Fields that calls write. They share no pair of cache lines with the fields that every call
/// reads.
#[repr(align(128))]
struct Written {
    /// The eviction time floor: the latest time of a sweep that may have dropped a cell.
    floor_ns: AtomicU64,
    reservations: Reservations,
    /// The positions at which the next sweeps begin.
    cursors: sweep::Cursors,
    counts: Counts,
}

/// Counters for statistics, and the memory of the segments.
#[derive(Default)]
struct Counts {
    migrations: Figure,
    dropped: Figure,
    put_off: Figure,
    memory: Memory,
}

/// The slot of a known key, which is not freed while the guard lives.
#[derive(Clone, Copy)]
pub(crate) struct Known<'g> {
    slot: &'g Slot,
    word: u64,
}

impl Known<'_> {
    /// Returns the limit tag.
    #[inline(always)]
    pub(crate) fn tag(self) -> LimitTag {
        self.slot.tag()
    }

    /// Returns the word that was read last: live and not 0.
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.word
    }

    /// Reads the word again. Returns `false` if the cell is frozen.
    #[inline(always)]
    pub(crate) fn read_again(&mut self) -> bool {
        let word = self.slot.cell.live_word();
        self.word = word.unwrap_or(self.word);
        word.is_some()
    }

    /// Stores `new` if the word is still the one that was read. Returns whether it did. The swap may
    /// fail without a reason.
    #[inline(always)]
    pub(crate) fn swap(self, new: u64) -> bool {
        self.slot.cell.swap_live(self.word, new)
    }

    /// Calls `step` with the word until the new word is stored or `step` returns `None`. Returns
    /// `false` if the cell is frozen.
    #[inline(always)]
    pub(crate) fn update(self, step: impl FnMut(u64) -> Option<u64>) -> bool {
        self.slot.cell.update_live(step)
    }
}

/// The segment in which the search for a key begins.
#[derive(Clone, Copy)]
pub(crate) struct Home<'g> {
    view: ShardView<'g>,
    fingerprint: Fingerprint,
    /// The first slots of the search.
    line: &'g [Slot; A_LINE],
}

impl<'g> Home<'g> {
    /// Prefetches the cache line in which the search begins, and the next one.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        segment::prefetch_from(self.line.as_ptr());
    }

    /// Returns the generation of limits in whose units the words are.
    pub(crate) fn generation(self) -> u64 {
        self.view.newest().map_or(0, Segment::generation)
    }

    /// Finds the key if it was charged before. After `None` the caller takes the slow path, where
    /// the key may still be found.
    #[inline(always)]
    pub(crate) fn known(self) -> Option<Known<'g>> {
        // Most keys are in the cache line in which the search begins, and most others in the next one.
        segment::prefetch_line(self.line.as_ptr().wrapping_add(A_LINE));
        for slot in self.line {
            if let Some(word) = slot.live_word(self.fingerprint) {
                return Some(Known { slot, word });
            }
        }
        known_further_on(self.view, self.fingerprint)
    }
}

/// Searches for a key beyond the first line. The two arguments are passed in registers.
#[inline(never)]
fn known_further_on(view: ShardView<'_>, fingerprint: Fingerprint) -> Option<Known<'_>> {
    /// Longer searches are left to the slow path.
    const MAX_SLOTS: usize = 16;
    let mut slots = view.newest()?.slots_from_home(fingerprint).take(MAX_SLOTS);
    let found = slots.try_for_each(|slot| {
        slot.search(fingerprint).map_break(|word| Some(Known { slot, word: word? }))
    });
    found.break_value().flatten()
}

/// A word with the limit tag that it is counted in.
#[derive(Clone, Copy)]
struct TaggedWord {
    tag: LimitTag,
    word: u64,
}

impl TaggedWord {
    fn read(slot: &Slot, word: u64) -> TaggedWord {
        TaggedWord { tag: slot.tag(), word }
    }

    /// Returns the word in the units of the limit that applies to the key now.
    fn under(self, key: &StoreKey<'_>, rules: &impl Rules) -> Result<u64, Outdated> {
        if self.word == 0 || self.tag == key.tag {
            return Ok(self.word);
        }
        rules.converted(key.cell_key(), self.tag, self.word, key.tag)
    }
}

impl Table {
    pub(crate) fn new(size: StoreSize) -> Table {
        Table::with_seeds(size, Seeds::new())
    }

    fn with_seeds(StoreSize { max_keys, reserved }: StoreSize, seeds: Seeds) -> Table {
        epoch::prepare();
        /// The number of keys that is worth a shard.
        const KEYS_A_SHARD: usize = 4096;
        /// The pointers take 6 KiB and stay in the first-level cache. At the default cap a segment
        /// has at most 2 MiB, so that making or freeing one is short.
        const MAX_SHARDS: usize = 768;
        let shards = (max_keys / KEYS_A_SHARD).clamp(1, MAX_SHARDS);
        let shards = if cfg!(tollgate_loom) { 1 } else { shards };
        let first_log2 = if cfg!(tollgate_loom) { 2 } else { migration::FIRST_LOG2 };
        let mut table = Table::with_shape(max_keys, shards, first_log2, seeds);
        let reserved = reserved.min(max_keys);
        if reserved > 0 {
            table.reserve_memory(reserved);
        }
        table
    }

    /// Reserves the memory for this number of keys, if the system has it.
    fn reserve_memory(&mut self, keys: usize) {
        let log2 = migration::reserved_log2(keys, self.shards.len());
        let (shards, memory) = (self.shards.len(), &mut self.written.counts.memory);
        if memory.reserve(shards, segment::bytes_of(log2)) {
            (self.first_log2, self.is_reserved) = (log2, true);
        }
    }

    /// Makes a table with `shards` shards, whose first segments have `1 << first_log2` slots.
    fn with_shape(max_keys: usize, shards: usize, first_log2: u32, seeds: Seeds) -> Table {
        Table {
            shards: (0..shards).map(|_| Shard::new()).collect(),
            first_log2,
            is_reserved: false,
            seeds,
            #[cfg(feature = "snapshot")]
            max_log2: migration::max_log2(max_keys / shards),
            written: Written {
                floor_ns: AtomicU64::new(0),
                reservations: Reservations::new(max_keys),
                cursors: sweep::Cursors::default(),
                counts: Counts::default(),
            },
            _alive: epoch::Alive::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        self.seeds.fingerprint(key)
    }

    /// Returns the fingerprint of a key whose id is that of `head` and `text`: see `hash_joined`.
    #[inline(always)]
    pub(crate) fn joined(
        &self,
        limit: LimitIndex,
        head: (u128, usize),
        text: &[u8],
    ) -> Fingerprint {
        self.seeds.joined(limit, head, text)
    }

    /// Returns the fingerprint of a composite key.
    pub(crate) fn composite(&self, key: KeyRef<'_>, account: &[u8]) -> Fingerprint {
        self.seeds.composite(key, account)
    }

    #[inline(always)]
    fn shard(&self, fingerprint: Fingerprint) -> &Shard {
        &self.shards[self.shard_index(fingerprint)]
    }

    /// Returns the index of a key's shard.
    #[inline(always)]
    fn shard_index(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.shards.len())
    }

    /// Returns where the search for a key begins. `None` during a migration and before the first
    /// segment. Reads the shard's pointer only.
    #[inline(always)]
    pub(crate) fn home<'g>(&self, guard: &'g Guard, fingerprint: Fingerprint) -> Option<Home<'g>> {
        let view = self.shard(fingerprint).view(guard);
        Some(Home { view, fingerprint, line: view.line(fingerprint)? })
    }

    /// Prefetches the cache line in which the search for a key begins. A prefetch reads nothing, so
    /// it needs no pin.
    #[inline(always)]
    pub(crate) fn prefetch(&self, fingerprint: Fingerprint) {
        self.shard(fingerprint).prefetch(fingerprint);
    }

    /// Returns the word of a key: 0 if it was never charged, `None` if it has no cell. Only reads.
    pub(crate) fn look(
        &self,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<Option<u64>, Outdated> {
        let guard = epoch::pin();
        let (_, seen) =
            self.look_from(&guard, self.shard(key.fingerprint), key.fingerprint, rules)?;
        seen.map(|seen| seen.under(key, rules)).transpose()
    }

    /// Searches for a key without writing. Returns the view of its shard and the word.
    ///
    /// Repeats only when a migration of the shard was begun or completed meanwhile.
    fn look_from<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        fingerprint: Fingerprint,
        rules: &impl Rules,
    ) -> Result<(ShardView<'g>, Option<TaggedWord>), Outdated> {
        loop {
            let view = shard.view(guard);
            let Some(newest) = view.newest() else { return Ok((view, None)) };
            if newest.generation() > rules.generation() {
                return Err(Outdated);
            }
            let mut uncharged = None;
            match newest.find(fingerprint) {
                Lookup::Live(slot, 0) => uncharged = Some(TaggedWord::read(slot, 0)),
                Lookup::Live(slot, word) => return Ok((view, Some(TaggedWord::read(slot, word)))),
                // The word is about to move within the segment, and no migration has begun.
                Lookup::Moved(slot, word) if shard.view(guard).is_same(view) => {
                    return Ok((view, Some(TaggedWord::read(slot, word))));
                }
                Lookup::Moved(..) => continue,
                Lookup::Absent => {}
            }
            if let Some(old) = view.old() {
                match old.find(fingerprint) {
                    Lookup::Live(slot, 0) => uncharged = Some(TaggedWord::read(slot, 0)),
                    Lookup::Live(slot, word) => {
                        return Ok((view, Some(TaggedWord::read(slot, word))));
                    }
                    // The word has moved since the search in the newest segment. If it was also
                    // dropped there since, the migration is over, and this word is out of date.
                    Lookup::Moved(slot, word) => {
                        if fault::active(Fault::OldWordUnchecked) || shard.view(guard).is_same(view)
                        {
                            coverage::hit(Race::LookedAtMoved);
                            return Ok((view, Some(TaggedWord::read(slot, word))));
                        }
                        continue;
                    }
                    Lookup::Absent => {}
                }
            }
            // In a segment that a migration has left, closed and dead slots look like an absent
            // key.
            if shard.view(guard).is_same(view) {
                return Ok((view, uncharged));
            }
        }
    }

    /// Finds or inserts the key's cell and calls `step` with its word, until the new word is stored
    /// or `step` returns `None`.
    pub(crate) fn update(
        &self,
        change: Change<'_>,
        rules: &impl Rules,
        step: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        let guard = epoch::pin();
        let key = change.key;
        let shard = self.shard(key.fingerprint);
        let mut helped = false;
        // Repeats only when another thread has stored a word, dropped a cell, or begun or advanced
        // a migration of the shard. So in each round some thread makes progress.
        loop {
            let (view, seen) = self.look_from(&guard, shard, key.fingerprint, rules)?;
            let word = match seen {
                Some(seen) => seen.under(key, rules)?,
                None => 0,
            };
            if step(word).is_none() {
                // A denial writes nothing, even during a migration.
                return Ok(());
            }
            if self.is_outdated(view, rules) {
                self.renew_once(&guard, shard, view, rules);
                continue;
            }
            if view.is_migrating() && !helped {
                helped = true;
                self.migrate_for_call(&guard, (shard, view), &change, rules);
                continue;
            }
            let slot = match self.find_or_insert(&guard, shard, view, change, rules) {
                SlotOutcome::At(slot) => slot,
                SlotOutcome::Moving(slot) if slot.tag() == key.tag => {
                    // The limit has ended by the clock of another caller.
                    return Err(UpdateError::Outdated);
                }
                SlotOutcome::Moving(slot) => slot,
                // If the step saw a word, the key was dropped since: begin again, so that the step
                // sees 0.
                SlotOutcome::Absent if word == 0 => return Ok(()),
                SlotOutcome::Absent => continue,
                SlotOutcome::TableFull => return Err(UpdateError::TableFull),
                SlotOutcome::Retry => continue,
            };
            if slot.tag() != key.tag {
                // The limit has ended: the word moves to another slot, in the units of the limit
                // that applies now.
                self.renumber(&guard, shard, view, slot, key, rules)?;
                continue;
            }
            if slot.cell.update_live(&mut *step) {
                return Ok(());
            }
        }
    }

    /// Returns whether the words of a shard are in the units of older limits than the caller's.
    fn is_outdated(&self, view: ShardView<'_>, rules: &impl Rules) -> bool {
        !fault::active(Fault::ChargeBeforeRenewal)
            && view.newest().is_some_and(|it| it.generation() < rules.generation())
    }

    /// Begins a migration of an outdated shard to the units of the caller's limits, or finishes the
    /// one that is under way.
    fn renew_once(&self, guard: &Guard, shard: &Shard, view: ShardView<'_>, rules: &impl Rules) {
        coverage::hit(Race::ShardRenewed);
        if view.is_migrating() {
            self.finish_migration(guard, shard, view, rules);
        } else {
            self.start_migration(shard, view, MigrationGoal::Grow(1), rules);
        }
    }

    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        // Relaxed: the thread that dropped the last cell raised the floor first, and then wrote the
        // mark on the cell or the shard's pointer. A caller with a new cell, or with none, has read
        // one of these with Acquire.
        self.written.floor_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.written.reservations
    }

    fn memory(&self) -> &Memory {
        &self.written.counts.memory
    }

    /// Raises the eviction time floor to the caller's time unless it is later, and returns it.
    fn raise_floor(&self, now_ns: u64) -> u64 {
        // Relaxed: the swap that drops a cell publishes it.
        self.written.floor_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns)
    }

    pub(crate) fn size(&self) -> Size {
        // Relaxed: statistics.
        let counts = &self.written.counts;
        Size {
            cells: self.written.reservations.taken(),
            bytes: size_of::<Table>() + size_of_val(&*self.shards) + counts.memory.bytes(),
            mapped_bytes: counts.memory.mapped_bytes(),
            reserved_bytes: counts.memory.reserved_bytes(),
            dropped: counts.dropped.load(Ordering::Relaxed),
            migrations: counts.migrations.load(Ordering::Relaxed),
            retired: counts.memory.retired_count(),
            put_off: counts.put_off.load(Ordering::Relaxed),
        }
    }

    /// Counts a cell that this call has dropped, and releases its reservation.
    fn count_dropped(&self, tag: LimitTag) {
        self.written.reservations.release(tag);
        // Relaxed: statistics.
        self.written.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // A model has failed. The destructors of its threads must not fail once more.
            return;
        }
        self.memory().end();
        let guard = epoch::pin();
        for shard in &mut self.shards {
            shard.free(&guard);
        }
        // `Memory` frees the retired segments: no call of this table is under way.
    }
}
