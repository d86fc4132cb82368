//! Records a charge, so that its units can be returned or more units be charged later.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::Outcome;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::Gcra;
use crate::core::at_cap::Owes;
use crate::core::generation::Generation;
use crate::core::places::Place;
use crate::core::returns::ReturnableCharge;
use crate::core::spent::{Charge, ChargedTo, Spent};
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limiter::other_handles::needs_store;
use crate::limiter::reserve::wanted::{TOO_FAR_NS, Wanted, look_at, spend};
use crate::limits::{Applying, Id, Limits, Scratch, encode};
use crate::observe::tally::Tally;
use crate::store::key::{Key, KeyRef, LimitIndex, LimitTag};
use crate::store::{Outdated, StoreKey};
use crate::util::time::saturating_ns;

/// A charge, and the bucket that it was made to.
pub(crate) struct Claim {
    key: Key,
    /// The limit that applied to the key.
    tag: LimitTag,
    cost: u64,
    /// The caller's factor, which scaled the limit.
    factor: Factor,
    to: ChargedTo,
    mark: ChargeMark,
    /// Whether the shadow bucket was charged as well.
    pub(crate) is_in_shadow: bool,
    /// Whether the units are permits, which go back when their receipt is dropped.
    pub(super) is_of_permits: bool,
    /// The member's position in its batch; [`Claim::ALONE`] for the charge of a call for one limit.
    position: u32,
}

const _: () = assert!(size_of::<Claim>() <= 64, "a receipt has room for eight");

/// The claims of a batch; up to eight are kept without an allocation.
pub(crate) type Claims = SmallVec<[Claim; 8]>;

/// The limiter and the limits by which claims were made.
#[derive(Clone)]
pub(crate) struct ClaimedBy {
    limiter: Limiter,
    limits: Arc<Limits>,
    generation: u64,
}

/// The result of a call that may charge.
pub(super) struct Claimed {
    pub(super) decision: Decision,
    /// `None` if no limit applies.
    pub(super) claim: Option<(ClaimedBy, Claim)>,
    /// The charge that was stored.
    pub(super) charge: Option<Charge>,
    pub(super) refused: Option<Refused>,
    pub(super) is_in_shadow_mode: bool,
    /// See [`Reservation`](super::Reservation).
    pub(super) leaves_vacant: bool,
    /// How the call is counted if it is allowed; `None` if no limit applies.
    pub(super) counted: Option<CountedCall>,
    /// Whether the limit has a shadow limit that must be charged as well.
    has_shadow: bool,
}

/// An allowed call as it is counted.
#[derive(Clone, Copy)]
pub(crate) struct CountedCall {
    pub(crate) decision: Decision,
    pub(crate) burst: u64,
    /// 0 for a call that a limit in shadow mode would have denied.
    pub(crate) cost: u64,
    /// Whether a limit that only tries would have denied the call.
    pub(crate) would_deny: bool,
}

/// Why a call was denied, if not for want of units.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// The id is blocked, for this time.
    Blocked { left_ns: u64 },
    /// The table is full.
    NoRoom,
    /// A reservation that would be granted beyond the range of the clock.
    TooFarAhead,
    /// The limit's algorithm has no places in the future.
    NoPlaces { algorithm: &'static str },
}

impl Claimed {
    const UNLIMITED: Claimed = Claimed {
        decision: Decision::UNLIMITED,
        claim: None,
        charge: None,
        refused: None,
        is_in_shadow_mode: false,
        leaves_vacant: false,
        counted: None,
        has_shadow: false,
    };

    fn refused(refused: Refused) -> Claimed {
        let decision = Decision::new(false, (0, 1), 0, 0);
        Claimed { decision, refused: Some(refused), ..Claimed::UNLIMITED }
    }
}

