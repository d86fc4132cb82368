//! Replays the traffic under the limits of `--against`, and counts the decisions that differ.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate::{Error, Limits};

use crate::comparison::{Changed, Changes, Comparison, LimitComparison};
use crate::engine::LimitNo;
use crate::side::{Answer, Side};
use crate::tally::{KeyNo, PerLimit};

/// The candidate limits at work, and how their decisions differ from those of the limits in force.
pub(crate) struct Candidate {
    pub(crate) side: Side,
    /// The path of `--against`.
    pub(crate) file: String,
    /// Lines of a trace that failed under the candidate.
    pub(crate) errors: u64,
    /// Lines of a log that the candidate skips and the limits in force decide.
    pub(crate) newly_skipped: u64,
    /// Spends that only one of the two files decided.
    pub(crate) not_compared: u64,
    changes: Changes,
    /// By the candidate's limits, without `newly_allowed`.
    by_limit: PerLimit<Changes>,
    /// By the limits in force, because they had denied the spends.
    newly_allowed_by_limit: PerLimit<u64>,
    /// By keys of the candidate.
    newly_denied: ChangedKeys,
    /// By keys of the limits in force.
    newly_allowed: ChangedKeys,
}

/// The keys with changes of one kind. Other keys take no memory.
type ChangedKeys = HashMap<KeyNo, Times, ahash::RandomState>;

#[derive(Clone, Copy, Debug)]
struct Times {
    count: u64,
    first_at_ns: u64,
}

/// How the two decisions on a spend differ, and the limit that denied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The candidate denies it.
    NewlyDenied(LimitNo),
    /// The limits in force denied it.
    NewlyAllowed(LimitNo),
}

impl Candidate {
    pub(crate) fn new(limits: Limits, file: String) -> Result<Candidate, Error> {
        Ok(Candidate {
            side: Side::new(limits)?,
            file,
            errors: 0,
            newly_skipped: 0,
            not_compared: 0,
            changes: Changes::default(),
            by_limit: PerLimit::default(),
            newly_allowed_by_limit: PerLimit::default(),
            newly_denied: ChangedKeys::default(),
            newly_allowed: ChangedKeys::default(),
        })
    }

    /// Returns the limits and the ids in normal form with a spend that is newly denied or newly allowed.
    pub(crate) fn affected<'a>(&'a self, in_force: &'a Side) -> HashSet<(&'a str, &'a str)> {
        let denied = self.newly_denied.keys().map(|key| self.side.key(*key));
        let allowed = self.newly_allowed.keys().map(|key| in_force.key(*key));
        denied.chain(allowed).collect()
    }

    /// Compares the decisions on a spend, `old` by the limits in force and `new` by the candidate.
    pub(crate) fn compare(
        &mut self,
        at_ns: u64,
        in_force: &Side,
        old: &Answer,
        new: &Answer,
    ) -> Option<Change> {
        let decisions = (old.decision.allowed(), new.decision.allowed());
        for limit in self.side.tally.counted_limits(new) {
            let changes = self.by_limit.get_mut(limit);
            match decisions {
                (true, true) => changes.allowed_by_both += 1,
                (true, false) => changes.newly_denied += 1,
                (false, false) => changes.denied_by_both += 1,
                // Counts below, at the limit that had denied it.
                (false, true) => {}
            }
        }
        match (old.denied_by(), new.denied_by()) {
            (None, None) => self.changes.allowed_by_both += 1,
            (Some(_), Some(_)) => self.changes.denied_by_both += 1,
            (None, Some(key)) => {
                self.changes.newly_denied += 1;
                count(&mut self.newly_denied, key, at_ns);
                return Some(Change::NewlyDenied(self.side.tally.get(key).limit));
            }
            (Some(key), None) => {
                self.changes.newly_allowed += 1;
                count(&mut self.newly_allowed, key, at_ns);
                let limit = in_force.tally.get(key).limit;
                *self.newly_allowed_by_limit.get_mut(limit) += 1;
                return Some(Change::NewlyAllowed(limit));
            }
        }
        None
    }

    /// Returns the results, with at most `max` ids of each kind. A comparison of a log has no errors.
    pub(crate) fn comparison(&self, in_force: &Side, is_trace: bool, max: usize) -> Comparison {
        let Candidate { side, changes, .. } = self;
        let mut limits: BTreeMap<String, LimitComparison> = BTreeMap::new();
        for (limit, counts) in side.tally.by_limit() {
            let comparison = limits.entry(side.engine.name(limit).to_owned()).or_default();
            comparison.changes = self.by_limit.get(limit).copied().unwrap_or_default();
            comparison.counts = counts;
        }
        for (limit, counts) in in_force.tally.by_limit() {
            let comparison = limits.entry(in_force.engine.name(limit).to_owned()).or_default();
            let newly_allowed = self.newly_allowed_by_limit.get(limit);
            comparison.changes.newly_allowed = newly_allowed.copied().unwrap_or_default();
            comparison.denied_in_force = counts.denied;
        }
        Comparison {
            file: self.file.clone(),
            errors: is_trace.then_some(self.errors),
            newly_skipped: (!is_trace).then_some(self.newly_skipped),
            not_compared: self.not_compared,
            allowed: side.tally.allowed,
            denied: side.tally.denied,
            changes: *changes,
            limits,
            top_newly_denied: self.most_changed(&self.newly_denied, side, in_force, max),
            top_newly_allowed: self.most_changed(&self.newly_allowed, in_force, in_force, max),
        }
    }

    /// Returns the keys with the most changes, in descending order; ties by id, then by limit. The keys are
    /// those of `side`.
    fn most_changed(
        &self,
        changed: &ChangedKeys,
        side: &Side,
        in_force: &Side,
        max: usize,
    ) -> Vec<Changed> {
        let mut all: Vec<_> = changed.iter().map(|(key, times)| (side.key(*key), times)).collect();
        all.sort_unstable_by_key(|((limit, id), times)| (Reverse(times.count), *id, *limit));
        let all = all.into_iter().take(max).map(|((limit, id), times)| Changed {
            limit: limit.to_owned(),
            id: id.to_owned(),
            lines: times.count,
            denied_in_force: in_force.denied(limit, id),
            denied: self.side.denied(limit, id),
            first_at_ns: times.first_at_ns,
        });
        all.collect()
    }
}

fn count(keys: &mut ChangedKeys, key: KeyNo, at_ns: u64) {
    keys.entry(key).or_insert(Times { count: 0, first_at_ns: at_ns }).count += 1;
}
