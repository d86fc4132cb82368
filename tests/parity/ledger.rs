//! Records the grants of each id and checks the bound: no window of time has more than its limits admit.

use std::collections::BTreeMap;

use super::oracle::bucket::{Rule, ms_of};
use super::spec::KNOWN;

/// A granted cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// When the cost may be used: a reservation's time.
    pub(crate) at: i128,
    /// The time of the call.
    pub(crate) charged: i128,
    /// The index of the terms at the time of the call.
    terms: usize,
    pub(crate) cost: i128,
}

/// Identifies a grant, so that it can be settled later.
#[allow(dead_code, reason = "calls of several nodes settle none")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantId {
    key: (usize, usize),
    at: usize,
}

#[derive(Clone, Debug, Default)]
struct Account {
    grants: Vec<Grant>,
    /// Refunds: time and cost.
    given: Vec<(i128, i128)>,
    /// The rules, each with the time from which it applied. A reset adds an entry, because it starts the
    /// bucket anew.
    terms: Vec<(i128, Option<Rule>)>,
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
        for (limit, known) in KNOWN.iter().enumerate() {
            for id in 0..known.ids.len() {
                self.note_rule(from, (limit, id), rule(limit, id));
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

    /// Notes a cost that a call at the time `charged` is granted for the time `at`.
    pub(crate) fn grant(
        &mut self,
        (limit, id): (usize, usize),
        at: i128,
        charged: i128,
        cost: i128,
    ) -> GrantId {
        let account = self.account(limit, id);
        let terms = account.terms.len().saturating_sub(1);
        account.grants.push(Grant { at, charged, terms, cost });
        GrantId { key: (limit, id), at: account.grants.len() - 1 }
    }

    /// When a grant may be used.
    #[allow(dead_code, reason = "calls of several nodes settle none")]
    pub(crate) fn time_of(&self, place: GrantId) -> i128 {
        self.0[&place.key].grants[place.at].at
    }

    /// Records a settlement to a lower cost: the grant was admitted, and the rest of its units was returned.
    #[allow(dead_code, reason = "calls of several nodes settle none")]
    pub(crate) fn give_back(&mut self, place: GrantId, now: i128, actual: i128) {
        let (limit, id) = place.key;
        let unused = self.account(limit, id).grants[place.at].cost - actual;
        if unused > 0 {
            self.give(limit, id, now, unused);
        }
    }

    /// Lowers a grant to its final cost.
    #[allow(dead_code, reason = "calls of several nodes settle none")]
    pub(crate) fn settle(&mut self, place: GrantId, cost: i128) {
        let (limit, id) = place.key;
        let grant = &mut self.account(limit, id).grants[place.at];
        grant.cost = grant.cost.min(cost);
    }

    pub(crate) fn give(&mut self, limit: usize, id: usize, at: i128, cost: i128) {
        self.account(limit, id).given.push((at, cost));
    }

    pub(crate) fn reset(&mut self, limit: usize, id: usize, at: i128) {
        let account = self.account(limit, id);
        let rule = account.terms.last().and_then(|&(_, rule)| rule);
        account.terms.push((at, rule));
    }

    /// Returns the least room that any window had, or the first window that exceeds its bound.
    pub(crate) fn check(&self) -> Result<i128, String> {
        let mut least = i128::MAX;
        for (&(limit, id), account) in &self.0 {
            let slack = account.check();
            least = least.min(slack.map_err(|window| {
                format!("{} {}: {window}", KNOWN[limit].name, KNOWN[limit].ids[id])
            })?);
        }
        Ok(least)
    }
}

impl Account {
    fn check(&self) -> Result<i128, String> {
        let mut grants: Vec<Grant> = self.grants.iter().copied().filter(|it| it.cost > 0).collect();
        grants.sort_by_key(|grant| grant.at);
        let mut least = i128::MAX;
        for (first, &Grant { at: from, .. }) in grants.iter().enumerate() {
            let mut sum = 0;
            for (last, grant) in grants.iter().enumerate().skip(first) {
                sum += grant.cost;
                let window = &grants[first..=last];
                let given = self.given(window);
                let most = self.most(window);
                least = least.min(most + given - sum);
                if sum > most + given {
                    return Err(format!(
                        "{sum} were granted from {from} to {}, {given} given back; at most {most}: {:?}",
                        grant.at, self.terms
                    ));
                }
            }
        }
        Ok(least)
    }

    /// The refunds that count for a window of grants: those within it, and those after the call of a grant
    /// in it, because a refund shortens the wait of a reservation that is still to come.
    fn given(&self, grants: &[Grant]) -> i128 {
        let (Some(first), Some(last)) = (grants.first(), grants.last()) else { return 0 };
        let counts = |at: i128| {
            at <= last.at && (first.at <= at || grants.iter().any(|grant| grant.charged <= at))
        };
        self.given.iter().filter(|given| counts(given.0)).map(|given| given.1).sum()
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
        Rule::Leaky { size, rate, drip } => size + (ms_of(time) / rate + 1) * drip,
    }
}
