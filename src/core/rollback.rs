//! Rolls charges back, for denied batches, settlements and cancels. docs/internals/rollback.md has the rule, and why
//! the bound holds.
//!
//! The rollbacks of a bucket take turns. Between the reading of the word and its swap no other rollback can lower the
//! word, so a later charge cannot bring the word back to what was read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::algorithm::Charge;
use crate::core::cancel::{Cancel, Vacated, return_in_front};
use crate::core::generation::Generation;
use crate::core::ledger::Entry;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Absent, Change, Home, Outdated, Store, StoreKey, UpdateError, pin_briefly};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// The bucket of a charge, for a thread that comes to it later.
pub(crate) struct ChargedBucket {
    key: Key,
    tag: LimitTag,
    /// The generation of limits in whose units the charge's words are.
    generation: u64,
    pub(super) to: ChargedTo,
}

impl ChargedBucket {
    pub(crate) fn new(key: Key, tag: LimitTag, generation: u64, to: ChargedTo) -> ChargedBucket {
        ChargedBucket { key, tag, generation, to }
    }

    /// Returns the key by which the bucket's rollbacks take turns.
    pub(super) fn turn_key(&self) -> KeyRef<'_> {
        turn_key(self.key.as_ref(), self.to)
    }

    /// Whether this is the bucket that a charge of `key` was made to, in the units of `generation`. Several keys may
    /// share a bucket.
    pub(super) fn is(&self, key: KeyRef<'_>, to: ChargedTo, generation: u64) -> bool {
        self.turn_key() == turn_key(key, to) && self.generation == generation
    }

    /// Calls `then` with the bucket if its word is still in the units of the charge.
    pub(super) fn with<R>(
        &self,
        inner: &SharedState,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<R, Outdated>,
    ) -> Option<R> {
        inner.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running, and the charge was made under its limits.
                return Err(Outdated);
            }
            let key = self.key.as_ref();
            let entry = view.generation.limits.entry(key.limit);
            let limit = entry.limit_for(key.id, view.limits_now_ns());
            let is_same = |tag| view.generation.number == self.generation && tag == self.tag;
            match limit.filter(|&(_, tag)| is_same(tag)) {
                Some((limit, tag)) => then(view, &view.store_key(key, tag), limit).map(Some),
                None => Ok(None),
            }
        })
    }
}

/// Returns the key by which the rollbacks of a bucket take turns; a shared bucket has the empty id.
fn turn_key(key: KeyRef<'_>, to: ChargedTo) -> KeyRef<'_> {
    match to {
        ChargedTo::Shared => KeyRef { limit: key.limit, id: &[] },
        ChargedTo::OwnCell | ChargedTo::Nothing => key,
    }
}

/// A rollback that a thread has left to the thread whose turn it was.
pub(crate) enum LeftRollback {
    Cancel(Cancel),
    /// Of a part of an estimate, or of all of it: nothing is returned after a reload or the end of an override.
    Settlement {
        bucket: ChargedBucket,
        limit: Limit,
        spent: Spent,
    },
    /// Of a charge that no caller knows of. It is returned under changed limits as well: see [`LimitsView::carried`].
    Charge {
        key: Key,
        tag: LimitTag,
        charged_in: Arc<Generation>,
        limit: Limit,
        spent: Spent,
    },
}

impl LeftRollback {
    /// Returns the function by which a slot of [`Turns`](crate::core::turns::Turns) makes left rollbacks.
    pub(super) fn maker(inner: &SharedState) -> impl Fn(LeftRollback, &mut Vacated) + Copy + '_ {
        |left, vacated| left.make(inner, vacated)
    }

    /// Makes the rollback.
    ///
    /// The thread may have come with a charge of another limit. So a panic of this limit's rule is caught here, and the
    /// charge stays.
    fn make(self, inner: &SharedState, vacated: &mut Vacated) {
        let made = catch_unwind(AssertUnwindSafe(|| match self {
            LeftRollback::Cancel(cancel) => cancel.roll_back(inner, vacated),
            LeftRollback::Settlement { bucket, limit, spent } => {
                bucket.with(inner, |view, key, _| {
                    view.roll_back_in_turn(key, &limit, &spent, vacated)
                });
            }
            LeftRollback::Charge { key, tag, charged_in, limit, spent } => {
                inner.with_view(|view| {
                    let key = view.store_key(key.as_ref(), tag);
                    match view.carried(&charged_in, &key, &limit, &spent)? {
                        Some((tag, limit, spent)) => {
                            let key = StoreKey { tag, ..key };
                            view.roll_back_in_turn(&key, limit, &spent, vacated)
                        }
                        None => Ok(()),
                    }
                });
            }
        }));
        if let Err(payload) = made {
            inner.sweeps.count_rule_panic();
            // The payload is of the rule as well: its drop may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
        }
    }
}

