//! Sweeps: full cells are dropped in place. One swap marks a cell dead, and its reservation is
//! released.

use std::ops::Range;

use super::epoch::{Guard, pin};
use super::insert::{LOOKS_AT_CAP, LOOKS_NEAR_CAP, LOOKS_OF_SEARCH};
use super::migration::{CHUNK, MigrationGoal};
use super::retired::When;
use super::segment::Segment;
use super::shard::{Shard, ShardView};
use super::slot::{Slot, SlotContents};
use super::{Rules, Table};
use crate::store::cell::Word;
use crate::store::key::LimitTag;
use crate::store::next_room::NextRoom;
use crate::store::{Absent, CellKey, Change, Swept};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The most slots that a step sweeps before it advances the cursor.
const SLOTS_PER_PART: usize = 64;

/// A long step frees memory each time it has passed this number of slots.
const FREE_EVERY_SLOTS: usize = 4096;

/// The slots that a search sweeps at each position. A shard that has just migrated has no full cells, so there are several positions.
const LOOKS_AT_POSITION: usize = 512;

/// Whether a step also drops cells that were never charged. A caller that was denied at the last
/// moment leaves such a cell, and a caller that is about to charge one begins again if it is
/// dropped. Calls for keys therefore keep them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uncharged {
    Evict,
    Keep,
}

/// A position in the table: the index of a shard, and of a slot in its segment.
#[derive(Clone, Copy)]
struct Cursor {
    shard: usize,
    slot: usize,
}

/// The positions at which the next sweeps begin. Calls have their own, so that each pass of the sweeper looks at all shards.
#[derive(Default)]
pub(super) struct Cursors {
    of_sweeper: AtomicU64,
    of_calls: AtomicU64,
    /// The number of positions that searches have looked at.
    searched: AtomicU64,
}

impl Cursor {
    fn from_bits(bits: u64) -> Cursor {
        Cursor { shard: (bits >> 32) as usize, slot: bits as u32 as usize }
    }

    fn bits(self) -> u64 {
        (self.shard as u64) << 32 | self.slot as u64
    }
}

/// The position of a look at the slots that a call would sweep. After the last shard it continues at the first one, and ends at `from`.
struct Look {
    from: Cursor,
    at: Cursor,
    /// The number of slots of the shard's old segment that the sweep would have migrated before.
    migrated: usize,
}

impl Table {
    /// Sweeps about `slots` slots from the cursor on, drops full cells, and frees memory.
    pub(crate) fn sweep(&self, slots: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        self.memory().free_large_piece();
        let cursor = &self.written.cursors.of_sweeper;
        let swept = self.sweep_step(cursor, slots, now_ns, rules, Uncharged::Evict);
        // Without traffic, no call frees the retired segments.
        if self.memory().retired_count() > 0 {
            self.memory().collect(&pin(), if swept.finished { When::Any } else { When::Many });
        }
        if swept.finished {
            self.memory().free_rest();
        }
        swept
    }

    /// Sweeps for a call that needs room for a key. Returns the number of slots that it has looked at: fewer than `slots` if these
    /// were all, and 0 if the call may not sweep.
    pub(super) fn sweep_charged(&self, slots: usize, now_ns: u64, rules: &impl Rules) -> usize {
        self.memory().free_piece();
        if !rules.may_sweep_at(now_ns) {
            return 0;
        }
        let cursor = &self.written.cursors.of_calls;
        self.sweep_step(cursor, slots, now_ns, rules, Uncharged::Keep).looked_at
    }

    /// Sweeps up to [`LOOKS_OF_SEARCH`] slots, at several positions of the table, until `reserve` returns a value. A call does so that
    /// has found no room by its own sweep.
    pub(super) fn search_for_room<T>(
        &self,
        now_ns: u64,
        rules: &impl Rules,
        reserve: impl Fn() -> Option<T>,
    ) -> Option<T> {
        for _ in 0..LOOKS_OF_SEARCH / LOOKS_AT_POSITION {
            if !rules.may_sweep_at(now_ns) {
                return None;
            }
            let at = AtomicU64::new(self.position_of_search().bits());
            let swept = self.sweep_step(&at, LOOKS_AT_POSITION, now_ns, rules, Uncharged::Keep);
            let reserved = reserve();
            // Fewer: these were all slots.
            if reserved.is_some() || swept.looked_at < LOOKS_AT_POSITION {
                return reserved;
            }
        }
        None
    }

    /// Returns the next position of a search. The fractional parts of multiples of the golden ratio are spread evenly, so searches come
    /// to all parts of the table, also if its segments differ in size.
    fn position_of_search(&self) -> Cursor {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        // Relaxed: only a position.
        let number = self.written.cursors.searched.fetch_add(1, Ordering::Relaxed);
        let part_of = |fraction: u64, of: usize| {
            let product = u128::from(fraction) * of as u128;
            ((product >> 64) as usize, product as u64)
        };
        let (shard, fraction) = part_of(number.wrapping_mul(GOLDEN), self.shards.len());
        let guard = pin();
        let slots = self.shards[shard].view(&guard).newest().map_or(0, Segment::slots);
        Cursor { shard, slot: part_of(fraction, slots).0 }
    }