impl KeyedLimit {
    /// Whether the limit that applies to the id has places, or none applies.
    pub(crate) fn has_places(&self, id: Id<'_>) -> Result<bool, Error> {
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        Ok(self.limiter.inner.with_view(|view| {
            let key = KeyRef { limit: self.index, id };
            let applies = view.generation.limits.applying(key, view.limits_now_ns());
            Ok(applies.is_none_or(|applying| applying.limit.rule().gcra().is_some()))
        }))
    }

    /// Counts a call for the id that was denied.
    pub(crate) fn count_refusal(&self, id: Id<'_>, decision: &Decision, now_ns: u64) {
        let mut scratch = Scratch::new();
        if let (Some(stripes), Ok(id)) = (&self.stripes, encode(self.format, id, &mut scratch)) {
            self.count_denied(stripes, id, decision, now_ns);
        }
    }

    /// Charges `cost` units to the id's bucket as it is wanted, and counts the call. With a cost of 0 it charges nothing. A
    /// limit in shadow mode is charged by a plain spend.
    pub(super) fn claim(
        &self,
        id: Id<'_>,
        cost: u64,
        now_ns: u64,
        wanted: Wanted,
    ) -> Result<Claimed, Error> {
        if !self.limiter.inner.is_enabled() {
            return Ok(Claimed::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        self.claim_key(key, cost, now_ns, wanted)
    }

    /// Charges `cost` units to the bucket of a key of this limit, as [`claim`](KeyedLimit::claim) does.
    pub(super) fn claim_key(
        &self,
        key: KeyRef<'_>,
        cost: u64,
        now_ns: u64,
        wanted: Wanted,
    ) -> Result<Claimed, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Claimed::UNLIMITED);
        }
        let claimed = inner.with_view(|view| self.claim_in(view, key, cost, now_ns, wanted));
        let mut claimed = claimed.inspect_err(|_| self.tally.count_error())?;
        if let Some((_, claim)) = &claimed.claim {
            claim.count_in_flight(&self.tally);
        }
        if claimed.has_shadow && !wanted.looks() {
            let would_deny = inner.in_shadow(key, Factor::ONE, Call::Spend(cost), now_ns);
            match claimed.counted.as_mut().filter(|_| wanted.is_of_batch()) {
                Some(counted) => counted.would_deny = would_deny,
                None => self.note_shadow(would_deny),
            }
            if let Some((_, claim)) = &mut claimed.claim {
                claim.is_in_shadow = !would_deny;
            }
        }
        Ok(claimed)
    }

    fn claim_in(
        &self,
        view: LimitsView<'_>,
        key: KeyRef<'_>,
        cost: u64,
        now_ns: u64,
        wanted: Wanted,
    ) -> Result<Result<Claimed, Error>, Outdated> {
        let applies = view.generation.limits.applying(key, view.limits_ns(now_ns));
        let Some(Applying { key, entry, limit, tag }) = applies else {
            return Ok(Ok(Claimed::UNLIMITED));
        };
        let limit = &*self.with_set_max(limit, tag);
        if entry.is_shared() {
            return Ok(Err(needs_store(&entry.name)));
        }
        if wanted.place().is_some() && limit.rule().gcra().is_none() {
            let algorithm = limit.rule().name();
            return Ok(Ok(Claimed::refused(Refused::NoPlaces { algorithm })));
        }
        let (is_above, is_in_shadow_mode) = (cost > limit.burst(), entry.is_shadow());
        if is_above && !is_in_shadow_mode {
            return Ok(Err(limit.cost_error(cost.into(), Some(self.name()))));
        }
        let charged = if is_above { 0 } else { cost };
        let store_key = view.store_key(key, tag);
        let (mut refused, is_in_vacant) = (None, Cell::new(false));
        let blocked_ns = view.blocked_ns(&store_key, now_ns);
        let mut spent = match blocked_ns.filter(|&left_ns| wanted.is_blocked_for(left_ns, now_ns)) {
            Some(left_ns) => {
                refused = Some(Refused::Blocked { left_ns });
                Spent::nothing(view.denied_by_block(&store_key, limit, charged, now_ns, left_ns)?)
            }
            None if is_in_shadow_mode && wanted.looks() => Spent::nothing(Decision::UNLIMITED),
            None => {
                let wanted = if is_in_shadow_mode { Wanted::Now } else { wanted };
                spend(view, &store_key, (limit, charged), now_ns, wanted, &is_in_vacant)?
            }
        };
        let is_denied = !spent.decision.allowed();
        let would_deny = is_above || is_denied;
        if is_denied && refused.is_none() {
            if saturating_ns(spent.decision.retry_in()) == TOO_FAR_NS {
                refused = Some(Refused::TooFarAhead);
            } else if charged > 0 && spent.to == ChargedTo::Nothing {
                refused = Some(Refused::NoRoom);
            }
        }
        if is_in_shadow_mode {
            self.note_shadow(would_deny && !wanted.looks() && !wanted.is_of_batch());
            spent.decision = spent.decision.in_shadow();
        }
        // The decision about a reservation has its wait, but not the remaining units. A check at a cost of 0 has them.
        let counted = match self.is_counting() && !would_deny {
            true => look_at(view, &store_key, limit, now_ns).unwrap_or(spent.decision).in_shadow(),
            false => spent.decision,
        };
        let counted_cost = if would_deny { 0 } else { cost };
        if wanted.is_counted(counted.allowed()) {
            self.count(key.id, limit, counted_cost, &counted, now_ns);
        }
        Ok(Ok(Claimed {
            decision: spent.decision,
            claim: Some((
                ClaimedBy::new(&self.limiter, view),
                Claim::new(&store_key, (limit, cost), Factor::ONE, spent),
            )),
            charge: spent.charge,
            is_in_shadow_mode,
            leaves_vacant: is_in_vacant.get() || wanted.is_of_batch(),
            counted: Some(CountedCall {
                decision: counted,
                burst: limit.burst(),
                cost: counted_cost,
                would_deny: is_in_shadow_mode && would_deny,
            }),
            has_shadow: entry.shadow_beside(tag).is_some()
                && !matches!(refused, Some(Refused::Blocked { .. }))
                && (wanted != Wanted::NowOrLater || !is_denied),
            refused,
        }))
    }
}

