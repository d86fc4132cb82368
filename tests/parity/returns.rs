//! Operations that return units: estimates, places, refunds and resets by hand.

use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::reserve::{Receipt, Reservation, ReserveError};

use super::call::{BatchCall, Call, ONE};
use super::held::{Claim, NoPlace};
use super::ledger::GrantId;
use super::oracle::bucket::Rule;
use super::oracle::{CallError, CallKind};
use super::receipts::BatchReceipt;
use super::run::{Checks, Machine};
use super::spec::KNOWN;

/// No place is cancelled, and no receipt settled, so near to an end of an override that the run does not know to the ns.
const NEAR_END_NS: i128 = 1_000_000_000;

/// A charge that a caller holds, and the oracle's.
pub(crate) struct Open {
    call: Call,
    what: OpenCharge,
    pub(crate) claim: Option<Claim>,
    granted: i128,
    grant: Option<GrantId>,
}

/// A reservation of a batch, and what the oracle and the ledger hold for each member.
pub(crate) struct BatchPlace {
    place: Reservation,
    members: Vec<(Call, Option<Claim>, Option<GrantId>)>,
}

impl BatchPlace {
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Option<Claim>> {
        self.members.iter().map(|(_, claim, _)| claim)
    }
}

enum OpenCharge {
    Receipt(Box<Receipt>),
    Place(Reservation),
}

/// Why there is no place; `None`: for a reason that only a full table has.
fn reason(error: &ReserveError) -> Option<NoPlace> {
    let ns = |time: &Duration| time.as_nanos() as i128;
    match error {
        ReserveError::NoPlaces { .. } => Some(NoPlace::NotGcra),
        ReserveError::Blocked { left } => Some(NoPlace::Blocked(ns(left))),
        ReserveError::NotInTime { needed } => Some(NoPlace::NotInTime(ns(needed))),
        ReserveError::TooFarAhead => Some(NoPlace::TooFarAhead),
        _ if error.is_never() => Some(NoPlace::Cost),
        ReserveError::Wrong(error) if error.is_invalid_batch() => Some(NoPlace::Batch),
        _ => None,
    }
}

impl Machine {
    /// Records units that a spend has charged. A limit in shadow mode admits more.
    pub(crate) fn note_spend(&mut self, call: Call, is_charged: bool) {
        if is_charged {
            let _ = self.note_grant(call, self.now(), false);
        }
    }

    fn note_grant(&mut self, call: Call, at: i128, is_place: bool) -> Option<GrantId> {
        let is_shadow = self.oracle.terms.is_shadow(call.limit);
        let rule = self.oracle.rule(call)?;
        if is_shadow || call.cost == 0 || matches!(rule, Rule::Permits { .. }) {
            return None;
        }
        let key = self.oracle.key_of(call);
        Some(self.ledger.grant_by(key, at, call.cost.into(), (rule, is_place)))
    }

    /// The time until the bucket is full, if a limit applies.
    pub(crate) fn reset_in(&self, (limit, id): (usize, usize)) -> Option<i128> {
        let answer = self.handle(limit)?.check(KNOWN[limit].id(id), 0).ok()?;
        answer.remaining().map(|_| answer.reset_in().as_nanos() as i128)
    }

    /// How much earlier a bucket is full than it was.
    fn lowered(&self, key: (usize, usize), before: Option<i128>) -> i128 {
        before.zip(self.reset_in(key)).map_or(0, |(before, after)| (before - after).max(0))
    }

    /// Returns one unit of the bucket once more, if that is planted.
    fn plant(&self, (limit, id): (usize, usize), lowered: i128) {
        if self.checks == Checks::BoundOfPlantedFault && lowered > 0 {
            let handle = self.handle(limit).expect("it was called");
            let _ = handle.refund(KNOWN[limit].id(id), 1).unwrap();
        }
    }

    /// Refunds or resets buckets by hand: `make` says which it has refunded or reset. Their vacant places are dropped, unless nothing was
    /// refunded.
    pub(crate) fn by_hand<R>(
        &mut self,
        kind: CallKind,
        calls: &[Call],
        make: impl FnOnce(&mut Machine) -> (R, bool),
    ) -> R {
        let before: Vec<_> = calls.iter().map(|it| self.reset_in((it.limit, it.id))).collect();
        let (result, is_made) = make(self);
        for (call, before) in calls.iter().zip(before) {
            let key = self.oracle.key_of(*call);
            let lowered = self.lowered((call.limit, call.id), before);
            match self.oracle.rule(*call).filter(|_| self.oracle.enabled && is_made) {
                Some(Rule::Gcra { .. }) => self.ledger.give_ns(key, lowered),
                Some(_) if kind == CallKind::Reset => self.ledger.reset(key.0, key.1, self.now()),
                Some(_) => self.ledger.give(key.0, key.1, 0, call.cost.into()),
                None => continue,
            }
            if kind == CallKind::Reset || call.cost > 0 {
                self.held.forget(key);
            }
            self.plant((call.limit, call.id), lowered);
        }
        result
    }

