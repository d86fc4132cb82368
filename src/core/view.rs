//! A call's view: the limiter's state with one generation of limits. Charges, refunds and looks go through it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::algorithm::Outcome;
use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::core::at_cap::Owes;
use crate::core::generation::Generation;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::state::LimiterState;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::{BEFORE_ALL_ENDS_NS, account_of};
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{Absent, CellKey, Change, Outdated, Rules, StoreKey, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::Ordering;

/// A call's consistent view of the limits. A reload does not change it: the call sees the old limits or the new, never
/// some of each.
#[derive(Clone, Copy)]
pub(crate) struct LimitsView<'g> {
    pub(crate) inner: &'g LimiterState,
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
        // A custom algorithm may panic. Then the cell stays, and the sweep goes on with the next. `owed` changes nothing, so
        // that a panic leaves nothing half done.
        let owed = AssertUnwindSafe(|| self.generation.owed(key, tag, word, at_ns));
        catch_unwind(owed).unwrap_or_else(|_| {
            self.inner.sweeps.count_rule_panic();
            Some((tag, word))
        })
    }

    fn full_in_ns(&self, key: CellKey<'_>, tag: LimitTag, word: u64, at_ns: u64) -> Option<u64> {
        // As in `owed`.
        let full_in = AssertUnwindSafe(|| self.generation.full_in_ns(key, tag, word, at_ns));
        catch_unwind(full_in).ok()
    }

    fn may_sweep_at(&self, now_ns: u64) -> bool {
        self.inner.may_sweep_at(now_ns)
    }

    fn generation(&self) -> u64 {
        self.generation.number
    }

    fn migrated(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        self.generation.migrated(key, tag, word)
    }

    fn converted(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let word = self.generation.converted(key, tag, word, to);
        if word.is_err() {
            // The cell's tag is of a limit that came after `to`: so `to` has ended.
            self.record_end(to);
        }
        word
    }

    fn record_end(&self, tag: LimitTag) {
        if let Some(end_ns) = self.generation.limits.end_ns(tag) {
            // Relaxed: published by the word that the caller stores next, in the units of another limit.
            self.inner.ended_ns.fetch_max(end_ns, Ordering::Relaxed);
        }
    }
}

impl<'g> LimitsView<'g> {
    /// Returns the time at which a call that read `now_ns` looks up its limit: at least the time of the last reload,
    /// and of every end of an override that another call has acted upon.
    pub(crate) fn limits_ns(self, now_ns: u64) -> u64 {
        if !self.generation.limits.has_ends() {
            return now_ns;
        }
        // Relaxed: a call that meets a word in the units of a later limit has acquired it, and begins again.
        let ended_ns = self.inner.ended_ns.load(Ordering::Relaxed);
        now_ns.max(ended_ns).max(self.generation.at_ns())
    }

    /// Like [`limits_ns`](Self::limits_ns), now. Reads the clock only if some override has an end.
    pub(crate) fn limits_now_ns(self) -> u64 {
        if self.generation.limits.has_ends() {
            self.limits_ns(self.inner.clock.now_ns())
        } else {
            BEFORE_ALL_ENDS_NS
        }
    }

    /// Scales a limit by the factor of a call, and records the factor if the call may charge. `None`: the factor lifts the
    /// limit.
    pub(crate) fn scaled(
        self,
        index: LimitIndex,
        limit: &Limit,
        factor: Factor,
        may_charge: bool,
    ) -> Result<Option<Limit>, Error> {
        let scaled = limit.scaled(factor).map_err(|error| {
            let name = self.generation.limits.entry(index).public_name();
            Error::new(ErrorKind::Limit, format!("{name}: {error}"))
        })?;
        if may_charge && scaled.is_some() && !fault::active(Fault::FactorNotedLate) {
            self.generation.largest_factors.record(index, factor);
        }
        Ok(scaled)
    }

