//! Finding the one live cell of a key, and making it.

use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::migration::Room;
use super::segment::{Claim, Found, Segment, enough_claims};
use super::shard::{Shard, View};
use super::slot::{Is, Slot};
use super::{Change, Rules, Table};
use crate::store::capacity::Reservation;
use crate::store::cell::Word;
use crate::store::{Absent, CellKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::work;

/// Where a key's word is to be changed.
#[must_use]
pub(super) enum Located<'g> {
    /// In this slot's cell, if it is still there then.
    At(&'g Slot),
    /// In the cell that comes after this one, whose word is on its way there.
    Moving(&'g Slot),
    /// Nowhere: the key has no cell and is to get none.
    Absent,
    /// Nowhere: there are as many keys as may be.
    AtCap,
    /// The shard has changed.
    Retry,
}

/// A cell that is gone, whose word is to be carried.
#[derive(Clone, Copy)]
pub(super) struct Frozen<'g> {
    pub(super) slot: &'g Slot,
    pub(super) word: u64,
}

/// What became of a word that was to be carried.
#[must_use]
pub(super) enum Carried<'g> {
    /// It is in this slot, or was.
    To(&'g Slot),
    /// The successor is being left itself by now, so that the word is there already, or was.
    Before,
    /// Nothing is left of it under the limits as they are now.
    Nowhere,
}

/// A slot that is a key's now.
pub(super) struct Settled<'g> {
    slot: &'g Slot,
    pub(super) is_new: bool,
    /// Slots that were passed on the way.
    steps: usize,
}

/// Slots that a new key may pass before a migration is to clear out what is buried between them: a key
/// that comes and goes leaves a slot behind each time.
const LONG_SEARCH: usize = 64;

/// Slots that a caller looks at for full ones when it inserts a key and most places are taken: a sweeper
/// that has stopped, or was never started, costs memory and nothing else.
const LOOKS_NEAR_CAP: usize = 16;
/// Slots that a caller looks at for full ones when there is no place for its key.
const LOOKS_AT_CAP: usize = 64;