impl ClaimedBy {
    #[inline]
    pub(crate) fn new(limiter: &Limiter, view: LimitsView<'_>) -> ClaimedBy {
        let Generation { limits, number, .. } = view.generation;
        ClaimedBy { limiter: limiter.clone(), limits: limits.clone(), generation: *number }
    }

    /// Whether both are the same limits of the same limiter.
    pub(super) fn is_same(&self, other: &ClaimedBy) -> bool {
        Arc::ptr_eq(&self.limits, &other.limits)
    }

    /// Reads the limiter's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.limiter.inner.clock.now_ns()
    }

    /// Returns the limiter's state, unless the limiter is switched off.
    fn enabled(&self) -> Option<&LimiterState> {
        Some(&*self.limiter.inner).filter(|inner| inner.is_enabled())
    }

    /// Calls `then` with the bucket of a claim under the limits that apply now; `None` if no limit applies any more, and while
    /// the limiter is switched off.
    fn with_bucket<R>(
        &self,
        claim: &Claim,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<R, Outdated>,
    ) -> Option<R> {
        self.enabled()?.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running, and the charge was made under its limits.
                return Err(Outdated);
            }
            let key = claim.key.as_ref();
            let entry = view.generation.limits.entry_of(key.limit, self.generation);
            let Some((limit, tag)) = entry.limit_for(key.id, view.limits_now_ns()) else {
                return Ok(None);
            };
            let store_key = view.store_key(key, tag);
            let is_scaled = claim.factor != Factor::ONE;
            let scaled = is_scaled.then(|| view.scaled(key.limit, limit, claim.factor, true).ok());
            let limit = match &scaled {
                None => limit,
                Some(Some(Some(scaled))) => scaled,
                Some(_) => return Ok(None),
            };
            then(view, &store_key, limit).map(Some)
        })
    }
}

