//! Asks the limits about a request, and writes their decisions into its response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::http::fields::{Shown, write_next_wait, write_wait};
use crate::http::policies::PolicyRef;
use crate::http::tower::charge::{HeldByRequest, HeldCharge, RefundableCharges, holder_for};
use crate::http::tower::exempt::Exemptions;
use crate::http::tower::matched::{
    INLINE_RULES, LimitDecision, MatchedRule, MatchedRules, keep_one_of_each_bucket,
};
use crate::http::tower::policies::{PolicyListCache, PolicySlots};
use crate::http::tower::rejection::Rejection;
use crate::http::tower::response_state::ResponseState;
use crate::http::tower::rule_fields::{FieldGroup, LayerFields};
use crate::http::tower::rules::ActiveRule;
use crate::http::tower::who::Who;
use crate::http::{Answer, Fields, Item, Style};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::Member;
use crate::observe::rejections::RejectionKind;

/// The number of limits' decisions that are stored until the response without an allocation. More would make the future
/// larger, which is copied several times.
const INLINE_DECISIONS: usize = 2;

/// A layer's rules, and the fields of its responses.
pub(crate) struct Rules {
    pub(crate) limiter: Limiter,
    pub(crate) rules: Box<[ActiveRule]>,
    pub(crate) exemptions: Exemptions,
    pub(crate) fields: LayerFields,
    /// Whether the decision on an allowed request is recorded, for fields or for the layer's function for responses.
    pub(crate) records_allowed: bool,
    pub(crate) lists: PolicyListCache,
}

/// The limits' decision on a request, stored until its response comes.
pub(crate) struct RequestOutcome {
    decision: Decision,
    pub(crate) limits: SmallVec<[LimitDecision; INLINE_DECISIONS]>,
    /// What the response may refund.
    pub(crate) charges: Option<Box<RefundableCharges>>,
    /// What the request holds until its response has ended; also if a rule marks the request.
    pub(crate) held: Option<Box<HeldByRequest>>,
    at: SystemTime,
}

/// The decision on a request, with the outcome if its response depends on it; or why the request is rejected.
pub(crate) type Asked = Result<(Decision, Option<RequestOutcome>), Rejection>;

impl Rules {
    /// Charges the limits of all rules that apply to a request, as one batch.
    #[inline]
    pub(crate) fn ask(&self, parts: &Parts) -> Asked {
        match &*self.rules {
            [_] if self.exemptions.contain(parts) => Ok((Decision::UNLIMITED, None)),
            [rule] if rule.is_plain() && !self.records_allowed => self.ask_plain(rule, parts),
            [rule] if !rule.keeps() => match rule.who(parts)? {
                None => Ok((Decision::UNLIMITED, None)),
                Some(who) => self.ask_one(&self.matched(0, rule, who, parts)),
            },
            rules => self.ask_matching(rules, parts),
        }
    }

    /// Charges the one rule of a layer without fields on allowed requests.
    #[inline]
    fn ask_plain(&self, rule: &ActiveRule, parts: &Parts) -> Asked {
        let who = match rule.call_who(parts) {
            Who::NoLimit => return Ok((Decision::UNLIMITED, None)),
            Who::Refused(rejection) => return Err(rejection),
            who => who,
        };
        if let Who::Id(id) | Who::OfServer(id) = who {
            let decision = rule.limit().spend(id, 1);
            return match decision {
                Ok(decision) if decision.allowed() => Ok((decision, None)),
                decision => self.record_or_reject(&self.matched(0, rule, who, parts), decision),
            };
        }
        self.ask_one(&self.matched(0, rule, who, parts))
    }

    fn ask_matching(&self, rules: &[ActiveRule], parts: &Parts) -> Asked {
        let mut matched = self.all_matching(rules, parts)?;
        self.ask_matched(&mut matched)
    }

