//! Finds the one live cell of a key, or inserts it.

use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::migration::MigrationGoal;
use super::segment::{ClaimOutcome, Lookup, Segment, claims_to_grow};
use super::shard::{Shard, ShardView};
use super::slot::{KeyMatch, Slot};
use super::{Change, Rules, Table};
use crate::store::capacity::Reservation;
use crate::store::cell::Word;
use crate::store::key::LimitTag;
use crate::store::{Absent, CellKey, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::work;

/// The outcome of [`Table::find_or_insert`]: the slot in which the caller changes the key's word.
#[must_use]
pub(super) enum SlotOutcome<'g> {
    /// This slot, unless its cell is frozen meanwhile.
    At(&'g Slot),
    /// The slot is frozen, and its word is about to move to a later slot of the key.
    Moving(&'g Slot),
    /// None: the key has no cell, and the caller does not want one.
    Absent,
    /// None: the table is full.
    TableFull,
    /// The shard has changed, and the caller begins again.
    Retry,
}

/// A frozen cell whose word is to move.
#[derive(Clone, Copy)]
pub(super) struct Frozen<'g> {
    pub(super) slot: &'g Slot,
    pub(super) word: u64,
}

impl Frozen<'_> {
    /// Returns the tag and the word in the units of the generation of `newest`; `None` if nothing is
    /// left of the word.
    fn in_units_of(
        self,
        newest: Segment<'_>,
        fingerprint: Fingerprint,
        rules: &impl Rules,
    ) -> Option<(LimitTag, u64)> {
        let tag = self.slot.tag();
        if tag.is_of_generation(newest.generation()) {
            return Some((tag, self.word));
        }
        rules.migrated(CellKey::Fingerprint(fingerprint), tag, self.word)
    }
}

/// The outcome of [`Table::migrate_word`].
#[must_use]
pub(super) enum MoveOutcome<'g> {
    /// The word is or was in this slot.
    To(&'g Slot),
    /// The word was in the successor before. By now a migration leaves the successor as well.
    Before,
    /// Nothing is left of the word under the newest limits.
    NothingLeft,
}

/// The slot that a key has taken.
pub(super) struct OwnSlot<'g> {
    slot: &'g Slot,
    pub(super) is_new: bool,
    /// The number of slots that the search passed.
    steps: usize,
}

/// If an insert passes more slots than this, a migration clears out the dead ones. A key that comes
/// and goes leaves one dead slot each time.
const LONG_SEARCH: usize = 64;

/// Slots that a caller sweeps when it inserts a key and three quarters of the places that its limit can have are taken.
/// Without a running sweeper a table then takes more memory, and still works.
pub(super) const LOOKS_NEAR_CAP: usize = 16;
/// Slots that a caller sweeps when the table is full.
pub(super) const LOOKS_AT_CAP: usize = 64;
/// The most slots that a caller sweeps beyond these if it has found no full cell, and no search was in vain lately. Models have
/// small tables.
pub(super) const LOOKS_OF_SEARCH: usize = if cfg!(tollgate_loom) { 0 } else { 4096 };

