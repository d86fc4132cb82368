//! Dropping full cells where they are: a cell is buried, and its place is given back, by one swap.

use super::epoch::pin;
use super::migration::{CHUNK, Room};
use super::retired::When;
use super::segment::Segment;
use super::shard::View;
use super::slot::{Holds, Slot};
use super::{Rules, Table};
use crate::store::cell::Word;
use crate::store::{CellKey, Swept};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::Ordering;

/// Slots between two looks at how far the step has come.
const PART: usize = 64;

/// Slots between two times that a long step gives memory back.
const FREED_EVERY: usize = 4096;

/// Whether cells without a charge go, too: those of callers who were denied at the last moment. A
/// caller on its way to charge one has to begin again, so callers leave them to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uncharged {
    Go,
    Stay,
}

/// A place in the table: a shard, and a slot of its segment.
#[derive(Clone, Copy)]
struct Cursor {
    shard: usize,
    slot: usize,
}

impl Cursor {
    fn of_bits(bits: u64) -> Cursor {
        Cursor { shard: (bits >> 32) as usize, slot: bits as u32 as usize }
    }

    fn bits(self) -> u64 {
        (self.shard as u64) << 32 | self.slot as u64
    }
}

impl Table {
    /// Looks at the next slots, about `slots` of them, drops what is full, and lets the memory follow.
    pub(crate) fn sweep(&self, slots: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        self.memory().free_some();
        let swept = self.sweep_step(slots, now_ns, rules, Uncharged::Go);
        // A table without traffic has nobody else to free what it left.
        if self.memory().retired_count() > 0 {
            self.memory().collect(&pin(), if swept.finished { When::Any } else { When::Many });
        }
        if swept.finished {
            self.memory().free_rest();
        }
        swept
    }

    /// As `sweep`, by a caller that needs a place.
    pub(super) fn sweep_charged(&self, slots: usize, now_ns: u64, rules: &impl Rules) {
        self.memory().free_piece();
        if !rules.may_sweep_at(now_ns) {
            return;
        }
        self.sweep_step(slots, now_ns, rules, Uncharged::Stay);
    }

    fn sweep_step(
        &self,
        slots: usize,
        now_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
    ) -> Swept {
        let floor_ns = self.raise_floor(now_ns);
        let mut swept = Swept::default();
        let mut freed_at = 0;
        while swept.looked_at < slots.max(1) {
            if uncharged == Uncharged::Go && swept.looked_at - freed_at >= FREED_EVERY {
                self.memory().free_some();
                freed_at = swept.looked_at;
            }
            // Relaxed: where to look next; two steps at once may look at the same.
            let bits = self.written.cursor.load(Ordering::Relaxed);
            let mut cursor = Cursor::of_bits(bits);
            let most = PART.min(slots.max(1));
            if self.sweep_part(&mut cursor, most, floor_ns, rules, uncharged, &mut swept) {
                cursor = Cursor { shard: cursor.shard + 1, slot: 0 };
                // A shard without slots is looked at, too.
                swept.looked_at += 1;
            }
            let finished = cursor.shard >= self.shards.len();
            if finished {
                cursor = Cursor { shard: 0, slot: 0 };
            }
            let moved = self.written.cursor.compare_exchange(
                bits,
                cursor.bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if finished && moved.is_ok() {
                swept.finished = true;
                break;
            }
        }
        swept
    }

    /// Sweeps a few slots of one shard, or helps it on; returns whether it is done with.
    fn sweep_part(
        &self,
        cursor: &mut Cursor,
        most: usize,
        floor_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
        swept: &mut Swept,
    ) -> bool {
        let guard = pin();
        let shard = &self.shards[cursor.shard];
        let view = shard.view(&guard);
        let Some(segment) = view.newest() else { return true };
        if segment.generation() > rules.generation() {
            // The limits have changed since this call began: the next one sweeps by the new ones.
            return true;
        }
        if view.is_migrating() {
            self.help(&guard, shard, view, rules);
            swept.looked_at += CHUNK;
            return false;
        }
        if segment.generation() < rules.generation() && !fault::active(Fault::SweepByOldLimits) {
            // What is full by the old numbers need not be by the new ones.
            self.start(shard, view, Room::Fewer, rules);
            return false;
        }
        let to = (cursor.slot + most).min(segment.slots());
        for at in cursor.slot..to {
            let slot = segment.slot(0, at);
            swept.dropped += usize::from(self.bury(segment, slot, floor_ns, rules, uncharged));
        }
        swept.looked_at += to.saturating_sub(cursor.slot);
        cursor.slot = to;
        if to < segment.slots() {
            return false;
        }
        // Callers leave the memory to sweeps: what shrinks while they insert would grow at once.
        if uncharged == Uncharged::Stay || !self.is_too_large(view) || self.holds_back() {
            return true;
        }
        self.start(shard, view, Room::Fewer, rules);
        cursor.slot = 0;
        false
    }

    /// Whether a segment of half the size, or of none, would do.
    fn is_too_large(&self, view: View<'_>) -> bool {
        view.newest().is_some_and(|segment| {
            self.successor_log2(segment.log2(), segment.used(), Room::Fewer) < segment.log2()
        })
    }

    /// Drops a cell that is full at `floor_ns`, which the table's floor has reached. Its segment was
    /// at rest when the caller's view was taken: all that was carried there is there.
    fn bury(
        &self,
        segment: Segment<'_>,
        slot: &Slot,
        floor_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
    ) -> bool {
        let Holds::Key(fingerprint) = slot.holds() else { return false };
        let Word::Live(word) = slot.word() else { return false };
        let is_full = match word {
            0 => uncharged == Uncharged::Go,
            _ => {
                rules.owed(CellKey::Fingerprint(fingerprint), slot.tag(), word, floor_ns).is_none()
            }
        };
        // A word of the key is on its way here: the call that moves it ends the cell it comes from.
        let is_awaited =
            || segment.is_awaited(slot, fingerprint) && !fault::active(Fault::BuryAwaited);
        if !is_full || is_awaited() || !slot.cell.evict(word) {
            return false;
        }
        coverage::hit(Race::Buried);
        self.dropped();
        segment.count_buried();
        true
    }
}