    pub(crate) fn all_matching<'r, 'a>(
        &self,
        rules: &'r [ActiveRule],
        parts: &'a Parts,
    ) -> Result<MatchedRules<'r, 'a>, Rejection> {
        let mut matched = MatchedRules::new();
        if self.exemptions.contain(parts) {
            return Ok(matched);
        }
        for (position, rule) in rules.iter().enumerate() {
            if let Some(who) = rule.who(parts)? {
                matched.push(self.matched(position, rule, who, parts));
            }
        }
        Ok(matched)
    }

    pub(crate) fn ask_matched(&self, matched: &mut MatchedRules<'_, '_>) -> Asked {
        match matched.as_slice() {
            [] => Ok((Decision::UNLIMITED, None)),
            [one] if !one.rule.keeps() => self.ask_one(one),
            _ => self.ask_all(matched),
        }
    }

    /// Calls the other functions of a rule that applies.
    #[inline]
    fn matched<'r, 'a>(
        &self,
        position: usize,
        rule: &'r ActiveRule,
        who: Who<'a>,
        parts: &Parts,
    ) -> MatchedRule<'r, 'a> {
        let (cost, factor) = (rule.cost(parts), rule.factor(parts));
        let is_written = self.fields.all.has_styles();
        let partition = if is_written { rule.partition(parts) } else { None };
        let partition = partition.map(Vec::into_boxed_slice);
        MatchedRule { rule, position, who, cost, factor, partition }
    }

    #[inline]
    fn ask_one(&self, one: &MatchedRule<'_, '_>) -> Asked {
        if self.records_allowed
            && let Some((decision, recorded)) = self.ask_known(one)
        {
            return Ok(self.shown(decision, recorded));
        }
        match one.rule.limit().scaled(one.factor).spend(one.id(), one.cost) {
            Ok(decision) if !self.is_shown(&decision) => Ok((decision, None)),
            decision => self.record_or_reject(one, decision),
        }
    }

    /// Records a decision that is shown, or makes the rejection for an error.
    #[inline(never)]
    fn record_or_reject(
        &self,
        one: &MatchedRule<'_, '_>,
        decision: Result<Decision, Error>,
    ) -> Asked {
        let decision = decision.map_err(|error| rejection_for(error, std::slice::from_ref(one)))?;
        let recorded = self.record_after(one, decision)?;
        Ok(self.shown(decision, recorded))
    }

    /// Charges a known bucket and records the decision with its limit in one look-up. `None`: nothing has changed.
    fn ask_known(&self, one: &MatchedRule<'_, '_>) -> Option<(Decision, Option<LimitDecision>)> {
        let record = |decision, limit: &Limit| one.record_without_floor(decision, limit);
        let is_plain = one.factor == Factor::ONE;
        is_plain.then(|| one.rule.limit().spend_telling(&one.id(), one.cost, record)).flatten()
    }

    /// Looks the limit of a decision up, and records both.
    pub(crate) fn record_after(
        &self,
        one: &MatchedRule<'_, '_>,
        decision: Decision,
    ) -> Result<Option<LimitDecision>, Rejection> {
        let recorded = one.rule.limit().with_enforced(one.id(), |limit| {
            if one.factor == Factor::ONE {
                return one.record(decision, limit);
            }
            let scaled = limit.scaled(one.factor).ok().flatten();
            scaled.and_then(|limit| one.record(decision, &limit))
        })?;
        Ok(recorded)
    }

    fn shown(
        &self,
        decision: Decision,
        recorded: Option<LimitDecision>,
    ) -> (Decision, Option<RequestOutcome>) {
        // A shadow limit is not shown to clients.
        let Some(recorded) = recorded else { return (Decision::UNLIMITED, None) };
        let mut outcome = self.outcome(decision);
        outcome.limits.push(recorded);
        (decision, Some(outcome))
    }

