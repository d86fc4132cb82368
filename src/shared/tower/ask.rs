//! Asks the limits about a request when some of them are shared, and the store has to be asked.

use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::http::Rejection;
use crate::http::tower::answer::{RequestOutcome, Rules, rejection_for};
use crate::http::tower::async_layer::AskedLater;
use crate::http::tower::charge::{GiveBack, HeldCharge, RefundableCharges, holder_for};
use crate::http::tower::layer::LayerState;
use crate::http::tower::matched::{
    INLINE_RULES, LimitDecision, MatchedRule, MatchedRules, keep_one_of_each_bucket,
};
use crate::shared::SharedMember;
use crate::shared::calls::answer;
use crate::shared::calls::asked::SharedCall;
use crate::shared::calls::batch::Begun;
use crate::shared::calls::kept::{DecidedBatch, MemberCharge};

/// A rule that applies to a request, without the request.
struct Applied {
    position: usize,
    cost: u64,
    partition: Option<Box<[u8]>>,
}

impl Rules {
    /// Charges the limits of all rules that apply to a request, as one batch, on this node and in the store.
    pub(super) fn ask_with_store(layer: &Arc<LayerState>, parts: &Parts) -> AskedLater {
        let begun = layer.rules.begin_with_store(layer, parts);
        begun.unwrap_or_else(|rejection| AskedLater::Now(Err(rejection)))
    }

    /// `layer`: that of the rules, which is shared with the answer that comes later.
    fn begin_with_store(
        &self,
        layer: &Arc<LayerState>,
        parts: &Parts,
    ) -> Result<AskedLater, Rejection> {
        let mut matched = self.all_matching(&self.rules, parts)?;
        // Only a guess: a reload may come between, and a shared limit need not apply to the request. The calls themselves
        // tell, each of them with one view of the limits.
        let mut is_local = !matched.iter().any(|one| one.rule.limit().is_shared());
        loop {
            if is_local {
                match self.ask_matched(&mut matched) {
                    Err(rejection) if rejection.needs_store() => is_local = false,
                    asked => return Ok(AskedLater::Now(asked)),
                }
            }
            let members: SmallVec<[SharedMember<'_>; INLINE_RULES]> =
                matched.iter().map(|one| one.member().into()).collect();
            let call = SharedCall::SPEND.holding();
            let begun = self.limiter.shared_batch(&members).begin(call);
            drop(members);
            let begun = match begun {
                Err(error) if error.is_invalid_batch() && keeps_fewer(&mut matched) => continue,
                begun => begun.map_err(|error| rejection_for(error, &matched))?,
            };
            let applied = || matched.iter().map(Applied::new).collect::<Vec<_>>();
            match begun {
                Begun::Local => is_local = true,
                Begun::Decided(decided) => {
                    return Ok(AskedLater::Now(Ok(self.outcome_of(decided, &mut applied()))));
                }
                Begun::Asks(asked) => {
                    let mut applied = applied();
                    let (layer, asked) = (layer.clone(), asked.ask());
                    return Ok(AskedLater::Later(Box::pin(async move {
                        let decided = answer(asked).await?;
                        Ok(layer.rules.outcome_of(decided, &mut applied))
                    })));
                }
            }
        }
    }

    /// Records the decisions of a batch's members, and the charges that the response may refund.
    fn outcome_of(
        &self,
        DecidedBatch { decision, members }: DecidedBatch,
        applied: &mut [Applied],
    ) -> (Decision, Option<RequestOutcome>) {
        let mut outcome = self.outcome(decision);
        if decision.allowed() {
            outcome.held = holder_for(applied.iter().map(|it| &self.rules[it.position]));
        }
        let is_shown = self.is_shown(&decision) || outcome.held.is_some();
        for member in members {
            let Applied { position, cost, partition } = &mut applied[member.position];
            let rule = &self.rules[*position];
            if let Some((decision, limit)) = member.shown.filter(|_| is_shown)
                && let Some(policy) = rule.policies.find(&limit)
            {
                let (position, partition) = (*position, partition.take());
                outcome.limits.push(LimitDecision { position, policy, decision, partition });
            }
            match member.charge.filter(|_| *cost > 0) {
                Some(MemberCharge::Here(receipt)) if rule.holds() => {
                    let charge = HeldCharge::new(rule.limit(), *position, receipt);
                    if let Some(held) = &mut outcome.held {
                        held.charges.push(charge);
                    }
                }
                Some(charged) if rule.can_refund() => {
                    let new = || Box::new(RefundableCharges::new());
                    let charges = outcome.charges.get_or_insert_with(new);
                    match charged {
                        MemberCharge::Here(receipt) => charges.add(*position, *receipt),
                        other => charges.add_elsewhere(*position, Box::new(other)),
                    }
                }
                _ => {}
            }
        }
        // A shadow limit is not shown to clients.
        let is_needed = !outcome.limits.is_empty() || outcome.charges.is_some();
        let is_needed = is_needed || outcome.held.is_some();
        (decision, is_needed.then_some(outcome))
    }
}

/// Keeps one of several rules that have the same bucket. Returns whether there are fewer then.
fn keeps_fewer(matched: &mut MatchedRules<'_, '_>) -> bool {
    let before = matched.len();
    keep_one_of_each_bucket(matched);
    matched.len() < before
}

impl Applied {
    fn new(one: &MatchedRule<'_, '_>) -> Applied {
        Applied { position: one.position, cost: one.cost, partition: one.partition.clone() }
    }
}

impl GiveBack for MemberCharge {
    fn give_back(&self) {
        MemberCharge::give_back(self);
    }
}