impl Table {
    /// The one cell of a key, in the newest segment.
    pub(super) fn place<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: View<'g>,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
    ) -> Located<'g> {
        let Some(newest) = view.newest() else {
            return match absent {
                Absent::Leave => Located::Absent,
                Absent::Insert => {
                    self.begin(shard, view, self.first_log2, rules);
                    Located::Retry
                }
            };
        };
        let found = newest.find(key.fingerprint);
        match found {
            Found::Live(slot, word) if word != 0 || !view.is_migrating() => {
                return Located::At(slot);
            }
            Found::Moved(slot, _) if shard.view(guard).is(view) => return Located::Moving(slot),
            Found::Moved(..) => return Located::Retry,
            Found::Live(..) | Found::Absent => {}
        }
        if let Some(old) = view.old() {
            let slots = old.slots_from_home(key.fingerprint);
            if let Some(place) = self.leave(old, slots, newest, key.fingerprint, rules) {
                return place;
            }
        }
        match (found, absent) {
            (Found::Live(slot, _), _) => Located::At(slot),
            (_, Absent::Leave) => Located::Absent,
            (_, Absent::Insert) => self.insert(guard, shard, view, key.fingerprint, now_ns, rules),
        }
    }

    /// Makes sure that a key is not in the segment that is being left, now or later, from the first of `slots`
    /// on. If it was there, with a word, its cell is in the successor now.
    pub(super) fn leave<'g>(
        &self,
        old: Segment<'g>,
        slots: impl Iterator<Item = &'g Slot>,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
        rules: &impl Rules,
    ) -> Option<Located<'g>> {
        let mut last: Option<Frozen<'g>> = None;
        'slots: for slot in slots {
            // Repeats only when another has changed the slot, which it can do thrice.
            loop {
                match slot.to(fingerprint) {
                    Is::Foreign => break,
                    Is::Closed => break 'slots,
                    Is::Vacant => {
                        if fault::active(Fault::AbsentWithoutClosing) || slot.close() {
                            break 'slots;
                        }
                    }
                    Is::Half => {
                        if fault::active(Fault::NoPoison) {
                            break;
                        }
                        if slot.poison() {
                            coverage::hit(Race::Poisoned);
                        }
                    }
                    Is::Own => {
                        work::count_cell();
                        let (word, was_live) = self.freeze(slot);
                        // The key may have come back further on.
                        if word == 0 {
                            break;
                        }
                        // The word of an earlier cell has come here.
                        if let Some(before) = last.replace(Frozen { slot, word }) {
                            self.end_moved(old, before);
                        }
                        // A cell that was live is the key's last. The word of one that was not may have moved on
                        // within the segment.
                        if was_live {
                            break 'slots;
                        }
                        break;
                    }
                }
            }
        }
        match self.carry(old, newest, fingerprint, last?, rules) {
            Carried::To(slot) => Some(Located::At(slot)),
            Carried::Before => Some(Located::Retry),
            Carried::Nowhere => None,
        }
    }

    /// Makes a cell of a segment that is being left go. Returns its word, 0 if nothing is to be carried, and
    /// whether the cell was live. Of a cell that was never charged, the call that makes it go gives its place
    /// back.
    pub(super) fn freeze(&self, slot: &Slot) -> (u64, bool) {
        let (word, mine) = slot.cell.freeze();
        if word == 0 && (mine || fault::active(Fault::EveryoneReleases)) {
            coverage::hit(Race::UnchargedDropped);
            self.dropped();
        }
        (word, mine)
    }

    /// Ends a cell whose word has gone on elsewhere in its segment, or of which nothing is left. The one swap
    /// that does it gives its place back.
    pub(super) fn end_moved(&self, segment: Segment<'_>, Frozen { slot, word }: Frozen<'_>) {
        if slot.cell.end_moved(word) || fault::active(Fault::EveryoneReleases) {
            segment.count_buried();
            self.written.reservations.release();
        }
    }

    /// Brings a word to the successor, and nowhere else, in the units of the successor's generation.
    pub(super) fn carry<'g>(
        &self,
        old: Segment<'g>,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
        frozen: Frozen<'g>,
        rules: &impl Rules,
    ) -> Carried<'g> {
        let tag = frozen.slot.tag();
        let carried = match tag.is_of_generation(newest.generation()) {
            true => Some((tag, frozen.word)),
            false => rules.migrated(CellKey::Fingerprint(fingerprint), tag, frozen.word),
        };
        let Some((tag, word)) = carried else {
            coverage::hit(Race::CarriedNowhere);
            self.end_moved(old, frozen);
            return Carried::Nowhere;
        };
        newest.claim_moved();
        for slot in newest.slots_from_home(fingerprint) {
            // Before it is looked at: new memory that is read first gets a page from the system twice, and
            // all other processors have to be told of the second one.
            let _ = slot.claim(fingerprint);
            loop {
                match slot.to(fingerprint) {
                    Is::Foreign => break,
                    Is::Vacant => {
                        let _ = slot.claim(fingerprint);
                    }
                    Is::Closed => {
                        newest.give_back_moved();
                        return Carried::Before;
                    }
                    Is::Own
                        if fault::active(Fault::SeedPassesBuried)
                            && slot.word() == Word::Frozen(0) =>
                    {
                        break;
                    }
                    is @ (Is::Half | Is::Own) => {
                        if is == Is::Half && !slot.take(fingerprint) {
                            continue;
                        }
                        if is == Is::Own {
                            newest.give_back_moved();
                        }
                        slot.set_tag(tag);
                        // All that carry this cell put in the same.
                        slot.cell.seed(word);
                        return Carried::To(slot);
                    }
                }
            }
        }
        // There is room for every cell that can be carried here.
        if cfg!(any(debug_assertions, tollgate_loom)) {
            panic!("no room for a cell that moves");
        }
        newest.give_back_moved();
        Carried::Before
    }

    /// Gives a key a new cell in the newest segment.
    fn insert<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: View<'g>,
        fingerprint: Fingerprint,
        now_ns: u64,
        rules: &impl Rules,
    ) -> Located<'g> {
        let Some(newest) = view.newest() else { return Located::Retry };
        // Whose call carries has enough to do.
        if !view.is_migrating() {
            self.memory().free_piece();
        }
        let is_held = !view.is_migrating() && self.memory().is_too_much_held();
        if is_held && newest.is_full_from_home(fingerprint, LONG_SEARCH) {
            // No migration may clear out what is buried there: searches are not to get longer.
            let is_begun = self.start(shard, view, Room::More(1), rules);
            return if is_begun { Located::Retry } else { Located::AtCap };
        }
        let Some(reservation) = self.reserve(now_ns, rules) else {
            // One look more: the key may have got its cell in between.
            return match self.look_from(guard, shard, fingerprint, rules) {
                Ok((_, None)) => Located::AtCap,
                _ => Located::Retry,
            };
        };
        let claims = match newest.claim(view.is_migrating()) {
            Claim::Granted(claims) => claims,
            Claim::Full if view.is_migrating() => {
                self.help_to_the_end(guard, shard, view, rules);
                return Located::Retry;
            }
            Claim::Full | Claim::Sealed => {
                let is_begun = self.start(shard, view, Room::More(1), rules);
                return if is_begun { Located::Retry } else { Located::AtCap };
            }
        };
        let Settled { slot, is_new, steps } = match self.settle(newest, fingerprint) {
            Some(found) => found,
            None => {
                newest.give_back();
                return Located::Retry;
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
        // Not all shards at once: a shard that grows has both segments for a while.
        let stagger = newest.slots() / 64 * (self.nth_shard(fingerprint) % 8);
        let is_enough = claims == enough_claims(newest.slots()) - stagger as u64;
        let is_enough = is_enough || steps > LONG_SEARCH;
        if is_new && is_enough && !view.is_migrating() {
            self.start(shard, view, Room::More(1), rules);
        }
        Located::At(slot)
    }

    /// Takes a slot for a key, or finds the one that another has taken for it; whether it is new.
    /// `None`: the segment is being left.
    pub(super) fn settle<'g>(
        &self,
        newest: Segment<'g>,
        fingerprint: Fingerprint,
    ) -> Option<Settled<'g>> {
        for (steps, slot) in newest.slots_from_home(fingerprint).enumerate() {
            let settled = |is_new| Some(Settled { slot, is_new, steps });
            // Repeats only when another has changed the slot, which it can do twice.
            loop {
                match slot.to(fingerprint) {
                    Is::Foreign => break,
                    Is::Closed => return None,
                    Is::Vacant => {
                        let _ = slot.claim(fingerprint);
                    }
                    Is::Half => {
                        if slot.take(fingerprint) {
                            return settled(true);
                        }
                    }
                    Is::Own if fault::active(Fault::InsertBlindly) => break,
                    Is::Own => match slot.word() {
                        Word::Live(_) => return settled(false),
                        Word::Frozen(0) => break,
                        Word::Frozen(_) => return None,
                    },
                }
            }
        }
        // No more slots are claimed than there are: a search that finds none is of a segment whose
        // last ones were closed or poisoned.
        None
    }

    /// Reserves a place for one key. At the cap full cells go first: those among the next slots of
    /// the table, a bounded number of them.
    fn reserve(&self, now_ns: u64, rules: &impl Rules) -> Option<Reservation<'_>> {
        if self.written.reservations.is_nearly_full() {
            self.sweep_charged(LOOKS_NEAR_CAP, now_ns, rules);
        }
        self.written.reservations.reserve().or_else(|| {
            self.sweep_charged(LOOKS_AT_CAP, now_ns, rules);
            self.written.reservations.reserve()
        })
    }
}