    /// Spends an estimate and keeps its receipt.
    pub(crate) fn charge(&mut self, call: Call) -> Result<(), String> {
        let call = Call { factor: ONE, ..call };
        let Some(handle) = self.handle(call.limit) else { return Ok(()) };
        let (answer, receipt) =
            match handle.spend_estimate(KNOWN[call.limit].id(call.id), call.cost) {
                Ok((answer, receipt)) => (Ok(answer), receipt),
                Err(error) => (Err(error), None),
            };
        let is_limited = answer.as_ref().is_ok_and(|answer| answer.remaining().is_some());
        let (expected, claim) = match self.held.spend(&mut self.oracle, call) {
            Ok((answer, claim)) => (Ok(answer), claim),
            Err(error) => (Err(error), None),
        };
        self.same(answer, expected, || format!("charge {call:?}"))?;
        if let Some(receipt) = receipt {
            let now = self.now();
            let grant = if is_limited { self.note_grant(call, now, false) } else { None };
            let what = OpenCharge::Receipt(Box::new(receipt));
            self.open.push(Open { call, what, claim, granted: now, grant });
        }
        Ok(())
    }

    /// Reserves a place, and keeps it.
    pub(crate) fn reserve(&mut self, call: Call, at_most: u64) -> Result<(), String> {
        let call = Call { factor: ONE, ..call };
        let Some(handle) = self.handle(call.limit) else { return Ok(()) };
        let id = KNOWN[call.limit].id(call.id);
        let place = handle.reserve(id, call.cost, Duration::from_nanos(at_most));
        let expected = self.held.reserve(&mut self.oracle, call, at_most.into());
        let found = match &place {
            Ok(place) => Ok(place.wait().as_nanos() as i128),
            Err(error) => Err(reason(error)),
        };
        let wanted = expected.map(|(wait, _)| wait).map_err(Some);
        if found != wanted && self.checks == Checks::All {
            return Err(format!("reserve {call:?}: {found:?}, expected {wanted:?}"));
        }
        if let Ok(place) = place {
            let granted = self.now() + place.wait().as_nanos() as i128;
            let is_limited = self.oracle.enabled;
            let grant = if is_limited { self.note_grant(call, granted, true) } else { None };
            let claim = expected.ok().and_then(|(_, claim)| claim);
            self.open.push(Open { call, what: OpenCharge::Place(place), claim, granted, grant });
        }
        Ok(())
    }

    /// Reserves a batch, and keeps its places.
    pub(crate) fn reserve_batch(&mut self, calls: &[Call], at_most: u64) -> Result<(), String> {
        let calls: Vec<_> = calls.iter().map(|&call| (call, MemberMode::CheckAndSpend)).collect();
        let calls = self.known(&calls);
        let members: Vec<_> = calls.iter().filter_map(|it| self.member(it)).collect();
        let place = self.limiter.batch(&members).reserve(Duration::from_nanos(at_most));
        drop(members);
        let is_valid = self.oracle.clone().batch(BatchCall::CheckAll, &calls);
        let calls: Vec<Call> = calls.into_iter().map(|(call, _)| call).collect();
        let expected = match is_valid {
            Ok(_) => self.held.reserve_batch(&mut self.oracle, &calls, at_most.into()),
            Err(CallError::Cost) => Err(NoPlace::Cost),
            Err(CallError::Batch) => Err(NoPlace::Batch),
        };
        let found = match &place {
            Ok(place) => Ok(place.wait().as_nanos() as i128),
            Err(error) => Err(reason(error)),
        };
        let wanted = expected.as_ref().map(|(wait, _)| *wait).map_err(|&no| Some(no));
        if found != wanted && self.checks == Checks::All {
            return Err(format!("reserve {calls:?}: {found:?}, expected {wanted:?}"));
        }
        let Ok(place) = place else { return Ok(()) };
        let granted = self.now() + place.wait().as_nanos() as i128;
        let claims = expected.map_or_else(|_| vec![None; calls.len()], |(_, claims)| claims);
        let members = calls.into_iter().zip(claims).map(|(call, claim)| {
            let is_limited = self.oracle.enabled;
            let grant = if is_limited { self.note_grant(call, granted, true) } else { None };
            // The time in front of the place is vacant.
            grant.into_iter().for_each(|grant| self.ledger.vacate(grant));
            (call, claim, grant)
        });
        let members = members.collect();
        self.places.push(BatchPlace { place, members });
        Ok(())
    }

    /// Takes a reservation of a batch, unless an end of a member's override is near.
    fn take_place(&mut self, at: usize) -> Option<BatchPlace> {
        let at = at.checked_rem(self.places.len())?;
        let is_near = self.places[at].claims().copied().flatten().any(|claim| {
            claim.charge.and_then(|charge| charge.end).is_some_and(|end| self.is_near(end))
        });
        (!is_near).then(|| self.places.swap_remove(at))
    }

