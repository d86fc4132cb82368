//! The oracle's view of the buckets in the store: one bucket of each id for all nodes, in plain integers.
//!
//! A bucket is *sure* as long as its state, together with the units that nodes hold of it, is the state in the store.
//! Then each answer of the store is determined. It is not sure any more when time passes while units are leased,
//! because the bucket does not refill past them, or when a lease is lost. From then on the store has at most the
//! units that the oracle says, until the bucket must be full.

use std::collections::BTreeMap;

use super::oracle::bucket::{NS_PER_MS, Rule, State, ceil, ms_of};
use super::spec::LARGEST_FACTOR;

/// The time for which the store keeps a text that says nothing any more.
const SLACK_NS: i128 = 60_000 * NS_PER_MS;
const FOR_EVER: (i128, i128) = (i128::MAX, i128::MAX);
/// The largest factor of a call.
const LARGEST_TIMES: i128 = LARGEST_FACTOR as i128 / 1_000_000;
/// By the limit itself a bucket may take longer to fill than by a factor below 1: at most as many times, for the smallest one.
const SMALLEST_TIMES: i128 = 4;
/// The most nodes of a run.
pub(crate) const MAX_NODES: usize = 3;
/// More units than any bucket of a run can owe.
const MOST_UNITS: i128 = 130;

/// A bucket by its limit, its algorithm, because the texts differ, and its id.
pub(crate) type Key = (usize, Algorithm, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Algorithm {
    Gcra,
    Fixed,
    Tokens,
    Leaky,
}

impl Algorithm {
    pub(crate) fn of(rule: Rule) -> Algorithm {
        match rule {
            Rule::Gcra { .. } => Algorithm::Gcra,
            Rule::Fixed { .. } => Algorithm::Fixed,
            Rule::Tokens { .. } => Algorithm::Tokens,
            Rule::Leaky { .. } => Algorithm::Leaky,
            Rule::Permits { .. } => unreachable!("permits are not shared"),
        }
    }
}

/// Times are those of the store's clock, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) state: Option<State>,
    pub(crate) blocked_until: Option<i128>,
    /// Whether the text has the end of a block, which may be over.
    has_block: bool,
    /// When the id was blocked that is blocked now.
    pub(crate) blocked_at: i128,
    /// The store forgets the text between these times: a leaky bucket is kept until it is full by the largest factor.
    kept_until: (i128, i128),
    pub(crate) is_sure: bool,
    /// Whether nodes with different numbers have used the bucket since it was sure, or a call with a factor beside leases.
    pub(crate) is_mixed: bool,
    /// Until these times each node may hold a lease.
    out_until: [i128; MAX_NODES],
    /// Until this time units may be leased that no node can give back.
    lost_until: i128,
    /// The last call, and the longest time in which the bucket fills by the rules of calls since it was sure.
    touched: i128,
    slowest: i128,
    /// The longest time for which the store keeps the text of a bucket that counts, by the rules of all calls and the largest
    /// factor.
    fills_in: i128,
}

impl Bucket {
    fn new() -> Bucket {
        Bucket {
            state: None,
            blocked_until: None,
            has_block: false,
            blocked_at: 0,
            kept_until: FOR_EVER,
            is_sure: true,
            is_mixed: false,
            out_until: [0; MAX_NODES],
            lost_until: 0,
            touched: 0,
            slowest: 0,
            fills_in: 0,
        }
    }

    /// Blocks the id until a time, which may be now.
    pub(crate) fn block(&mut self, until: i128, rule: Rule, now: i128) {
        if self.has_block && self.blocked_until == Some(until) {
            // A longer block stays as it is.
            return;
        }
        if until > now {
            self.blocked_at = if self.is_blocked(now) { self.blocked_at } else { now };
            self.blocked_until = Some(until);
        }
        self.has_block = true;
        // The text of a bucket that is full may be forgotten by now, or kept longer for the block.
        self.is_sure &= self.state.is_none() || now < self.kept_until.0;
        self.keep(rule, now, true);
    }

    /// Ends the block of the id, and returns whether it was blocked.
    pub(crate) fn unblock(&mut self, rule: Rule, now: i128) -> bool {
        let was_blocked = self.blocked_until.take().is_some();
        let has_block = std::mem::take(&mut self.has_block);
        if was_blocked {
            self.keep(rule, now, true);
        } else if has_block {
            // The store may have forgotten a block that is over. If it has not, the call writes or removes the text.
            self.is_sure &= self.state.is_none();
        }
        was_blocked
    }

    /// Whether units may be leased at a time.
    pub(crate) fn has_leases(&self, now: i128) -> bool {
        now < self.leased_until()
    }