    /// Computes the fingerprint of a key.
    pub(crate) fn store_key<'a>(self, key: KeyRef<'a>, tag: LimitTag) -> StoreKey<'a> {
        let format = self.generation.limits.entry(key.limit).format;
        let fingerprint = self.inner.store.fingerprint_with(key, account_of(format, key.id));
        StoreKey { key, fingerprint, tag }
    }

    /// Returns the word and the time that a decision is made with. A cell that was never charged starts with the debt
    /// that its key has from the overflow bucket, and no earlier than the [eviction time
    /// floor](crate::store::Store#the-eviction-time-floor): the key's former cell may have been dropped.
    #[inline]
    fn starting_state(
        self,
        key: &StoreKey<'_>,
        word: u64,
        now_ns: u64,
        own: OwnCell,
    ) -> Result<(u64, u64), Outdated> {
        if word != 0 {
            return Ok((word, now_ns));
        }
        self.state_of_new(key, now_ns, own)
    }

    #[inline(never)]
    fn state_of_new(
        self,
        key: &StoreKey<'_>,
        now_ns: u64,
        own: OwnCell,
    ) -> Result<(u64, u64), Outdated> {
        let mut debt = 0;
        if self.inner.overflow.has_overflow() {
            self.inner.overflow.fence();
            debt = self.generation.owed_by_untracked(key.key, key.tag)?;
        }
        if fault::active(Fault::NoFloor) {
            return Ok((debt, now_ns));
        }
        let floor_ns = self.inner.store.floor_ns();
        if floor_ns > now_ns {
            coverage::hit(Race::FloorUsed);
        }
        let at_ns = now_ns.max(floor_ns);
        if debt != 0 && (own == OwnCell::Yes || self.has_room(key, now_ns)) {
            debt = self.owed_by_key(key, debt, at_ns);
        }
        Ok((debt, at_ns))
    }

    /// Returns the part of `debt` that a key without a bucket owes. `debt` is the overflow bucket's, which the caller has read.
    #[cold]
    fn owed_by_key(self, key: &StoreKey<'_>, debt: u64, at_ns: u64) -> u64 {
        // The debt of an override belongs to the override's id alone.
        if key.tag.is_of_override() || at_ns < self.generation.all_owe_until_ns(key.key.limit) {
            return debt;
        }
        let until_ns = self.inner.overflow.owes_until_ns(self.hash(key));
        let limit = self.generation.limits.limit_at(key.tag);
        match limit.and_then(|limit| limit.rule().gcra()) {
            _ if until_ns <= at_ns => 0,
            // The time is the word of the key's own bucket.
            Some(_) => debt.min(until_ns),
            None => debt,
        }
    }

    /// Whether a key without a bucket would get one.
    fn has_room(self, key: &StoreKey<'_>, now_ns: u64) -> bool {
        self.inner.store.room_in_ns(key.tag, now_ns, &self) == Some(0)
    }

    /// Returns a hash of a key that is the same under all limits.
    pub(super) fn hash(self, key: &StoreKey<'_>) -> u64 {
        self.inner.store.hash(key.key, key.fingerprint)
    }

    /// Computes the decision about a spend of `demand` by `ask` on the word of `key`, and writes nothing. A key without a
    /// bucket gets the decision of a full table if there is no room for one, unless the cost is 0.
    pub(crate) fn look(
        self,
        key: &StoreKey<'_>,
        (limit, demand): (&Limit, Demand),
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        let word = self.inner.store.look(key, &self)?;
        if word.is_none()
            && demand.cost > 0
            && let Some(decision) = self.look_at_cap(key, limit, now_ns, &ask)
        {
            return Ok(decision);
        }
        self.look_at_word(key, word, (limit, demand), now_ns, ask)
    }

    /// Like [`look`](LimitsView::look) for a call that makes no bucket: whether the table has room for one is not asked.
    pub(crate) fn look_at_bucket(
        self,
        key: &StoreKey<'_>,
        demanded: (&Limit, Demand),
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        let word = self.inner.store.look(key, &self)?;
        self.look_at_word(key, word, demanded, now_ns, ask)
    }

    /// Computes the decision from the word of the key's bucket, if it has one.
    fn look_at_word(
        self,
        key: &StoreKey<'_>,
        word: Option<u64>,
        (limit, demand): (&Limit, Demand),
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        if limit.rule().is_concurrency() {
            return Ok(ask(word.unwrap_or(0), now_ns).decision);
        }
        let own = if word.is_some() { OwnCell::Yes } else { OwnCell::IfRoom };
        let (word, at_ns) = self.starting_state(key, word.unwrap_or(0), now_ns, own)?;
        let decision = ask(word, at_ns).decision.seen_earlier(at_ns - now_ns);
        let is_charged = decision.allowed() && demand.cost > 0;
        let gcra = limit.rule().gcra().filter(|_| at_ns > now_ns && is_charged);
        // A spend would charge the overflow bucket, whose next call is decided as of the same time.
        let gcra = gcra.filter(|_| own == OwnCell::Yes || self.has_room(key, now_ns));
        Ok(gcra.map_or(decision, |gcra| {
            let spent_ns = gcra.charge(word, at_ns, demand.cost).spent_ns;
            gcra.decision_after(spent_ns, now_ns, demand.needed())
        }))
    }

    /// Charges units if the bucket has them and those that must be left. Returns the decision, the charge and its bucket.
    pub(crate) fn spend(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        demand: Demand,
        now_ns: u64,
    ) -> Result<Spent, Outdated> {
        if let Some(rule) = limit.rule().concurrency() {
            return self.acquire(key, (limit, rule), demand, now_ns);
        }
        let ask = |word, at_ns| limit.rule().spend_leaving(word, at_ns, demand);
        let mut spent = self.charge(key, limit, (now_ns, Owes::OwnUnits), ask)?;
        if let (Some(gcra), Some(charge)) = (limit.rule().gcra(), spent.charge)
            && charge.now_ns > now_ns
            && spent.to == ChargedTo::OwnCell
        {
            spent.decision = gcra.decision_after(charge.word, now_ns, demand.needed());
        }
        Ok(spent)
    }

    /// Stores the word that `ask` computes from the word of `key`. Returns the decision, the charge and its bucket.
    pub(crate) fn charge(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        (now_ns, owes): (u64, Owes),
        ask: impl Fn(u64, u64) -> Outcome + Copy,
    ) -> Result<Spent, Outdated> {
        if !limit.rule().is_custom() {
            return self.charge_asking(key, limit, (now_ns, owes), (ask, ask));
        }
        // A second call of a custom algorithm may give another answer, or panic: its last answer is kept.
        let last = Cell::new(None);
        let first = |word, at_ns| {
            let outcome = ask(word, at_ns);
            last.set(Some(outcome));
            outcome
        };
        let again = |word, at_ns| last.get().unwrap_or_else(|| ask(word, at_ns));
        self.charge_asking(key, limit, (now_ns, owes), (first, again))
    }

    /// Like [`charge`](LimitsView::charge) with two functions: stores the word that `ask` computes, then calls `again`
    /// for the outcome of the same word and time.
    #[inline]
    fn charge_asking(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        (now_ns, owes): (u64, Owes),
        (ask, again): (impl Fn(u64, u64) -> Outcome, impl Fn(u64, u64) -> Outcome),
    ) -> Result<Spent, Outdated> {
        // Repeats only if the table was full, and the key had a cell afterwards.
        loop {
            match self.change(key, Absent::Insert, now_ns, &ask) {
                Ok(RuleInput { word, at_ns, is_new }) => {
                    let to = ChargedTo::OwnCell;
                    let spent = Spent::new(limit.rule(), again(word, at_ns), (at_ns, now_ns), to);
                    if spent.charge.is_none() && is_new && word != 0 {
                        return self.denied_by_debt(key, limit, now_ns, (spent, &again));
                    }
                    return Ok(spent);
                }
                Err(UpdateError::Outdated) => return Err(Outdated),
                Err(UpdateError::TableFull) => {}
            }
            if let Some(spent) = self.charge_at_cap(key, limit, (now_ns, owes), (&ask, &again))? {
                return Ok(spent);
            }
        }
    }

    /// Returns the denial `spent` of a key without a bucket that owes something: if there is no room for a bucket, the
    /// denial of the overflow bucket, as for a check.
    #[cold]
    fn denied_by_debt(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        (spent, again): (Spent, Ask<'_>),
    ) -> Result<Spent, Outdated> {
        // A new bucket without the debt would have allowed the call.
        self.inner.overflow.counts.count_overflowed();
        let (word, at_ns) = self.state_of_new(key, now_ns, OwnCell::IfRoom)?;
        let to = ChargedTo::OwnCell;
        let denied = Spent::new(limit.rule(), again(word, at_ns), (at_ns, now_ns), to);
        let is_denied = denied.charge.is_none() && !denied.decision.allowed();
        Ok(if is_denied { denied } else { spent })
    }

    /// Refunds or resets: stores the word that `ask` computes if `key` has a cell. A key without one may have a debt from the
    /// overflow bucket, which stays.
    fn refund_by(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Decision, Outdated> {
        match self.change(key, Absent::Leave, now_ns, &ask) {
            Ok(RuleInput { word, at_ns, is_new }) => {
                if is_new {
                    // The key has no bucket. Its debt from the overflow bucket is the debt of other keys as well, and stays.
                    let (word, at_ns) = self.state_of_new(key, now_ns, OwnCell::IfRoom)?;
                    if word != 0 {
                        let decision = limit.rule().refund(word, at_ns, 0).decision;
                        return Ok(decision.seen_earlier(at_ns - now_ns));
                    }
                }
                self.inner.forget_places(key.key, key.fingerprint);
                Ok(ask(word, at_ns).decision.seen_earlier(at_ns - now_ns))
            }
            Err(UpdateError::Outdated) => Err(Outdated),
            Err(UpdateError::TableFull) => self.look(key, (limit, Demand::NOTHING), now_ns, ask),
        }
    }

    /// Stores the word that `ask` computes. Returns the arguments of the last call of `ask`.
    ///
    /// The caller computes the decision from these once more, after the swap: the arithmetic costs less than to pass
    /// the decision out through memory.
    pub(crate) fn change(
        self,
        key: &StoreKey<'_>,
        absent: Absent,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<RuleInput, UpdateError> {
        let mut input = Ok(RuleInput { word: 0, at_ns: now_ns, is_new: true });
        self.inner.store.update(Change { key, absent, now_ns }, &self, |before| {
            let (word, at_ns) = match self.starting_state(key, before, now_ns, OwnCell::Yes) {
                Ok(state) => state,
                Err(outdated) => {
                    input = Err(outdated);
                    return None;
                }
            };
            input = Ok(RuleInput { word, at_ns, is_new: before == 0 });
            ask(word, at_ns).word
        })?;
        Ok(input?)
    }

    /// Returns `cost` units to the bucket of `key`.
    pub(crate) fn refund(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        let ask = |word, now_ns| limit.rule().refund(word, now_ns, cost);
        // Without units nothing is refunded, and vacant places stay.
        if cost == 0 {
            self.look(key, (limit, Demand::NOTHING), now_ns, ask)
        } else {
            self.refund_by(key, limit, now_ns, ask)
        }
    }

    /// Fills the bucket of `key`.
    pub(crate) fn reset(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        self.refund_by(key, limit, now_ns, |word, now_ns| limit.rule().reset(word, now_ns))
    }
}

/// Computes the outcome of a call from a word and a time. Cold paths take it in this form, so that each is compiled once.
pub(super) type Ask<'a> = &'a dyn Fn(u64, u64) -> Outcome;

/// Whether a key has a cell or gets one. If it does not, the overflow bucket decides, with its whole debt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnCell {
    Yes,
    /// It gets one if the table has room.
    IfRoom,
}

/// The arguments with which a rule was called.
#[derive(Clone, Copy)]
pub(crate) struct RuleInput {
    pub(crate) word: u64,
    pub(crate) at_ns: u64,
    /// Whether the key had no cell, or one that was never charged.
    is_new: bool,
}
