//! One call's turn: the limiter, with the limits as the call found them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::algorithm::factor::Factor;
use crate::algorithm::{Charge, Outcome};
use crate::core::at_cap::AtCap;
use crate::core::generation::Generation;
use crate::core::ledger::Noted;
use crate::core::state::SharedState;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::{BEFORE_ALL_ENDS_NS, account_of};
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{Absent, CellKey, Change, Outdated, Rules, StoreKey, Undone};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::Ordering;

/// What a call works with. Which limits there are does not change for it, whatever is reloaded: it sees
/// the old numbers or the new, never some of each.
#[derive(Clone, Copy)]
pub(crate) struct LimitsView<'g> {
    pub(crate) inner: &'g SharedState,
    pub(crate) generation: &'g Generation,
}

impl Rules for LimitsView<'_> {
    fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        let at_ns = if fault::active(Fault::FullEarly) { at_ns + 1_000_000 } else { at_ns };
        // A rule of the caller's own may panic: the cell stays, and the sweep goes on behind it. Nothing is
        // changed by the question.
        let owed = AssertUnwindSafe(|| self.generation.owed(key, tag, word, at_ns));
        catch_unwind(owed).unwrap_or_else(|_| {
            self.inner.sweeps.count_rule_panic();
            Some((tag, word))
        })
    }

    fn may_sweep_at(&self, now_ns: u64) -> bool {
        self.inner.may_sweep_at(now_ns)
    }

    fn generation(&self) -> u64 {
        self.generation.number
    }

    fn carried(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        self.generation.carried(key, tag, word)
    }

    fn under(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let word = self.generation.under(key, tag, word, to);
        if word.is_err() {
            // By its tag the cell is in units that came after `to`: so have its numbers ended.
            self.note_end(to);
        }
        word
    }

    fn note_end(&self, tag: LimitTag) {
        if let Some(end_ns) = self.generation.limits.end_ns(tag) {
            // Relaxed: published by the word that the caller is about to store in other units.
            self.inner.ended_ns.fetch_max(end_ns, Ordering::Relaxed);
        }
    }
}

impl<'g> LimitsView<'g> {
    /// The time by which a call that read `now_ns` finds out which numbers have ended: no earlier than the
    /// last reload, nor than an end that another caller has acted upon.
    pub(crate) fn limits_ns(self, now_ns: u64) -> u64 {
        if !self.generation.limits.has_ends() {
            return now_ns;
        }
        // Relaxed: a caller that meets a word in later units has acquired it, and asks again.
        let ended_ns = self.inner.ended_ns.load(Ordering::Relaxed);
        now_ns.max(ended_ns).max(self.generation.at_ns())
    }

    /// As [`limits_ns`](Self::limits_ns), at the present; the clock is read where any numbers end.
    pub(crate) fn limits_now_ns(self) -> u64 {
        if self.generation.limits.has_ends() {
            self.limits_ns(self.inner.clock.now_ns())
        } else {
            BEFORE_ALL_ENDS_NS
        }
    }

    /// What a factor makes of a limit's numbers; `None` is no limit.
    pub(crate) fn scaled(
        self,
        index: LimitIndex,
        limit: &Limit,
        factor: Factor,
    ) -> Result<Option<Limit>, Error> {
        let scaled = limit.scaled(factor).map_err(|error| {
            let name = &self.generation.limits.entry(index).name;
            Error::new(ErrorKind::Limit, format!("{name}: {error}"))
        })?;
        if scaled.is_some() && !fault::active(Fault::FactorNotedLate) {
            self.generation.largest_factors.note(index, factor);
        }
        Ok(scaled)
    }

