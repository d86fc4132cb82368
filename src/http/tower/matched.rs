//! Defines a rule that applies to a request, and the decision of its limit.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::http::policies::PolicyRef;
use crate::http::tower::rules::ActiveRule;
use crate::http::tower::who::Who;
use crate::limit::Limit;
use crate::limiter::batch::Member;

use crate::limits::{FloorName, Id, Leave};

/// The number of rules that a request is matched with without an allocation.
pub(crate) const INLINE_RULES: usize = 4;

/// A rule that applies to a request, with what the rule's functions return for the request. `position` is the rule's
/// index.
pub(crate) struct MatchedRule<'r, 'a> {
    pub(crate) rule: &'r ActiveRule,
    pub(crate) position: usize,
    pub(crate) who: Who<'a>,
    pub(crate) cost: u64,
    pub(crate) factor: Factor,
    pub(crate) partition: Option<Box<[u8]>>,
}

/// One limit's own decision, with its policy and partition key for the fields.
pub(crate) struct LimitDecision {
    pub(crate) position: usize,
    pub(crate) policy: PolicyRef,
    pub(crate) decision: Decision,
    pub(crate) partition: Option<Box<[u8]>>,
}

pub(crate) type MatchedRules<'r, 'a> = SmallVec<[MatchedRule<'r, 'a>; INLINE_RULES]>;

impl MatchedRule<'_, '_> {
    /// Records the decision of the rule's limit. `None` if fields cannot describe `limit`.
    pub(crate) fn record(&self, decision: Decision, limit: &Limit) -> Option<LimitDecision> {
        match self.rule.floor() {
            None => self.record_without_floor(decision, limit),
            Some(floor) => self.record_leaving(floor, decision, limit),
        }
    }

    /// Like [`record`](MatchedRule::record), for a rule that keeps nothing, which has no priority.
    pub(crate) fn record_without_floor(
        &self,
        decision: Decision,
        limit: &Limit,
    ) -> Option<LimitDecision> {
        debug_assert!(self.rule.floor().is_none());
        let policy = self.rule.policies.find(limit)?;
        let partition = self.partition.clone();
        Some(LimitDecision { position: self.position, policy, decision, partition })
    }

    /// Records the decision on a request with a priority: the units of the floor are not in its quota.
    #[cold]
    fn record_leaving(
        &self,
        floor: &FloorName,
        decision: Decision,
        limit: &Limit,
    ) -> Option<LimitDecision> {
        let units = self.rule.limit().units_of_floor(floor, limit.burst());
        let policy = self.rule.policies.find_leaving(limit, units)?;
        let partition = self.partition.clone();
        Some(LimitDecision { position: self.position, policy, decision, partition })
    }

    pub(crate) fn member(&self) -> Member<'_> {
        let member = self.rule.limit().member(self.id()).cost(self.cost).factor(self.factor);
        if self.rule.has_terms() { self.rule.with_terms(member) } else { member }
    }

    /// Decides a check of the rule's bucket.
    pub(crate) fn look(&self, cost: u64) -> Result<Decision, Error> {
        let limit = self.rule.limit();
        match self.rule.floor() {
            Some(floor) => {
                let member = limit.member(self.id()).cost(cost).factor(self.factor);
                limit.limiter.batch(&[member.leaving_any(Leave::Floor(floor))]).check()
            }
            None => limit.scaled(self.factor).check(self.id(), cost),
        }
    }

    pub(crate) fn id(&self) -> Id<'_> {
        // A matched rule has an id. No id format would allow the empty text.
        self.who.id().unwrap_or(Id::Text(""))
    }
}

/// Keeps one of several rules that have the same limit and bucket: one that limits the request before one whose factor is 0, then
/// one that denies before a soft one, then the one with the largest cost, then one with a priority, then the first.
/// Two rules may count clients by networks of two sizes, and both then have the same bucket for an IPv4 address.
pub(crate) fn keep_one_of_each_bucket(matched: &mut MatchedRules<'_, '_>) {
    // A rule with an invalid id stays, and the batch returns its error.
    let bucket = |one: &MatchedRule<'_, '_>| {
        let limit = one.rule.limit();
        limit.normalize(one.id()).ok().map(|id| (limit.name().to_owned(), id))
    };
    let rank = |one: &MatchedRule<'_, '_>| {
        let rule = one.rule;
        let limits = one.factor != Factor::ZERO;
        (limits, !rule.is_soft(), one.cost, rule.floor().is_some(), Reverse(one.position))
    };
    let all: Vec<_> = matched.iter().map(|one| (bucket(one), rank(one))).collect();
    matched.retain(|one| {
        let (of_bucket, own) = (bucket(one), rank(one));
        of_bucket.is_none() || !all.iter().any(|(other, it)| *other == of_bucket && *it > own)
    });
}