impl Claim {
    /// Records a charge by a limit of gcra, without a factor, to the bucket of the key itself.
    #[inline(always)]
    pub(crate) fn of_gcra(key: KeyRef<'_>, tag: LimitTag, gcra: &Gcra, cost: u64) -> Claim {
        let (to, mark) = (ChargedTo::OwnCell, gcra.mark());
        let (key, factor, position) = (Key::new(key), Factor::ONE, Claim::ALONE);
        let (is_in_shadow, is_of_permits) = (false, false);
        Claim { key, tag, cost, factor, to, mark, is_in_shadow, is_of_permits, position }
    }

    const ALONE: u32 = u32::MAX;

    /// Records a charge of `cost` units by the key's limit scaled by `factor`.
    #[inline]
    pub(crate) fn new(
        key: &StoreKey<'_>,
        (limit, cost): (&Limit, u64),
        factor: Factor,
        spent: Spent,
    ) -> Claim {
        let (to, mark) = match spent.charge {
            Some(charge) => (spent.to, charge.mark),
            None => (ChargedTo::Nothing, ChargeMark(0)),
        };
        let tag = key.tag;
        let key = Key::new(key.key);
        let (is_of_permits, position) = (limit.rule().is_concurrency(), Claim::ALONE);
        let is_in_shadow = false;
        Claim { key, tag, cost, factor, to, mark, is_in_shadow, is_of_permits, position }
    }

    /// The claim of the member at `position` of a batch.
    #[inline]
    pub(crate) fn of_member(self, position: usize) -> Claim {
        Claim { position: position as u32, ..self }
    }

    pub(crate) fn set_position(&mut self, position: usize) {
        self.position = position as u32;
    }

    /// The units of the call.
    #[inline]
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The member's position in its batch; 0 for a call for one limit.
    pub(crate) fn position(&self) -> usize {
        if self.position == Claim::ALONE { 0 } else { self.position as usize }
    }

    /// The limit whose bucket of ids without room was charged, if it was.
    pub(crate) fn shared_bucket(&self) -> Option<LimitIndex> {
        (self.to == ChargedTo::Overflow).then(|| self.key.as_ref().limit)
    }

