//! Migrations: the cells of a shard move to a new segment, which is larger, smaller, or free of
//! dead cells.
//!
//! Calls that change a word move a chunk each, and any of them can finish.

use std::time::{Duration, Instant};

use super::epoch::{Guard, pin};
use super::insert::Frozen;
use super::retired::When;
use super::segment::{Segment, Unlinked, claims_to_grow, slots_of};
use super::shard::{SegmentPointer, Shard, ShardView};
use super::slot::{Slot, SlotContents};
use super::{Rules, Table};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::Ordering;
use crate::util::work;

/// Slots that one call migrates.
pub(super) const CHUNK: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

/// A call frees a piece of memory if its chunk begins at a multiple of this number of slots.
const FREE_EVERY: usize = 8 * CHUNK;

/// How long a reload waits in all for threads that may read retired segments. Models and unit tests do not wait.
const MAX_WAIT: Duration = Duration::from_secs(if cfg!(any(test, tollgate_loom)) { 0 } else { 1 });

/// log2 of the fewest slots of a segment that has any.
pub(super) const FIRST_LOG2: u32 = 3;

/// The purpose of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MigrationGoal {
    /// As few slots as the cells need; more than before only if live cells take three quarters of
    /// the old segment.
    Fit,
    /// Room for this number of additional keys.
    Grow(u64),
    /// Like `Fit`, to clear out the slots whose words have moved to later slots.
    ClearDead,
}

impl Table {
    /// Gives a shard its first segment.
    pub(super) fn create_first_segment(
        &self,
        shard: &Shard,
        view: ShardView<'_>,
        log2: u32,
        rules: &impl Rules,
    ) {
        let first = Segment::new(self.memory(), log2, SegmentPointer::NONE, 0, rules.generation());
        self.publish(shard, view, first);
    }

    /// Begins a migration of a shard at rest. Of several threads one succeeds, and the others drop
    /// their segments. Returns whether a migration is under way: not if readers hold back so much
    /// memory that a segment may only grow, and live cells do not need that.
    ///
    /// Memory that readers hold back never delays two kinds of migrations: those to the units of
    /// new limits, of which each reload has one, and `ClearDead`, because a word moves within its
    /// segment once for each end of an override.
    pub(super) fn start_migration(
        &self,
        shard: &Shard,
        view: ShardView<'_>,
        goal: MigrationGoal,
        rules: &impl Rules,
    ) -> bool {
        let Some(old) = view.newest() else { return false };
        if view.is_migrating() && !fault::active(Fault::StartWhileMoving) {
            return true;
        }
        let generation = rules.generation().max(old.generation());
        let may_wait = generation == old.generation() && goal != MigrationGoal::ClearDead;
        let holds_back = may_wait && self.holds_back();
        let grows_to = |used| {
            let log2 = self.successor_log2(old.log2(), used, goal);
            match goal {
                MigrationGoal::Grow(_) => log2,
                MigrationGoal::Fit | MigrationGoal::ClearDead
                    if used > claims_to_grow(old.slots()) =>
                {
                    log2
                }
                MigrationGoal::Fit | MigrationGoal::ClearDead => log2.min(old.log2()),
            }
        };
        if holds_back && grows_to(old.used()) <= old.log2() {
            return false;
        }
        // Seal first, because the number of cells decides the successor's size.
        let used = if fault::active(Fault::SizedByFew) { 0 } else { old.seal() };
        // Cells may have been dropped since the check. While memory is held back, each migration
        // must double the segment.
        let min_log2 = if holds_back { old.log2() + 1 } else { 0 };
        let log2 = grows_to(used).max(min_log2);
        self.publish(
            shard,
            view,
            Segment::new(self.memory(), log2, view.pointer(), used, generation),
        );
        true
    }

