//! Checks every window of each id's grants in one pass: it has at most what the bound says, and what was returned since
//! the first of its charges. The pass compares the sum up to a grant, less what a
//! window that ends there may have, with the least of all windows' beginnings.

use std::fmt;

use super::threads::{Done, Grant, IDS, LIMITS, Return};

/// A window in which too much was granted.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
pub(crate) struct Violation {
    limit: usize,
    id: usize,
    at_ns: u64,
    /// How much too early, in ns of a unit's time.
    by_ns: i128,
    /// The grants of the window that are in this round.
    window: Vec<Grant>,
}

/// One id's state between rounds.
#[derive(Clone, Default)]
struct Passed {
    /// All units so far.
    sum: i128,
    /// The latest time of a grant.
    latest: i128,
    /// The latest end of a call that was granted.
    over: i128,
    /// The least start value of the windows that have begun.
    least: Option<i128>,
    grants: i128,
    /// The units that were returned in earlier rounds.
    returned: i128,
}

/// The sums of an id's returns in a round.
struct Returned {
    before: i128,
    /// The ends of the calls, and their beginnings, each with the sum up to it.
    over: Vec<(u64, i128)>,
    began: Vec<(u64, i128)>,
}

impl Returned {
    fn new(before: i128, returns: &[&Return]) -> Returned {
        let sums = |time: fn(&Return) -> u64| {
            let mut sums: Vec<_> =
                returns.iter().map(|it| (time(it), i128::from(it.units))).collect();
            sums.sort_unstable();
            let mut sum = 0;
            for (_, units) in &mut sums {
                sum += *units;
                *units = sum;
            }
            sums
        };
        Returned { before, over: sums(|it| it.over_ns), began: sums(|it| it.began_ns) }
    }

    /// The units that were certainly returned before a time.
    fn before(&self, at_ns: u64) -> i128 {
        let number = self.over.partition_point(|it| it.0 < at_ns);
        self.before + number.checked_sub(1).map_or(0, |last| self.over[last].1)
    }

    /// The units that may have been returned by a time.
    fn until(&self, at_ns: u64) -> i128 {
        let number = self.began.partition_point(|it| it.0 <= at_ns);
        self.before + number.checked_sub(1).map_or(0, |last| self.began[last].1)
    }
}

pub(crate) struct Bound {
    passed: Vec<Passed>,
    windows: i128,
    grants: i128,
    /// The least room of any window, in units.
    worst: f64,
}

impl Bound {
    pub(crate) fn new() -> Bound {
        let passed = vec![Passed::default(); LIMITS.len() * IDS];
        Bound { passed, windows: 0, grants: 0, worst: f64::INFINITY }
    }

    pub(crate) fn windows(&self) -> i128 {
        self.windows
    }

    /// Checks the grants of a round. All of them come after those of earlier rounds.
    pub(crate) fn check(
        &mut self,
        (grants, returns): &(Vec<Grant>, Vec<Return>),
        done: &Done,
        violations: &mut Vec<Violation>,
    ) {
        for (limit, of) in LIMITS.iter().enumerate() {
            for id in 0..IDS {
                let is_its =
                    |grant: &&Grant| (grant.limit, grant.id) == (limit, id) && grant.cost > 0;
                let mut its: Vec<&Grant> = grants.iter().filter(is_its).collect();
                its.sort_by_key(|grant| grant.at_ns);
                let passed = &mut self.passed[limit * IDS + id];
                let is_its = |it: &&Return| (it.limit, it.id) == (limit, id);
                let returns: Vec<_> = returns.iter().filter(is_its).collect();
                let returned = Returned::new(passed.returned, &returns);
                let worst_ns = passed.check(&its, (limit, id), (done, &returned), violations);
                passed.returned = returned.until(u64::MAX);
                let count = its.len() as i128;
                self.windows += count * (count + 1) / 2 + count * (passed.grants - count);
                self.grants += count;
                self.worst = self.worst.min(worst_ns as f64 / of.interval_ns as f64);
            }
        }
    }
}

impl Passed {
    /// Returns the least room, in ns of a unit's time.
    fn check(
        &mut self,
        grants: &[&Grant],
        (limit, id): (usize, usize),
        (done, returned): (&Done, &Returned),
        violations: &mut Vec<Violation>,
    ) -> i128 {
        let interval = i128::from(LIMITS[limit].interval_ns);
        let generations = &done.generations[limit];
        // The first generation under which this grant, or a later one, was asked for.
        let mut firsts: Vec<usize> =
            grants.iter().map(|grant| generations.first_at(grant.asked_ns)).collect();
        for at in (1..firsts.len()).rev() {
            firsts[at - 1] = firsts[at - 1].min(firsts[at]);
        }
        // When the first of these was charged.
        let mut charged_ns: Vec<u64> = grants.iter().map(|grant| grant.charged_ns).collect();
        for at in (1..charged_ns.len()).rev() {
            charged_ns[at - 1] = charged_ns[at - 1].min(charged_ns[at]);
        }
        let (mut worst, mut from) = (i128::MAX, 0);
        for (at, (grant, &first)) in grants.iter().zip(&firsts).enumerate() {
            let begins = self.sum * interval
                - i128::from(grant.at_ns)
                - generations.bursts_before(first) * interval
                - returned.before(charged_ns[at]) * interval;
            if self.least.is_none_or(|least| begins <= least) {
                (self.least, from) = (Some(begins), at);
            }
            self.sum += i128::from(grant.cost);
            self.grants += 1;
            self.latest = self.latest.max(i128::from(done.latest_of(grant)));
            // A call that is suspended after its reading of the clock may be decided by limits that began later.
            self.over = self.over.max(self.latest).max(i128::from(grant.over_ns));
            let last = generations.last_at(self.over as u64);
            let ends =
                (self.sum - generations.bursts_before(last + 1) - returned.until(self.over as u64))
                    * interval
                    - self.latest;
            let room = self.least.unwrap_or(begins) - ends;
            worst = worst.min(room);
            if room < 0 {
                let window = grants[from..=at].iter().map(|grant| **grant).collect();
                violations.push(Violation { limit, id, at_ns: grant.at_ns, by_ns: -room, window });
            }
        }
        worst
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants, {} windows, least room {:.6} units",
            self.grants, self.windows, self.worst
        )
    }
}