    fn ask_all(&self, matched: &mut MatchedRules<'_, '_>) -> Asked {
        let mut outcome = self.outcome(Decision::UNLIMITED);
        let mut decision = self.charge_all(matched, &mut outcome);
        if decision.as_ref().is_err_and(Error::is_invalid_batch) {
            keep_one_of_each_bucket(matched);
            decision = self.charge_all(matched, &mut outcome);
        }
        let decision = decision.map_err(|error| rejection_for(error, matched))?;
        outcome.decision = decision;
        // A mark for the handler may be the decision of a limit that denies no request.
        let is_shown = self.is_shown(&decision) || outcome.held.is_some();
        if is_shown {
            outcome.limits.sort_unstable_by_key(|limit| limit.position);
        } else {
            outcome.limits.clear();
        }
        let is_needed = is_shown || outcome.charges.is_some() || outcome.held.is_some();
        Ok((decision, is_needed.then_some(outcome)))
    }

    pub(crate) fn outcome(&self, decision: Decision) -> RequestOutcome {
        let at = if self.fields.all.needs_time() { SystemTime::now() } else { UNIX_EPOCH };
        RequestOutcome { at, ..RequestOutcome::new(decision) }
    }

    fn charge_all(
        &self,
        matched: &[MatchedRule<'_, '_>],
        outcome: &mut RequestOutcome,
    ) -> Result<Decision, Error> {
        let mut members: SmallVec<[Member<'_>; INLINE_RULES]> = SmallVec::new();
        for one in matched {
            members.push(one.member());
        }
        let RequestOutcome { limits, charges, held, .. } = outcome;
        let batch = self.limiter.batch(&members);
        let mut tell = |at: usize, decision: Decision, limit: &Limit| {
            limits.extend(matched[at].record(decision, limit));
        };
        if !matched.iter().any(|one| one.rule.keeps()) {
            return batch.spend_telling(&mut tell);
        }
        *held = holder_for(matched.iter().map(|one| one.rule));
        let decision = batch.spend_keeping(
            tell,
            |at| matched[at].rule.can_refund() || matched[at].rule.holds(),
            |at, receipt| {
                let MatchedRule { rule, position, .. } = matched[at];
                match held.as_mut().filter(|_| rule.holds()) {
                    Some(held) => {
                        let charge = HeldCharge::new(rule.limit(), position, Box::new(receipt));
                        held.charges.push(charge);
                    }
                    None => {
                        let new = || Box::new(RefundableCharges::new());
                        charges.get_or_insert_with(new).add(position, receipt);
                    }
                }
            },
        )?;
        if !decision.allowed() {
            // A permissive layer serves the request all the same, which holds nothing then.
            *held = None;
        }
        Ok(decision)
    }

    /// Returns whether a field, the body of a denial or the layer's function for responses shows the limits' own decisions.
    pub(crate) fn is_shown(&self, decision: &Decision) -> bool {
        decision.remaining().is_some() && (!decision.allowed() || self.records_allowed)
    }

    /// Returns the names of all rules, as clients see them.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.rules.iter().map(ActiveRule::name).collect()
    }

    /// Returns the names of the limits that deny the request, as clients see them, of the rules that `counts` selects.
    pub(crate) fn violated(
        &self,
        outcome: Option<&RequestOutcome>,
        counts: impl Fn(&ActiveRule) -> bool,
    ) -> SmallVec<[&str; INLINE_RULES]> {
        let limits = outcome.map_or(&[][..], |outcome| &outcome.limits);
        let denied = limits.iter().filter(|limit| !limit.decision.allowed());
        let rules = denied.map(|limit| &self.rules[limit.position]);
        rules.filter(|rule| counts(rule)).map(ActiveRule::name).collect()
    }

    /// Refunds the charges of the rules that refund responses with this status, or denials by an inner layer.
    #[inline]
    pub(crate) fn refund(
        &self,
        outcome: &mut RequestOutcome,
        status: StatusCode,
        denied_within: bool,
    ) {
        if outcome.charges.is_some() || outcome.held.is_some() {
            self.refund_charges(outcome, status, denied_within);
        }
    }

