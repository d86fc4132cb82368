//! The table without locks: fingerprints, each with its cell, in segments that grow and shrink beside
//! the traffic. docs/internals/table.md has the protocol and what each of its rules is for.
//!
//! This folder is the one place of the crate with unsafe code: `block.rs` gets memory and gives it back,
//! `segment.rs` makes slots of it, `shard.rs` turns a shard's pointer into a segment that may be read,
//! `migration.rs` retires the segments that nobody reaches any more, and `readers.rs` asks the system for
//! a fence that lets known keys' calls do without one. `stack.rs` is a list of its own, of no table.

mod block;
mod epoch;
mod fingerprint;
mod insert;
mod memory;
mod migration;
#[cfg(all(test, tollgate_loom, not(crossbeam_loom)))]
mod models;
#[cfg(all(test, not(tollgate_loom)))]
mod pressure;
mod published;
#[cfg_attr(crossbeam_loom, allow(dead_code, reason = "that model is of pins alone"))]
mod readers;
#[cfg(all(test, tollgate_loom, crossbeam_loom))]
mod reclaim;
mod region;
mod renumber;
mod retired;
#[cfg(feature = "snapshot")]
mod scan;
#[cfg(all(test, not(tollgate_loom)))]
mod second_look;
mod segment;
mod shard;
mod slot;
mod stack;
mod sweep;
pub(crate) use epoch::{Guard, pin, pin_briefly};
#[cfg(feature = "snapshot")]
pub(crate) use fingerprint::SeedBits;
pub(crate) use fingerprint::{AccountBits, Fingerprint};
pub(crate) use published::{Published, ReplacedBins};
pub(crate) use stack::Stack;

use self::fingerprint::Seeds;
use self::insert::Located;
use self::memory::Memory;
use self::migration::Room;
use self::segment::{Found, Segment};
use self::shard::{Shard, View};
use self::slot::Slot;
use crate::store::capacity::Reservations;
use crate::store::key::{KeyRef, LimitTag};
use crate::store::{Change, Outdated, Rules, Size, StoreKey, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Figure, Ordering};

/// The table.
pub(crate) struct Table {
    shards: Box<[Shard]>,
    first_log2: u32,
    seeds: Seeds,
    /// A segment with room for as many keys as one shard may ever get has at most so many slots.
    #[cfg(feature = "snapshot")]
    most_log2: u32,
    written: Written,
    _alive: epoch::Alive,
}

/// What is written now and then, apart from what every call reads: on other pairs of cache lines.
#[repr(align(128))]
struct Written {
    /// The latest time that anything was dropped at.
    floor_ns: AtomicU64,
    reservations: Reservations,
    /// Where the next step of a sweep begins.
    cursor: AtomicU64,
    counts: Counts,
}

/// What the table has been through, for people.
#[derive(Default)]
struct Counts {
    migrations: Figure,
    dropped: Figure,
    put_off: Figure,
    memory: Memory,
}

/// A known key: its cell, which stays while the guard lives, and which numbers apply to it.
#[derive(Clone, Copy)]
pub(crate) struct Known<'g>(&'g Slot);

impl Known<'_> {
    /// Which numbers apply.
    #[inline(always)]
    pub(crate) fn tag(self) -> LimitTag {
        self.0.tag()
    }

    /// Returns the key's word; `None` if its cell is not live any more.
    #[inline(always)]
    pub(crate) fn word(self) -> Option<u64> {
        self.0.cell.live_word()
    }

    /// Stores `new` if the key's word is still `word`. Returns whether it did; it may fail without a reason.
    #[inline(always)]
    pub(crate) fn swap(self, word: u64, new: u64) -> bool {
        self.0.cell.swap_live(word, new)
    }

    /// Puts to `step` the word, until the word that `step` asks for is stored or it asks for none.
    /// Returns whether the cell was still there.
    #[inline(always)]
    pub(crate) fn update(self, step: impl FnMut(u64) -> Option<u64>) -> bool {
        self.0.cell.update_live(step)
    }
}

/// Where the search for a key begins.
#[derive(Clone, Copy)]
pub(crate) struct Home<'g> {
    segment: Segment<'g>,
    fingerprint: Fingerprint,
}

impl<'g> Home<'g> {
    /// Finds the key, if it was charged before. `None` says nothing.
    #[inline(always)]
    pub(crate) fn known(self) -> Option<Known<'g>> {
        // Most keys are where their search begins, or in the same line.
        for slot in self.segment.line(self.fingerprint) {
            if slot.is_live(self.fingerprint) {
                return Some(Known(slot));
            }
        }
        known_further_on(self.segment, self.fingerprint)
    }
}

