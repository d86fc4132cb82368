//! Loom models of the real code, each named after its race, and a broken twin for each.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test -p tollgate --release --lib models`. Every actor has a thread of its
//! own. The clock is a modelled atomic read Relaxed, monotone only along happens-before; where a
//! caller's clock is to be older, each thread has its own. Where a `DashMap` shard stands there is a
//! list behind loom's lock: what that does not show is in docs/internals/verification.md.

mod blocks;
mod cap;
mod full;
mod numbers;
mod reload;
mod shadow;
mod wait;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, Limits};
use crate::store::Engine;
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

loom::thread_local! {
    /// This thread's clock, in ns since the origin.
    static OWN_NOW: Cell<u64> = Cell::new(0);
}

/// What happened over all executions of a model.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<AtomicU64>);

impl Tally {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `model` over all interleavings, of any number of preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_bounded(None, model);
}

/// Runs `model` over all interleavings of at most so many preemptions, if there is a bound.
pub(crate) fn explore_bounded(
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) {
    fault::plant(None);
    let runs = Tally::default();
    let counted = runs.clone();
    let started = std::time::Instant::now();
    builder(preemptions).check(move || {
        counted.add();
        model();
    });
    let bound = preemptions.map_or("any".to_owned(), |most| format!("at most {most}"));
    let seconds = started.elapsed().as_secs();
    println!("{} interleavings of {bound} preemptions, {seconds} s", runs.get());
}

/// Runs `model` with a rule broken: some interleaving must fail, and `because` of what it excludes.
fn fails_without_the_rule(fault: Fault, because: &str, model: impl Fn() + Send + Sync + 'static) {
    fails_bounded(None, fault, because, model);
}

/// As `fails_without_the_rule`, of at most so many preemptions.
pub(crate) fn fails_bounded(
    preemptions: Option<usize>,
    fault: Fault,
    because: &str,
    model: impl Fn() + Send + Sync + 'static,
) {
    fault::plant(Some(fault));
    let runs = Tally::default();
    let counted = runs.clone();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        builder(preemptions).check(move || {
            counted.add();
            model();
        });
    }));
    fault::plant(None);
    let Err(panic) = failed else {
        panic!("the model passes with {fault:?}: it proves nothing ({} interleavings)", runs.get());
    };
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let text = text.unwrap_or_default();
    assert!(text.contains(because), "{fault:?} fails, but not because of {because:?}: {text}");
    println!("{fault:?} fails in interleaving {}: {text}", runs.get());
}

fn builder(preemptions: Option<usize>) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.preemption_bound = preemptions;
    builder
}

/// Limits A and B: so many units, one more every 10 ns.
fn limits(burst_a: u64, burst_b: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(burst_a)).unwrap();
    limits.limit("B", IdFormat::String, limit(burst_b)).unwrap().build()
}

fn limiter(burst_a: u64, burst_b: u64) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    (on_locks(limits(burst_a, burst_b), clock), hand)
}

/// A limiter whose every thread has its own clock.
fn limiter_of_own_clocks(engine: Engine) -> Limiter {
    let own = || Duration::from_nanos(OWN_NOW.with(Cell::get));
    let options = LimiterOptions::default().clock(Clock::custom(own)).max_keys(8).engine(engine);
    Limiter::with_options(limits(1, 1), options)
}

/// On the engine with locks; the table without has models of its own.
fn on_locks(limits: Limits, clock: Clock) -> Limiter {
    Limiter::with_options(limits, LimiterOptions::default().clock(clock).engine(Engine::Exact))
}

fn spend(limiter: &Limiter, name: &str, cost: u64) -> bool {
    limiter.limit(name).unwrap().spend("k", cost).unwrap().allowed()
}

fn remaining(limiter: &Limiter, name: &str) -> u64 {
    limiter.limit(name).unwrap().check("k", 0).unwrap().remaining().unwrap()
}

fn reset_in_ns(limiter: &Limiter, name: &str) -> u128 {
    limiter.limit(name).unwrap().check("k", 0).unwrap().reset_in().as_nanos()
}

fn spawn<T: 'static>(
    limiter: &Limiter,
    run: impl FnOnce(Limiter) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let limiter = limiter.clone();
    loom::thread::spawn(move || run(limiter))
}

/// Spends a whole batch of A and B, one unit each, B first if `reversed`.
fn spend_both(limiter: &Limiter, cost_a: u64, reversed: bool) -> bool {
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let mut members = [a.member("k").cost(cost_a), b.member("k")];
    if reversed {
        members.reverse();
    }
    limiter.batch(&members).spend().unwrap().allowed()
}