    /// Returns the charge, if something was charged.
    fn charged<'l>(&self, by: &'l ClaimedBy) -> Option<ReturnableCharge<'l>> {
        let (limits, generation) = (&*by.limits, by.generation);
        let Claim { tag, to, mark, .. } = *self;
        (to != ChargedTo::Nothing).then_some(ReturnableCharge { limits, generation, tag, to, mark })
    }

    /// Decides a [`check`](KeyedLimit::check) of the bucket at a cost of 0. A block is no matter of the bucket, and does not
    /// count.
    pub(crate) fn look(&self, by: &ClaimedBy) -> Decision {
        let now_ns = by.now_ns();
        let decision = by.with_bucket(self, |view, key, limit| {
            let decision = look_at(view, key, limit, now_ns)?;
            let is_in_shadow_mode = view.generation.limits.entry(key.key.limit).is_shadow();
            Ok(if is_in_shadow_mode { decision.in_shadow() } else { decision })
        });
        decision.unwrap_or(Decision::UNLIMITED)
    }

    /// Returns `units` of the charge's units.
    pub(crate) fn give_back(&self, by: &ClaimedBy, units: u64) {
        let Some((inner, charged)) = by.enabled().zip(self.charged(by)) else { return };
        let is_returned = charged.give_back(inner, self.key.as_ref(), units);
        if is_returned {
            charged.return_vacant(inner, self.key.as_ref());
        }
        if is_returned && self.is_in_shadow {
            self.in_shadow(by, Call::Refund(units));
        }
    }

    /// Gives the permits back, also while the limiter is switched off.
    pub(super) fn release(&self, by: &ClaimedBy) {
        let (inner, key) = (&*by.limiter.inner, self.key.as_ref());
        let Some(charged) = self.charged(by) else { return };
        inner.with_view(|view| {
            // Also if the limit is lifted by now: its figure outlasts that, but not the name.
            let limit = by.limits.public(key.limit);
            if !view.generation.limits.entry_of(limit, by.generation).name.is_empty() {
                view.generation.tallies.of(limit).count_in_flight(self.cost.wrapping_neg());
            }
            Ok(())
        });
        charged.give_back(inner, key, self.cost);
    }

    /// Counts the permits as being in flight, for operators.
    pub(crate) fn count_in_flight(&self, tally: &Tally) {
        if self.is_of_permits && self.to != ChargedTo::Nothing {
            tally.count_in_flight(self.cost);
        }
    }

    /// Charges `units` more units, even if the bucket does not have them. The bucket then owes at most the limit's
    /// [`max_debt`](crate::limits::LimitOptions::max_debt).
    fn owe(&self, by: &ClaimedBy, units: u64) {
        let now_ns = by.now_ns();
        by.with_bucket(self, |view, key, limit| {
            let entry = view.generation.limits.entry(key.key.limit);
            if entry.is_shadow() && self.cost > 0 && self.to == ChargedTo::Nothing {
                // The limit would have denied the estimate, so nothing of the call is charged.
                return Ok(());
            }
            let max_debt = entry.max_debt_at(key.tag);
            let ask = |word, now_ns| Outcome {
                word: limit.rule().owe(word, now_ns, units, max_debt),
                decision: Decision::UNLIMITED,
            };
            view.charge(key, limit, (now_ns, Owes::WholeDebt), ask).map(drop)
        });
        // A plain spend charges the shadow bucket only if it has the units: only the enforced limit has debt.
        self.in_shadow(by, Call::Spend(units));
    }

    /// Replaces the estimate by the actual cost, and decides a check of the bucket at a cost of 0.
    pub(crate) fn settle(&self, by: &ClaimedBy, actual: u64) -> Decision {
        match actual.checked_sub(self.cost) {
            None => self.give_back(by, self.cost - actual),
            Some(0) => {}
            Some(more) => self.owe(by, more),
        }
        let settled = self.look(by);
        if self.position == Claim::ALONE { settled } else { settled.for_member(self.position()) }
    }

    /// Repeats a call on the shadow of the bucket, if it has one.
    fn in_shadow(&self, by: &ClaimedBy, call: Call) {
        let Some(inner) = by.enabled() else { return };
        let now_ns = inner.clock.now_ns();
        let charged = (self.key.as_ref(), by.generation);
        let _ = inner.in_shadow_capped(charged, self.factor, call, now_ns);
    }

    /// Cancels the reservation that has made the charge `charge` and is granted at `granted_at_ns`: see
    /// [`Reservation::cancel`](super::Reservation::cancel).
    pub(super) fn cancel(&self, by: &ClaimedBy, charge: Charge, granted_at_ns: u64) {
        // A place that was granted at once is a spend, also if the clock has gone back since.
        if by.now_ns().max(charge.now_ns) >= granted_at_ns {
            return self.give_back(by, self.cost);
        }
        self.vacate(by, charge, self.cost);
    }

    /// Vacates the last `units` units of the place that has made the charge `charge`, also if its time has come.
    pub(crate) fn vacate(&self, by: &ClaimedBy, charge: Charge, units: u64) {
        let now_ns = by.now_ns();
        let Some((inner, charged)) = by.enabled().zip(self.charged(by)) else { return };
        // The mark of a place is the interval by which it was charged.
        let (end_ns, length_ns) = (charge.word, self.mark.0.saturating_mul(units));
        let place = Place { start_ns: end_ns.saturating_sub(length_ns), end_ns };
        let is_vacated = charged.vacate(inner, self.key.as_ref(), place, now_ns);
        if is_vacated && self.is_in_shadow {
            self.in_shadow(by, Call::Refund(units));
        }
    }
}
