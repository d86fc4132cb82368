//! Batches: allowed ones, ones that return units, and ones that are denied when they have charged their members.

use tollgate::Decision;
use tollgate::batch::{Member, MemberMode};
use tollgate::limit::Factor;

use super::call::{BatchCall, Call, OF_FLOOR};
use super::oracle::bucket::Figures;
use super::oracle::{Answer, CallKind};
use super::run::{Checks, Machine, is_charged};
use super::spec::{DENIES, FLOOR, KNOWN, RATES};

impl Machine {
    pub(crate) fn batch(
        &mut self,
        what: BatchCall,
        calls: &[(Call, MemberMode)],
    ) -> Result<(), String> {
        let calls = self.known(calls);
        if matches!(what, BatchCall::RefundAll | BatchCall::ResetAll) {
            return self.batch_by_hand(what, &calls);
        }
        let members: Vec<_> = calls.iter().filter_map(|it| self.member(it)).collect();
        let batch = self.limiter.batch(&members);
        let mut each_answer = Vec::new();
        // Only `spend_into` tells the ledger what was charged.
        let answer = match what {
            BatchCall::SpendAll if self.checks == Checks::All => batch.spend(),
            BatchCall::SpendAll | BatchCall::SpendEach => batch.spend_into(&mut each_answer),
            BatchCall::CheckAll => batch.check(),
            BatchCall::ChargeAll => unreachable!("it has a receipt"),
            BatchCall::RefundAll | BatchCall::ResetAll => unreachable!("they were made above"),
        };
        drop(members);
        let (expected, each) = match self.oracle.batch(what, &calls) {
            Ok((answer, each)) => (Ok(answer), each),
            Err(error) => (Err(error), Vec::new()),
        };
        let is_allowed =
            answer.as_ref().is_ok_and(Decision::allowed) && what != BatchCall::CheckAll;
        self.same(answer, expected, || format!("{what:?}"))?;
        for (at, &(call, mode)) in calls.iter().enumerate() {
            let is_member_charged = match each_answer.get(at) {
                Some(answer) => is_charged(answer),
                None => each.get(at).is_some_and(|it| it.figures.is_some_and(|it| it.allowed)),
            };
            self.note_spend(call, is_allowed && is_member_charged && mode != MemberMode::CheckOnly);
        }
        for ((each_answer, expected), (call, _)) in each_answer.iter().zip(&each).zip(&calls) {
            self.same(Ok(*each_answer), Ok(*expected), || format!("{what:?}: member {call:?}"))?;
        }
        Ok(())
    }

    /// The calls for limits that the limiter has.
    pub(crate) fn known(&self, calls: &[(Call, MemberMode)]) -> Vec<(Call, MemberMode)> {
        let is_known =
            |limit: usize| self.handles[limit].is_some() || self.permits.handle(limit).is_some();
        calls.iter().filter(|(call, _)| is_known(call.limit)).copied().collect()
    }

    pub(crate) fn member(&self, (call, mode): &(Call, MemberMode)) -> Option<Member<'_>> {
        if let Some(handle) = self.permits.handle(call.limit) {
            let member = handle.member(KNOWN[call.limit].id(call.id));
            return Some(member.cost(call.cost).mode(*mode));
        }
        let handle = self.handles[call.limit].as_ref()?;
        let factor = Factor::from_millionths(call.factor);
        let id = KNOWN[call.limit].id(call.id);
        let member = match call.leave {
            OF_FLOOR => handle.priority(FLOOR).expect("the floor is there").member(id),
            leave => handle.member(id).leaving(leave),
        };
        Some(member.cost(call.cost).mode(*mode).factor(factor))
    }

    /// Refunds or resets all members, one after the other.
    fn batch_by_hand(
        &mut self,
        what: BatchCall,
        calls: &[(Call, MemberMode)],
    ) -> Result<(), String> {
        let kind = if what == BatchCall::ResetAll { CallKind::Reset } else { CallKind::Refund };
        let given: Vec<Call> = calls
            .iter()
            .filter(|(_, mode)| *mode != MemberMode::CheckOnly)
            .map(|(call, _)| *call)
            .collect();
        let (answer, expected) = self.by_hand(kind, &given, |this| {
            let members: Vec<_> = calls.iter().filter_map(|it| this.member(it)).collect();
            let batch = this.limiter.batch(&members);
            let answer = if kind == CallKind::Reset { batch.reset() } else { batch.refund() };
            drop(members);
            let expected = this.oracle.batch(what, calls).map(|(answer, _)| answer);
            let is_made = answer.is_ok();
            ((answer, expected), is_made)
        });
        self.same(answer, expected, || format!("{what:?}"))
    }

    /// The limits that batches charge before the one that denies: those before it in the order of the limiter's limits. A limit
    /// that a reload brings has the place of a name that was forgotten, or the last one.
    fn charged_before_denier(&self) -> Vec<usize> {
        let limits = self.limiter.limits();
        let names = limits.entries().map(|entry| entry.name());
        let first = names.take_while(|name| *name != DENIES);
        first.filter_map(|name| KNOWN.iter().position(|known| known.name == name)).collect()
    }

    /// Makes a batch that is denied when it has charged its members.
    pub(crate) fn denied(&mut self, calls: &[(Call, MemberMode)]) -> Result<(), String> {
        let mut calls = self.known(calls);
        // Whether a batch charges a member in a network before the limit that denies is not known.
        calls.retain(|(call, _)| self.oracle.key_of(*call).0 < KNOWN.len());
        let denier = self.denier();
        let mut members: Vec<_> = calls.iter().filter_map(|it| self.member(it)).collect();
        members.push(denier.member("any"));
        let batch = self.limiter.batch(&members);
        let answer = match calls.iter().any(|(call, _)| call.limit >= RATES) {
            true => batch.spend_estimate().map(|(answer, _)| answer),
            false => batch.spend(),
        };
        drop(members);
        // What it would have been without the last member.
        let expected = self.oracle.clone().batch(BatchCall::ChargeAll, &calls);
        let first = self.charged_before_denier();
        let is_looked_at = |answer: &Answer| answer.figures.is_none_or(|figures| figures.allowed);
        let expected = match expected {
            Ok((found, each)) if is_looked_at(&found) && self.oracle.enabled => {
                let is_charged = |&((call, mode), answer): &(&(Call, MemberMode), &Answer)| {
                    let is_enforced = !self.oracle.terms.is_shadow(call.limit);
                    let is_charged = *mode == MemberMode::CheckAndSpend
                        && (first.contains(&call.limit) || call.limit >= RATES);
                    is_charged && is_enforced && answer.figures.is_some()
                };
                let charged: Vec<Call> =
                    calls.iter().zip(&each).filter(is_charged).map(|(it, _)| it.0).collect();
                self.held.denied(&mut self.oracle, &charged);
                let figures = Figures { allowed: false, remaining: 1, retry: 1, reset: 1 };
                let denied_by = Some(calls.len());
                Ok(Answer { figures: Some(figures), denied_by, blocked: false })
            }
            other => other.map(|(answer, _)| answer),
        };
        self.same(answer, expected, || "a denied batch".into())?;
        calls.iter().try_for_each(|(call, _)| self.check_in_flight((call.limit, call.id)))
    }
}