    pub(crate) fn cancel_batch(&mut self, at: usize) -> Result<(), String> {
        let Some(BatchPlace { place, members }) = self.take_place(at) else { return Ok(()) };
        let before: Vec<_> =
            members.iter().map(|(call, ..)| self.reset_in((call.limit, call.id))).collect();
        place.cancel();
        for ((call, claim, grant), before) in members.into_iter().zip(before) {
            let now = self.now();
            self.held.cancel(&mut self.oracle, claim, now);
            grant.into_iter().for_each(|grant| self.ledger.cancel(grant));
            self.note_returned(call, (claim, before), call.cost.into())?;
            self.one(CallKind::Check, call.of_nothing())?;
        }
        Ok(())
    }

    pub(crate) fn keep_batch(&mut self, at: usize) {
        let Some(BatchPlace { place, members }) = self.take_place(at) else { return };
        let members = members.into_iter().map(|(call, claim, _)| (call, claim)).collect();
        self.receipts.push(BatchReceipt::of_places(place.into_receipt(), members));
    }

    /// Takes a charge that is held, if it is of the wanted kind, and no end of its override is near that is not known to the
    /// ns: one that changes nothing for the id.
    fn take(&mut self, at: usize, is_wanted: impl Fn(&OpenCharge) -> bool) -> Option<Open> {
        let at = at.checked_rem(self.open.len())?;
        let open = &self.open[at];
        let end = open.claim.and_then(|claim| claim.charge).and_then(|charge| charge.end);
        let is_near = end.is_some_and(|end| self.is_near(end));
        (is_wanted(&open.what) && !is_near).then(|| self.open.swap_remove(at))
    }

    pub(crate) fn is_near(&self, end: i128) -> bool {
        (end - self.now()).abs() < NEAR_END_NS
    }

    pub(crate) fn keep(&mut self, at: usize) {
        let Some(open) = self.take(at, |what| matches!(what, OpenCharge::Place(_))) else { return };
        let OpenCharge::Place(place) = open.what else { return };
        let what = OpenCharge::Receipt(Box::new(place.into_receipt()));
        self.open.push(Open { what, ..open });
    }

    pub(crate) fn settle(&mut self, at: usize, actual: u64) -> Result<(), String> {
        let Some(open) = self.take(at, |what| matches!(what, OpenCharge::Receipt(_))) else {
            return Ok(());
        };
        let OpenCharge::Receipt(receipt) = open.what else { return Ok(()) };
        let units = open.call.cost.saturating_sub(actual);
        let before = self.reset_in((open.call.limit, open.call.id));
        let answer = receipt.settle(actual);
        let expected = self.held.settle(&mut self.oracle, open.claim, actual);
        self.note_returned(open.call, (open.claim, before), units.into())?;
        self.same(Ok(answer), Ok(expected), || format!("settle {:?} as {actual}", open.call))
    }

    pub(crate) fn cancel(&mut self, at: usize) -> Result<(), String> {
        let Some(open) = self.take(at, |what| matches!(what, OpenCharge::Place(_))) else {
            return Ok(());
        };
        let OpenCharge::Place(place) = open.what else { return Ok(()) };
        let before = self.reset_in((open.call.limit, open.call.id));
        place.cancel();
        self.held.cancel(&mut self.oracle, open.claim, open.granted);
        let is_vacant = open.claim.is_some_and(|claim| claim.leaves_vacant);
        if let Some(grant) = open.grant.filter(|_| is_vacant || open.granted > self.now()) {
            self.ledger.cancel(grant);
        }
        self.note_returned(open.call, (open.claim, before), open.call.cost.into())?;
        self.one(CallKind::Check, open.call.of_nothing())
    }

    /// Records what a settlement or a cancel of a charge has returned. In a full table the bucket may be one that other ids
    /// share.
    pub(crate) fn note_returned(
        &mut self,
        call: Call,
        (claim, before): (Option<Claim>, Option<i128>),
        units: i128,
    ) -> Result<(), String> {
        let (limit, key) = (call.limit, (call.limit, call.id));
        if let Some(Claim { key, .. }) = claim
            && key != self.oracle.key_of(call)
        {
            // The address has another bucket by now.
            match self.oracle.terms.rule_of(key, self.now()) {
                Some(Rule::Gcra { interval, .. }) => self.ledger.give_ns(key, units * interval),
                Some(_) => self.ledger.give(key.0, key.1, 0, units),
                None => {}
            }
            return Ok(());
        }
        let lowered = self.lowered(key, before);
        let is_shared = self.checks == Checks::Bound;
        let ids = if is_shared { 0..KNOWN[limit].ids.len() } else { call.id..call.id + 1 };
        for id in ids {
            let of = self.oracle.terms.key_of(limit, id, self.now());
            match self.oracle.terms.rule(limit, id, self.now()) {
                Some(Rule::Gcra { interval, .. }) => {
                    let shared = if is_shared { units * interval } else { 0 };
                    let own = if id == call.id { lowered } else { 0 };
                    self.ledger.give_ns(of, own.max(shared));
                }
                Some(_) => self.ledger.give(of.0, of.1, 0, units),
                None => {}
            }
        }
        self.plant(key, lowered);
        Ok(())
    }
}
