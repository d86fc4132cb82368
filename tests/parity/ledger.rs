//! Records the grants of each id and checks the bound: no interval of time has more than its limits admit, and what was
//! returned from the first of its charges to the last.
//!
//! All sums are in unbounded integers. Charges and returns are ordered by their calls, grants by the times at which they
//! may be used.

use std::collections::BTreeMap;

use super::oracle::bucket::{Rule, ceil, ms_of};
use super::spec::{PLACES, known_at};

/// A granted cost.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// When the cost may be used: a reservation's time.
    at: i128,
    /// The first and the last call that may have charged it. A reservation may take units that were charged by calls before
    /// it.
    calls: (usize, usize),
    /// The index of the terms at the time of the call.
    terms: usize,
    cost: i128,
    /// The rule by which it was charged: a factor may have scaled it.
    rule: Rule,
}

/// Identifies a grant, so that it can be cancelled later.
#[allow(dead_code, reason = "calls of several nodes cancel none")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantId {
    key: (usize, usize),
    at: usize,
}

/// What a call has returned: units, and ns of a gcra bucket.
#[derive(Clone, Copy, Debug)]
struct Return {
    call: usize,
    units: i128,
    ns: i128,
}

#[derive(Clone, Debug, Default)]
struct Account {
    /// The number of calls.
    calls: usize,
    grants: Vec<Grant>,
    returns: Vec<Return>,
    /// The first call whose grant was cancelled before its time: a later reservation may have taken its units.
    first_vacated: Option<usize>,
    /// The rules, each with the time from which it applied. A reset adds an entry, because it starts the
    /// bucket anew.
    terms: Vec<(i128, Option<Rule>)>,
    /// Whether a grant had a factor: one of the limits in [`most_of`] is then unknown.
    has_factors: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(BTreeMap<(usize, usize), Account>);

impl Ledger {
    fn account(&mut self, limit: usize, id: usize) -> &mut Account {
        self.0.entry((limit, id)).or_default()
    }

    /// Notes the rules that apply to all ids from a time on.
    #[allow(dead_code, reason = "calls of several nodes note one rule each")]
    pub(crate) fn note_rules(&mut self, from: i128, rule: impl Fn(usize, usize) -> Option<Rule>) {
        for place in 0..PLACES {
            for id in 0..known_at(place).ids.len() {
                self.note_rule(from, (place, id), rule(place, id));
            }
        }
    }

    /// Notes the rule that applies to an id from a time on.
    pub(crate) fn note_rule(
        &mut self,
        from: i128,
        (limit, id): (usize, usize),
        rule: Option<Rule>,
    ) {
        let account = self.account(limit, id);
        if account.terms.last().is_none_or(|&(_, last)| last != rule) {
            account.terms.push((from, rule));
        }
    }

    /// Notes a cost that is granted for the time `at`.
    #[allow(dead_code, reason = "calls of one node have factors")]
    pub(crate) fn grant(&mut self, key: (usize, usize), at: i128, _: i128, cost: i128) -> GrantId {
        let rule = self.account(key.0, key.1).terms.last().and_then(|&(_, rule)| rule);
        self.grant_by(key, at, cost, (rule.expect("a limit applies"), false))
    }

    /// Notes a cost that was charged by a rule, which may be scaled. `is_place`: it may be a cancelled place.
    pub(crate) fn grant_by(
        &mut self,
        (limit, id): (usize, usize),
        at: i128,
        cost: i128,
        (rule, is_place): (Rule, bool),
    ) -> GrantId {
        let account = self.account(limit, id);
        let terms = account.terms.len().saturating_sub(1);
        account.has_factors |= account.terms.last().is_none_or(|&(_, of)| of != Some(rule));
        account.calls += 1;
        let vacated = account.first_vacated.filter(|_| is_place);
        let calls = (vacated.unwrap_or(account.calls), account.calls);
        account.grants.push(Grant { at, calls, terms, cost, rule });
        GrantId { key: (limit, id), at: account.grants.len() - 1 }
    }

    /// Cancels a grant that no caller has used.
    #[allow(dead_code, reason = "calls of several nodes cancel none")]
    pub(crate) fn cancel(&mut self, place: GrantId) {
        let (limit, id) = place.key;
        self.account(limit, id).grants[place.at].cost = 0;
        self.vacate(place);
    }

    /// Notes that units were free which the call of this grant has charged: a later reservation may take them.
    #[allow(dead_code, reason = "calls of several nodes cancel none")]
    pub(crate) fn vacate(&mut self, place: GrantId) {
        let account = self.account(place.key.0, place.key.1);
        let first = account.grants[place.at].calls.0;
        account.first_vacated = Some(account.first_vacated.map_or(first, |it| it.min(first)));
    }

    /// Notes that a call has returned `cost` units at most.
    #[allow(dead_code, reason = "calls of one node note what has come back")]
    pub(crate) fn give(&mut self, limit: usize, id: usize, _: i128, cost: i128) {
        let account = self.account(limit, id);
        let ns = match account.terms.last() {
            Some(&(_, Some(Rule::Gcra { interval, .. }))) => interval * cost,
            _ => 0,
        };
        account.give(cost, ns);
    }

    /// Notes that a call has made a gcra bucket full earlier by `ns`.
    #[allow(dead_code, reason = "calls of several nodes note units")]
    pub(crate) fn give_ns(&mut self, (limit, id): (usize, usize), ns: i128) {
        let account = self.account(limit, id);
        let units = match account.terms.last() {
            Some(&(_, Some(Rule::Gcra { interval, .. }))) => ceil(ns, interval),
            _ => 0,
        };
        account.give(units, ns);
    }

