//! Moving the word of one key to a later slot of its segment, in the units of the limit that applies now.
//!
//! An override ends while its cells have words. A word and its tag cannot change by one swap, so the word goes on
//! in another slot, as that of a key does that comes back after a sweep:
//!
//! ```text
//! slot      live (tag, v) -> gone, v on its way -> gone for good
//! next own slot                 -> taken, tag of now, 0 -> v in other units
//! ```
//!
//! * The word goes to the key's *first* own slot after the cell, by a swap from 0. Of several calls that move it
//!   one succeeds, and a late one fails whatever the slot has been through since.
//! * A sweep drops no later slot of a key while an earlier one waits for its end: the slot can take the word, and the
//!   word is seen to have been there.
//! * A cell that is gone with a word, and has no later own slot with a word, is the key's; a migration carries it
//!   from where it is, after it has closed the way to a later slot.
//! * Each slot has a place of its own: the next slot's is reserved before, and the swap that ends the cell gives the
//!   cell's back.

use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::insert::Frozen;
use super::migration::Room;
use super::segment::{Claim, Segment};
use super::shard::{Shard, View};
use super::slot::{Is, Slot};
use super::{Rules, Table};
use crate::store::cell::Word;
use crate::store::{StoreKey, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::work;

impl Table {
    /// Moves the word of a cell whose numbers have ended, or does the rest of another call's move. The caller looks
    /// again afterwards.
    pub(super) fn renumber<'g>(
        &self,
        guard: &'g Guard,
        shard: &Shard,
        view: View<'g>,
        slot: &'g Slot,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<(), UpdateError> {
        let Some(newest) = view.newest() else { return Ok(()) };
        work::count_cell();
        if let Word::Live(word @ 1..) | Word::Frozen(word @ 1..) = slot.word() {
            // By a clock that is behind the cell's it stays where it is.
            rules.converted(key.cell_key(), slot.tag(), word, key.tag)?;
        }
        match newest.claim(view.is_migrating()) {
            Claim::Granted(_) => {}
            Claim::Full if view.is_migrating() => {
                self.help_to_the_end(guard, shard, view, rules);
                return Ok(());
            }
            Claim::Full | Claim::Sealed => {
                let is_begun = self.start(shard, view, Room::Cleared, rules);
                return if is_begun { Ok(()) } else { Err(UpdateError::TableFull) };
            }
        }
        let reservation = self.written.reservations.reserve_another();
        // Before the cell goes: a caller with an older clock that meets it then looks for later numbers.
        rules.record_end(slot.tag());
        let (word, _) = self.freeze(slot);
        // In a segment that has been left since, it is carried with all others.
        let is_left = !shard.view(guard).is(view);
        let next =
            if word == 0 || is_left { None } else { next_own(newest, slot, key.fingerprint) };
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
        next.set_tag(key.tag);
        // Of two calls whose clocks differ the other may have named later numbers.
        next.cell.seed(rules.converted(key.cell_key(), slot.tag(), word, next.tag())?);
        // Not if a migration has closed the way first: then it carries the word from where it is.
        if matches!(next.word(), Word::Live(1..) | Word::Frozen(1..))
            || fault::active(Fault::EndUnlooked)
        {
            self.end_moved(newest, Frozen { slot, word });
        }
        let is_held = self.memory().is_too_much_held();
        if !view.is_migrating()
            && !is_held
            && newest.is_worth_clearing(self.nth_shard(key.fingerprint))
        {
            self.start(shard, view, Room::Cleared, rules);
        }
        Ok(())
    }
}

/// The first slot of a key after one of its own, taken if there is none yet; whether it is new. `None`: the segment
/// is being left.
fn next_own<'g>(
    segment: Segment<'g>,
    slot: &Slot,
    fingerprint: Fingerprint,
) -> Option<(&'g Slot, bool)> {
    for slot in segment.slots_after(slot, fingerprint) {
        // Repeats only when another has changed the slot, which it can do twice.
        loop {
            match slot.to(fingerprint) {
                Is::Foreign => break,
                Is::Closed => return None,
                Is::Own if fault::active(Fault::NextNotFirst) => break,
                Is::Own => return Some((slot, false)),
                Is::Vacant => {
                    let _ = slot.claim(fingerprint);
                }
                Is::Half => {
                    if slot.take(fingerprint) {
                        return Some((slot, true));
                    }
                }
            }
        }
    }
    None
}
