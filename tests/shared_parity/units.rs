//! Partial grants, drains, and estimates that are settled at once.

use tollgate::limit::Factor;
use tollgate::{Decision, Error};

use super::answers::figures;
use super::call::{Call, ONE};
use super::node::ready;
use super::ops::Kind;
use super::oracle::{Answer, CallError, CallKind};
use super::spec::KNOWN;
use super::world::{InStore, World};

impl World {
    /// The shared bucket of a call, with the units that nodes hold of it. `None`: the node decides the call itself.
    pub(crate) fn place(
        &mut self,
        at: usize,
        call: Call,
    ) -> Result<Option<(InStore, u64)>, String> {
        let enabled = self.nodes[at].oracle.enabled;
        let place = self.in_store(at, call.limit, call.id).filter(|_| enabled);
        let Some(place) = place else { return Ok(None) };
        let held = self.look(place.key)?;
        self.note_mixed(place.key);
        self.buckets.bucket(place.key).touch(place.rule, self.now);
        Ok(Some((place, held.iter().sum())))
    }

    /// As [`place`](Self::place), for a call that may have a factor.
    fn place_scaled(&mut self, at: usize, call: Call) -> Result<Option<(InStore, u64)>, String> {
        let Some((place, leased)) = self.place(at, call)?.filter(|_| call.factor != 0) else {
            return Ok(None);
        };
        if call.factor != ONE && self.bucket(place.key).has_leases(self.now) {
            self.buckets.bucket(place.key).charge_beside_leases();
        }
        self.find_scaled(at, place.key, call);
        Ok(Some((place, leased)))
    }