impl Table {
    /// Finds the key's one live cell in the newest segment, and inserts it if the caller wants
    /// that.
    pub(super) fn find_or_insert<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: ShardView<'g>,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
    ) -> SlotOutcome<'g> {
        let Some(newest) = view.newest() else {
            return match absent {
                Absent::Leave => SlotOutcome::Absent,
                Absent::Insert => {
                    self.create_first_segment(shard, view, self.first_log2, rules);
                    SlotOutcome::Retry
                }
            };
        };
        let lookup = newest.find(key.fingerprint);
        match lookup {
            Lookup::Live(slot, word) if word != 0 || !view.is_migrating() => {
                return SlotOutcome::At(slot);
            }
            Lookup::Moved(slot, _) if shard.view(guard).is_same(view) => {
                return SlotOutcome::Moving(slot);
            }
            Lookup::Moved(..) => return SlotOutcome::Retry,
            Lookup::Live(..) | Lookup::Absent => {}
        }
        if let Some(old) = view.old() {
            let slots = old.slots_from_home(key.fingerprint);
            if let Some(outcome) = self.migrate_key(old, slots, newest, key.fingerprint, rules) {
                return outcome;
            }
        }
        match (lookup, absent) {
            (Lookup::Live(slot, _), _) => SlotOutcome::At(slot),
            (_, Absent::Leave) => SlotOutcome::Absent,
            (_, Absent::Insert) => self.insert(guard, shard, view, key, now_ns, rules),
        }
    }

    /// Moves a key from the old segment to the successor, if it has a word in `slots`, and keeps
    /// other threads from inserting it there later. `None` if the key has no word to move.
    pub(super) fn migrate_key<'g>(
        &self,
        old: Segment<'g>,
        slots: impl Iterator<Item = &'g Slot>,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
        rules: &impl Rules,
    ) -> Option<SlotOutcome<'g>> {
        let mut last: Option<Frozen<'g>> = None;
        'slots: for slot in slots {
            // Repeats only when another thread has changed the slot, which can happen three times.
            loop {
                match slot.match_key(fingerprint) {
                    KeyMatch::Foreign => break,
                    KeyMatch::Closed => break 'slots,
                    KeyMatch::Vacant => {
                        if fault::active(Fault::AbsentWithoutClosing) || slot.close() {
                            break 'slots;
                        }
                    }
                    KeyMatch::Claimed => {
                        if fault::active(Fault::NoPoison) {
                            break;
                        }
                        if slot.poison() {
                            coverage::hit(Race::Poisoned);
                        }
                    }
                    KeyMatch::Own => {
                        work::count_cell();
                        let (word, was_live) = self.freeze(slot);
                        // Dead: the key may have a later cell.
                        if word == 0 {
                            break;
                        }
                        // The word of the earlier cell has moved here.
                        if let Some(before) = last.replace(Frozen { slot, word }) {
                            self.end_moved(old, before);
                        }
                        // A live cell is the key's last. The word of a frozen one may have moved
                        // within the segment.
                        if was_live {
                            break 'slots;
                        }
                        break;
                    }
                }
            }
        }
        match self.migrate_word(old, newest, fingerprint, last?, rules) {
            MoveOutcome::To(slot) => Some(SlotOutcome::At(slot)),
            MoveOutcome::Before => Some(SlotOutcome::Retry),
            MoveOutcome::NothingLeft => None,
        }
    }

    /// Freezes a cell. Returns its word, which is 0 if there is nothing to move, and whether the
    /// cell was live. The call that freezes a cell without a charge releases the cell's
    /// reservation.
    pub(super) fn freeze(&self, slot: &Slot) -> (u64, bool) {
        let (word, was_live) = slot.cell.freeze();
        if word == 0 && (was_live || fault::active(Fault::EveryoneReleases)) {
            coverage::hit(Race::UnchargedDropped);
            self.count_dropped(slot.tag());
        }
        (word, was_live)
    }

    /// Marks a frozen cell dead after its word has moved within the segment, or nothing is left of
    /// the word. Of all threads that try, one succeeds and releases the cell's reservation.
    pub(super) fn end_moved(&self, segment: Segment<'_>, Frozen { slot, word }: Frozen<'_>) {
        if slot.cell.end_moved(word) || fault::active(Fault::EveryoneReleases) {
            segment.count_dead();
            self.written.reservations.release(slot.tag());
        }
    }

    /// Moves a word to the direct successor, in the units of the successor's generation. The thread that gives the key its
    /// slot there moves the cell's reservation, if the key is counted elsewhere under the new limits.
    pub(super) fn migrate_word<'g>(
        &self,
        old: Segment<'g>,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
        frozen: Frozen<'g>,
        rules: &impl Rules,
    ) -> MoveOutcome<'g> {
        let Some((tag, word)) = frozen.in_units_of(newest, fingerprint, rules) else {
            coverage::hit(Race::NothingLeft);
            self.end_moved(old, frozen);
            return MoveOutcome::NothingLeft;
        };
        newest.claim_moved();
        let old_tag = frozen.slot.tag();
        let moves_room = old_tag.room() != tag.room();
        let reservation = moves_room.then(|| self.written.reservations.reserve_another(tag));
        for slot in newest.slots_from_home(fingerprint) {
            // Write before reading: a page of new memory that is read first is mapped twice, and
            // the second mapping interrupts all processors.
            let _ = slot.claim(fingerprint);
            loop {
                match slot.match_key(fingerprint) {
                    KeyMatch::Foreign => break,
                    KeyMatch::Vacant => {
                        let _ = slot.claim(fingerprint);
                    }
                    KeyMatch::Closed => {
                        newest.give_back_moved();
                        return MoveOutcome::Before;
                    }
                    KeyMatch::Own
                        if fault::active(Fault::SeedPassesDead)
                            && slot.word() == Word::Frozen(0) =>
                    {
                        break;
                    }
                    is @ (KeyMatch::Claimed | KeyMatch::Own) => {
                        if is == KeyMatch::Claimed {
                            slot.set_tag(tag);
                            if !slot.take(fingerprint) {
                                continue;
                            }
                        }
                        if is == KeyMatch::Own {
                            newest.give_back_moved();
                        } else if let Some(reservation) = reservation {
                            reservation.hand_over();
                            self.written.reservations.release(old_tag);
                        }
                        // All threads that move this cell write the same word.
                        slot.cell.seed(word);
                        return MoveOutcome::To(slot);
                    }
                }
            }
        }
        // The successor has room for all cells that can move to it.
        if cfg!(any(debug_assertions, tollgate_loom)) {
            panic!("no room for a cell that moves");
        }
        newest.give_back_moved();
        MoveOutcome::Before
    }

    /// Inserts a key into the newest segment.
    fn insert<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: ShardView<'g>,
        &StoreKey { fingerprint, tag, .. }: &StoreKey<'_>,
        now_ns: u64,
        rules: &impl Rules,
    ) -> SlotOutcome<'g> {
        let Some(newest) = view.newest() else { return SlotOutcome::Retry };
        // A call that migrates a chunk does enough work.
        if !view.is_migrating() {
            self.memory().free_piece();
        }
        let is_held = !view.is_migrating() && self.memory().is_too_much_held();
        if is_held && newest.is_full_from_home(fingerprint, LONG_SEARCH) {
            // No migration can clear out the dead slots now. Without a new key there, searches get
            // no longer.
            let is_begun = self.start_migration(shard, view, MigrationGoal::Grow(1), rules);
            return if is_begun { SlotOutcome::Retry } else { SlotOutcome::TableFull };
        }
        let Some(mut reservation) = self.reserve(tag, now_ns, rules) else {
            // Look again: another thread may have inserted the key meanwhile.
            return match self.look_from(guard, shard, fingerprint, rules) {
                Ok((_, None)) => SlotOutcome::TableFull,
                _ => SlotOutcome::Retry,
            };
        };
        let goal = MigrationGoal::Grow(1);
        let claims = match self.claim_or_migrate(guard, shard, view, newest, goal, rules) {
            Ok(claims) => claims,
            Err(refused) => return refused,
        };
        let taken = self.take_slot(newest, fingerprint, tag, &mut reservation);
        let OwnSlot { slot, is_new, steps } = match taken {
            Some(own) => own,
            None => {
                newest.give_back();
                return SlotOutcome::Retry;
            }
        };
        if is_new {
            reservation.hand_over();
        } else {
            coverage::hit(Race::InsertLost);
            if !fault::active(Fault::ClaimLeaked) {
                newest.give_back();
            }
        }
        // A shard that grows has two segments for a while, so shards grow at different times.
        let stagger = newest.slots() / 64 * (self.shard_index(fingerprint) % 8);
        let enough = claims_to_grow(newest.slots()) - stagger as u64;
        // While other shards' migrations use the reserved blocks, the shard waits for its next insert.
        let is_enough = if self.is_reserved {
            claims >= enough && self.memory().has_reserved_block()
        } else {
            claims == enough
        };
        let is_enough = is_enough || steps > LONG_SEARCH;
        if is_new && is_enough && !view.is_migrating() {
            self.start_migration(shard, view, MigrationGoal::Grow(1), rules);
        }
        SlotOutcome::At(slot)
    }

    /// Claims a slot for a new key and returns the number of claims. If the segment refuses, finishes
    /// its migration or begins one for `goal`: then the caller begins again, or the table is full.
    pub(super) fn claim_or_migrate<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: ShardView<'g>,
        newest: Segment<'g>,
        goal: MigrationGoal,
        rules: &impl Rules,
    ) -> Result<u64, SlotOutcome<'g>> {
        match newest.claim(view.is_migrating()) {
            ClaimOutcome::Granted(claims) => Ok(claims),
            ClaimOutcome::Full if view.is_migrating() => {
                self.finish_migration(guard, shard, view, rules);
                Err(SlotOutcome::Retry)
            }
            ClaimOutcome::Full | ClaimOutcome::Sealed => {
                let is_begun = self.start_migration(shard, view, goal, rules);
                Err(if is_begun { SlotOutcome::Retry } else { SlotOutcome::TableFull })
            }
        }
    }

    /// Takes a slot for a key, or finds the slot that another thread has taken for it. `None` if a
    /// migration leaves the segment. If the slot is new, `reservation` is for its tag.
    pub(super) fn take_slot<'g>(
        &self,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
        tag: LimitTag,
        reservation: &mut Reservation<'_>,
    ) -> Option<OwnSlot<'g>> {
        for (steps, slot) in newest.slots_from_home(fingerprint).enumerate() {
            let own = |is_new| Some(OwnSlot { slot, is_new, steps });
            // Repeats only when another thread has changed the slot, which can happen twice.
            loop {
                match slot.match_key(fingerprint) {
                    KeyMatch::Foreign => break,
                    KeyMatch::Closed => return None,
                    KeyMatch::Vacant => {
                        let _ = slot.claim(fingerprint);
                    }
                    KeyMatch::Claimed => {
                        reservation.move_to(slot.set_tag(tag));
                        if slot.take(fingerprint) {
                            return own(true);
                        }
                    }
                    KeyMatch::Own if fault::active(Fault::InsertBlindly) => break,
                    KeyMatch::Own => match slot.word() {
                        Word::Live(_) => return own(false),
                        Word::Frozen(0) => break,
                        Word::Frozen(_) => return None,
                    },
                }
            }
        }
        // Keys never claim all slots, so a migration has closed or poisoned the last ones.
        None
    }

    /// Reserves room for one key under the cap. When the table is full or nearly so, it sweeps a
    /// bounded number of slots first.
    fn reserve(&self, tag: LimitTag, now_ns: u64, rules: &impl Rules) -> Option<Reservation<'_>> {
        let reservations = &self.written.reservations;
        if reservations.is_nearly_full(tag) {
            self.sweep_charged(LOOKS_NEAR_CAP, now_ns, rules);
        }
        let reserve = || reservations.reserve(tag);
        reserve().or_else(|| {
            let looked_at = self.sweep_charged(LOOKS_AT_CAP, now_ns, rules);
            let reserved = reserve();
            if reserved.is_some() || looked_at < LOOKS_AT_CAP || LOOKS_OF_SEARCH == 0 {
                return reserved;
            }
            let search = || self.search_for_room(now_ns, rules, reserve);
            reservations.searches.search(now_ns, search)
        })
    }
}