/// Excluded: two callers are both admitted to the last unit.
fn spend_vs_spend_model() {
    let (limiter, _hand) = limiter(2, 1);
    assert!(spend(&limiter, "A", 1));
    let other = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let third = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let (other, third) = (other.join().unwrap(), third.join().unwrap());
    assert!(other ^ third, "one unit was there: {other} {third}");
    assert_eq!(remaining(&limiter, "A"), 0);
}

#[test]
fn spend_vs_spend() {
    explore(spend_vs_spend_model);
    assert!(coverage::count(Race::SwapLost) > 0, "no swap met another's");
    fails_without_the_rule(Fault::StoreForSwap, "one unit was there", spend_vs_spend_model);
}

/// Excluded: two callers that insert one key make two cells, or lose a spend.
fn insert_vs_insert_same_key_model() {
    let (limiter, _hand) = limiter(2, 1);
    let other = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let third = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    assert!(other.join().unwrap() && third.join().unwrap(), "there was room for both");
    assert_eq!(limiter.stats().cells, 1, "one cell for one key");
    assert_eq!(remaining(&limiter, "A"), 0);
}

#[test]
fn insert_vs_insert_same_key() {
    explore(insert_vs_insert_same_key_model);
    assert!(coverage::count(Race::InsertLost) > 0, "no insert met another's");
    fails_without_the_rule(Fault::InsertBlindly, "one cell", insert_vs_insert_same_key_model);
}

/// Excluded: a sweep drops a cell that has just been spent from.
fn spend_vs_sweep_model(dropped: &Tally, kept: &Tally) {
    let (limiter, hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    hand.advance(Duration::from_nanos(10));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(1).dropped);
    assert!(spender.join().unwrap(), "the bucket was full again");
    match sweeper.join().unwrap() {
        0 => kept.add(),
        _ => dropped.add(),
    }
    assert!(!spend(&limiter, "A", 1), "spent twice");
}

#[test]
fn spend_vs_sweep() {
    let (dropped, kept) = (Tally::default(), Tally::default());
    let (in_dropped, in_kept) = (dropped.clone(), kept.clone());
    explore(move || spend_vs_sweep_model(&in_dropped, &in_kept));
    assert!(dropped.get() > 0 && kept.get() > 0, "dropped {}, kept {}", dropped.get(), kept.get());
    fails_without_the_rule(Fault::SweepBeforeLock, "spent twice", || {
        spend_vs_sweep_model(&Tally::default(), &Tally::default());
    });
}

/// Excluded: a caller whose clock is behind the sweeper's spends again what the swept cell had spent.
fn spend_with_older_clock_model(engine: Engine, dropped: &Tally) {
    let limiter = limiter_of_own_clocks(engine);
    assert!(spend(&limiter, "A", 1), "at 1, full again at 11");
    let sweeper = spawn(&limiter, |limiter| {
        OWN_NOW.with(|now| now.set(12));
        limiter.sweep(8).dropped
    });
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let (swept, admitted) = (sweeper.join().unwrap(), spender.join().unwrap());
    if swept > 0 {
        dropped.add();
    }
    OWN_NOW.with(|now| now.set(12));
    if admitted {
        assert!(swept > 0, "at 1 the bucket is empty");
        assert_eq!(reset_in_ns(&limiter, "A"), 10, "it counts from the sweep, not from 1");
    }
}

fn spend_with_older_clock(engine: Engine, preemptions: Option<usize>) {
    let dropped = Tally::default();
    let in_dropped = dropped.clone();
    explore_bounded(preemptions, move || spend_with_older_clock_model(engine, &in_dropped));
    assert!(dropped.get() > 0, "nothing was swept");
    assert!(coverage::count(Race::FloorUsed) > 0, "no decision needed the floor");
    fails_bounded(preemptions, Fault::NoFloor, "it counts from the sweep", move || {
        spend_with_older_clock_model(engine, &Tally::default());
    });
}

#[test]
fn spend_with_older_clock_vs_sweep() {
    spend_with_older_clock(Engine::Exact, None);
}

#[test]
fn spend_with_older_clock_vs_evict() {
    spend_with_older_clock(Engine::LockFree, Some(1));
}

/// Excluded: two batches that name the same buckets in opposite orders are both admitted, or keep each
/// other from being admitted.
fn batch_vs_batch_in_opposite_order_model() {
    let (limiter, _hand) = limiter(1, 1);
    let other = spawn(&limiter, |limiter| spend_both(&limiter, 1, false));
    let third = spawn(&limiter, |limiter| spend_both(&limiter, 1, true));
    let (other, third) = (other.join().unwrap(), third.join().unwrap());
    assert!(other ^ third, "there was room for one: {other} {third}");
    assert_eq!((remaining(&limiter, "A"), remaining(&limiter, "B")), (0, 0));
}

