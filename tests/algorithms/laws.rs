//! Checks the laws of every algorithm, built in or custom, as properties. A rule runs by hand on a bare
//! word, without a limiter.

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::Decision;
use tollgate::algorithm::{Algorithm, Outcome};

/// A call of a history. Times are steps in ns, so that a shorter history is a simpler one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Spend,
    Check,
    Refund,
    Reset,
    /// Moves the clock forward.
    Forward(u64),
    /// Moves the clock back.
    Back(u64),
}

/// Generates histories for a rule whose state changes about every `unit_ns`. Costs are parts of the largest
/// cost.
pub(crate) fn steps(unit_ns: u64) -> impl Strategy<Value = Vec<(Step, u64)>> {
    let time = prop_oneof![
        3 => 0..=2 * unit_ns,
        1 => Just(unit_ns),
        1 => 0..20 * unit_ns,
        1 => 0..3_000_000u64,
    ];
    let step = prop_oneof![
        8 => Just(Step::Spend),
        2 => Just(Step::Check),
        2 => Just(Step::Refund),
        1 => Just(Step::Reset),
        6 => time.clone().prop_map(Step::Forward),
        1 => time.prop_map(Step::Back),
    ];
    prop::collection::vec((step, prop_oneof![0..4u64, any::<u64>()]), 1..40)
}

/// A bucket without a limiter: a rule, a word and a clock.
pub(crate) struct ByHand<'a, A: ?Sized> {
    pub(crate) rule: &'a A,
    pub(crate) word: u64,
    pub(crate) now_ns: u64,
}

impl<A: ?Sized> Clone for ByHand<'_, A> {
    fn clone(&self) -> Self {
        ByHand { ..*self }
    }
}

impl<'a, A: Algorithm + ?Sized> ByHand<'a, A> {
    pub(crate) fn new(rule: &'a A, now_ns: u64) -> ByHand<'a, A> {
        ByHand { rule, word: 0, now_ns }
    }

    /// The cost of a step: small numbers as they are, others spread over all allowed costs.
    pub(crate) fn cost(&self, part: u64) -> u64 {
        part % (self.rule.max_cost() + 1)
    }

    /// Makes a step. Returns `None` if it is no call.
    pub(crate) fn step(&mut self, step: Step, part: u64) -> Option<Decision> {
        let cost = self.cost(part);
        let (rule, word, now_ns) = (self.rule, self.word, self.now_ns);
        match step {
            Step::Spend => Some(self.store(rule.spend(word, now_ns, cost))),
            Step::Check => Some(rule.spend(word, now_ns, cost).decision),
            Step::Refund => Some(self.store(rule.refund(word, now_ns, cost))),
            Step::Reset => Some(self.store(rule.reset(word, now_ns))),
            Step::Forward(ns) => {
                self.now_ns += ns;
                None
            }
            Step::Back(ns) => {
                self.now_ns = self.now_ns.saturating_sub(ns).max(1);
                None
            }
        }
    }

    fn store(&mut self, outcome: Outcome) -> Decision {
        if let Some(word) = outcome.word {
            assert!(word != 0 && word >> 63 == 0, "{:?} writes {word:#x}", self.rule);
            self.word = word;
        }
        outcome.decision
    }

    pub(crate) fn spend(&mut self, cost: u64) -> Decision {
        let outcome = self.rule.spend(self.word, self.now_ns, cost);
        self.store(outcome)
    }
}

impl<A: ?Sized + fmt::Debug> fmt::Debug for ByHand<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x} at {} ns", self.rule, self.word, self.now_ns)
    }
}

/// Checks all laws on one history. `tick_ns` is the resolution of the rule's times: 1, or 1,000,000 for
/// whole ms.
pub(crate) fn laws<A: Algorithm + ?Sized>(
    rule: &A,
    start_ns: u64,
    tick_ns: u64,
    history: &[(Step, u64)],
) {
    assert!(rule.max_cost() >= 1 && rule.is_full(0, start_ns));
    let mut bucket = ByHand::new(rule, start_ns);
    let mut latest_ns = start_ns;
    for &(step, part) in history {
        latest_ns = latest_ns.max(bucket.now_ns);
        // If the clock is behind the word, waits count from the word's own time.
        let is_latest = bucket.now_ns == latest_ns;
        of_any_word(&bucket, part, is_latest.then_some(tick_ns), history);
        bucket.step(step, part);
    }
}

/// Checks the laws of one bucket, whatever word a rule has written. The tick is given if the clock is not
/// behind the word: then waits count from now.
pub(crate) fn of_any_word<A: Algorithm + ?Sized>(
    bucket: &ByHand<'_, A>,
    part: u64,
    tick_ns: Option<u64>,
    later: &[(Step, u64)],
) {
    pure(bucket, part);
    writes_only_what_it_must(bucket, part);
    if let Some(tick_ns) = tick_ns {
        waits_are_exact(bucket, part, tick_ns);
    }
    full_is_as_good_as_none(bucket, later);
    resets_and_refunds(bucket, part);
}