    /// Migrates a chunk for a call, and near the cap drops its full cells first.
    pub(super) fn migrate_for_call(
        &self,
        guard: &Guard,
        at: (&Shard, ShardView<'_>),
        &Change { key, absent, now_ns }: &Change<'_>,
        rules: &impl Rules,
    ) {
        // A return has no time.
        let is_near = absent == Absent::Insert && self.written.reservations.is_nearly_full(key.tag);
        if is_near && rules.may_sweep_at(now_ns) {
            let floor_ns = self.raise_floor(now_ns);
            self.sweep_and_migrate(guard, at, floor_ns, rules, Uncharged::Keep);
        } else {
            self.help_migrate(guard, at.0, at.1, rules);
        }
    }

    /// Migrates a chunk, and drops each full cell before it would move. Returns the number of dropped cells.
    fn sweep_and_migrate(
        &self,
        guard: &Guard,
        (shard, view): (&Shard, ShardView<'_>),
        floor_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
    ) -> usize {
        let mut dropped = 0;
        self.help_migrate_after(guard, shard, view, rules, |old, slot| {
            // A cell that is full by the old limit need not be full by the new one.
            let is_current =
                old.generation() == rules.generation() || fault::active(Fault::SweepByOldLimits);
            if is_current && self.evict(old, slot, floor_ns, rules, uncharged) {
                coverage::hit(Race::EvictedMoving);
                dropped += 1;
            }
        });
        dropped
    }

    fn sweep_step(
        &self,
        at: &AtomicU64,
        slots: usize,
        now_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
    ) -> Swept {
        let floor_ns = self.raise_floor(now_ns);
        let mut swept = Swept::default();
        let mut freed_at = 0;
        // Where a call's step began, once it has come to the table's end.
        let (mut from, mut ends_at) = (None, None);
        while swept.looked_at < slots.max(1) {
            if uncharged == Uncharged::Evict && swept.looked_at - freed_at >= FREE_EVERY_SLOTS {
                self.memory().free_large_piece();
                freed_at = swept.looked_at;
            }
            // Relaxed: only a position. Two steps at once may sweep the same slots.
            let bits = at.load(Ordering::Relaxed);
            let mut cursor = Cursor::from_bits(bits);
            if ends_at.is_some_and(|end| bits >= end) {
                break;
            }
            let from = *from.get_or_insert(bits);
            let max_slots = SLOTS_PER_PART.min(slots.max(1));
            if self.sweep_part(&mut cursor, max_slots, floor_ns, rules, uncharged, &mut swept) {
                cursor = Cursor { shard: cursor.shard + 1, slot: 0 };
                // Counts each shard, so that shards without slots end the loop as well.
                swept.looked_at += 1;
            }
            let finished = cursor.shard >= self.shards.len();
            if finished {
                cursor = Cursor { shard: 0, slot: 0 };
            }
            let moved =
                at.compare_exchange(bits, cursor.bits(), Ordering::Relaxed, Ordering::Relaxed);
            if finished && moved.is_ok() {
                swept.finished = true;
                // A call goes on at the table's start, up to where it began.
                if uncharged == Uncharged::Evict || from == 0 || ends_at.is_some() {
                    break;
                }
                ends_at = Some(from);
            }
        }
        swept
    }

    /// Sweeps a few slots of one shard, or helps its migration. Returns whether the shard is done.
    fn sweep_part(
        &self,
        cursor: &mut Cursor,
        max_slots: usize,
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
            // The limits have changed since this step began. A later step sweeps by the new ones.
            return true;
        }
        if view.is_migrating() {
            swept.dropped +=
                self.sweep_and_migrate(&guard, (shard, view), floor_ns, rules, uncharged);
            swept.looked_at += CHUNK;
            return false;
        }
        if segment.generation() < rules.generation() && !fault::active(Fault::SweepByOldLimits) {
            // A cell that is full by the old limit need not be full by the new one.
            self.start_migration(shard, view, MigrationGoal::Fit, rules);
            return false;
        }
        let to = (cursor.slot + max_slots).min(segment.slots());
        for at in cursor.slot..to {
            let slot = segment.slot(0, at);
            swept.dropped += usize::from(self.evict(segment, slot, floor_ns, rules, uncharged));
        }
        swept.looked_at += to.saturating_sub(cursor.slot);
        cursor.slot = to;
        if to < segment.slots() {
            return false;
        }
        // Calls for keys do not shrink segments: a segment that shrinks during inserts would grow
        // again at once.
        let is_worth_it = self.is_too_large(view) || self.has_many_dead(segment);
        if uncharged == Uncharged::Keep || !is_worth_it || self.holds_back() {
            return true;
        }
        self.start_migration(shard, view, MigrationGoal::Fit, rules);
        cursor.slot = 0;
        false
    }

    /// See [`Store::room_in_ns`](crate::store::Store::room_in_ns). Looks at the slots that the next insert of a key would
    /// sweep.
    pub(crate) fn room_in_ns(&self, tag: LimitTag, now_ns: u64, rules: &impl Rules) -> Option<u64> {
        if !rules.may_sweep_at(now_ns) {
            return None;
        }
        let at_ns = now_ns.max(self.floor_ns());
        let mut next = NextRoom::new(&self.written.reservations, tag)?;
        // Relaxed: only a position.
        let from = Cursor::from_bits(self.written.cursors.of_calls.load(Ordering::Relaxed));
        let mut look = Look { from, at: from, migrated: 0 };
        let near = if self.written.reservations.is_nearly_full(tag) { LOOKS_NEAR_CAP } else { 0 };
        for step in [near, LOOKS_AT_CAP] {
            let mut looked_at = 0;
            while looked_at < step && !next.is_now() && look.at.shard < 2 * self.shards.len() {
                looked_at += self.look_at_part(&mut look, step, at_ns, rules, &mut next);
            }
        }
        let are_all = look.at.shard >= 2 * self.shards.len();
        match next.in_ns(are_all)? {
            0 => Some(0),
            full_ns => Some(full_ns.saturating_add(at_ns - now_ns)),
        }
    }

    /// Adds the buckets of the slots that the next part of a call's sweep looks at, and returns their number, and one for the end
    /// of a shard.
    fn look_at_part(
        &self,
        look: &mut Look,
        max_slots: usize,
        at_ns: u64,
        rules: &impl Rules,
        next: &mut NextRoom<'_>,
    ) -> usize {
        let guard = pin();
        let shards = self.shards.len();
        let is_last = look.at.shard >= shards + look.from.shard;
        let view = self.shards[look.at.shard % shards].view(&guard);
        let is_now = |it: &Segment<'_>| it.generation() == rules.generation();
        let mut add = |segment: Segment<'_>, slots: Range<usize>| {
            for slot in slots.map(|at| segment.slot(0, at)) {
                if let (SlotContents::Key(fingerprint), Word::Live(word @ 1..)) =
                    (slot.contents(), slot.word())
                {
                    let (key, own) = (CellKey::Fingerprint(fingerprint), slot.tag());
                    next.add(own, || rules.full_in_ns(key, own, word, at_ns));
                }
            }
        };
        // A sweep migrates a shard first.
        if let Some(old) = view.old().filter(|it| is_now(it) && !is_last) {
            // Relaxed: only a position.
            let at = look.migrated.max(old.header().frontier.load(Ordering::Relaxed) as usize);
            if at < old.slots() {
                look.migrated = (at + CHUNK).min(old.slots());
                add(old, at..look.migrated);
                return CHUNK;
            }
        }
        let segment = view.newest().filter(is_now);
        let slots = segment.map_or(0, Segment::slots);
        let end = if is_last { look.from.slot.min(slots) } else { slots };
        let part = look.at.slot..(look.at.slot + max_slots).min(end);
        let looked_at = part.len();
        look.at.slot = part.end;
        if let Some(segment) = segment {
            add(segment, part);
        }
        if look.at.slot < end {
            return looked_at;
        }
        // Beyond all shards once more: the look has come to where it began.
        let shard = if is_last { 2 * shards } else { look.at.shard + 1 };
        (look.at, look.migrated) = (Cursor { shard, slot: 0 }, 0);
        looked_at + 1
    }

