//! Explores the whole limiter with loom: models of the real code, each named after its race, each with twins that must
//! fail.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test -p tollgate --release --lib models` runs them. Each actor has its own
//! thread. The clock is a modelled atomic that is read Relaxed, and monotone only along happens-before. In models of an
//! older clock each thread has its own. A list behind loom's lock stands in for a `DashMap` shard:
//! docs/internals/verification.md says what the models do not show for this reason.

mod blocks;
mod cap;
mod full;
mod known_batch;
mod leases;
mod numbers;
mod permits;
mod reload;
mod shadow;
mod wait;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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

thread_local! {
    /// The events of this test's model, and the number of interleavings in which each happened. A thread local as in
    /// `coverage`.
    static EVENTS: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

/// Counts an event of the model in this interleaving.
fn count(event: &'static str) {
    EVENTS.with_borrow_mut(|events| *events.entry(event).or_default() += 1);
}

/// Asserts that each event happened in some interleaving since the last exploration began, and prints the counts.
fn assert_happened(events: &[&str]) {
    EVENTS.with_borrow(|counted| {
        println!("{counted:?}");
        assert!(events.iter().all(|event| counted.contains_key(event)), "{events:?}: {counted:?}");
    });
}

/// Counts over all interleavings of a model.
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

/// Runs `model` over all interleavings, with any number of preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_bounded(None, model);
}

/// Runs `model` over all interleavings with at most `preemptions` preemptions; `None` is no bound.
pub(crate) fn explore_bounded(
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) {
    fault::plant(None);
    EVENTS.take();
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

/// Runs a twin of `model`: with `fault` active some interleaving must fail, with `because` in the text of its panic.
fn fails_with(fault: Fault, because: &str, model: impl Fn() + Send + Sync + 'static) {
    fails_bounded(None, fault, because, model);
}

/// Like [`fails_with`], with at most `preemptions` preemptions.
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

/// Limits A and B with these bursts, and one more unit every 10 ns.
fn limits(burst_a: u64, burst_b: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(burst_a)).unwrap();
    limits.limit("B", IdFormat::String, limit(burst_b)).unwrap().build()
}

fn limiter(burst_a: u64, burst_b: u64) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    (exact(limits(burst_a, burst_b), clock), hand)
}

/// Makes a limiter for which each thread has its own clock.
fn limiter_of_own_clocks(engine: Engine) -> Limiter {
    let own = || Duration::from_nanos(OWN_NOW.with(Cell::get));
    let options = LimiterOptions::default().clock(Clock::custom(own)).max_keys(8).engine(engine);
    Limiter::with_options(limits(1, 1), options).unwrap()
}

/// Makes a limiter on the exact engine. The lock-free table has its own models.
fn exact(limits: Limits, clock: Clock) -> Limiter {
    Limiter::with_options(limits, LimiterOptions::default().clock(clock).engine(Engine::Exact))
        .unwrap()
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

/// Spends a batch of `cost_a` units of A and one unit of B; B comes first if `reversed`.
fn spend_both(limiter: &Limiter, cost_a: u64, reversed: bool) -> bool {
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let mut members = [a.member("k").cost(cost_a), b.member("k")];
    if reversed {
        members.reverse();
    }
    limiter.batch(&members).spend().unwrap().allowed()
}

/// Excluded: two callers both get the last unit.
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
    assert!(coverage::count(Race::SwapLost) > 0, "no swap was lost");
    fails_with(Fault::StoreForSwap, "one unit was there", spend_vs_spend_model);
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
    assert!(coverage::count(Race::InsertLost) > 0, "no insert was lost");
    fails_with(Fault::InsertBlindly, "one cell", insert_vs_insert_same_key_model);
}

/// Excluded: a sweep drops a cell that a call has just charged.
fn spend_vs_sweep_model() {
    let (limiter, hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    hand.advance(Duration::from_nanos(10));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(1).dropped);
    assert!(spender.join().unwrap(), "the bucket was full again");
    count(if sweeper.join().unwrap() == 0 { "kept" } else { "dropped" });
    assert!(!spend(&limiter, "A", 1), "spent twice");
}

#[test]
fn spend_vs_sweep() {
    explore(spend_vs_sweep_model);
    assert_happened(&["dropped", "kept"]);
    fails_with(Fault::SweepBeforeLock, "spent twice", spend_vs_sweep_model);
}