    fn leased_until(&self) -> i128 {
        self.out_until.iter().copied().max().unwrap_or(0).max(self.lost_until)
    }

    /// Records a call with a factor beside units that nodes hold. It changes the time that they take; and they are spent also
    /// where the limit without a factor would deny a call after it.
    pub(crate) fn charge_beside_leases(&mut self) {
        (self.is_sure, self.is_mixed) = (false, true);
    }

    /// Whether the store has at most the units that the oracle says: a drip or a window may begin later than in a bucket
    /// without leases.
    pub(crate) fn is_bound(&self, key: Key) -> bool {
        key.1 == Algorithm::Gcra && !self.is_mixed
    }

    pub(crate) fn is_blocked(&self, now: i128) -> bool {
        self.blocked_until.is_some_and(|until| until > now)
    }

    /// Brings the state up to a time, as the text of a bucket from which units were leased.
    pub(crate) fn bring_up(&mut self, rule: Rule, now: i128) {
        if let Some(State::Counted { at, used }) = self.state {
            let current = rule.current(at, used, ms_of(now));
            self.state = Some(State::Counted { at: current.at, used: current.used });
        }
    }

    /// Records that a node holds a lease, which ends by this time.
    pub(crate) fn lease(&mut self, node: usize, until: i128) {
        self.out_until[node] = self.out_until[node].max(until);
    }

    /// Records that a node has lost its lease, if it had one: the store takes it for spent when it ends.
    pub(crate) fn lose_lease(&mut self, node: usize, now: i128) {
        let until = std::mem::take(&mut self.out_until[node]);
        if until > now {
            self.is_sure = false;
            self.lost_until = self.lost_until.max(until);
        }
    }

    /// Records that a node has given its lease back.
    pub(crate) fn give_back(&mut self, node: usize) {
        self.out_until[node] = 0;
    }

    /// Records a call, or a change of the limits, after which a rule applies.
    pub(crate) fn touch(&mut self, rule: Rule, now: i128) {
        self.touched = self.touched.max(now);
        self.slowest = self.slowest.max(fills_by_all(rule));
        self.fills_in = self.fills_in.max(fills_by_largest(rule) * NS_PER_MS);
    }

    /// Puts another state in place. `removes`: the call removes a text that says nothing.
    pub(crate) fn put(&mut self, state: Option<State>, rule: Rule, now: i128, removes: bool) {
        if state == self.state && !removes {
            return;
        }
        self.state = state;
        self.keep(rule, now, removes);
    }

    /// Records that the store has a new text.
    pub(crate) fn keep(&mut self, rule: Rule, now: i128, removes: bool) {
        if removes && self.state.is_none() && !self.is_blocked(now) {
            self.has_block = false;
        }
        self.kept_until = self.kept_from(rule, now);
    }

    /// Records that the store may have a new text that says the same: a lease was granted or given back.
    pub(crate) fn keep_longer(&mut self, rule: Rule, now: i128) {
        if self.has_leases(now) {
            self.kept_until.1 = self.kept_until.1.max(self.kept_from(rule, now).1);
        }
    }

    /// Between which times the store forgets a text that is written now.
    fn kept_from(&self, rule: Rule, now: i128) -> (i128, i128) {
        let Some(State::Counted { at, .. }) = self.state else {
            // A time that has passed says the same as no text.
            return FOR_EVER;
        };
        let reset = rule.spend(self.state, now, 0).1.reset;
        let ahead = (at - ms_of(now)).max(0) * NS_PER_MS;
        let blocked = self.blocked_until.map_or(0, |until| whole_ms((until - now).max(0)));
        let drip = match rule {
            Rule::Leaky { rate, .. } => rate * NS_PER_MS,
            _ => 0,
        };
        let leased = drip + whole_ms((self.leased_until() - now).max(0));
        let full = whole_ms(reset + ahead);
        // At least until a bucket of the limit is full, by the largest factor.
        let (least, most) = match rule {
            Rule::Gcra { .. } | Rule::Permits { .. } => (0, 0),
            Rule::Fixed { .. } | Rule::Tokens { .. } => (0, fills_by_largest(rule)),
            Rule::Leaky { size, rate, drip } => {
                (ceil(size, drip) * rate + 1, fills_by_largest(rule))
            }
        };
        let kept = |least| now + SLACK_NS + full.max(blocked).max(least * NS_PER_MS);
        // The call may have had a factor below 1: the text is kept by the limit itself as well.
        let filled = now + SLACK_NS + self.fills_in.max(fills_by_all(rule));
        (kept(least), (kept(most) + leased).max(filled))
    }

    /// Finds out whether the store may have forgotten units that count by a rule.
    pub(crate) fn find(&mut self, rule: Rule, now: i128) {
        let owes = self.state.is_some_and(|state| !rule.is_full(state, now));
        self.is_sure &= !(owes && now >= self.kept_until.0);
    }