    #[expect(unsafe_code, reason = "frees a segment that no other thread has seen")]
    pub(super) fn publish(&self, shard: &Shard, view: ShardView<'_>, new: Segment<'_>) {
        if shard.publish(view, new) {
            self.memory().count_new(&new.header().block);
            if view.newest().is_some() {
                // Relaxed: statistics.
                self.written.counts.migrations.fetch_add(1, Ordering::Relaxed);
            }
        } else {
            coverage::hit(Race::StartLost);
            // SAFETY: the swap failed, so that only this call has it.
            drop(unsafe { new.into_block() });
        }
    }

    /// Migrates the whole next chunk. The thread that reaches the end completes the migration. Any
    /// number of threads may do so at once, and none waits for another: each copies all of its
    /// chunk.
    ///
    /// A caller with older limits than the newest segment's cannot convert the words, and returns
    /// at once.
    pub(super) fn help_migrate(
        &self,
        guard: &Guard,
        shard: &Shard,
        view: ShardView<'_>,
        rules: &impl Rules,
    ) {
        self.help_migrate_after(guard, shard, view, rules, |_, _| {});
    }

    /// Like [`help_migrate`](Table::help_migrate), and calls `before` with the old segment and each slot of the chunk
    /// before the slot is migrated.
    pub(super) fn help_migrate_after(
        &self,
        guard: &Guard,
        shard: &Shard,
        view: ShardView<'_>,
        rules: &impl Rules,
        mut before: impl FnMut(Segment<'_>, &Slot),
    ) {
        let (Some(newest), Some(old)) = (view.newest(), view.old()) else { return };
        if rules.generation() < newest.generation() {
            return;
        }
        let frontier = &old.header().frontier;
        // Acquire: pairs with the swap below, so that the thread that completes sees the cells that
        // others have migrated.
        let acquire = if fault::active(Fault::FrontierRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        let from = frontier.load(acquire);
        let slots = old.slots();
        if (from as usize).is_multiple_of(FREE_EVERY) {
            // During a migration, its helpers free more bytes than the migration retires at its
            // end.
            self.memory().free_piece();
        }
        if (from as usize) < slots {
            let to = (from as usize + CHUNK).min(slots);
            for at in from as usize..to {
                before(old, old.slot(0, at));
                self.migrate_slot(old, at, newest, rules);
            }
            // Release: the thread that continues from here sees the cells that this call has
            // migrated, and those that the load above has acquired. Acquire on failure: another
            // thread has migrated the same chunk, and this call may be the one that completes.
            let release = if fault::active(Fault::FrontierRelaxed) {
                Ordering::Relaxed
            } else {
                Ordering::Release
            };
            if frontier.compare_exchange(from, to as u64, release, acquire).is_err() {
                coverage::hit(Race::HelpedTwice);
            }
            if to < slots && !fault::active(Fault::CompleteEarly) {
                return;
            }
        }
        if fault::active(Fault::RetireLinked) {
            self.retire(guard, shard, old);
        }
        if shard.complete(view) {
            coverage::hit(Race::Completed);
            self.retire(guard, shard, old);
        }
    }

    /// Finishes the migration. Callers do so when a segment changes its limits, or when new keys
    /// have used up the room for inserts during a migration. Each insert migrates a chunk first, so
    /// that the latter takes many threads that insert in lock step (docs/internals/table.md,
    /// "Room").
    pub(super) fn finish_migration<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: ShardView<'g>,
        rules: &impl Rules,
    ) {
        let is_newer = |it: Segment<'_>| it.generation() > rules.generation();
        if view.newest().is_some_and(is_newer) {
            return;
        }
        // At most one round for each chunk: in each round, this or another thread advances the
        // frontier.
        while view.is_migrating() && shard.view(guard).is_same(view) {
            self.help_migrate(guard, shard, view, rules);
        }
    }

    /// Migrates every shard to the generation of `rules`, which is the newest. Other threads may
    /// use the table meanwhile.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        let mut waited = Duration::ZERO;
        for shard in &self.shards {
            let bytes = self.renew_shard(shard, rules);
            // Free more than the shard has retired, whichever thread retired it.
            self.memory().free_more_than(bytes);
            self.wait_for_readers(&mut waited);
        }
        self.free_unused();
    }

