//! Each algorithm's own "full", on the lock-free engine under the whole limiter: who spends beside a
//! sweep is told what a bucket says that is never dropped.
//!
//! What may be said is what the rule itself makes of one word, at the times that the callers may have
//! had. Buckets are emptied at 0 ms, have a part of their units at 1 ms (fixed_window has none), and are
//! full at 2 ms. The numbers are those of an override, whose default fills in half the time.

use super::*;
use crate::algorithm::Algorithm;
use crate::algorithm::factor::Factor;
use crate::store::Store;

/// The bound on preemptions.
const SOME: Option<usize> = Some(2);

const MS: Duration = Duration::from_millis(1);

/// An algorithm that is built in.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gcra,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
}

impl Kind {
    /// Two units at once; full again so many ms, 1 or 2, after both were spent.
    fn full_in(self, full_ms: u32) -> Limit {
        let full_in = MS * full_ms;
        let limit = match self {
            Kind::Gcra => Limit::new(2, 2, full_in),
            Kind::FixedWindow => Limit::fixed_window(2, full_in),
            Kind::TokenBucket => Limit::token_bucket(4, full_in, 2),
            Kind::LeakyBucket => Limit::leaky_bucket(2, MS, 2 / full_ms),
        };
        limit.unwrap()
    }

    fn limit(self) -> Limit {
        self.full_in(2)
    }
}

/// Limits A and B, full in 2 ms for the id k, and Long, which is not full as long as a model runs.
fn limits_of(a: Kind, b: Kind) -> Limits {
    let long = Limit::new(1, 1, Duration::from_secs(3600)).unwrap();
    let mut limits = Limits::builder().limit("Long", IdFormat::String, long).unwrap();
    for (name, kind) in [("A", a), ("B", b)] {
        limits = limits.limit(name, IdFormat::String, kind.full_in(1)).unwrap();
        limits = limits.override_id(name, "k", kind.limit()).unwrap();
    }
    limits.build()
}

/// A limiter with one bucket that stays: a segment without any would be left, and the models be of
/// migrations, which have their own.
fn lock_free(limits: Limits, clock: Clock) -> Limiter {
    let options = LimiterOptions::default().clock(clock).max_keys(8).engine(Engine::LockFree);
    let limiter = Limiter::with_options(limits, options);
    assert!(spend(&limiter, "Long", 1));
    limiter
}

/// As `lock_free`, with a segment that has room for two buckets twice, and one more bucket that stays.
fn roomy(limits: Limits, clock: Clock) -> Limiter {
    let limiter = lock_free(limits, clock);
    assert!(limiter.limit("Long").unwrap().spend("other", 1).unwrap().allowed());
    let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
    table.migrate(4, &limiter.inner.view(&crate::store::pin()));
    limiter
}

/// A clock that each thread has for itself.
fn own_clock() -> Clock {
    Clock::custom(|| Duration::from_nanos(OWN_NOW.with(Cell::get)))
}

/// Sets this thread's clock.
fn set_own_ms(ms: u64) {
    OWN_NOW.with(|now| now.set(ms * 1_000_000));
}

/// The time of a call, as rules take it.
fn at_ns(ms: u64) -> u64 {
    ms * 1_000_000 + 1
}

/// How often a sweep dropped a bucket of the model's, and how often it left all, or came too late to
/// matter.
#[derive(Clone, Default)]
struct Seen {
    dropped: Tally,
    kept: Tally,
}

impl Seen {
    fn note(&self, dropped: usize) {
        if dropped > 0 { self.dropped.add() } else { self.kept.add() }
    }

    fn assert_both(&self) {
        let (dropped, kept) = (self.dropped.get(), self.kept.get());
        assert!(dropped > 0 && kept > 0, "dropped {dropped}, kept {kept}");
        println!("dropped in {dropped} interleavings, kept in {kept}");
    }
}

/// What a bucket says at 2 ms: the units that are there, and the ns until it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    remaining: u64,
    reset_in_ns: u128,
}

fn standing(limiter: &Limiter, name: &str) -> Standing {
    let (remaining, reset_in_ns) = (remaining(limiter, name), reset_in_ns(limiter, name));
    Standing { remaining, reset_in_ns }
}

/// What is said of a bucket that is never dropped: emptied at 0 ms, asked for so many units at each of
/// these times in ms, then looked at at 2 ms.
fn never_dropped(kind: Kind, asked: &[(u64, u64)]) -> (Vec<bool>, Standing) {
    let limit = kind.limit();
    let mut word = limit.spend(0, at_ns(0), 2).word.expect("a new bucket is full");
    let mut admitted = Vec::new();
    for &(ms, cost) in asked {
        let outcome = limit.spend(word, at_ns(ms), cost);
        admitted.push(outcome.decision.allowed());
        word = outcome.word.unwrap_or(word);
    }
    let said = limit.spend(word, at_ns(2), 0).decision;
    let remaining = said.remaining().unwrap();
    (admitted, Standing { remaining, reset_in_ns: said.reset_in().as_nanos() })
}

