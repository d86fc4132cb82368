//! Batches of estimates: their receipts are settled as a whole, or member by member.

use tollgate::batch::MemberMode;
use tollgate::reserve::Receipt;

use super::call::Call;
use super::held::Claim;
use super::oracle::Answer;
use super::run::{Checks, Machine};
use super::spec::RATES;

/// A receipt of a batch, and the oracle's claim of each member.
pub(crate) struct BatchReceipt {
    receipt: Receipt,
    members: Vec<(Call, Option<Claim>)>,
    /// The permits that the members have taken.
    taken: Vec<Option<u64>>,
}

impl BatchReceipt {
    /// A receipt without permits.
    pub(crate) fn of_places(receipt: Receipt, members: Vec<(Call, Option<Claim>)>) -> BatchReceipt {
        let taken = vec![None; members.len()];
        BatchReceipt { receipt, members, taken }
    }

    /// Settles members at their estimates, which changes nothing.
    pub(crate) fn let_go(&mut self, is: impl Fn(&Option<Claim>) -> bool) {
        for (position, (call, claim)) in self.members.iter_mut().enumerate() {
            if is(claim) {
                let _ = self.receipt.settle_member(position, call.cost);
                *claim = None;
            }
        }
    }
}

impl Machine {
    /// Spends a batch of estimates and keeps its receipt.
    pub(crate) fn charge_batch(&mut self, calls: &[(Call, MemberMode)]) -> Result<(), String> {
        let calls = self.known(calls);
        let members: Vec<_> = calls.iter().filter_map(|it| self.member(it)).collect();
        let before: Vec<_> =
            calls.iter().map(|(call, _)| self.in_flight((call.limit, call.id))).collect();
        let charged = self.limiter.batch(&members).spend_estimate();
        drop(members);
        let (answer, receipt) = match charged {
            Ok((answer, receipt)) => (Ok(answer), receipt),
            Err(error) => (Err(error), None),
        };
        if let Ok(answer) = &answer
            && answer.allowed() != receipt.is_some()
        {
            return Err(format!("{answer:?} has the receipt {receipt:?}"));
        }
        let (expected, claims) = match self.held.spend_batch(&mut self.oracle, &calls) {
            Ok((answer, claims)) => (Ok(answer), claims),
            Err(error) => (Err(error), vec![None; calls.len()]),
        };
        self.same(answer, expected, || format!("a batch of estimates {calls:?}"))?;
        let Some(receipt) = receipt else { return Ok(()) };
        for (&(call, mode), claim) in calls.iter().zip(&claims) {
            let is_charged = match (self.checks, mode) {
                (Checks::All, _) => claim.is_some_and(|claim| claim.charge.is_some()),
                // The oracle does not know whether a full table has charged a member that only spends.
                (_, mode) => mode == MemberMode::CheckAndSpend,
            };
            self.note_spend(call, is_charged && self.oracle.enabled);
        }
        let taken = calls.iter().zip(before).map(|(&(call, mode), before)| {
            if call.limit < RATES { Ok(None) } else { self.note_taken(call, mode, before) }
        });
        let taken = taken.collect::<Result<_, _>>()?;
        let members = calls.iter().map(|it| it.0).zip(claims).collect();
        self.receipts.push(BatchReceipt { receipt, members, taken });
        calls.iter().try_for_each(|(call, _)| self.check_in_flight((call.limit, call.id)))
    }

    /// Takes a receipt, unless an end of a member's override is near.
    fn take_receipt(&mut self, at: usize) -> Option<BatchReceipt> {
        let at = at.checked_rem(self.receipts.len())?;
        let claims = self.receipts[at].members.iter().filter_map(|(_, claim)| *claim);
        let mut ends = claims.filter_map(|claim| claim.charge.and_then(|charge| charge.end));
        let is_near = ends.any(|end| self.is_near(end));
        (!is_near).then(|| self.receipts.swap_remove(at))
    }

    /// Settles all members that are not settled, in their order.
    pub(crate) fn settle_batch(&mut self, at: usize, actual: u64) -> Result<(), String> {
        let Some(BatchReceipt { receipt, members, taken }) = self.take_receipt(at) else {
            return Ok(());
        };
        let before: Vec<_> = members.iter().map(|(call, _)| self.reset_in_of(*call)).collect();
        let answer = receipt.settle(actual);
        let mut strictest = Answer::UNLIMITED;
        self.note_released(&members, &taken)?;
        let units = members.iter().enumerate().filter(|(_, (call, _))| call.limit < RATES);
        for (position, (call, claim)) in units {
            if claim.is_some() {
                let own = self.settle_by_oracle(position, *claim, actual);
                strictest = strictest.stricter(own);
            }
            let units = call.cost.saturating_sub(actual);
            self.note_returned(*call, (*claim, before[position]), units.into())?;
        }
        self.same(Ok(answer), Ok(strictest), || format!("settle {members:?} as {actual}"))
    }

    /// Drops a receipt, whose permits go back.
    pub(crate) fn drop_receipt(&mut self, at: usize) -> Result<(), String> {
        let Some(at) = at.checked_rem(self.receipts.len()) else { return Ok(()) };
        let BatchReceipt { receipt, members, taken } = self.receipts.swap_remove(at);
        drop(receipt);
        self.note_released(&members, &taken)
    }

    /// Notes that the permits of a receipt went back.
    fn note_released(
        &mut self,
        members: &[(Call, Option<Claim>)],
        taken: &[Option<u64>],
    ) -> Result<(), String> {
        let permits = members.iter().zip(taken).filter(|((call, _), _)| call.limit >= RATES);
        for ((_, claim), taken) in permits {
            self.note_back(*claim, *taken);
        }
        members.iter().try_for_each(|(call, _)| self.check_in_flight((call.limit, call.id)))
    }

    pub(crate) fn settle_member(
        &mut self,
        at: usize,
        position: usize,
        actual: u64,
    ) -> Result<(), String> {
        let Some(mut open) = self.take_receipt(at) else { return Ok(()) };
        if open.members.get(position).is_some_and(|(call, _)| call.limit >= RATES) {
            let answer = open.receipt.settle_member(position, actual);
            self.receipts.push(open);
            return answer.map_or(Ok(()), |answer| Err(format!("permits are settled: {answer:?}")));
        }
        let member = open.members.get_mut(position);
        let (call, claim) =
            member.map_or((None, None), |(call, claim)| (Some(*call), claim.take()));
        let before = call.and_then(|call| self.reset_in_of(call));
        let answer = open.receipt.settle_member(position, actual);
        if self.checks == Checks::All && answer.is_some() != claim.is_some() {
            return Err(format!(
                "member {position} of {:?}: {answer:?} for {claim:?}",
                open.members
            ));
        }
        if let Some(call) = call.filter(|_| answer.is_some()) {
            self.note_returned(call, (claim, before), call.cost.saturating_sub(actual).into())?;
        }
        self.receipts.push(open);
        let expected = match claim {
            Some(_) => self.settle_by_oracle(position, claim, actual),
            None => Answer::UNLIMITED,
        };
        let Some(answer) = answer else { return Ok(()) };
        self.same(Ok(answer), Ok(expected), || format!("settle {call:?} as {actual}"))
    }

    fn settle_by_oracle(&mut self, position: usize, claim: Option<Claim>, actual: u64) -> Answer {
        let answer = self.held.settle(&mut self.oracle, claim, actual);
        Answer { denied_by: answer.denied_by.map(|_| position), ..answer }
    }

    fn reset_in_of(&self, call: Call) -> Option<i128> {
        self.reset_in((call.limit, call.id))
    }
}