    #[cold]
    #[inline(never)]
    fn refund_charges(
        &self,
        outcome: &mut RequestOutcome,
        status: StatusCode,
        denied_within: bool,
    ) {
        let refunded: SmallVec<[usize; INLINE_RULES]> = {
            let rules = self.rules.iter().enumerate();
            rules.filter(|(_, it)| it.refunds(status, denied_within)).map(|it| it.0).collect()
        };
        let held = outcome.held.as_ref().and_then(|held| held.until_end.charge());
        if let Some(charge) = held {
            refunded.iter().for_each(|&position| charge.settle_rule(position, 0));
        }
        let Some(charges) = &outcome.charges else { return };
        let given = refunded.iter().filter(|&&position| charges.give_back(position)).count();
        if given == 0 {
            return;
        }
        // The fields show the buckets after the refund, and those of the other rules as they were decided. The request was
        // served, so a block or a waiting caller that came since must not show as a denial.
        for &position in &refunded {
            let limit = outcome.limits.iter_mut().find(|limit| limit.position == position);
            if let (Some(limit), Some(decision)) = (limit, charges.look(position)) {
                limit.decision = decision.in_shadow();
            }
        }
        let all = outcome.hard(self).map(|limit| limit.decision);
        outcome.decision = all.fold(Decision::UNLIMITED, Decision::stricter);
    }
}

/// Converts an error to a rejection in which the limit has the name that clients see. An invalid id that the server has made is
/// an error of the server.
pub(crate) fn rejection_for(error: Error, matched: &[MatchedRule<'_, '_>]) -> Rejection {
    let is_invalid = |one: &&MatchedRule<'_, '_>| one.rule.limit().normalize(one.id()).is_err();
    if error.is_invalid_id()
        && matched.iter().find(is_invalid).is_some_and(|one| matches!(one.who, Who::OfServer(_)))
    {
        return Rejection::of_server(RejectionKind::Limiter, error.to_string());
    }
    let rejection = Rejection::from(error);
    let reason = matched.iter().find_map(|one| {
        // The text about a cost above the burst ends with the name. Two rules may have the limit, and differ in their costs.
        let text = rejection.reason().strip_suffix(one.rule.limit().name())?;
        let is_of_rule = text.ends_with(" of ") && text.starts_with(&format!("cost {} ", one.cost));
        is_of_rule.then(|| format!("{text}{}", one.rule.name()))
    });
    match reason {
        Some(reason) => rejection.with_reason(reason),
        None => rejection,
    }
}

impl RequestOutcome {
    /// Makes the outcome in which no limit is shown.
    pub(crate) fn new(decision: Decision) -> RequestOutcome {
        let (limits, charges, held) = (SmallVec::new(), None, None);
        RequestOutcome { decision, limits, charges, held, at: UNIX_EPOCH }
    }

    /// Writes the fields of the outcome into `headers`.
    pub(crate) fn write(&self, rules: &Rules, headers: &mut HeaderMap, state: ResponseState<'_>) {
        if !rules.fields.groups.is_empty() {
            return self.write_groups(rules, headers, state);
        }
        let decision = state.shown(self.decision);
        write_wait(headers, &decision, state.enforced, state.wait_within.is_some());
        self.with_answer(
            rules,
            decision,
            state,
            |_| true,
            |answer| {
                let next_wait_s = rules.fields.all.write_styles(headers, answer, self.at);
                write_next_wait(headers, next_wait_s);
            },
        );
    }

    /// Writes the fields of rules that differ in their styles: each style with the decisions of its rules.
    #[cold]
    fn write_groups(&self, rules: &Rules, headers: &mut HeaderMap, state: ResponseState<'_>) {
        let decision = state.shown(self.decision);
        write_wait(headers, &decision, state.enforced, state.wait_within.is_some());
        let mut next_wait_s = None;
        for group in &rules.fields.groups {
            let has_rule = |position| group.has_rule(position);
            let limits = self.hard(rules).filter(|limit| has_rule(limit.position));
            let decisions = limits.map(|limit| state.shown(limit.decision));
            let decision = decisions.fold(Decision::UNLIMITED, Decision::stricter);
            self.with_answer(rules, decision, state, has_rule, |answer| {
                let wait_s = group.fields.write_styles(headers, answer, self.at);
                next_wait_s = next_wait_s.max(wait_s);
            });
        }
        write_next_wait(headers, next_wait_s);
    }