/// Two calls for a unit each, at 1 ms or 2 ms: at the caller's time, or at that of the sweep that has
/// dropped the bucket. An earlier time after a later one is the caller's after the sweep's.
fn assert_as_never_dropped(kind: Kind, told: &(Vec<bool>, Standing)) {
    let times = [(1, 1), (1, 2), (2, 1), (2, 2)];
    let possible = times.map(|(first, then)| never_dropped(kind, &[(first, 1), (then, 1)]));
    assert!(
        possible.contains(told),
        "what was spent is forgotten: {told:?}, where a {kind:?} that is never dropped says {possible:?}"
    );
}

fn spend_twice(limiter: &Limiter) -> Vec<bool> {
    vec![spend(limiter, "A", 1), spend(limiter, "A", 1)]
}

/// Excluded: a sweep drops a bucket that its algorithm does not take for full yet, or one that has just
/// been spent from, while time moves.
fn spend_vs_sweep_by_fullness_model(kind: Kind, seen: &Seen) {
    let (clock, hand) = Clock::manual();
    let limiter = lock_free(limits_of(kind, kind), clock);
    assert!(spend(&limiter, "A", 2));
    hand.advance(MS);
    let time = loom::thread::spawn(move || hand.advance(MS));
    let spender = spawn(&limiter, |limiter| spend_twice(&limiter));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(8).dropped);
    time.join().unwrap();
    let admitted = spender.join().unwrap();
    seen.note(sweeper.join().unwrap());
    assert_as_never_dropped(kind, &(admitted, standing(&limiter, "A")));
}

fn spend_vs_sweep_by_fullness(kind: Kind, faults: &[Fault]) {
    let seen = Seen::default();
    let in_seen = seen.clone();
    explore_bounded(SOME, move || spend_vs_sweep_by_fullness_model(kind, &in_seen));
    seen.assert_both();
    assert!(coverage::count(Race::Evicted) > 0, "nothing was buried");
    for &fault in faults {
        fails_bounded(SOME, fault, "what was spent is forgotten", move || {
            spend_vs_sweep_by_fullness_model(kind, &Seen::default());
        });
    }
}

#[test]
fn spend_vs_sweep_by_fullness_of_gcra() {
    // Its word says by itself when it is full, whatever the numbers are.
    spend_vs_sweep_by_fullness(Kind::Gcra, &[Fault::EvictByStore, Fault::FullEarly]);
}

/// Of those whose words do not say when they are full.
const FAULTS: [Fault; 3] = [Fault::EvictByStore, Fault::FullEarly, Fault::FullByDefault];

#[test]
fn spend_vs_sweep_by_fullness_of_fixed_window() {
    spend_vs_sweep_by_fullness(Kind::FixedWindow, &FAULTS);
}

#[test]
fn spend_vs_sweep_by_fullness_of_token_bucket() {
    spend_vs_sweep_by_fullness(Kind::TokenBucket, &FAULTS);
}

#[test]
fn spend_vs_sweep_by_fullness_of_leaky_bucket() {
    spend_vs_sweep_by_fullness(Kind::LeakyBucket, &FAULTS);
}

/// Excluded: a caller whose clock is behind the sweeper's spends again in a window that was used and
/// dropped, or has drips once more.
fn older_spend_vs_sweep_by_fullness_model(kind: Kind, seen: &Seen) {
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
    let told = (admitted, standing(&limiter, "A"));
    let at_its_own_time = told == never_dropped(kind, &[(1, 1), (1, 1)]);
    // A window is over at 2 ms whatever was asked in it, so that it is dropped also when the sweep is last.
    let is_late = matches!(kind, Kind::FixedWindow) && at_its_own_time;
    seen.note(if is_late { 0 } else { dropped });
    assert!(dropped > 0 || at_its_own_time, "it was there all the time: {told:?}");
    assert_as_never_dropped(kind, &told);
}

fn older_spend_vs_sweep_by_fullness(kind: Kind) {
    let seen = Seen::default();
    let in_seen = seen.clone();
    explore_bounded(SOME, move || older_spend_vs_sweep_by_fullness_model(kind, &in_seen));
    seen.assert_both();
    assert!(coverage::count(Race::FloorUsed) > 0, "no decision needed the floor");
    fails_bounded(SOME, Fault::NoFloor, "what was spent is forgotten", move || {
        older_spend_vs_sweep_by_fullness_model(kind, &Seen::default());
    });
}