    /// Waits while calls of other threads may read many retired segments, so that a reload does not
    /// keep the table in memory twice. For a stalled thread the reload waits [`MAX_WAIT`] in all.
    fn wait_for_readers(&self, waited: &mut Duration) {
        /// Enough for pins that end soon.
        const ROUNDS: u32 = 4;
        let mut rounds = 0;
        while self.memory().is_much_waiting() {
            self.memory().collect(&pin(), When::Any);
            let _ = self.memory().free_large_piece();
            rounds += 1;
            if rounds >= ROUNDS {
                if *waited >= MAX_WAIT {
                    return;
                }
                let began = Instant::now();
                std::thread::sleep(Duration::from_micros(100));
                *waited += began.elapsed();
            }
        }
    }

    /// Frees retired segments that no thread can read, within a bound, and leaves the rest to
    /// calls. A sweep or a reload calls this at its end, when it holds no pin.
    pub(crate) fn free_unused(&self) {
        /// One to look for readers, two for the epoch to advance, and one in reserve for a thread
        /// that interferes.
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            if self.memory().retired_count() == 0 {
                break;
            }
            self.memory().collect(&pin(), When::Any);
        }
        self.memory().free_rest();
    }

    /// Migrates one shard to the generation of `rules`. Returns the bytes that the shard takes.
    fn renew_shard(&self, shard: &Shard, rules: &impl Rules) -> usize {
        // Repeats only when a migration of the shard was begun or completed. One of them is to this
        // generation.
        loop {
            // One pin for each round, so that retired segments can be freed between rounds.
            let guard = pin();
            let view = shard.view(&guard);
            match view.newest() {
                // A segment without slots keeps a late call from making one with old units.
                None if fault::active(Fault::RenewSkipsEmpty) => return 0,
                None => self.create_first_segment(shard, view, 0, rules),
                Some(_) if view.is_migrating() => {
                    self.finish_migration(&guard, shard, view, rules);
                }
                Some(newest) if newest.generation() >= rules.generation() => {
                    return newest.header().block.bytes();
                }
                Some(_) => {
                    self.start_migration(shard, view, MigrationGoal::Fit, rules);
                }
            }
        }
    }

    fn migrate_slot(&self, old: Segment<'_>, at: usize, newest: Segment<'_>, rules: &impl Rules) {
        work::count_cell();
        let slot = old.slot(0, at);
        // Repeats only when another thread has changed the slot, which can happen twice.
        loop {
            match slot.contents() {
                SlotContents::NoKey => return,
                SlotContents::Vacant => {
                    if slot.close() {
                        return;
                    }
                }
                SlotContents::Claimed => {
                    if slot.poison() {
                        coverage::hit(Race::Poisoned);
                        return;
                    }
                }
                SlotContents::Key(fingerprint) => {
                    let (word, was_live) = self.freeze(slot);
                    if word == 0 {
                        return;
                    }
                    if was_live || fault::active(Fault::MigrateUnchecked) {
                        let _ = self.migrate_word(
                            old,
                            newest,
                            fingerprint,
                            Frozen { slot, word },
                            rules,
                        );
                    } else {
                        // The word may have moved to a later slot of the segment. The key has no
                        // word before this slot.
                        let _ =
                            self.migrate_key(old, old.slots_from(at), newest, fingerprint, rules);
                    }
                    return;
                }
            }
        }
    }

    /// Retires the old segment, so that it is freed once no thread can read it.
    ///
    /// The caller's swap of [`Shard::complete`] has removed the last pointer to it: the shard's
    /// pointer with the mark.
    #[expect(unsafe_code, reason = "retires a segment")]
    fn retire(&self, guard: &Guard, shard: &Shard, old: Segment<'_>) {
        #[cfg(tollgate_loom)]
        assert!(!shard.leads_to(old), "a segment is retired that can be reached");
        #[cfg(not(tollgate_loom))]
        let _ = shard;
        // SAFETY: the caller's swap of `complete` has unlinked the segment. `Memory` keeps it until
        // all current pins and readers have ended, or the table is dropped.
        let unlinked = unsafe { Unlinked::new(old) };
        self.memory().retire(guard, unlinked);
    }

    pub(super) fn successor_log2(&self, old_log2: u32, used: u64, goal: MigrationGoal) -> u32 {
        let room = match goal {
            MigrationGoal::Fit => 0,
            MigrationGoal::Grow(keys) => keys,
            MigrationGoal::ClearDead => 1,
        };
        let wanted = used + room;
        if self.is_reserved
            && old_log2 <= self.first_log2
            && wanted <= most_reserved(self.first_log2)
        {
            return self.first_log2;
        }
        successor_log2(self.first_log2, old_log2, wanted)
    }

    /// Returns whether readers hold back so many retired bytes that only growth may begin.
    pub(super) fn holds_back(&self) -> bool {
        let memory = self.memory();
        if !memory.is_too_much_held() {
            return false;
        }
        memory.collect(&pin(), When::Any);
        let holds_back = memory.is_too_much_held();
        if holds_back {
            // Relaxed: statistics.
            self.written.counts.put_off.fetch_add(1, Ordering::Relaxed);
        }
        holds_back
    }
}

