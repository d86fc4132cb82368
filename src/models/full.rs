//! Models of each algorithm's own "full", on the lock-free table under the whole limiter: a caller that spends beside a
//! sweep gets the decisions of a bucket that is never dropped.
//!
//! The model computes the possible decisions by the rule itself, from one word, at the times that the callers may have
//! had. Buckets are emptied at 0 ms, have a part of their units at 1 ms (a fixed window has none), and are full at 2
//! ms. Their limit is an override's; the default would fill them in half the time.

use super::*;
use crate::algorithm::Algorithm;
use crate::algorithm::factor::Factor;
use crate::store::Store;

/// The largest number of preemptions.
const SOME: Option<usize> = Some(2);

const MS: Duration = Duration::from_millis(1);

/// A built-in algorithm.
#[derive(Clone, Copy, Debug)]
enum AlgorithmKind {
    Gcra,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
}

impl AlgorithmKind {
    /// A limit of two units, full again `full_ms` ms after both were spent, 1 or 2.
    fn full_in(self, full_ms: u32) -> Limit {
        let full_in = MS * full_ms;
        let limit = match self {
            AlgorithmKind::Gcra => Limit::new(2, 2, full_in),
            AlgorithmKind::FixedWindow => Limit::fixed_window(2, full_in),
            AlgorithmKind::TokenBucket => Limit::token_bucket(2, 4, full_in),
            AlgorithmKind::LeakyBucket => Limit::leaky_bucket(2, 2 / u64::from(full_ms), MS),
        };
        limit.unwrap()
    }

    fn limit(self) -> Limit {
        self.full_in(2)
    }
}

/// Limits A and B, full in 2 ms for the id k, and Long, which is not full again while a model runs.
fn limits_of(a: AlgorithmKind, b: AlgorithmKind) -> Limits {
    let long = Limit::new(1, 1, Duration::from_secs(3600)).unwrap();
    let mut limits = Limits::builder().limit("Long", IdFormat::String, long).unwrap();
    for (name, kind) in [("A", a), ("B", b)] {
        limits = limits.limit(name, IdFormat::String, kind.full_in(1)).unwrap();
        limits = limits.override_id(name, "k", kind.limit()).unwrap();
    }
    limits.build()
}

/// Makes a limiter with one bucket that is never full. Without it a sweep would leave an empty segment and begin a
/// migration; migrations have their own models.
fn lock_free(limits: Limits, clock: Clock) -> Limiter {
    let options = LimiterOptions::default().clock(clock).max_keys(8).engine(Engine::LockFree);
    let limiter = Limiter::with_options(limits, options).unwrap();
    assert!(spend(&limiter, "Long", 1));
    limiter
}

/// Like [`lock_free`], with a segment that has room for two buckets twice, and with a second bucket that is never full.
fn roomy(limits: Limits, clock: Clock) -> Limiter {
    let limiter = lock_free(limits, clock);
    assert!(limiter.limit("Long").unwrap().spend("other", 1).unwrap().allowed());
    let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
    table.migrate(4, &limiter.inner.view(&crate::store::pin()));
    limiter
}

/// Makes a clock that shows each thread its own time.
fn own_clock() -> Clock {
    Clock::custom(|| Duration::from_nanos(OWN_NOW.with(Cell::get)))
}

/// Sets this thread's clock.
fn set_own_ms(ms: u64) {
    OWN_NOW.with(|now| now.set(ms * 1_000_000));
}

/// Returns the time of a call in the form that rules take.
fn at_ns(ms: u64) -> u64 {
    ms * 1_000_000 + 1
}

/// Counts whether the sweep dropped a bucket of the model. A sweep that came too late to matter counts as none.
fn count_sweep(dropped: usize) {
    count(if dropped > 0 { "dropped" } else { "kept" });
}

/// The state of a bucket at 2 ms: its units, and the ns until it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BucketState {
    remaining: u64,
    reset_in_ns: u128,
}

fn bucket_state(limiter: &Limiter, name: &str) -> BucketState {
    let (remaining, reset_in_ns) = (remaining(limiter, name), reset_in_ns(limiter, name));
    BucketState { remaining, reset_in_ns }
}

/// Returns the decisions and the state of a bucket that is never dropped: emptied at 0 ms, then charged by `calls` (ms,
/// units), then read at 2 ms.
fn never_dropped(kind: AlgorithmKind, calls: &[(u64, u64)]) -> (Vec<bool>, BucketState) {
    let limit = kind.limit();
    let mut word = limit.spend(0, at_ns(0), 2).word.expect("a new bucket is full");
    let mut admitted = Vec::new();
    for &(ms, cost) in calls {
        let outcome = limit.spend(word, at_ns(ms), cost);
        admitted.push(outcome.decision.allowed());
        word = outcome.word.unwrap_or(word);
    }
    let decision = limit.spend(word, at_ns(2), 0).decision;
    let remaining = decision.remaining().unwrap();
    (admitted, BucketState { remaining, reset_in_ns: decision.reset_in().as_nanos() })
}

