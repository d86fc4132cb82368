//! Growing, shrinking and clearing out: a shard's cells move to a new segment, a chunk at a time, helped
//! by whoever passes and finished by anyone.

use super::epoch::{Guard, pin};
use super::insert::Frozen;
use super::retired::When;
use super::segment::{Segment, Unlinked, enough_claims, slots_of};
use super::shard::{Packed, Shard, View};
use super::slot::Holds;
use super::{Rules, Table};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::Ordering;
use crate::util::work;

/// Slots that one call carries.
pub(super) const CHUNK: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

/// A call that carries the chunk after so many slots frees a piece of memory.
const FREE_EVERY: usize = 8 * CHUNK;

/// How often a reload waits for threads that may read what it left, 100 us each time.
const MAX_WAITS: u32 = 1000;

/// A segment that has any slots has at least so many.
pub(super) const FIRST_LOG2: u32 = 3;

/// What a migration is to make room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The cells that there are: no more slots than there were, unless live cells take three quarters of those.
    Fewer,
    /// So many keys more.
    More(u64),
    /// As `Fewer`, for words that go on in other slots: the slots that they left are cleared out.
    Cleared,
}

impl Table {
    /// Gives a shard its first segment.
    pub(super) fn begin(&self, shard: &Shard, view: View<'_>, log2: u32, rules: &impl Rules) {
        let first = Segment::new(self.memory(), log2, Packed::NONE, 0, rules.generation());
        self.publish(shard, view, first);
    }

    /// Begins a migration of a shard at rest, to a segment with room for more. Whoever is
    /// first does it; the others' segments go. Returns whether there is one now: not if so much is held
    /// back that only growth is left, and live cells do not need it.
    ///
    /// What is held back does not put off a migration to the units of new limits, of which each reload has one, nor one
    /// that clears out what words have left that went on: a word goes on once for each end of an override.
    pub(super) fn start(
        &self,
        shard: &Shard,
        view: View<'_>,
        room: Room,
        rules: &impl Rules,
    ) -> bool {
        let Some(old) = view.newest() else { return false };
        if view.is_migrating() && !fault::active(Fault::StartWhileMoving) {
            return true;
        }
        let generation = rules.generation().max(old.generation());
        let is_put_off = generation == old.generation() && room != Room::Cleared;
        let holds_back = is_put_off && self.holds_back();
        let grows_to = |used| {
            let log2 = self.successor_log2(old.log2(), used, room);
            match room {
                Room::More(_) => log2,
                Room::Fewer | Room::Cleared if used > enough_claims(old.slots()) => log2,
                Room::Fewer | Room::Cleared => log2.min(old.log2()),
            }
        };
        if holds_back && grows_to(old.used()) <= old.log2() {
            return false;
        }
        // Sealed first: by this number of cells the successor is sized.
        let used = if fault::active(Fault::SizedByFew) { 0 } else { old.seal() };
        // Cells may have been dropped since: what is begun while memory is held back doubles.
        let least = if holds_back { old.log2() + 1 } else { 0 };
        let log2 = grows_to(used).max(least);
        self.publish(
            shard,
            view,
            Segment::new(self.memory(), log2, view.as_old(), used, generation),
        );
        true
    }

    #[expect(unsafe_code, reason = "frees a segment that nobody has seen")]
    pub(super) fn publish(&self, shard: &Shard, view: View<'_>, new: Segment<'_>) {
        if shard.publish(view, new) {
            self.memory().made(&new.header().block);
            if view.newest().is_some() {
                // Relaxed: a figure for people.
                self.written.counts.migrations.fetch_add(1, Ordering::Relaxed);
            }
        } else {
            coverage::hit(Race::StartLost);
            // SAFETY: the swap failed, so that only this call has it.
            drop(unsafe { new.into_block() });
        }
    }