    pub(crate) fn reset(&mut self, limit: usize, id: usize, at: i128) {
        let account = self.account(limit, id);
        let rule = account.terms.last().and_then(|&(_, rule)| rule);
        account.terms.push((at, rule));
    }

    /// Returns the first window that exceeds its bound. `only_gcra`: the other algorithms keep theirs only while the clock
    /// does not go back.
    #[allow(dead_code, reason = "calls of several nodes check all")]
    pub(crate) fn check_of(&self, only_gcra: bool) -> Result<(), String> {
        for (&(limit, id), account) in &self.0 {
            account.check(only_gcra).map_err(|window| {
                format!("{} {}: {window}", known_at(limit).name, known_at(limit).ids[id])
            })?;
        }
        Ok(())
    }

    #[allow(dead_code, reason = "calls of one node say whether the clock went back")]
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_of(false)
    }
}

/// The grants of an interval: the first and the last of their calls and terms, and the sums of their costs.
#[derive(Clone, Copy)]
struct Sums {
    calls: (usize, usize),
    terms: (usize, usize),
    units: i128,
    ns: i128,
    /// The largest burst offset of their rules.
    room: i128,
}

impl Sums {
    fn add(&mut self, grant: &Grant) {
        let (first, last) = grant.calls;
        self.calls = (self.calls.0.min(first), self.calls.1.max(last));
        self.terms = (self.terms.0.min(grant.terms), self.terms.1.max(grant.terms));
        self.units += grant.cost;
        if let Rule::Gcra { burst, interval } = grant.rule {
            self.ns += grant.cost * interval;
            self.room = self.room.max(burst * interval);
        }
    }
}

impl Account {
    fn give(&mut self, units: i128, ns: i128) {
        self.calls += 1;
        self.returns.push(Return { call: self.calls, units, ns });
    }

    fn check(&self, only_gcra: bool) -> Result<(), String> {
        let is_gcra = |rule: &Rule| matches!(rule, Rule::Gcra { .. });
        let mut rules = self.terms.iter().filter_map(|(_, rule)| rule.as_ref());
        if !rules.all(is_gcra) && (only_gcra || self.has_factors) {
            return Ok(());
        }
        let mut grants: Vec<Grant> = self.grants.iter().copied().filter(|it| it.cost > 0).collect();
        grants.sort_by_key(|grant| grant.at);
        for (first, &Grant { at: from, .. }) in grants.iter().enumerate() {
            let none = (usize::MAX, 0);
            let mut sums = Sums { calls: none, terms: none, units: 0, ns: 0, room: 0 };
            for (last, grant) in grants.iter().enumerate().skip(first) {
                sums.add(grant);
                let is_last_of_time = grants.get(last + 1).is_none_or(|next| next.at != grant.at);
                if !is_last_of_time {
                    continue;
                }
                let (given, given_ns) = self.given(sums.calls);
                let time = grant.at - from;
                let excess = if sums.terms.0 == sums.terms.1 && is_gcra(&grant.rule) {
                    sums.ns - (sums.room + time + given_ns)
                } else if self.has_factors {
                    continue;
                } else {
                    sums.units - (self.most(&grants[first..=last]) + given)
                };
                if excess > 0 {
                    return Err(format!(
                        "{} units were granted from {from} to {}, {excess} (ns for gcra) too many; {given} units given back: {:?}",
                        sums.units, grant.at, self.terms
                    ));
                }
            }
        }
        Ok(())
    }

    /// The units, and the ns, that were returned from the first of these calls to the last.
    fn given(&self, (first, last): (usize, usize)) -> (i128, i128) {
        let begin = self.returns.partition_point(|it| it.call <= first);
        let between = self.returns[begin..].iter().take_while(|it| it.call < last);
        between.fold((0, 0), |sum, it| (sum.0 + it.units, sum.1 + it.ns))
    }

    /// The most that may be granted from the first of these grants to the last: the bursts of all rules
    /// that have applied since the first grant's call, and what their rates refill. A reservation keeps its
    /// time by the rule that it was taken under, so that rule counts until the last such grant.
    fn most(&self, grants: &[Grant]) -> i128 {
        let (Some(first), Some(last)) = (grants.first(), grants.last()) else { return 0 };
        let first_terms = grants.iter().map(|grant| grant.terms).min().unwrap_or(0);
        let ends = self.terms.iter().skip(1).map(|&(from, _)| from).chain([i128::MAX]);
        let terms = self.terms.iter().zip(ends).enumerate().skip(first_terms);
        let applied = terms.filter_map(|(at, (&(begins, rule), ends))| {
            let is_under = |grant: &&Grant| grant.terms == at;
            let until = grants.iter().filter(is_under).map(|grant| grant.at).max();
            let ends = ends.max(until.unwrap_or(ends));
            let time = last.at.min(ends) - first.at.max(begins);
            (time >= 0).then_some((time, rule?))
        });
        let applied: Vec<(i128, Rule)> = applied.collect();
        applied.iter().map(|&(time, rule)| most_of(rule, time, applied.len() > 1)).sum()
    }
}

/// The most units that a rule admits in a time in ns. With `is_part`, other rules applied in the same
/// window: then a part of an interval counts as a whole one.
fn most_of(rule: Rule, time: i128, is_part: bool) -> i128 {
    match rule {
        Rule::Gcra { burst, interval } => {
            burst + time / interval + i128::from(is_part && time % interval > 0)
        }
        Rule::Fixed { limit, window } | Rule::Tokens { limit, window, .. } => {
            (ms_of(time) / window + 2) * limit
        }
        Rule::Permits { max, .. } => max,
        Rule::Leaky { size, rate, drip } => size + (ms_of(time) / rate + 1) * drip,
    }
}