impl<'g> LimitsView<'g> {
    /// Rolls back a part of an estimate, or all of it. If another thread is rolling back a charge of the same bucket, or
    /// of one that takes turns with it, that thread makes this rollback as well, as soon as it goes on.
    pub(crate) fn roll_back_estimate(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
    ) -> Result<(), Outdated> {
        self.try_roll_back(key, limit, spent).unwrap_or_else(|| {
            let (owned, generation) = (Key::new(key.key), self.generation.number);
            let bucket = ChargedBucket::new(owned, key.tag, generation, spent.to);
            let (limit, spent) = (limit.clone(), *spent);
            self.leave(key, LeftRollback::Settlement { bucket, limit, spent }, spent.to);
            Ok(())
        })
    }

    /// Rolls back a charge that was made in `charged_in`, also if one reload or the end of the override has come since.
    /// It may be left to another thread, as in [`roll_back_estimate`](LimitsView::roll_back_estimate).
    pub(crate) fn roll_back(
        self,
        charged_in: &Generation,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
    ) -> Result<(), Outdated> {
        let Some((tag, limit, spent)) = self.carried(charged_in, key, limit, spent)? else {
            return Ok(());
        };
        let key = StoreKey { tag, ..*key };
        if let Some(result) = self.try_roll_back(&key, limit, &spent) {
            return result;
        }
        // `None`: a reload has come since, and the caller begins again with its limits.
        let charged_in = self.inner.share_of(self.generation).ok_or(Outdated)?;
        let (owned, limit) = (Key::new(key.key), limit.clone());
        self.leave(
            &key,
            LeftRollback::Charge { key: owned, tag, charged_in, limit, spent },
            spent.to,
        );
        Ok(())
    }

    /// Rolls back a charge, if it is no other thread's turn.
    fn try_roll_back(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
    ) -> Option<Result<(), Outdated>> {
        if fault::active(Fault::RollBackWithoutTurn) {
            return Some(self.roll_back_in_turn(key, limit, spent, &mut Vec::new()));
        }
        let slot = self.inner.turns.slot(turn_key(key.key, spent.to));
        slot.take(LeftRollback::maker(self.inner), |vacated| {
            self.roll_back_in_turn(key, limit, spent, vacated)
        })
    }

    /// Leaves a rollback to the thread whose turn it is.
    fn leave(self, key: &StoreKey<'_>, rollback: LeftRollback, to: ChargedTo) {
        let slot = self.inner.turns.slot(turn_key(key.key, to));
        slot.leave(rollback, LeftRollback::maker(self.inner));
    }

    /// Rolls back a charge in a turn of its bucket. If it was the last charge, the cancelled places in front of it go
    /// back as well.
    pub(super) fn roll_back_in_turn(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        spent: &Spent,
        vacated: &mut Vacated,
    ) -> Result<(), Outdated> {
        let Some(charge) = spent.charge else { return Ok(()) };
        let entry = self.entry(key, spent);
        // Raised by this call's own announcements, so that they do not count as lowerings by others.
        let mut mark = spent.ledger_mark;
        // If the charge had a factor, `limit` is the scaled limit.
        let own = self.generation.limits.limit_at(key.tag).unwrap_or(limit);
        let mut undone = None;
        let step = |word| {
            undone = None;
            // The entry is read after the word, so that it has every lowering that the word contains.
            if entry.is_refunded_since(mark) {
                return None;
            }
            let (lowered, drained_early) =
                (entry.lowered_since(mark), entry.drained_early_since(mark));
            let has_entries = lowered > 0 || drained_early > 0;
            if spent.converted_below.is_some_and(|below| word >= below || has_entries) {
                // The ledger does not say in the units of which limit the word was lowered.
                return None;
            }
            let last_grant_ns = entry.last_grant_ns();
            let charge = Charge { lowered, drained_early, last_grant_ns, ..charge };
            coverage::hit(if word == charge.after {
                Race::RolledBack
            } else {
                Race::RolledBackBeneath
            });
            // Read late, so that the time is after all charges that the word contains. At least the eviction time
            // floor: a sweep may have come before the cell's later charges.
            let now_ns = || self.inner.clock.now_after_loads_ns().max(self.inner.store.floor_ns());
            let new = own.rolled_back(limit, word, (charge, charge.before), &now_ns)?;
            if charge.is_last(word) && !spent.is_part {
                undone = Some(new);
                return Some(new);
            }
            let by = own.rule().measure(word, new);
            entry.announce(by);
            mark = mark.with_own(by);
            Some(new)
        };
        self.change_charged(key, spent, step)?;
        if let Some(word) = undone {
            return_in_front(self, key, own, (spent.to, word), vacated);
        }
        Ok(())
    }