#[test]
fn older_spend_vs_sweep_by_fullness_of_gcra() {
    older_spend_vs_sweep_by_fullness(Kind::Gcra);
}

#[test]
fn older_spend_vs_sweep_by_fullness_of_fixed_window() {
    older_spend_vs_sweep_by_fullness(Kind::FixedWindow);
}

#[test]
fn older_spend_vs_sweep_by_fullness_of_token_bucket() {
    older_spend_vs_sweep_by_fullness(Kind::TokenBucket);
}

#[test]
fn older_spend_vs_sweep_by_fullness_of_leaky_bucket() {
    older_spend_vs_sweep_by_fullness(Kind::LeakyBucket);
}

/// Excluded: a sweep drops a bucket that is full by the limit and not by the factor that it was charged
/// with.
fn spend_with_factor_vs_sweep_model(seen: &Seen) {
    let limiter = lock_free(limits_of(Kind::LeakyBucket, Kind::LeakyBucket), own_clock());
    let twice_as_costly = Factor::from(2);
    // A cell without debt: it may be dropped before it is charged.
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
    seen.note(sweeper.join().unwrap());
    set_own_ms(1);
    // A unit is 2 ms by the factor, so that at 1 ms nothing is there; by the limit it is 1 ms.
    let limit = limiter.limit("A").unwrap();
    let said = limit.scaled(twice_as_costly).check("k", 0).unwrap();
    assert_eq!(said.remaining(), Some(0), "what was spent with the factor is forgotten");
}

#[test]
fn spend_with_factor_vs_sweep() {
    let seen = Seen::default();
    let in_seen = seen.clone();
    explore_bounded(SOME, move || spend_with_factor_vs_sweep_model(&in_seen));
    seen.assert_both();
    assert!(coverage::count(Race::KeptByFactor) > 0, "no bucket was kept for its factor");
    for fault in [Fault::FactorNotedLate, Fault::FactorNotNoted, Fault::RollBackRelaxed] {
        fails_bounded(SOME, fault, "what was spent with the factor is forgotten", || {
            spend_with_factor_vs_sweep_model(&Seen::default());
        });
    }
}

/// Excluded: of a batch of two algorithms a sweep drops a member that it has charged, or one that is not
/// full yet, so that the batch is admitted too early or charges one of both.
fn batch_vs_sweep_by_fullness_model(a: Kind, b: Kind, seen: &Seen, both: &[Tally; 2]) {
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
    both[usize::from(admitted)].add();
    seen.note(sweeper.join().unwrap());
    let told = (admitted, standing(&limiter, "A"), standing(&limiter, "B"));
    let left_alone = (false, never_dropped(a, &[]).1, never_dropped(b, &[]).1);
    // Each member may be asked at the batch's time, or at that of the sweep that has dropped it.
    let possible = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(at_a, at_b)| {
        let (of_a, a) = never_dropped(a, &[(at_a, 1)]);
        let (of_b, b) = never_dropped(b, &[(at_b, 2)]);
        if of_a[0] && of_b[0] { (true, a, b) } else { left_alone }
    });
    assert!(
        possible.contains(&told),
        "what was spent is forgotten: {told:?}, where buckets that are never dropped say {possible:?}"
    );
}

fn batch_vs_sweep_by_fullness(a: Kind, b: Kind) {
    let (seen, both) = (Seen::default(), <[Tally; 2]>::default());
    let (in_seen, in_both) = (seen.clone(), both.clone());
    explore_bounded(SOME, move || batch_vs_sweep_by_fullness_model(a, b, &in_seen, &in_both));
    seen.assert_both();
    let [denied, admitted] = both.map(|tally| tally.get());
    assert!(denied > 0 && admitted > 0, "denied {denied}, admitted {admitted}");
    for fault in [Fault::EvictByStore, Fault::FullEarly, Fault::NoFloor] {
        fails_bounded(SOME, fault, "what was spent is forgotten", move || {
            batch_vs_sweep_by_fullness_model(a, b, &Seen::default(), &Default::default());
        });
    }
}

#[test]
fn batch_vs_sweep_by_fullness_of_gcra_and_fixed_window() {
    batch_vs_sweep_by_fullness(Kind::Gcra, Kind::FixedWindow);
}

#[test]
fn batch_vs_sweep_by_fullness_of_leaky_and_token_bucket() {
    batch_vs_sweep_by_fullness(Kind::LeakyBucket, Kind::TokenBucket);
}