    /// Carries the next chunk, all of it; whoever reaches the end completes the migration. Any number
    /// of threads may do it at once: nobody's part is anybody's duty.
    ///
    /// Who has limits from before the newest segment's cannot tell what becomes of a word there: that is
    /// for others then, or for the next try with the new ones.
    pub(super) fn help(&self, guard: &Guard, shard: &Shard, view: View<'_>, rules: &impl Rules) {
        let (Some(newest), Some(old)) = (view.newest(), view.old()) else { return };
        if rules.generation() < newest.generation() {
            return;
        }
        let frontier = &old.header().frontier;
        // Acquire: pairs with the swap below: what others have carried is seen by whoever completes.
        let order = if fault::active(Fault::FrontierRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        let from = frontier.load(order);
        let slots = old.slots();
        if (from as usize).is_multiple_of(FREE_EVERY) {
            // Before it retires them, a migration frees as many bytes as it leaves, and more.
            self.memory().free_piece();
        }
        if (from as usize) < slots {
            let to = (from as usize + CHUNK).min(slots);
            for at in from as usize..to {
                self.carry_slot(old, at, newest, rules);
            }
            // Release: what this call has carried, and what the load above has acquired, is seen by
            // whoever goes on from here. Acquire on failure: another has carried the same, and this call
            // may be the one that completes.
            let moved = if fault::active(Fault::FrontierRelaxed) {
                Ordering::Relaxed
            } else {
                Ordering::Release
            };
            if frontier.compare_exchange(from, to as u64, moved, order).is_err() {
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

    /// Carries what is left. Only for a fresh key that finds the room used up that is meant for those
    /// who come while cells move: each has carried a chunk before, so that many threads must have
    /// inserted in lock step (docs/internals/table.md, "Room", has the numbers).
    pub(super) fn help_to_the_end<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: View<'g>,
        rules: &impl Rules,
    ) {
        let is_newer = |it: Segment<'_>| it.generation() > rules.generation();
        if view.newest().is_some_and(is_newer) {
            return;
        }
        // At most as often as there are chunks: each moves the frontier, or another has.
        while view.is_migrating() && shard.view(guard).is(view) {
            self.help(guard, shard, view, rules);
        }
    }

    /// Brings every shard to the generation of `rules`, which is the newest that there is. All others may
    /// do anything meanwhile.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        let mut waits_left = MAX_WAITS;
        for shard in &self.shards {
            let bytes = self.renew_shard(shard, rules);
            // As much as the shard leaves, whoever has carried it, and more.
            self.memory().free_more_than(bytes);
            self.wait_for_readers(&mut waits_left);
        }
        self.free_unread();
    }

    /// Waits while other threads are in calls in which they may read much of what was left, so that the table is not
    /// in memory twice beside a reload. A thread that stands still makes the reload wait `waits_left` times, and not
    /// again.
    fn wait_for_readers(&self, waits_left: &mut u32) {
        /// Enough for pins that end at once.
        const LOOKS: u32 = 4;
        let mut looks = 0;
        while self.memory().is_much_waiting() {
            self.memory().collect(&pin(), When::Any);
            let _ = self.memory().free_some();
            looks += 1;
            if looks >= LOOKS {
                if *waits_left == 0 {
                    return;
                }
                *waits_left -= 1;
                wait();
            }
        }
    }

    /// Frees what no thread can read any more, within a bound, and leaves the rest to calls: at the end of a
    /// sweep's pass, or of a reload, without a pin over it.
    pub(crate) fn free_unread(&self) {
        /// A look, two pins for what it looked at, and one more for a thread that came by.
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            if self.memory().retired_count() == 0 {
                break;
            }
            self.memory().collect(&pin(), When::Any);
        }
        self.memory().free_rest();
    }

    /// Returns the bytes that the shard takes.
    fn renew_shard(&self, shard: &Shard, rules: &impl Rules) -> usize {
        // Repeats only when another has changed the shard: one that begins or ends a migration, of which
        // those to this generation are one.
        loop {
            // Pinned for one round at a time, so that what is left can be freed on the way.
            let guard = pin();
            let view = shard.view(&guard);
            match view.newest() {
                // Without any slots: so that no late call begins one in old units.
                None if fault::active(Fault::RenewSkipsEmpty) => return 0,
                None => self.begin(shard, view, 0, rules),
                Some(_) if view.is_migrating() => {
                    self.help_to_the_end(&guard, shard, view, rules);
                }
                Some(newest) if newest.generation() >= rules.generation() => {
                    return newest.header().block.bytes();
                }
                Some(_) => {
                    self.start(shard, view, Room::Fewer, rules);
                }
            }
        }
    }

    fn carry_slot(&self, old: Segment<'_>, at: usize, newest: Segment<'_>, rules: &impl Rules) {
        work::count_cell();
        let slot = old.slot(0, at);
        // Repeats only when another has changed the slot, which it can do twice.
        loop {
            match slot.holds() {
                Holds::NoKey => return,
                Holds::Nothing => {
                    if slot.close() {
                        return;
                    }
                }
                Holds::Half => {
                    if slot.poison() {
                        coverage::hit(Race::Poisoned);
                        return;
                    }
                }
                Holds::Key(fingerprint) => {
                    let (word, was_live) = self.freeze(slot);
                    if word == 0 {
                        return;
                    }
                    if was_live || fault::active(Fault::CarriedUnlooked) {
                        let _ = self.carry(old, newest, fingerprint, Frozen { slot, word }, rules);
                    } else {
                        // Its word may have moved on within the segment: the key has none before it.
                        let _ = self.leave(old, old.slots_from(at), newest, fingerprint, rules);
                    }
                    return;
                }
            }
        }
    }

    /// Frees a segment once nobody can be reading it.
    ///
    /// The caller has won the swap of [`Shard::complete`]: by it the last pointer that led here, the
    /// shard's with the mark, has gone.
    #[expect(unsafe_code, reason = "gives a segment to the reclaimer")]
    fn retire(&self, guard: &Guard, shard: &Shard, old: Segment<'_>) {
        #[cfg(tollgate_loom)]
        assert!(!shard.leads_to(old), "a segment is retired that can be reached");
        #[cfg(not(tollgate_loom))]
        let _ = shard;
        // SAFETY: unlinked by the swap of `complete`, as the caller has said. `Memory` keeps it until all pins
        // and readers of now are over, or the table is dropped.
        let unlinked = unsafe { Unlinked::new(old) };
        self.memory().retire(guard, unlinked);
    }

    pub(super) fn successor_log2(&self, old_log2: u32, used: u64, room: Room) -> u32 {
        let room = match room {
            Room::Fewer => 0,
            Room::More(keys) => keys,
            Room::Cleared => 1,
        };
        successor_log2(self.first_log2, old_log2, used, room)
    }

    /// Whether threads may still read so much that was retired that migrations wait.
    pub(super) fn holds_back(&self) -> bool {
        let memory = self.memory();
        if !memory.is_too_much_held() {
            return false;
        }
        memory.collect(&pin(), When::Any);
        let holds_back = memory.is_too_much_held();
        if holds_back {
            // Relaxed: a figure for people.
            self.written.counts.put_off.fetch_add(1, Ordering::Relaxed);
        }
        holds_back
    }
}

fn wait() {
    #[cfg(not(tollgate_loom))]
    std::thread::sleep(std::time::Duration::from_micros(100));
}

/// The size of a successor for at most `used` cells and `room` more: the smallest of which they fill
/// three eighths at most, no more than twice the old one and no less than a quarter. So there is room
/// for those who come while the cells move, each of whom carries a chunk.
fn successor_log2(first_log2: u32, old_log2: u32, used: u64, room: u64) -> u32 {
    /// Without cells, a segment that is at most so much larger than a first one is followed by one
    /// without slots.
    const SMALL_BY_LOG2: u32 = 3;
    let wanted = used + room;
    if wanted == 0 && old_log2 <= first_log2 + SMALL_BY_LOG2 {
        return 0;
    }
    let most = old_log2 + 1;
    let fits = |log2: &u32| enough_claims(slots_of(*log2)) / 2 >= wanted;
    let smallest = (first_log2..most).find(fits).unwrap_or(most);
    smallest.max(old_log2.saturating_sub(2)).max(first_log2)
}

/// The size of a segment for so many keys on average, with room to spare for shards that get more than
/// others, and for cells that were buried.
#[cfg(feature = "snapshot")]
pub(super) fn most_log2(keys: usize) -> u32 {
    /// In a shard of a small table.
    const AT_LEAST: usize = 64;
    (8 * keys.clamp(AT_LEAST, 1 << 40)).next_power_of_two().ilog2()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_successor_fits() {
        assert_eq!(successor_log2(FIRST_LOG2, 3, 6, 1), 4, "full: twice as many");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 768, 1), 11);
        assert_eq!(successor_log2(FIRST_LOG2, 10, 896, 1), 11, "never more than twice");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 300, 1), 10, "mostly buried: as many");
        assert_eq!(successor_log2(FIRST_LOG2, 10, 100, 1), 9);
        assert_eq!(successor_log2(FIRST_LOG2, 10, 0, 0), 8, "never less than a quarter");
        assert_eq!(successor_log2(FIRST_LOG2, 6, 0, 0), 0, "none");
        assert_eq!(successor_log2(FIRST_LOG2, 0, 0, 1), 3, "the first again");
        assert_eq!(successor_log2(FIRST_LOG2, 3, 1, 0), 3);
    }
}