    /// Returns the ledger's entry of the bucket that was charged.
    pub(crate) fn entry(self, key: &StoreKey<'_>, spent: &Spent) -> &'g Entry {
        match spent.to {
            ChargedTo::Shared => self.inner.ledger.shared_entry(key.key.limit),
            ChargedTo::OwnCell | ChargedTo::Nothing => self.inner.ledger.entry(key),
        }
    }

    /// Changes the word of the bucket that was charged, if the bucket still exists.
    pub(crate) fn change_charged(
        self,
        key: &StoreKey<'_>,
        spent: &Spent,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        match spent.to {
            ChargedTo::Nothing => Ok(()),
            ChargedTo::Shared => self.generation.update_shared(key.key.limit, step),
            ChargedTo::OwnCell => {
                // The word 0: a sweep has dropped the cell since, because the charge had drained.
                let mut step = |word| if word == 0 { None } else { step(word) };
                if self.change_known(key, &mut step) {
                    return Ok(());
                }
                let now_ns = spent.charge.map_or(1, |charge| charge.now_ns);
                let change = Change { key, absent: Absent::Leave, now_ns };
                match self.inner.store.update(change, &self, step) {
                    Err(UpdateError::Outdated) => Err(Outdated),
                    Ok(()) | Err(UpdateError::TableFull) => Ok(()),
                }
            }
        }
    }

    /// Changes the word of a key that the lock-free table finds at once, and returns whether it does. No look comes
    /// before, so that each call of `step` is an attempt to swap.
    pub(super) fn change_known(
        self,
        key: &StoreKey<'_>,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        let Store::LockFree(table) = &self.inner.store else { return false };
        let guard = pin_briefly();
        // The generation and the limit of the word must be the caller's. The tag does not have all bits of the
        // generation.
        let home = table.home(&guard, key.fingerprint);
        let home = home.filter(|home| home.generation() == self.generation.number);
        let known = home.and_then(Home::known);
        known.is_some_and(|known| known.tag() == key.tag && known.update(step))
    }

    /// Converts a charge that was made in `charged_in` to the limit that applies now: returns the tag, the limit and the
    /// charge. `None`: nothing is left of the charge; or the charge's part of the word is not known, because a conversion
    /// may have rounded or cut it, or because more than one reload has come since.
    fn carried<'l>(
        self,
        charged_in: &Generation,
        key: &StoreKey<'_>,
        limit: &'l Limit,
        spent: &Spent,
    ) -> Result<Option<(LimitTag, &'l Limit, Spent)>, Outdated>
    where
        'g: 'l,
    {
        let now = self.generation;
        let Some(charge) = spent.charge else { return Ok(None) };
        let reloads = now.number.checked_sub(charged_in.number).ok_or(Outdated)?;
        let tag = now.limits.tag_of(key.key, self.limits_now_ns()).filter(|_| reloads <= 1);
        let Some(tag) = tag else { return Ok(None) };
        if reloads == 0 && tag == key.tag {
            return Ok(Some((tag, limit, *spent)));
        }
        if spent.to == ChargedTo::Shared && tag.is_of_override() {
            // The shared bucket's word is in the units of the default.
            return Ok(None);
        }
        let Some(mut new) = now.limits.limit_at(tag) else { return Ok(None) };
        let Some(conversion) = now.only_conversion(charged_in, key, charge, tag) else {
            return Ok(None);
        };
        let converted_below = match (conversion.is_identity(), spent.converted_below) {
            (true, earlier) => {
                // The charge may have had a factor.
                new = limit;
                earlier
            }
            // A second conversion: the word no longer shows whether the first has cut a part of the charge.
            (false, Some(_)) => return Ok(None),
            (false, None) => match conversion.exact_below(charge) {
                Some(below) => Some(below),
                None => return Ok(None),
            },
        };
        let words = [charge.before, charge.after].map(|word| match (word, spent.to) {
            (0, _) | (_, ChargedTo::Nothing) => Ok(Some(word)),
            // Another call has converted the word after the override's end.
            (_, ChargedTo::OwnCell) if reloads == 0 => {
                now.converted(key.cell_key(), key.tag, word, tag).map(Some)
            }
            (_, ChargedTo::OwnCell) => now.converted_from(charged_in, key, word, tag),
            (_, ChargedTo::Shared) if reloads == 0 => Ok(Some(word)),
            (_, ChargedTo::Shared) => Ok(now.shared_converted(charged_in, key.key.limit, word)),
        });
        let [before, after] = words;
        let (Some(before), Some(after)) = (before?, after?) else { return Ok(None) };
        let charge = Some(Charge { before, after, ..charge });
        Ok(Some((tag, new, Spent { charge, converted_below, ..*spent })))
    }
}