#[test]
fn batch_vs_batch_in_opposite_order() {
    explore_bounded(Some(3), batch_vs_batch_in_opposite_order_model);
    assert!(coverage::count(Race::InsertLost) > 0, "the batches did not meet");
    fails_without_the_rule(
        Fault::CallersOrder,
        "there was room for one: false false",
        batch_vs_batch_in_opposite_order_model,
    );
}

/// Excluded: a batch that is denied by its second member leaves its first charged.
fn batch_vs_spend_model(both_denied: &Tally) {
    let (limiter, _hand) = limiter(1, 1);
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 1, false));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "B", 1));
    let (batch, spender) = (batch.join().unwrap(), spender.join().unwrap());
    if !batch && !spender {
        both_denied.add();
    }
    assert!(batch ^ spender, "B had room for one: {batch} {spender}");
    assert_eq!(remaining(&limiter, "A"), u64::from(!batch), "all or nothing");
}

#[test]
fn batch_vs_spend() {
    let both_denied = Tally::default();
    let in_both_denied = both_denied.clone();
    explore(move || batch_vs_spend_model(&in_both_denied));
    assert_eq!(both_denied.get(), 0);
    assert!(coverage::count(Race::RolledBack) > 0, "no charge was taken back");
    fails_without_the_rule(Fault::NoRollBack, "all or nothing", || {
        batch_vs_spend_model(&Tally::default())
    });
}

/// Excluded: a batch that takes its charge back from beneath another's, while time moves, forgets
/// part of the other's.
fn roll_back_vs_spend_model(beneath: &Tally) {
    let (limiter, hand) = limiter(3, 1);
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 2, false));
    let spender = spawn(&limiter, move |limiter| {
        let denier = spend(&limiter, "B", 1);
        hand.advance(Duration::from_nanos(4));
        (denier, spend(&limiter, "A", 1))
    });
    let (batch, (_, admitted)) = (batch.join().unwrap(), spender.join().unwrap());
    if !batch && admitted {
        // At 5, the spender's unit alone: 10 ns.
        beneath.add();
        assert!(
            reset_in_ns(&limiter, "A") >= 10,
            "{} ns are left of 10",
            reset_in_ns(&limiter, "A")
        );
    }
}

#[test]
fn roll_back_vs_spend() {
    let beneath = Tally::default();
    let in_beneath = beneath.clone();
    explore_bounded(Some(3), move || roll_back_vs_spend_model(&in_beneath));
    assert!(beneath.get() > 0);
    assert!(
        coverage::count(Race::RolledBackBeneath) > 0,
        "no charge was taken back from beneath another"
    );
    fails_without_the_rule(Fault::RefundForRollBack, "are left of 10", || {
        roll_back_vs_spend_model(&Tally::default());
    });
    fails_without_the_rule(Fault::RollBackRelaxed, "are left of 10", || {
        roll_back_vs_spend_model(&Tally::default());
    });
}

/// Excluded: a refund beside a spend loses either.
fn refund_vs_spend_model(gave_first: &Tally) {
    let (limiter, _hand) = limiter(2, 1);
    assert!(spend(&limiter, "A", 2));
    let refunder =
        spawn(&limiter, |limiter| limiter.limit("A").unwrap().refund("k", 1).unwrap().allowed());
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let (given, spent) = (refunder.join().unwrap(), spender.join().unwrap());
    assert!(given, "one of two spent units can always be given back");
    if spent {
        gave_first.add();
    }
    assert_eq!(
        remaining(&limiter, "A"),
        1 - u64::from(spent),
        "2 spent, 1 given back, spent {spent}"
    );
}

#[test]
fn refund_vs_spend() {
    let gave_first = Tally::default();
    let in_gave_first = gave_first.clone();
    explore(move || refund_vs_spend_model(&in_gave_first));
    assert!(gave_first.get() > 0, "the spend never came after the refund");
    fails_without_the_rule(Fault::StoreForSwap, "3 - 2 + 1 - 1", two_refunds_vs_spend_model);
    explore(two_refunds_vs_spend_model);
    assert!(coverage::count(Race::SwapLost) > 0, "no swap met another's");
}

/// As above with a unit to spare, so that both write.
fn two_refunds_vs_spend_model() {
    let (limiter, _hand) = limiter(3, 1);
    assert!(spend(&limiter, "A", 2));
    let refunder =
        spawn(&limiter, |limiter| limiter.limit("A").unwrap().refund("k", 1).unwrap().allowed());
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    assert!(refunder.join().unwrap() && spender.join().unwrap());
    assert_eq!(remaining(&limiter, "A"), 1, "3 - 2 + 1 - 1");
}
