//! Cancels places: charges that were reserved for a time to come. docs/internals/rollback.md has the rule ("Cancels").
//!
//! A place goes back whole if no other charge is behind it. Then the places in front of it that were cancelled earlier
//! go back as well. So of two cancels of one bucket one has to see the other's place: the places that cancels could not
//! return are a list of the bucket's slot in [`Turns`](crate::core::turns::Turns).

use crate::algorithm::Charge;
use crate::core::ledger::LedgerMark;
use crate::core::rollback::{ChargedBucket, LeftRollback};
use crate::core::spent::{ChargedTo, Spent};
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// A cancelled place.
pub(crate) struct Cancel {
    pub(crate) bucket: ChargedBucket,
    pub(crate) charge: Charge,
    pub(crate) ledger_mark: LedgerMark,
    /// The time of the place. From then on it counts as used, and does not go back.
    pub(crate) granted_at_ns: u64,
}

/// The cancelled places of a slot that had other charges behind them when they were cancelled, at most [`MAX_VACATED`].
pub(crate) type Vacated = Vec<Cancel>;

/// With one more, the oldest stays taken until its time.
const MAX_VACATED: usize = 1024;

/// The outcome of [`Cancel::undo`].
enum Undo {
    /// No charge was behind this one. It was undone, which left this word.
    Done(u64),
    /// Other charges are behind this one.
    ChargesBehind,
    /// The word was lowered since the charge, and does not say whether charges are behind it.
    Unknown,
}

impl Cancel {
    /// Cancels the place, in this thread or in the one whose turn it is.
    pub(crate) fn submit(self, inner: &SharedState) {
        let slot = inner.turns.slot(self.bucket.turn_key());
        let make = LeftRollback::maker(inner);
        if fault::active(Fault::VacateUnlocked) {
            // Decides without the places that were cancelled before, and adds its own place later.
            let mut own = Vec::new();
            self.roll_back(inner, &mut own);
            let _ = slot.take(make, |vacated| vacated.append(&mut own));
            return;
        }
        slot.leave(LeftRollback::Cancel(self), make);
    }

    /// Returns the charge in the form that rollbacks take.
    fn spent(&self) -> Spent {
        let (charge, to, ledger_mark) = (Some(self.charge), self.bucket.to, self.ledger_mark);
        let (decision, is_part, converted_below) = (Decision::UNLIMITED, false, None);
        Spent { decision, charge, to, ledger_mark, is_part, converted_below }
    }

    /// Rolls the charge back, or adds the place to `vacated` if other charges are behind it. Panics if the rule does.
    pub(super) fn roll_back(self, inner: &SharedState, vacated: &mut Vacated) {
        // `None`: the key has no limit any more or another one, or the place's time has come.
        let is_vacated = self.bucket.with(inner, |view, key, limit| {
            if self.granted_at_ns < view.inner.clock.now_after_loads_ns() {
                return Ok(false);
            }
            match self.undo(view, key, limit)? {
                Undo::Done(word) => {
                    return_in_front(view, key, limit, (self.bucket.to, word), vacated)
                }
                Undo::ChargesBehind => {
                    coverage::hit(Race::VacatedBeneath);
                    return Ok(true);
                }
                Undo::Unknown => view.roll_back_in_turn(key, limit, &self.spent(), vacated)?,
            }
            Ok(false)
        });
        if is_vacated == Some(true) {
            if vacated.len() == MAX_VACATED {
                // The oldest, which most likely can never go back: its bucket was refunded, reset or reloaded.
                vacated.remove(0);
            }
            vacated.push(self);
        }
    }

    /// Undoes the charge if no charge is behind it.
    fn undo(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
    ) -> Result<Undo, Outdated> {
        let (spent, mut undo) = (self.spent(), Undo::ChargesBehind);
        let entry = view.entry(key, &spent);
        view.change_charged(key, &spent, |word| {
            // The entry is read after the word, so that it has every lowering that the word contains.
            let lowered = entry.lowered_since(self.ledger_mark);
            let charge = Charge { lowered, last_grant_ns: entry.last_grant_ns(), ..self.charge };
            if entry.is_refunded_since(self.ledger_mark) || !charge.is_last(word) {
                let is_known = lowered == 0 && !entry.is_refunded_since(self.ledger_mark);
                undo = if is_known { Undo::ChargesBehind } else { Undo::Unknown };
                return None;
            }
            let left = limit.rule().roll_back(word, charge, || charge.now_ns);
            undo = left.map_or(Undo::ChargesBehind, Undo::Done);
            left
        })?;
        Ok(undo)
    }
}

/// Returns cancelled places whose last charge behind them has been undone: `word` is what that left in the bucket.
pub(super) fn return_in_front(
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    (to, mut word): (ChargedTo, u64),
    vacated: &mut Vacated,
) {
    if vacated.is_empty() {
        return;
    }
    let now_ns = view.inner.clock.now_after_loads_ns();
    vacated.retain(|place| place.granted_at_ns >= now_ns);
    // The place in front is the last now. If it was cancelled before, it goes back as well.
    while let Some(at) = vacated.iter().position(|place| {
        place.charge.after == word && place.bucket.is(key.key, to, view.generation.number)
    }) {
        let place = vacated.swap_remove(at);
        match place.undo(view, key, limit) {
            Ok(Undo::Done(left)) => {
                coverage::hit(Race::VacatedLater);
                word = left;
            }
            // Another call has charged the bucket meanwhile. The place goes back once that charge is undone.
            Ok(Undo::ChargesBehind) => return vacated.push(place),
            // The place can never go back: the word was lowered since its charge. A later place may have the same word.
            Ok(Undo::Unknown) => {}
            // After a reload the word is in other units, and no place goes back.
            Err(Outdated) => return,
        }
    }
}
