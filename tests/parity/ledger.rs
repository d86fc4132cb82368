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

    pub(crate) fn grant(&mut self, limit: usize, id: usize, grant: Grant) -> Place {
        let grants = &mut self.account(limit, id).grants;
        grants.push(grant);
        Place { key: (limit, id), at: grants.len() - 1 }
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
            let (mut sum, mut charged) = (0, from);
            for grant in &grants[first..] {
                sum += grant.cost;
                charged = charged.min(grant.charged);
                let given = self.given.iter().filter(|given| (from..=grant.at).contains(&given.0));
                let given: i128 = given.map(|given| given.1).sum();
                let most = self.most(from, grant.at, charged);
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

    /// The most from one time to another, both included, of grants that were asked for at `charged` or later:
    /// the bursts of all numbers that have applied in that time, and what their rates bring.
    fn most(&self, from: i128, to: i128, charged: i128) -> i128 {
        let ends = self.terms.iter().skip(1).map(|&(from, _)| from).chain([i128::MAX]);
        let applied = self
            .terms
            .iter()
            .zip(ends)
            .filter(|&(&(begins, _), ends)| begins <= to && charged <= ends);
        let applied: Vec<(i128, i128, Rule)> =
            applied.filter_map(|(&(begins, rule), ends)| Some((begins, ends, rule?))).collect();
        let of = |&(begins, ends, rule): &(i128, i128, Rule)| {
            // Places that were asked for before have their times by the numbers of then.
            let is_early = charged < from && applied.len() > 1;
            let time = if is_early { to - from } else { to.min(ends) - from.max(begins) };
            most_of(rule, time.max(0), applied.len() > 1)
        };
        applied.iter().map(of).sum()
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