    /// Spends as many units as there are.
    pub(crate) fn up_to(&mut self, at: usize, call: Call) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[call.limit].clone() else { return Ok(()) };
        let place = self.place_scaled(at, call)?;
        let id = KNOWN[call.limit].id(call.id);
        let granted = match call.factor {
            ONE => ready(handle.spend_up_to(id, call.cost)),
            by => ready(handle.scaled(Factor::from_millionths(by)).spend_up_to(id, call.cost)),
        };
        let (units, decision) = granted.map_err(|error| format!("{call:?}: {error}"))?;
        let answer = figures(&decision);
        let told = || format!("node {at}: up to {call:?}: {units} {answer:?}");
        let Some((place, leased)) = place else {
            let (expected, most) = self.nodes[at].oracle.spend_up_to(call);
            return match (answer, units) == (expected, most) {
                true => Ok(()),
                false => Err(format!("{}\n    expected {most} {expected:?}", told())),
            };
        };
        self.nodes[at].forget_denials(place.key);
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &[(place, leased, true)]);
        let (expected, most) = oracle.spend_up_to(call);
        let charges = decision.allowed() && !oracle.terms.is_shadow(call.limit);
        let used = Call { cost: units, ..call };
        if !self.bucket(place.key).is_sure {
            if answer.blocked != expected.blocked {
                return Err(format!("{}\n    expected {expected:?}", told()));
            }
            return if charges { self.used(at, place, used) } else { Ok(()) };
        }
        if (answer, units) != (expected, most) {
            return Err(format!("{}\n    expected {most} {expected:?}", told()));
        }
        let rule = self.nodes[at].oracle.rule(call).unwrap_or(place.rule);
        self.take_back(&mut oracle, (place, leased), rule, false);
        if charges {
            self.note_use(place, used);
        }
        Ok(())
    }

    /// Leaves the cost in the bucket.
    pub(crate) fn drain(&mut self, at: usize, call: Call) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[call.limit].clone() else { return Ok(()) };
        let place = self.place_scaled(at, call)?;
        let id = KNOWN[call.limit].id(call.id);
        let answer = match call.factor {
            ONE => ready(handle.drain(id, call.cost)),
            by => ready(handle.scaled(Factor::from_millionths(by)).drain(id, call.cost)),
        };
        let Some((place, leased)) = place else {
            let expected = self.nodes[at].oracle.call(CallKind::Drain, call);
            return self.same(answer, expected, || format!("drain {call:?}"));
        };
        self.nodes[at].forget_denials(place.key);
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &[(place, leased, true)]);
        let expected = oracle.call(CallKind::Drain, call);
        if !self.bucket(place.key).is_sure {
            // It has fewer units than before, or as many.
            return answer.map(drop).map_err(|error| format!("drain {call:?}: {error}"));
        }
        let rule = self.nodes[at].oracle.rule(call).unwrap_or(place.rule);
        self.take_back(&mut oracle, (place, leased), rule, false);
        self.same(answer, expected, || format!("drain {call:?}"))
    }

    /// Spends an estimate and settles it at once.
    pub(crate) fn settled(&mut self, at: usize, call: Call, actual: u64) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[call.limit].clone() else { return Ok(()) };
        let call = Call { factor: ONE, ..call };
        if self.nodes[at].oracle.terms.is_shadow(call.limit) {
            // The oracle does not know what such a limit has charged.
            return Ok(());
        }
        let place = self.place(at, call)?;
        let calls = self.store.calls();
        let charged = ready(handle.spend_estimate(KNOWN[call.limit].id(call.id), call.cost));
        let has_asked = self.store.calls() != calls;
        if place.is_some() && self.lease_ns(at, call.limit) > 0 {
            return match charged {
                Err(error) if error.is_leased() => Ok(()),
                charged => Err(format!("an estimate of a leased limit: {charged:?}")),
            };
        }
        let charged = charged.map(|(decision, receipt)| {
            (decision, receipt.map(|receipt| ready(receipt.settle(actual))))
        });
        let Some((place, leased)) = place else {
            let expected = self.nodes[at].oracle.settled(call, actual);
            return self.same_settled((call, actual), charged, expected);
        };
        match &charged {
            Ok((denied, None)) if !has_asked => {
                return self.by_denial((at, place), (Kind::Spend, call), figures(denied));
            }
            Ok((_, None)) => self.note_denial(at, place, leased),
            Ok(_) => self.nodes[at].forget_denials(place.key),
            Err(_) => {}
        }
        let has_leases = self.bucket(place.key).has_leases(self.now);
        let is_sure = self.bucket(place.key).is_sure && !has_leases;
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &[(place, leased, true)]);
        let expected = oracle.settled(call, actual);
        let is_allowed = charged.as_ref().is_ok_and(|(decision, _)| decision.allowed());
        let returns = is_allowed && actual < call.cost;
        self.is_in_ledger &= !is_allowed || actual <= call.cost;
        if returns {
            // The bucket may be full from now on, and no later call may have an earlier time.
            self.floor = self.floor.max(self.now);
        }
        if is_sure {
            self.same_settled((call, actual), charged, expected)?;
            self.take_back(&mut oracle, (place, leased), place.rule, false);
            if is_allowed && call.cost > 0 {
                // The text was written, also if it says in the end what it said before.
                let now = self.now;
                self.buckets.bucket(place.key).keep(place.rule, now, false);
            }
            if is_allowed {
                self.note_use(place, Call { cost: actual.min(call.cost), ..call });
            }
            return Ok(());
        }
        self.buckets.bucket(place.key).is_sure = false;
        match (charged, expected) {
            (Ok((decision, _)), Ok((expected, _))) if decision.blocked() == expected.blocked => {}
            (Err(error), Err(CallError::Cost)) if error.is_cost_above_burst() => return Ok(()),
            (charged, expected) => {
                return Err(format!("{call:?}: {charged:?}, expected {expected:?}"));
            }
        }
        if is_allowed {
            self.used(at, place, call)?;
        }
        if returns {
            // At most this comes back.
            let (now, back) = (self.now, i128::from(call.cost - actual));
            self.ledger.give(call.limit, call.id, now, back);
            let (state, _) = place.rule.refund(self.bucket(place.key).state, now, back);
            self.buckets.bucket(place.key).put(state, place.rule, now, true);
        }
        Ok(())
    }

    /// Compares an estimate and its settlement with the oracle's.
    fn same_settled(
        &self,
        (call, actual): (Call, u64),
        charged: Result<(Decision, Option<Result<Decision, Error>>), Error>,
        expected: Result<(Answer, Option<Answer>), CallError>,
    ) -> Result<(), String> {
        let (answer, after) = match charged {
            Ok((answer, after)) => (Ok(answer), after),
            Err(error) => (Err(error), None),
        };
        let first = expected.map(|expected| expected.0);
        self.same(answer, first, || format!("estimate {call:?}"))?;
        match (after, expected.ok().and_then(|expected| expected.1)) {
            (Some(after), Some(expected)) => {
                self.same(after, Ok(expected), || format!("settle {call:?} as {actual}"))
            }
            (None, None) => Ok(()),
            (after, expected) => Err(format!("{call:?}: {after:?}, expected {expected:?}")),
        }
    }
}