/// Finds a key that is not in the first line. (Of two arguments, which are passed in registers.)
#[inline(never)]
fn known_further_on(segment: Segment<'_>, fingerprint: Fingerprint) -> Option<Known<'_>> {
    /// A longer search is left to the slow path.
    const MAX_SLOTS: usize = 16;
    let mut slots = segment.slots_from_home(fingerprint).take(MAX_SLOTS);
    slots.find(|slot| slot.is_live(fingerprint)).map(Known)
}

/// A word as it was met, and whose it is.
#[derive(Clone, Copy)]
struct Seen {
    tag: LimitTag,
    word: u64,
}

impl Seen {
    fn of(slot: &Slot, word: u64) -> Seen {
        Seen { tag: slot.tag(), word }
    }

    /// The word in the units of the numbers that apply to its key now.
    fn under(self, key: &StoreKey<'_>, rules: &impl Rules) -> Result<u64, Outdated> {
        if self.word == 0 || self.tag == key.tag {
            return Ok(self.word);
        }
        rules.converted(key.cell_key(), self.tag, self.word, key.tag)
    }
}

impl Table {
    pub(crate) fn new(max_keys: usize) -> Table {
        Table::with_seeds(max_keys, Seeds::new())
    }

    fn with_seeds(max_keys: usize, seeds: Seeds) -> Table {
        epoch::prepare();
        /// Keys for which a shard more is worth its place.
        const KEYS_A_SHARD: usize = 4096;
        /// Their pointers stay in the first level of the cache: 6 KiB. At the default cap a segment
        /// has at most a mebibyte, so that none is long to make or to free.
        const MAX_SHARDS: usize = 768;
        let shards = (max_keys / KEYS_A_SHARD).clamp(1, MAX_SHARDS);
        let shards = if cfg!(tollgate_loom) { 1 } else { shards };
        let first_log2 = if cfg!(tollgate_loom) { 2 } else { migration::FIRST_LOG2 };
        Table::with_shape(max_keys, shards, first_log2, seeds)
    }

    /// With so many shards, whose first segments have so many slots.
    fn with_shape(max_keys: usize, shards: usize, first_log2: u32, seeds: Seeds) -> Table {
        Table {
            shards: (0..shards).map(|_| Shard::new()).collect(),
            first_log2,
            seeds,
            #[cfg(feature = "snapshot")]
            most_log2: migration::most_log2(max_keys / shards),
            written: Written {
                floor_ns: AtomicU64::new(0),
                reservations: Reservations::new(max_keys),
                cursor: AtomicU64::new(0),
                counts: Counts::default(),
            },
            _alive: epoch::Alive::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        self.seeds.fingerprint(key)
    }

    /// The fingerprint of a composite key.
    pub(crate) fn composite(&self, key: KeyRef<'_>, account: &[u8]) -> Fingerprint {
        self.seeds.composite(key, account)
    }

    #[inline(always)]
    fn shard(&self, fingerprint: Fingerprint) -> &Shard {
        &self.shards[self.nth_shard(fingerprint)]
    }

    /// The number of a key's shard.
    #[inline(always)]
    fn nth_shard(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.shards.len())
    }

    /// Where the search for a key begins, if its shard is at rest: all that was read is the shard's pointer.
    #[inline(always)]
    pub(crate) fn home<'g>(&self, guard: &'g Guard, fingerprint: Fingerprint) -> Option<Home<'g>> {
        let view = self.shard(fingerprint).view(guard);
        if view.is_migrating() {
            return None;
        }
        let segment = view.newest()?;
        if segment.log2() == 0 {
            return None;
        }
        Some(Home { segment, fingerprint })
    }

    /// Asks the processor for the line in which the search for a key begins. Nothing is read there, so
    /// that this needs no pin.
    #[inline(always)]
    pub(crate) fn prefetch(&self, fingerprint: Fingerprint) {
        self.shard(fingerprint).prefetch(fingerprint);
    }

    /// The word of a key: 0 if it was never charged, `None` if it has no cell. Reads only.
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

    /// The view of the shard that the word was found in, and the word.
    ///
    /// Repeats only when a migration of the shard was begun or completed in between.
    fn look_from<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        fingerprint: Fingerprint,
        rules: &impl Rules,
    ) -> Result<(View<'g>, Option<Seen>), Outdated> {
        loop {
            let view = shard.view(guard);
            let Some(newest) = view.newest() else { return Ok((view, None)) };
            if newest.generation() > rules.generation() {
                return Err(Outdated);
            }
            let mut uncharged = None;
            match newest.find(fingerprint) {
                Found::Live(slot, 0) => uncharged = Some(Seen::of(slot, 0)),
                Found::Live(slot, word) => return Ok((view, Some(Seen::of(slot, word)))),
                // On its way within the segment, which has not been left.
                Found::Moved(slot, word) if shard.view(guard).is(view) => {
                    return Ok((view, Some(Seen::of(slot, word))));
                }
                Found::Moved(..) => continue,
                Found::Absent => {}
            }
            if let Some(old) = view.old() {
                match old.find(fingerprint) {
                    Found::Live(slot, 0) => uncharged = Some(Seen::of(slot, 0)),
                    Found::Live(slot, word) => return Ok((view, Some(Seen::of(slot, word)))),
                    // It has moved since the newest was looked at. If it was dropped there since, too,
                    // the migration is over, and this word is of the past.
                    Found::Moved(slot, word) => {
                        if fault::active(Fault::OldWordUnchecked) || shard.view(guard).is(view) {
                            coverage::hit(Race::LookedAtMoved);
                            return Ok((view, Some(Seen::of(slot, word))));
                        }
                        continue;
                    }
                    Found::Absent => {}
                }
            }
            // What is closed or gone looks absent in a segment that was left.
            if shard.view(guard).is(view) {
                return Ok((view, uncharged));
            }
        }
    }

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
        // Repeats only when another's step was stored, a cell was dropped, or a migration of the shard
        // was begun or got further: somebody always gets through.
        loop {
            let (view, seen) = self.look_from(&guard, shard, key.fingerprint, rules)?;
            let word = match seen {
                Some(seen) => seen.under(key, rules)?,
                None => 0,
            };
            if step(word).is_none() {
                // A denial writes nothing, not even while a segment moves.
                return Ok(());
            }
            if self.is_outdated(view, rules) {
                coverage::hit(Race::ShardRenewed);
                if view.is_migrating() {
                    self.help_to_the_end(&guard, shard, view, rules);
                } else {
                    self.start(shard, view, Room::More(1), rules);
                }
                continue;
            }
            if view.is_migrating() && !helped {
                helped = true;
                self.help(&guard, shard, view, rules);
                continue;
            }
            let found = match self.place(&guard, shard, view, change, rules) {
                Located::At(slot) => {
                    slot.set_tag(key.tag);
                    slot
                }
                Located::Moving(slot) if slot.tag() == key.tag => {
                    // Its numbers have ended by another caller's clock.
                    return Err(UpdateError::Outdated);
                }
                Located::Moving(slot) => slot,
                // The step has seen that there is nothing, or is to see it.
                Located::Absent if word == 0 => return Ok(()),
                Located::Absent => continue,
                Located::AtCap => return Err(UpdateError::TableFull),
                Located::Retry => continue,
            };
            if found.tag() != key.tag {
                // Its numbers have ended: its word goes on in another slot, under those that apply now.
                self.renumber(&guard, shard, view, found, key, rules)?;
                continue;
            }
            if found.cell.update_live(&mut *step) {
                return Ok(());
            }
        }
    }

    /// Whether a shard's words are in the units of limits from before the caller's.
    fn is_outdated(&self, view: View<'_>, rules: &impl Rules) -> bool {
        !fault::active(Fault::ChargeBeforeRenewal)
            && view.newest().is_some_and(|it| it.generation() < rules.generation())
    }

    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        // Relaxed: who has a new cell in hand, or found none, has met with Acquire what was done by
        // whoever dropped the one before, after the floor was raised: the mark on the cell, or the
        // shard's pointer.
        self.written.floor_ns.load(Ordering::Relaxed)
    }

    fn memory(&self) -> &Memory {
        &self.written.counts.memory
    }

    /// Raises the floor to the caller's time, or finds it higher; returns it.
    fn raise_floor(&self, now_ns: u64) -> u64 {
        // Relaxed: published by whatever drops a cell by it.
        self.written.floor_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns)
    }

    pub(crate) fn size(&self) -> Size {
        // Relaxed: figures for people.
        let counts = &self.written.counts;
        Size {
            cells: self.written.reservations.taken(),
            bytes: size_of::<Table>() + size_of_val(&*self.shards) + counts.memory.bytes(),
            mapped_bytes: counts.memory.mapped_bytes(),
            dropped: counts.dropped.load(Ordering::Relaxed),
            migrations: counts.migrations.load(Ordering::Relaxed),
            retired: counts.memory.retired_count(),
            put_off: counts.put_off.load(Ordering::Relaxed),
        }
    }

    /// Counts a cell that this call made go.
    fn dropped(&self) {
        self.written.reservations.release();
        // Relaxed: a figure for people.
        self.written.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // A model that has failed is not to fail once more, in its threads' destructors.
            return;
        }
        let guard = epoch::pin();
        for shard in &mut self.shards {
            shard.free(&guard);
        }
        // What was retired goes with the memory: no call of this table is under way.
    }
}