    /// Moves the clock.
    fn set_now(&mut self, before: i128, now: i128) {
        if let Some(until) = self.blocked_until.filter(|&until| until <= now) {
            self.blocked_until = None;
            self.touched = self.touched.max(until);
        }
        if now >= self.kept_until.1 {
            (self.state, self.kept_until) = (None, FOR_EVER);
        }
        if self.has_leases(before) && now != before {
            self.is_sure = false;
        }
        // Then it is full, and the store has forgotten its text.
        let filled = self.touched.max(self.leased_until()) + self.slowest.max(self.fills_in);
        let full = filled + SLACK_NS + NS_PER_MS;
        if !self.is_sure && self.blocked_until.is_none() && now >= full {
            (self.is_sure, self.is_mixed, self.state, self.slowest) = (true, false, None, 0);
        }
    }
}

/// At least the ms in which the units of a limit without a factor are out of it by the largest one. `rule` may have a factor.
fn fills_by_largest(rule: Rule) -> i128 {
    match rule {
        Rule::Gcra { .. } | Rule::Permits { .. } => 0,
        // A quota that is divided and rounded to whole units is more than half of the quotient.
        Rule::Fixed { window, .. } | Rule::Tokens { window, .. } => 2 * LARGEST_TIMES * window + 1,
        Rule::Leaky { size, rate, drip } => {
            ceil(LARGEST_TIMES * size, drip) * LARGEST_TIMES * rate + 1
        }
    }
}

fn whole_ms(ns: i128) -> i128 {
    (ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS
}

/// A time within which any bucket of a run fills by a rule.
fn fills_within(rule: Rule) -> i128 {
    match rule {
        Rule::Gcra { .. } | Rule::Permits { .. } => rule.capacity(),
        Rule::Fixed { limit, window } | Rule::Tokens { limit, window, .. } => {
            (MOST_UNITS / limit + 2) * window * NS_PER_MS
        }
        Rule::Leaky { rate, drip, .. } => (MOST_UNITS / drip + 2) * rate * NS_PER_MS,
    }
}

/// A time within which any bucket of a run fills by a rule, and by that of the limit itself if the rule has a factor.
fn fills_by_all(rule: Rule) -> i128 {
    match rule {
        Rule::Gcra { .. } => fills_within(rule),
        _ => SMALLEST_TIMES * fills_within(rule),
    }
}

/// Returns the state of a bucket from which more units are taken, whether or not it has them.
pub(crate) fn with_units(
    rule: Rule,
    state: Option<State>,
    now: i128,
    units: i128,
) -> Option<State> {
    if units == 0 {
        return state;
    }
    let fresh = State::Counted { at: ms_of(now), used: 0 };
    Some(match (rule, state) {
        (Rule::Gcra { interval, .. }, Some(State::Tat(tat))) => {
            State::Tat(now.max(tat) + interval * units)
        }
        (Rule::Gcra { interval, .. }, _) => State::Tat(now + interval * units),
        (_, state) => {
            let State::Counted { at, used } = state.unwrap_or(fresh) else {
                unreachable!("{rule:?} {state:?}")
            };
            let current = rule.current(at, used, ms_of(now));
            State::Counted { at: current.at, used: current.used + units }
        }
    })
}

/// Returns the state of a bucket to which leased units have come back.
pub(crate) fn without_units(rule: Rule, state: Option<State>, units: i128) -> Option<State> {
    match (rule, state) {
        (Rule::Gcra { interval, .. }, Some(State::Tat(tat))) => {
            Some(State::Tat(tat - interval * units))
        }
        (_, Some(State::Counted { at, used })) => {
            Some(State::Counted { at, used: (used - units).max(0) })
        }
        (_, state) => state,
    }
}

/// The buckets in the store.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<Key, Bucket>);

impl Buckets {
    pub(crate) fn bucket(&mut self, key: Key) -> &mut Bucket {
        self.0.entry(key).or_insert_with(Bucket::new)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Bucket)> {
        self.0.iter_mut().map(|(&key, bucket)| (key, bucket))
    }

    pub(crate) fn set_now(&mut self, before: i128, now: i128) {
        self.0.values_mut().for_each(|bucket| bucket.set_now(before, now));
    }

    /// The last end of a block or a text up to a time: the clock does not go back behind it.
    pub(crate) fn last_end(&self, now: i128) -> i128 {
        let ends = self.0.values().flat_map(|bucket| {
            let (least, most) = bucket.kept_until;
            bucket.blocked_until.into_iter().chain([least, most])
        });
        ends.filter(|&until| until <= now).max().unwrap_or(0)
    }
}
