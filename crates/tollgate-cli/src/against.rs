//! What would change: the same traffic under a second file of limits, line by line.

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate::{Decision, Limits};

use crate::comparison::{Changed, Changes, Comparison, LimitComparison};
use crate::engine::LimitNo;
use crate::side::Side;
use crate::tally::{KeyNo, Tally};

/// The candidate, what it said, and how that differs from what the limits in force said.
pub(crate) struct Against {
    pub(crate) side: Side,
    /// The file of `--against`, as it was given.
    pub(crate) file: String,
    /// Lines of a trace that failed under the candidate.
    pub(crate) errors: u64,
    /// Spends that only one of the two files has an answer to.
    pub(crate) not_compared: u64,
    changes: Changes,
    /// By the candidate's [`LimitNo`]; its `newly_allowed` are in the next field.
    by_limit: Vec<Changes>,
    /// By the [`LimitNo`] of the limits in force: it was they who denied.
    newly_allowed_by_limit: Vec<u64>,
    /// By keys of the candidate.
    newly_denied: Met,
    /// By keys of the limits in force.
    newly_allowed: Met,
}

/// The keys of one kind of change. Only those that changed take memory.
type Met = HashMap<KeyNo, Times, ahash::RandomState>;

#[derive(Clone, Copy, Debug)]
struct Times {
    count: u64,
    first_at_ns: u64,
}

/// What one side said to a spend.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) keys: &'a [KeyNo],
    pub(crate) decision: &'a Decision,
}

/// What became of a spend, and at which limit: that of the side which denied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// By the candidate.
    NewlyDenied(LimitNo),
    /// It was denied by the limits in force.
    NewlyAllowed(LimitNo),
}

impl Said<'_> {
    fn denied_by(&self) -> Option<KeyNo> {
        self.decision.denied_by().map(|position| self.keys[position])
    }
}

impl Against {
    pub(crate) fn new(limits: Limits, file: String) -> Against {
        Against {
            side: Side::new(limits),
            file,
            errors: 0,
            not_compared: 0,
            changes: Changes::default(),
            by_limit: Vec::new(),
            newly_allowed_by_limit: Vec::new(),
            newly_denied: Met::default(),
            newly_allowed: Met::default(),
        }
    }

    /// The keys of which a spend was newly denied or newly let through, in the normal form of their ids with
    /// the names of their limits.
    pub(crate) fn affected<'a>(&'a self, in_force: &'a Side) -> HashSet<(&'a str, &'a str)> {
        let denied = self.newly_denied.keys().map(|key| self.side.key(*key));
        let allowed = self.newly_allowed.keys().map(|key| in_force.key(*key));
        denied.chain(allowed).collect()
    }

    /// Counts a spend that only the candidate has an answer to.
    pub(crate) fn count_alone(&mut self, new: Said<'_>, is_charged: impl Fn(usize) -> bool) {
        self.side.tally.count(new.keys, new.decision, is_charged, |_, _| ());
        self.not_compared += 1;
    }

    /// Counts a spend that both have an answer to. `in_force` are the keys that `old` is about, and
    /// `is_charged` says which of the candidate's an allowed one was charged to.
    pub(crate) fn count(
        &mut self,
        at_ns: u64,
        in_force: &Tally,
        old: Said<'_>,
        new: Said<'_>,
        is_charged: impl Fn(usize) -> bool,
    ) -> Change {
        let was_allowed = old.decision.allowed();
        let by_limit = &mut self.by_limit;
        self.side.tally.count(new.keys, new.decision, is_charged, |limit, is_allowed| {
            let changes = at(by_limit, limit);
            match (was_allowed, is_allowed) {
                (true, true) => changes.allowed_by_both += 1,
                (true, false) => changes.newly_denied += 1,
                (false, false) => changes.denied_by_both += 1,
                // Counted below, at the limit that had denied it.
                (false, true) => {}
            }
        });
        match (old.denied_by(), new.denied_by()) {
            (None, None) => {
                self.changes.allowed_by_both += 1;
                Change::None
            }
            (Some(_), Some(_)) => {
                self.changes.denied_by_both += 1;
                Change::None
            }
            (None, Some(key)) => {
                self.changes.newly_denied += 1;
                meet(&mut self.newly_denied, key, at_ns);
                Change::NewlyDenied(self.side.tally.get(key).limit)
            }
            (Some(key), None) => {
                self.changes.newly_allowed += 1;
                meet(&mut self.newly_allowed, key, at_ns);
                let limit = in_force.get(key).limit;
                *at(&mut self.newly_allowed_by_limit, limit) += 1;
                Change::NewlyAllowed(limit)
            }
        }
    }

    /// What the run came to, with at most `max` ids of each kind. `is_trace` says whether lines could
    /// fail.
    pub(crate) fn comparison(&self, in_force: &Side, is_trace: bool, max: usize) -> Comparison {
        let Against { side, changes, .. } = self;
        let mut limits: BTreeMap<String, LimitComparison> = BTreeMap::new();
        for (limit, counts) in side.tally.by_limit() {
            let of_limit = limits.entry(side.engine.name(limit).to_owned()).or_default();
            of_limit.changes = self.by_limit.get(limit.index()).copied().unwrap_or_default();
            of_limit.counts = counts;
        }
        for (limit, counts) in in_force.tally.by_limit() {
            let of_limit = limits.entry(in_force.engine.name(limit).to_owned()).or_default();
            let newly_allowed = self.newly_allowed_by_limit.get(limit.index());
            of_limit.changes.newly_allowed = newly_allowed.copied().unwrap_or_default();
            of_limit.denied_in_force = counts.denied;
        }
        Comparison {
            file: self.file.clone(),
            errors: is_trace.then_some(self.errors),
            not_compared: self.not_compared,
            allowed: side.tally.allowed,
            denied: side.tally.denied,
            changes: *changes,
            limits,
            top_newly_denied: most(&self.newly_denied, side, in_force, side, max),
            top_newly_allowed: most(&self.newly_allowed, in_force, in_force, side, max),
        }
    }
}

/// The keys that changed most, the most first; ties by id, then by limit. `of` is the side whose keys
/// they are.
fn most(met: &Met, of: &Side, in_force: &Side, candidate: &Side, max: usize) -> Vec<Changed> {
    let all = met.iter().map(|(key, times)| (of.tally.get(*key), times));
    let mut all: Vec<_> = all.map(|(key, times)| (key, of.engine.name(key.limit), times)).collect();
    all.sort_unstable_by(|(a, a_limit, a_times), (b, b_limit, b_times)| {
        let by_count = b_times.count.cmp(&a_times.count);
        by_count.then_with(|| (&a.normalized, a_limit).cmp(&(&b.normalized, b_limit)))
    });
    all.truncate(max);
    let changed = all.into_iter().map(|(key, limit, times)| Changed {
        limit: limit.to_owned(),
        id: key.normalized.to_string(),
        lines: times.count,
        denied_in_force: in_force.denied(limit, &key.normalized),
        denied: candidate.denied(limit, &key.normalized),
        first_at_ns: times.first_at_ns,
    });
    changed.collect()
}

fn meet(met: &mut Met, key: KeyNo, at_ns: u64) {
    met.entry(key).or_insert(Times { count: 0, first_at_ns: at_ns }).count += 1;
}

/// The place of a limit, made if it is not there yet.
fn at<T: Default>(by_limit: &mut Vec<T>, limit: LimitNo) -> &mut T {
    if by_limit.len() <= limit.index() {
        by_limit.resize_with(limit.index() + 1, T::default);
    }
    &mut by_limit[limit.index()]
}