    /// Calls `write` with the answer of the rules for which `has_rule` returns true.
    #[inline]
    fn with_answer(
        &self,
        rules: &Rules,
        decision: Decision,
        state: ResponseState<'_>,
        has_rule: impl Fn(usize) -> bool,
        write: impl FnOnce(&Answer<'_>),
    ) {
        let mut items: SmallVec<[Item<'_>; INLINE_RULES]> = SmallVec::new();
        // `None` if there is one limit, or if a policy is not cached or has a partition key: no list is cached then.
        let mut slots = (self.limits.len() > 1).then(PolicySlots::new);
        // A limit that has gone, by a reload or because the limiter is off, is in no list.
        let shown = |limit: &&LimitDecision| limit.decision.remaining().is_some();
        for limit in self.hard(rules).filter(|limit| has_rule(limit.position)).filter(shown) {
            let Some(policy) = rules.rules[limit.position].policies.get(&limit.policy) else {
                continue;
            };
            let item = Item::new(policy, state.shown(limit.decision));
            items.push(limit.partition.as_deref().map_or(item, |key| item.partition(key)));
            match (&limit.policy, &limit.partition, &mut slots) {
                (PolicyRef::Cached(slot), None, Some(slots)) => slots.push((limit.position, *slot)),
                _ => slots = None,
            }
        }
        let mut answer = Answer::new(decision, &items);
        answer.already_denied = state.already_denied;
        answer.fields_of_denial = state.fields_of_denial;
        answer.is_denial = !self.decision.allowed() || state.already_denied;
        answer.wait = state.wait(&state.shown(self.decision));
        answer.enforced = state.enforced;
        let slots = slots.filter(|slots| slots.len() > 1);
        answer.lists = slots.and_then(|slots| rules.lists.get_or_make(&slots, &answer));
        write(&answer);
    }

    /// Returns the styles in which a denial shows a limit that denies the request.
    pub(crate) fn fields_of_denial(&self, rules: &Rules) -> Fields {
        if rules.fields.groups.is_empty() {
            return rules.fields.all.clone();
        }
        let denies = |group: &&FieldGroup| {
            let denied = self.hard(rules).filter(|limit| !limit.decision.allowed());
            denied.map(|limit| limit.position).any(|position| group.has_rule(position))
        };
        let groups = rules.fields.groups.iter().filter(denies);
        let styles = groups.flat_map(|group| group.fields.styles().iter().cloned());
        Fields::from_checked(styles.collect::<Vec<Style>>(), Shown::Always)
    }

    /// Makes the waits of a denial longer.
    #[cold]
    pub(crate) fn wait_longer(&mut self, by: Duration) {
        self.decision = self.decision.waiting_longer(by);
        for limit in self.limits.iter_mut().filter(|limit| !limit.decision.allowed()) {
            limit.decision = limit.decision.waiting_longer(by);
        }
    }

    pub(crate) fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the limits that the request's decision and its fields are of: all but those of soft rules, which deny no request.
    fn hard<'o>(&'o self, rules: &'o Rules) -> impl Iterator<Item = &'o LimitDecision> {
        self.limits.iter().filter(|limit| !rules.rules[limit.position].is_soft())
    }

    /// Makes a denial the request's decision if none of its limits denies now.
    pub(crate) fn refuse(&mut self, denial: Decision) {
        if self.decision.allowed() {
            self.decision = denial;
        }
    }

    /// Makes the strictest of the limits' decisions that of the request.
    pub(crate) fn join_decisions(&mut self, rules: &Rules) {
        let all = self.hard(rules).map(|limit| limit.decision);
        self.decision = all.reduce(Decision::stricter).unwrap_or(self.decision);
    }

    /// Returns the name of each limit, as clients see it, with its own decision.
    pub(crate) fn decisions<'r>(
        &self,
        rules: &'r Rules,
    ) -> impl Iterator<Item = (&'r str, Decision)> {
        self.limits.iter().map(|limit| (rules.rules[limit.position].name(), limit.decision))
    }
}