/// Asserts that two calls for a unit each were decided as by a bucket that is never dropped, each at 1 ms or 2 ms: at
/// the caller's time, or at the time of the sweep that dropped the bucket. The second call may have the earlier time:
/// the caller's after the sweep's.
fn assert_as_never_dropped(kind: AlgorithmKind, seen: &(Vec<bool>, BucketState)) {
    let times = [(1, 1), (1, 2), (2, 1), (2, 2)];
    let possible = times.map(|(first, then)| never_dropped(kind, &[(first, 1), (then, 1)]));
    assert!(
        possible.contains(seen),
        "charges are forgotten: {seen:?}, but a {kind:?} that is never dropped gives {possible:?}"
    );
}

fn spend_twice(limiter: &Limiter) -> Vec<bool> {
    vec![spend(limiter, "A", 1), spend(limiter, "A", 1)]
}

/// Excluded: while time moves, a sweep drops a bucket that is not full yet by its algorithm, or one that a call has
/// just charged.
fn spend_vs_sweep_by_fullness_model(kind: AlgorithmKind) {
    let (clock, hand) = Clock::manual();
    let limiter = lock_free(limits_of(kind, kind), clock);
    assert!(spend(&limiter, "A", 2));
    hand.advance(MS);
    let time = loom::thread::spawn(move || hand.advance(MS));
    let spender = spawn(&limiter, |limiter| spend_twice(&limiter));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(8).dropped);
    time.join().unwrap();
    let admitted = spender.join().unwrap();
    count_sweep(sweeper.join().unwrap());
    assert_as_never_dropped(kind, &(admitted, bucket_state(&limiter, "A")));
}

fn spend_vs_sweep_by_fullness(kind: AlgorithmKind, faults: &[Fault]) {
    let model = move || spend_vs_sweep_by_fullness_model(kind);
    explore_bounded(SOME, model);
    assert_happened(&["dropped", "kept"]);
    assert!(coverage::count(Race::Evicted) > 0, "nothing was buried");
    for &fault in faults {
        fails_bounded(SOME, fault, "charges are forgotten", model);
    }
}

#[test]
fn spend_vs_sweep_by_fullness_of_gcra() {
    // Without `FullByDefault`: gcra's word says when it is full, for any limit.
    spend_vs_sweep_by_fullness(AlgorithmKind::Gcra, &[Fault::EvictByStore, Fault::FullEarly]);
}

/// The faults for algorithms whose words do not say when they are full.
const FAULTS: [Fault; 3] = [Fault::EvictByStore, Fault::FullEarly, Fault::FullByDefault];

#[test]
fn spend_vs_sweep_by_fullness_of_fixed_window() {
    spend_vs_sweep_by_fullness(AlgorithmKind::FixedWindow, &FAULTS);
}

#[test]
fn spend_vs_sweep_by_fullness_of_token_bucket() {
    spend_vs_sweep_by_fullness(AlgorithmKind::TokenBucket, &FAULTS);
}

#[test]
fn spend_vs_sweep_by_fullness_of_leaky_bucket() {
    spend_vs_sweep_by_fullness(AlgorithmKind::LeakyBucket, &FAULTS);
}

/// Excluded: a caller whose clock is behind the sweeper's spends again in a window that was used and dropped, or gets
/// the same drips twice.
fn older_spend_vs_sweep_by_fullness_model(kind: AlgorithmKind) {
    let limiter = lock_free(limits_of(kind, kind), own_clock());
    assert!(spend(&limiter, "A", 2));
    let sweeper = spawn(&limiter, |limiter| {
        set_own_ms(2);
        limiter.sweep(8).dropped
    });
    let spender = spawn(&limiter, |limiter| {
        set_own_ms(1);
        spend_twice(&limiter)
    });
    let dropped = sweeper.join().unwrap();
    let admitted = spender.join().unwrap();
    set_own_ms(2);
    let result = (admitted, bucket_state(&limiter, "A"));
    let at_its_own_time = result == never_dropped(kind, &[(1, 1), (1, 1)]);
    // A window is over at 2 ms even if it was charged. So a sweep that comes last drops it as well.
    let is_late = matches!(kind, AlgorithmKind::FixedWindow) && at_its_own_time;
    count_sweep(if is_late { 0 } else { dropped });
    assert!(dropped > 0 || at_its_own_time, "the bucket was there all the time: {result:?}");
    assert_as_never_dropped(kind, &result);
}

fn older_spend_vs_sweep_by_fullness(kind: AlgorithmKind) {
    let model = move || older_spend_vs_sweep_by_fullness_model(kind);
    explore_bounded(SOME, model);
    assert_happened(&["dropped", "kept"]);
    assert!(coverage::count(Race::FloorUsed) > 0, "no decision needed the floor");
    fails_bounded(SOME, Fault::NoFloor, "charges are forgotten", model);
}

#[test]
fn older_spend_vs_sweep_by_fullness_of_gcra() {
    older_spend_vs_sweep_by_fullness(AlgorithmKind::Gcra);
}