fn pure<A: Algorithm + ?Sized>(bucket: &ByHand<'_, A>, part: u64) {
    let (rule, word, now_ns, cost) = (bucket.rule, bucket.word, bucket.now_ns, bucket.cost(part));
    assert_eq!(rule.spend(word, now_ns, cost), rule.spend(word, now_ns, cost), "{bucket:?}");
    assert_eq!(rule.refund(word, now_ns, cost), rule.refund(word, now_ns, cost), "{bucket:?}");
}

fn writes_only_what_it_must<A: Algorithm + ?Sized>(bucket: &ByHand<'_, A>, part: u64) {
    let cost = bucket.cost(part);
    let said = bucket.rule.spend(bucket.word, bucket.now_ns, cost);
    assert_eq!(said.word.is_some(), said.decision.allowed() && cost > 0, "{bucket:?} {cost}");
    assert!(said.decision.allowed() || !said.decision.retry_in().is_zero(), "{bucket:?} {cost}");
    let given = bucket.rule.refund(bucket.word, bucket.now_ns, cost);
    assert_eq!(given.word.is_some(), given.decision.allowed(), "{bucket:?} {cost}");
    assert_eq!(given.decision.denied_by(), None, "{bucket:?} {cost}");
}

/// Checks that a denied call is allowed after its wait and not a tick before, that after an allowed call
/// the same cost is there after its wait and not a tick before, and that a bucket is full after its
/// `reset_in` and not before.
fn waits_are_exact<A: Algorithm + ?Sized>(bucket: &ByHand<'_, A>, part: u64, tick_ns: u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("less than 584 years");
    let (rule, now_ns, cost) = (bucket.rule, bucket.now_ns, bucket.cost(part).max(1));
    let mut after = bucket.clone();
    let wait_ns = ns(after.spend(cost).retry_in());
    let allowed = |ns| rule.spend(after.word, now_ns + ns, cost).decision.allowed();
    assert!(allowed(wait_ns), "{after:?}: {cost} after {wait_ns} ns");
    assert!(wait_ns < tick_ns || !allowed(wait_ns - tick_ns), "{after:?}: {cost}, {wait_ns} ns");
    let reset_ns = ns(rule.spend(after.word, now_ns, 0).decision.reset_in());
    let full = |ns| rule.is_full(after.word, now_ns + ns);
    assert!(full(reset_ns), "{after:?}: full after {reset_ns} ns");
    assert!(reset_ns < tick_ns || !full(reset_ns - tick_ns), "{after:?}: full, {reset_ns} ns");
}

/// Checks that a full bucket may be dropped at any moment: a new bucket answers the same from then on.
fn full_is_as_good_as_none<A: Algorithm + ?Sized>(bucket: &ByHand<'_, A>, later: &[(Step, u64)]) {
    if !bucket.rule.is_full(bucket.word, bucket.now_ns) {
        return;
    }
    let floor_ns = bucket.now_ns;
    let (mut kept, mut evicted) = (bucket.clone(), bucket.clone());
    evicted.word = 0;
    for &(step, part) in later {
        assert_eq!(kept.step(step, part), evicted.step(step, part), "{bucket:?} {step:?} {part}");
        // A limiter's floor: no call for a dropped bucket has an earlier time.
        kept.now_ns = kept.now_ns.max(floor_ns);
        evicted.now_ns = evicted.now_ns.max(floor_ns);
    }
}

fn resets_and_refunds<A: Algorithm + ?Sized>(bucket: &ByHand<'_, A>, part: u64) {
    let (rule, now_ns) = (bucket.rule, bucket.now_ns);
    let unspent = rule.spend(0, now_ns, 0).decision;
    let mut reset = bucket.clone();
    assert!(reset.step(Step::Reset, 0).is_some_and(|decision| decision.allowed()));
    assert_eq!(rule.spend(reset.word, now_ns, 0).decision, unspent, "{bucket:?} after a reset");
    assert!(rule.is_full(rule.full(now_ns), now_ns) && rule.full(now_ns) != 0);

    let mut refunded = bucket.clone();
    let given = refunded.step(Step::Refund, part).expect("a call");
    let after = rule.spend(refunded.word, now_ns, 0).decision;
    assert_eq!(given.remaining(), after.remaining(), "{bucket:?} after a refund");
    assert_eq!(given.reset_in(), after.reset_in(), "{bucket:?} after a refund");
    assert!(after.remaining() <= unspent.remaining(), "{bucket:?}: past full");
    if rule.is_full(bucket.word, now_ns) {
        assert!(!given.allowed() && given.reset_in().is_zero(), "{bucket:?}: nothing to give");
    }
}
