//! Moves the word of a key to a later slot of its segment, in the units of the limit that applies
//! now.
//!
//! An override may end while its cells have words. No single swap can change a word and its tag, so
//! the word moves to another slot, as if a sweep had dropped the cell and the key had been inserted
//! again:
//!
//! ```text
//! slot            live (tag, v) -> frozen, with v               -> dead
//! next own slot                 -> taken, new tag, 0 -> v in new units
//! ```
//!
//! * The word moves to the key's *first* own slot after the cell, by a swap from 0. Of several
//!   calls that move it, one succeeds. A late call fails, whatever has happened to the slot since.
//! * While an earlier cell of the key is frozen with a word, a sweep drops none of the key's later
//!   slots. So the next slot can take the word, and all calls see that it has.
//! * If a cell is frozen with a word and no later own slot has one, the frozen word is the key's. A
//!   migration moves it from there, after it has closed the way to a later slot.
//! * Each cell has its own reservation. The call reserves room for the next slot first, and the
//!   swap that marks the old cell dead releases the old cell's reservation.

use super::epoch::Guard;
use super::insert::{Frozen, SlotOutcome};
use super::migration::MigrationGoal;
use super::segment::Segment;
use super::shard::{Shard, ShardView};
use super::slot::{KeyMatch, Slot};
use super::{Rules, Table};
use crate::store::capacity::Reservation;
use crate::store::cell::Word;
use crate::store::{StoreKey, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::work;

impl Table {
    /// Moves the word of a cell whose limit has ended, or finishes such a move of another call. The
    /// caller searches again afterwards.
    pub(super) fn renumber<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: ShardView<'g>,
        slot: &'g Slot,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<(), UpdateError> {
        let Some(newest) = view.newest() else { return Ok(()) };
        work::count_cell();
        if let Word::Live(word) | Word::Frozen(word @ 1..) = slot.word()
            && !(word == 0 && fault::active(Fault::UnchargedUnchecked))
        {
            // `Outdated` if this caller's clock is behind that of the call that set the tag: then
            // the cell stays. Also one without a charge: it may be charged before the freeze, and
            // the caller could then move the word nowhere.
            rules.converted(key.cell_key(), slot.tag(), word, key.tag)?;
        }
        let goal = MigrationGoal::ClearDead;
        match self.claim_or_migrate(guard, shard, view, newest, goal, rules) {
            Ok(_) => {}
            Err(SlotOutcome::TableFull) => return Err(UpdateError::TableFull),
            Err(_) => return Ok(()),
        }
        let mut reservation = self.written.reservations.reserve_another(key.tag);
        // Before the freeze: a caller with an older clock that finds the frozen cell then uses the
        // later limit.
        rules.record_end(slot.tag());
        let (word, _) = self.freeze(slot);
        // If a migration has begun since, it moves the word with all others.
        let is_left = !shard.view(guard).is_same(view);
        let next =
            if word == 0 || is_left { None } else { next_own(newest, slot, key, &mut reservation) };
        let Some((next, is_new)) = next else {
            newest.give_back();
            return Ok(());
        };
        if is_new {
            coverage::hit(Race::Renumbered);
            reservation.hand_over();
        } else {
            newest.give_back();
        }
        // Another call with a later clock may have set the tag of a later limit.
        next.cell.seed(rules.converted(key.cell_key(), slot.tag(), word, next.tag())?);
        // Not if a migration has closed the way first: the migration then moves the word from the
        // old slot.
        if matches!(next.word(), Word::Live(1..) | Word::Frozen(1..))
            || fault::active(Fault::EndUnlooked)
        {
            self.end_moved(newest, Frozen { slot, word });
        }
        let is_held = self.memory().is_too_much_held();
        if !view.is_migrating()
            && !is_held
            && newest.is_worth_clearing(self.shard_index(key.fingerprint))
        {
            self.start_migration(shard, view, goal, rules);
        }
        Ok(())
    }
}

/// Returns the first own slot of a key after `slot`, and takes one if there is none; also returns
/// whether it is new. If it is, `reservation` is for its tag. `None` if a migration leaves the segment.
fn next_own<'g>(
    segment: Segment<'g>,
    slot: &Slot,
    &StoreKey { fingerprint, tag, .. }: &StoreKey<'_>,
    reservation: &mut Reservation<'_>,
) -> Option<(&'g Slot, bool)> {
    for slot in segment.slots_after(slot, fingerprint) {
        // Repeats only when another thread has changed the slot, which can happen twice.
        loop {
            match slot.match_key(fingerprint) {
                KeyMatch::Foreign => break,
                KeyMatch::Closed => return None,
                KeyMatch::Own if fault::active(Fault::NextNotFirst) => break,
                KeyMatch::Own => return Some((slot, false)),
                KeyMatch::Vacant => {
                    let _ = slot.claim(fingerprint);
                }
                KeyMatch::Claimed => {
                    reservation.move_to(slot.set_tag(tag));
                    if slot.take(fingerprint) {
                        return Some((slot, true));
                    }
                }
            }
        }
    }
    None
}