    /// Returns whether a smaller segment has room for the cells.
    fn is_too_large(&self, view: ShardView<'_>) -> bool {
        view.newest().is_some_and(|segment| {
            self.successor_log2(segment.log2(), segment.used(), MigrationGoal::Fit) < segment.log2()
        })
    }

    /// Returns whether the dead cells of reserved memory should be cleared out. Inserts would begin
    /// the migrations of many shards at once, which need more memory together than is reserved.
    fn has_many_dead(&self, segment: Segment<'_>) -> bool {
        self.is_reserved
            && segment.log2() == self.first_log2
            && segment.dead() > segment.slots() as u64 / 16
    }

    /// Drops a cell that is full at `floor_ns`, to which the caller has raised the eviction time
    /// floor. No migration to the segment was under way when the caller took its view, so all cells
    /// that move to the segment have arrived.
    fn evict(
        &self,
        segment: Segment<'_>,
        slot: &Slot,
        floor_ns: u64,
        rules: &impl Rules,
        uncharged: Uncharged,
    ) -> bool {
        let SlotContents::Key(fingerprint) = slot.contents() else { return false };
        let Word::Live(word) = slot.word() else { return false };
        let is_full = match word {
            0 => uncharged == Uncharged::Evict,
            _ => {
                rules.owed(CellKey::Fingerprint(fingerprint), slot.tag(), word, floor_ns).is_none()
            }
        };
        // A word of the key is about to move to this slot. The call that moves it marks the earlier
        // cell dead.
        let is_awaited =
            || segment.is_awaited(slot, fingerprint) && !fault::active(Fault::EvictAwaited);
        if !is_full || is_awaited() || !slot.cell.evict(word) {
            return false;
        }
        coverage::hit(Race::Evicted);
        self.count_dropped(slot.tag());
        segment.count_dead();
        true
    }
}