    /// A key with what the store tells it by.
    pub(crate) fn store_key<'a>(self, key: KeyRef<'a>, tag: LimitTag) -> StoreKey<'a> {
        let format = self.generation.limits.entry(key.limit).format;
        let fingerprint = self.inner.store.fingerprint_with(key, account_of(format, key.id));
        StoreKey { key, fingerprint, tag }
    }

    /// The word that a decision is made on, and when. A cell that was never charged starts with what
    /// its key may owe as a newcomer, and no earlier than anything was dropped: it may have been its
    /// own cell.
    #[inline]
    fn standing(self, key: &StoreKey<'_>, word: u64, now_ns: u64) -> Result<(u64, u64), Outdated> {
        if word != 0 {
            return Ok((word, now_ns));
        }
        let mut debt = 0;
        if self.inner.overflow.is_shared() {
            self.inner.overflow.fence();
            debt = self.generation.owed_by_new(key.key, key.tag)?;
        }
        if fault::active(Fault::NoFloor) {
            return Ok((debt, now_ns));
        }
        let floor_ns = self.inner.store.floor_ns();
        if floor_ns > now_ns {
            coverage::hit(Race::FloorUsed);
        }
        Ok((debt, now_ns.max(floor_ns)))
    }

    /// What `ask` says of the word of `key`; writes nothing.
    pub(crate) fn look(
        self,
        key: &StoreKey<'_>,
        now_ns: u64,
        ask: impl FnOnce(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        let word = self.inner.store.look(key, &self)?.unwrap_or(0);
        let (word, at_ns) = self.standing(key, word, now_ns)?;
        Ok(ask(word, at_ns).decision)
    }

    /// Asks for `cost` units and charges them; says what was charged, and where.
    pub(crate) fn spend(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
    ) -> Result<Spent, Outdated> {
        self.charge(key, limit, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, cost))
    }

    /// As [`charge`](LimitsView::charge), for a charge that may be taken back.
    pub(crate) fn charge_to_keep(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome + Copy,
    ) -> Result<Spent, Outdated> {
        // Before the charge: what is taken back beneath it comes after.
        let noted = self.inner.ledger.of(key).note();
        let spent = self.charge(key, limit, now_ns, ask)?;
        Ok(match spent.to {
            ChargedTo::OwnCell => Spent { noted, ..spent },
            ChargedTo::Shared | ChargedTo::Nothing => spent,
        })
    }

    /// Stores what `ask` makes of the bucket of a key; says what was charged, and where.
    pub(crate) fn charge(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome + Copy,
    ) -> Result<Spent, Outdated> {
        if !limit.rule().is_custom() {
            return self.charge_asking(key, limit, now_ns, (ask, ask));
        }
        // A rule of the caller's may answer otherwise, or panic, when it is asked the same once more.
        let last = Cell::new(None);
        let first = |word, at_ns| {
            let outcome = ask(word, at_ns);
            last.set(Some(outcome));
            outcome
        };
        let again = |word, at_ns| last.get().unwrap_or_else(|| ask(word, at_ns));
        self.charge_asking(key, limit, now_ns, (first, again))
    }

    /// As [`charge`](LimitsView::charge): what the first of two makes is stored, and the second says afterwards what that was.
    #[inline]
    fn charge_asking(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        (ask, again): (impl Fn(u64, u64) -> Outcome, impl Fn(u64, u64) -> Outcome),
    ) -> Result<Spent, Outdated> {
        // Repeats only when the key has got a cell between two looks at the cap.
        loop {
            match self.change(key, Absent::Insert, now_ns, &ask) {
                Ok(Asked { word, at_ns, is_new }) => {
                    let spent = Spent::of(again(word, at_ns), word, at_ns, ChargedTo::OwnCell);
                    if spent.charge.is_none() && is_new && word != 0 {
                        // Denied by what newcomers owe: a new bucket alone would have allowed it.
                        self.inner.overflow.counts.count_shared();
                    }
                    return Ok(spent);
                }
                Err(Undone::Outdated) => return Err(Outdated),
                Err(Undone::AtCap) => {}
            }
            if let Some(spent) = self.charge_at_cap(key, limit, now_ns, (&ask, &again))? {
                return Ok(spent);
            }
        }
    }

    /// Changes the word of `key` if there is a cell; a bucket that does not exist is full.
    fn give(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        let entry = self.inner.ledger.of(key);
        let noting = |word, now_ns| {
            let outcome = ask(word, now_ns);
            if outcome.word.is_some() {
                entry.note_by_hand();
            }
            outcome
        };
        match self.change(key, Absent::Leave, now_ns, noting) {
            // It has no bucket of its own, and what it may owe as a newcomer is others' debt, too.
            Ok(Asked { word, at_ns, is_new: true }) if word != 0 => {
                Ok(limit.rule().refund(word, at_ns, 0).decision)
            }
            Ok(Asked { word, at_ns, .. }) => Ok(ask(word, at_ns).decision),
            Err(Undone::Outdated) => Err(Outdated),
            Err(Undone::AtCap) => self.look(key, now_ns, ask),
        }
    }

    /// Stores what `ask` makes of the word; returns what it was asked about last.
    ///
    /// The decision is made of this once more, after the cell was let go: the arithmetic costs
    /// less than to carry its figures out through memory.
    pub(crate) fn change(
        self,
        key: &StoreKey<'_>,
        absent: Absent,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Asked, Undone> {
        let mut asked = Ok(Asked { word: 0, at_ns: now_ns, is_new: true });
        self.inner.store.update(Change { key, absent, now_ns }, &self, |before| {
            let standing = self.standing(key, before, now_ns);
            let (word, at_ns) = match standing {
                Ok(standing) => standing,
                Err(outdated) => {
                    asked = Err(outdated);
                    return None;
                }
            };
            asked = Ok(Asked { word, at_ns, is_new: before == 0 });
            ask(word, at_ns).word
        })?;
        Ok(asked?)
    }

    /// Decides for a new key that finds no room. `None`: it has a cell by now.
    #[cold]
    fn charge_at_cap(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        (ask, again): (impl Fn(u64, u64) -> Outcome, impl Fn(u64, u64) -> Outcome),
    ) -> Result<Option<Spent>, Outdated> {
        let counts = &self.inner.overflow.counts;
        let denied = || {
            counts.count_denied();
            let wait_ns = limit.rule().wait_for_room_ns();
            let decision = Decision::new(false, (0, 1), wait_ns, wait_ns);
            Ok(Some(Spent::nothing(decision)))
        };
        match self.inner.overflow.at_cap {
            AtCap::Deny => denied(),
            // What one bucket holds is in the units of one limit: the default, without a factor.
            AtCap::Share if !self.generation.limits.is_default(key.tag, limit) => denied(),
            AtCap::Allow => {
                counts.count_allowed();
                let decision = ask(0, now_ns).decision;
                Ok(Some(Spent::nothing(decision)))
            }
            AtCap::Share => {
                let index = key.key.limit;
                let floor_ns = self.inner.store.floor_ns();
                let at_ns = now_ns.max(floor_ns);
                let noted = self.inner.ledger.of_shared(index).note();
                let mut word = 0;
                self.generation.update_shared(index, |found| {
                    word = found;
                    ask(found, at_ns).word
                })?;
                let spent = Spent::of(again(word, at_ns), word, at_ns, ChargedTo::Shared);
                let spent = Spent { noted, ..spent };
                self.inner.overflow.fence();
                // It may have a cell by now; or have had one that was charged after `at_ns`, and is full
                // and dropped since: not before a unit could come back.
                let unit_ns = limit.rule().unit_ns();
                let had_cell = || {
                    let dropped_ns = self.inner.store.floor_ns();
                    dropped_ns > at_ns && dropped_ns - floor_ns >= unit_ns
                };
                let has_cell = || match self.inner.store.look(key, &self) {
                    Ok(word) => word.is_some(),
                    // Nor is it known whether it had.
                    Err(Outdated) => true,
                };
                if !fault::active(Fault::NoSecondLook) && (has_cell() || had_cell()) {
                    coverage::hit(Race::SharedRolledBack);
                    self.roll_back(key, limit, &spent)?;
                    return Ok(None);
                }
                counts.count_shared();
                Ok(Some(spent))
            }
        }
    }

    pub(crate) fn refund(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        self.give(key, limit, now_ns, |word, now_ns| limit.rule().refund(word, now_ns, cost))
    }

    pub(crate) fn reset(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        self.give(key, limit, now_ns, |word, now_ns| limit.rule().reset(word, now_ns))
    }
}

/// What a rule was asked about.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) word: u64,
    pub(crate) at_ns: u64,
    /// The key had no cell, or one that was never charged.
    is_new: bool,
}

/// What a spend did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) decision: Decision,
    pub(crate) charge: Option<Charge>,
    pub(crate) to: ChargedTo,
    /// The ledger's entry of its bucket, before it was charged.
    pub(crate) noted: Noted,
    /// Whether the charge is a part of what was charged: the rest stays, and counts as granted when the
    /// whole was.
    pub(crate) is_part: bool,
}

/// Which bucket was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedTo {
    OwnCell,
    /// The one that newcomers share.
    Shared,
    Nothing,
}

impl Spent {
    fn of(outcome: Outcome, before: u64, now_ns: u64, to: ChargedTo) -> Spent {
        let charge = outcome.word.map(|after| Charge::new(before, after, now_ns));
        Spent { decision: outcome.decision, charge, to, noted: Noted::default(), is_part: false }
    }

    pub(crate) fn nothing(decision: Decision) -> Spent {
        Spent {
            decision,
            charge: None,
            to: ChargedTo::Nothing,
            noted: Noted::default(),
            is_part: false,
        }
    }
}