/// Excluded: a caller whose clock is behind the sweeper's spends again the units that a dropped cell had admitted.
fn spend_with_older_clock_model(engine: Engine) {
    let limiter = limiter_of_own_clocks(engine);
    assert!(spend(&limiter, "A", 1), "at 1, full again at 11");
    let sweeper = spawn(&limiter, |limiter| {
        OWN_NOW.with(|now| now.set(12));
        limiter.sweep(8).dropped
    });
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let (swept, admitted) = (sweeper.join().unwrap(), spender.join().unwrap());
    if swept > 0 {
        count("dropped");
    }
    OWN_NOW.with(|now| now.set(12));
    if admitted {
        assert!(swept > 0, "at 1 the bucket is empty");
        assert_eq!(reset_in_ns(&limiter, "A"), 10, "it counts from the sweep, not from 1");
    }
}

fn spend_with_older_clock(engine: Engine, preemptions: Option<usize>) {
    let model = move || spend_with_older_clock_model(engine);
    explore_bounded(preemptions, model);
    assert_happened(&["dropped"]);
    assert!(coverage::count(Race::FloorUsed) > 0, "no decision needed the floor");
    fails_bounded(preemptions, Fault::NoFloor, "it counts from the sweep", model);
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
    fails_with(
        Fault::CallersOrder,
        "there was room for one: false false",
        batch_vs_batch_in_opposite_order_model,
    );
}

/// Excluded: a batch that is denied by its second member leaves its first charged.
fn batch_vs_spend_model() {
    let (limiter, _hand) = limiter(1, 1);
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 1, false));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "B", 1));
    let (batch, spender) = (batch.join().unwrap(), spender.join().unwrap());
    assert!(batch ^ spender, "B had room for one: {batch} {spender}");
    assert_eq!(remaining(&limiter, "A"), u64::from(!batch), "all or nothing");
}

#[test]
fn batch_vs_spend() {
    explore(batch_vs_spend_model);
    assert!(coverage::count(Race::Returned) > 0, "no charge was returned");
    fails_with(Fault::NoReturn, "all or nothing", batch_vs_spend_model);
}

/// Excluded: a denied batch returns a part of another call's charge, or keeps its own.
fn denied_batch_vs_spend_model() {
    let (limiter, _hand) = limiter(3, 1);
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 2, false));
    let spender = spawn(&limiter, |limiter| (spend(&limiter, "B", 1), spend(&limiter, "A", 1)));
    let (batch, (_, admitted)) = (batch.join().unwrap(), spender.join().unwrap());
    let units = 2 * u128::from(batch) + u128::from(admitted);
    assert_eq!(reset_in_ns(&limiter, "A"), 10 * units, "each charge counts once");
}

#[test]
fn denied_batch_vs_spend() {
    explore_bounded(Some(3), denied_batch_vs_spend_model);
    assert!(coverage::count(Race::Returned) > 0, "no charge was returned");
    for fault in [Fault::NoReturn, Fault::StoreForSwap] {
        fails_with(fault, "each charge counts once", denied_batch_vs_spend_model);
    }
}

/// Excluded: of a refund and a spend at the same time one is lost.
fn refund_vs_spend_model() {
    let (limiter, _hand) = limiter(2, 1);
    assert!(spend(&limiter, "A", 2));
    let refunder =
        spawn(&limiter, |limiter| limiter.limit("A").unwrap().refund("k", 1).unwrap().allowed());
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let (refunded, spent) = (refunder.join().unwrap(), spender.join().unwrap());
    assert!(refunded, "one of two spent units can always be refunded");
    if spent {
        count("refund first");
    }
    assert_eq!(
        remaining(&limiter, "A"),
        1 - u64::from(spent),
        "2 spent, 1 refunded, spent {spent}"
    );
}

#[test]
fn refund_vs_spend() {
    explore(refund_vs_spend_model);
    assert_happened(&["refund first"]);
    fails_with(Fault::StoreForSwap, "3 - 2 + 1 - 1", two_refunds_vs_spend_model);
    explore(two_refunds_vs_spend_model);
    assert!(coverage::count(Race::SwapLost) > 0, "no swap was lost");
}

/// Like [`refund_vs_spend_model`] with a unit to spare, so that both calls write.
fn two_refunds_vs_spend_model() {
    let (limiter, _hand) = limiter(3, 1);
    assert!(spend(&limiter, "A", 2));
    let refunder =
        spawn(&limiter, |limiter| limiter.limit("A").unwrap().refund("k", 1).unwrap().allowed());
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    assert!(refunder.join().unwrap() && spender.join().unwrap());
    assert_eq!(remaining(&limiter, "A"), 1, "3 - 2 + 1 - 1");
}