/// Returns log2 of the slots of a successor for `wanted` cells: the smallest of which the cells
/// fill at most three eighths, at most twice the old size and at least a quarter
/// of it. The rest is room for keys that are inserted during the migration.
fn successor_log2(first_log2: u32, old_log2: u32, wanted: u64) -> u32 {
    /// If it has no cells, a segment of at most eight times the first size is followed by one
    /// without slots.
    const SMALL_BY_LOG2: u32 = 3;
    if wanted == 0 && old_log2 <= first_log2 + SMALL_BY_LOG2 {
        return 0;
    }
    let max_log2 = old_log2 + 1;
    let fits = |log2: &u32| claims_to_grow(slots_of(*log2)) / 2 >= wanted;
    let smallest = (first_log2..max_log2).find(fits).unwrap_or(max_log2);
    smallest.max(old_log2.saturating_sub(2)).max(first_log2)
}

/// The most cells of a segment of the reserved size, five eighths of its slots. The rest is room
/// for keys that are inserted during a migration, and for an eighth of dead cells until the next.
fn most_reserved(log2: u32) -> u64 {
    (slots_of(log2) * 5 / 8) as u64
}

/// Returns log2 of the slots of each of `shards` segments that have room for `keys` keys in all.
pub(super) fn reserved_log2(keys: usize, shards: usize) -> u32 {
    /// More than any system has memory for.
    const MAX_LOG2: u32 = 40;
    let mean = keys.div_ceil(shards) as u64;
    // Keys come to shards at random. Six times the deviation is exceeded in none of 10^8 shards.
    let most = mean + if shards > 1 { 6 * mean.isqrt() + 6 } else { 0 };
    (FIRST_LOG2..MAX_LOG2).find(|&log2| most_reserved(log2) >= most).unwrap_or(MAX_LOG2)
}

/// Returns log2 of the slots of a segment for `keys` keys on average. It has spare room for dead
/// cells and for shards with more keys than others.
#[cfg(feature = "snapshot")]
pub(super) fn max_log2(keys: usize) -> u32 {
    /// A bound for the shards of small tables.
    const MIN_KEYS: u64 = 64;
    (8 * (keys as u64).clamp(MIN_KEYS, 1 << 40)).next_power_of_two().ilog2()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_successor_fits() {
        assert_eq!(successor_log2(FIRST_LOG2, 3, 7), 4, "full: twice as many");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 769), 11);
        assert_eq!(successor_log2(FIRST_LOG2, 10, 897), 11, "never more than twice");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 301), 10, "mostly dead: as many");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 101), 9);
        assert_eq!(successor_log2(FIRST_LOG2, 10, 0), 8, "never less than a quarter");
        assert_eq!(successor_log2(FIRST_LOG2, 6, 0), 0, "none");
        assert_eq!(successor_log2(FIRST_LOG2, 0, 1), 3, "the first again");
        assert_eq!(successor_log2(FIRST_LOG2, 3, 1), 3);
    }
}
