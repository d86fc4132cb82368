//! The bound: what was granted to each id, and the most that any window of time may have.

use std::collections::BTreeMap;

use super::oracle::bucket::{Rule, ms_of};
use super::spec::KNOWN;

/// A cost that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// When it may be used: for a place, its time.
    pub(crate) at: i128,
    /// When it was asked for.
    pub(crate) charged: i128,
    /// The number of the terms that it was asked for under.
    terms: usize,
    pub(crate) cost: i128,
}

/// Where a grant is, for what it came to in the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    key: (usize, usize),
    at: usize,
}

#[derive(Clone, Debug, Default)]
struct Account {
    grants: Vec<Grant>,
    /// What was given back by hand, and when.
    given: Vec<(i128, i128)>,
    /// The numbers that applied from each time on. A reset begins a bucket anew.
    terms: Vec<(i128, Option<Rule>)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(BTreeMap<(usize, usize), Account>);

impl Ledger {
    fn account(&mut self, limit: usize, id: usize) -> &mut Account {
        self.0.entry((limit, id)).or_default()
    }

    /// Notes the numbers that apply to all ids from a time on.
    pub(crate) fn note_rules(&mut self, from: i128, rule: impl Fn(usize, usize) -> Option<Rule>) {
        for (limit, known) in KNOWN.iter().enumerate() {
            for id in 0..known.ids.len() {
                let (rule, account) = (rule(limit, id), self.account(limit, id));
                if account.terms.last().is_none_or(|&(_, last)| last != rule) {
                    account.terms.push((from, rule));
                }
            }
        }
    }

    /// Notes a cost that is granted `at` a time, and was asked for when it was `charged`.
    pub(crate) fn grant(
        &mut self,
        (limit, id): (usize, usize),
        at: i128,
        charged: i128,
        cost: i128,
    ) -> Place {
        let account = self.account(limit, id);
        let terms = account.terms.len().saturating_sub(1);
        account.grants.push(Grant { at, charged, terms, cost });
        Place { key: (limit, id), at: account.grants.len() - 1 }
    }

    /// What a grant came to, which is no more than it was.
    pub(crate) fn settle(&mut self, place: Place, cost: i128) {
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

    /// The first window that has more than it may; else the least that any could have had more.
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

    /// What was given back by hand in the time of these grants. Where places are still to come it shortens what
    /// they wait for, so that it counts for those that were asked for before.
    fn given(&self, grants: &[Grant]) -> i128 {
        let (Some(first), Some(last)) = (grants.first(), grants.last()) else { return 0 };
        let counts = |at: i128| {
            at <= last.at && (first.at <= at || grants.iter().any(|grant| grant.charged <= at))
        };
        self.given.iter().filter(|given| counts(given.0)).map(|given| given.1).sum()
    }

    /// The most that may be granted from the time of the first of these to that of the last: the bursts of all
    /// numbers that have applied since the first was asked for, and what their rates bring. Places keep their times by the numbers that they
    /// were asked for under, so that those apply until the last of them.
    fn most(&self, grants: &[Grant]) -> i128 {
        let (Some(first), Some(last)) = (grants.first(), grants.last()) else { return 0 };
        let first_terms = grants.iter().map(|grant| grant.terms).min().unwrap_or(0);
        let ends = self.terms.iter().skip(1).map(|&(from, _)| from).chain([i128::MAX]);
        let terms = self.terms.iter().zip(ends).enumerate().skip(first_terms);
        let applied = terms.filter_map(|(at, (&(begins, rule), ends))| {
            let asked = |grant: &&Grant| grant.terms == at;
            let until = grants.iter().filter(asked).map(|grant| grant.at).max();
            let ends = ends.max(until.unwrap_or(ends));
            let time = last.at.min(ends) - first.at.max(begins);
            (time >= 0).then_some((time, rule?))
        });
        let applied: Vec<(i128, Rule)> = applied.collect();
        applied.iter().map(|&(time, rule)| most_of(rule, time, applied.len() > 1)).sum()
    }
}

/// The most units in an interval of time, in ns.
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