#[test]
fn older_spend_vs_sweep_of_fixed_window() {
    older_spend_vs_sweep_by_fullness(AlgorithmKind::FixedWindow);
}

#[test]
fn older_spend_vs_sweep_of_token_bucket() {
    older_spend_vs_sweep_by_fullness(AlgorithmKind::TokenBucket);
}

#[test]
fn older_spend_vs_sweep_of_leaky_bucket() {
    older_spend_vs_sweep_by_fullness(AlgorithmKind::LeakyBucket);
}

/// Excluded: a sweep drops a bucket that is full by the limit, but not by the factor that it was charged with.
fn spend_with_factor_vs_sweep_model() {
    let limiter =
        lock_free(limits_of(AlgorithmKind::LeakyBucket, AlgorithmKind::LeakyBucket), own_clock());
    let twice_as_costly = Factor::from(2);
    // Makes a cell without debt: a sweep may drop it before it is charged.
    assert!(spend(&limiter, "A", 1));
    assert!(limiter.limit("A").unwrap().reset("k").unwrap().allowed());
    let spender = spawn(&limiter, move |limiter| {
        let limit = limiter.limit("A").unwrap();
        limit.scaled(twice_as_costly).spend("k", 1).unwrap().allowed()
    });
    let sweeper = spawn(&limiter, |limiter| {
        set_own_ms(1);
        limiter.sweep(8).dropped
    });
    assert!(spender.join().unwrap(), "the one unit was there");
    count_sweep(sweeper.join().unwrap());
    set_own_ms(1);
    // A unit takes 2 ms by the factor, so that the bucket is empty at 1 ms. By the limit a unit takes 1 ms.
    let limit = limiter.limit("A").unwrap();
    let decision = limit.scaled(twice_as_costly).check("k", 0).unwrap();
    assert_eq!(decision.remaining(), Some(0), "the charge with the factor is forgotten");
}

#[test]
fn spend_with_factor_vs_sweep() {
    explore_bounded(SOME, spend_with_factor_vs_sweep_model);
    assert_happened(&["dropped", "kept"]);
    assert!(coverage::count(Race::KeptByFactor) > 0, "no bucket was kept for its factor");
    for fault in [Fault::FactorNotedLate, Fault::FactorNotNoted, Fault::UpdateRelaxed] {
        fails_bounded(
            SOME,
            fault,
            "the charge with the factor is forgotten",
            spend_with_factor_vs_sweep_model,
        );
    }
}

/// Excluded: beside a batch of two algorithms a sweep drops a member that the batch has charged, or one that is not
/// full yet, so that the batch is admitted too early or charges only one of the two.
fn batch_vs_sweep_by_fullness_model(a: AlgorithmKind, b: AlgorithmKind) {
    let (clock, hand) = Clock::manual();
    let limiter = roomy(limits_of(a, b), clock);
    assert!(spend(&limiter, "A", 2) && spend(&limiter, "B", 2));
    hand.advance(MS);
    let time = loom::thread::spawn(move || hand.advance(MS));
    let batch = spawn(&limiter, |limiter| {
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        // A has one unit at 1 ms; B has its two when it is full.
        limiter.batch(&[a.member("k"), b.member("k").cost(2)]).spend().unwrap().allowed()
    });
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(8).dropped);
    time.join().unwrap();
    let admitted = batch.join().unwrap();
    count(if admitted { "admitted" } else { "denied" });
    count_sweep(sweeper.join().unwrap());
    let result = (admitted, bucket_state(&limiter, "A"), bucket_state(&limiter, "B"));
    let left_alone = (false, never_dropped(a, &[]).1, never_dropped(b, &[]).1);
    // Each member may be decided at the batch's time, or at the time of the sweep that dropped it.
    let possible = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(at_a, at_b)| {
        let (of_a, a) = never_dropped(a, &[(at_a, 1)]);
        let (of_b, b) = never_dropped(b, &[(at_b, 2)]);
        if of_a[0] && of_b[0] { (true, a, b) } else { left_alone }
    });
    assert!(
        possible.contains(&result),
        "charges are forgotten: {result:?}, but buckets that are never dropped give {possible:?}"
    );
}

fn batch_vs_sweep_by_fullness(a: AlgorithmKind, b: AlgorithmKind) {
    let model = move || batch_vs_sweep_by_fullness_model(a, b);
    explore_bounded(SOME, model);
    assert_happened(&["dropped", "kept", "denied", "admitted"]);
    for fault in [Fault::EvictByStore, Fault::FullEarly, Fault::NoFloor] {
        fails_bounded(SOME, fault, "charges are forgotten", model);
    }
}

#[test]
fn batch_vs_sweep_of_gcra_and_fixed_window() {
    batch_vs_sweep_by_fullness(AlgorithmKind::Gcra, AlgorithmKind::FixedWindow);
}

#[test]
fn batch_vs_sweep_of_leaky_and_token_bucket() {
    batch_vs_sweep_by_fullness(AlgorithmKind::LeakyBucket, AlgorithmKind::TokenBucket);
}
