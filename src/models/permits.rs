//! Models of permits: what is in flight beside releases, sweeps, reloads and growth.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use super::cap::migrate;
use super::*;
use crate::core::generation::Generation;
use crate::limit::carry_over::CarryOver;
use crate::limiter::permits::Permit;
use crate::store::key::KeyRef;
use crate::store::pin;

fn of_flights(max: Option<u64>) -> Limits {
    let limit = max.map(|max| Limit::concurrency(max).unwrap());
    Limits::builder().limit("Flights", IdFormat::String, limit).unwrap().build()
}

fn with_flights(max: u64, max_keys: usize) -> Limiter {
    let options = LimiterOptions::default().clock(Clock::manual().0).max_keys(max_keys);
    Limiter::with_options(of_flights(Some(max)), options).unwrap()
}

fn acquire(limiter: &Limiter, id: &str) -> Option<Permit> {
    limiter.concurrency("Flights").unwrap().acquire(id, 1).unwrap().1
}

fn in_flight(limiter: &Limiter, id: &str) -> u64 {
    limiter.concurrency("Flights").unwrap().in_flight(id).unwrap()
}

/// Asserts that this permit of "a" alone is out, and none after it.
fn only_is_out(limiter: &Limiter, permit: Permit) {
    assert_eq!(in_flight(limiter, "a"), 1, "one is out");
    drop(permit);
    assert_eq!(in_flight(limiter, "a"), 0, "none is out");
}

/// Excluded: a release and an acquire overwrite each other, so that a permit is lost, or is out twice.
fn acquire_vs_release_model() {
    let limiter = with_flights(2, 8);
    let held = acquire(&limiter, "a").unwrap();
    let other = spawn(&limiter, |limiter| acquire(&limiter, "a"));
    drop(held);
    only_is_out(&limiter, other.join().unwrap().expect("one of two is there"));
}

#[test]
fn acquire_vs_release() {
    explore(acquire_vs_release_model);
    assert!(coverage::count(Race::Released) > 0 && coverage::count(Race::SwapLost) > 0);
    fails_with(Fault::StoreForSwap, "one is out", acquire_vs_release_model);
}

/// Excluded: two calls both take the last permit.
fn acquire_vs_acquire_model() {
    let limiter = with_flights(1, 8);
    drop(acquire(&limiter, "a"));
    let other = spawn(&limiter, |limiter| acquire(&limiter, "a"));
    let own = acquire(&limiter, "a");
    let other = other.join().unwrap();
    assert!(own.is_some() ^ other.is_some(), "one permit is there");
}

#[test]
fn acquire_vs_acquire() {
    explore(acquire_vs_acquire_model);
    fails_with(Fault::StoreForSwap, "one permit is there", acquire_vs_acquire_model);
}

/// Excluded: a sweep drops a bucket without permits while one of it is taken, so that it is forgotten.
fn acquire_vs_sweep_model() {
    let limiter = with_flights(1, 8);
    drop(acquire(&limiter, "a"));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(1 << 20).dropped);
    let held = acquire(&limiter, "a");
    let dropped = sweeper.join().unwrap();
    count(if dropped > 0 { "dropped" } else { "kept" });
    assert!(held.is_some() && acquire(&limiter, "a").is_none(), "the permit is forgotten");
}

#[test]
fn acquire_vs_sweep() {
    explore_bounded(Some(2), acquire_vs_sweep_model);
    assert_happened(&["dropped", "kept"]);
    let because = "the permit is forgotten";
    fails_bounded(Some(2), Fault::StoreForSwap, because, acquire_vs_sweep_model);
}

/// Excluded: a permit comes back to the count of other permits, which began after a reload had lifted the limit.
fn release_vs_reload_model() {
    let limiter = with_flights(1, 8);
    let before = acquire(&limiter, "a").unwrap();
    limiter.reload(of_flights(None)).unwrap();
    let reloader = spawn(&limiter, |limiter| {
        limiter.reload(of_flights(Some(1))).unwrap();
        acquire(&limiter, "a")
    });
    let releaser = spawn(&limiter, move |_| drop(before));
    let after = reloader.join().unwrap();
    releaser.join().unwrap();
    assert!(after.is_some() && in_flight(&limiter, "a") == 1, "a count of its own");
    drop(after);
    assert_eq!(in_flight(&limiter, "a"), 0);
}

#[test]
fn release_vs_reload() {
    explore_bounded(Some(2), release_vs_reload_model);
    assert!(coverage::count(Race::Released) > 0, "no permit came back to a later count");
    let because = "a count of its own";
    fails_bounded(Some(2), Fault::ReleaseOfAnyEpoch, because, release_vs_reload_model);
}

/// Excluded: a permit that comes back while a reload moves its bucket stays out.
fn release_vs_moving_reload_model() {
    let limiter = with_flights(1, 8);
    let held = acquire(&limiter, "a").unwrap();
    let reloader = spawn(&limiter, |limiter| {
        limiter.reload(of_flights(Some(2))).unwrap();
        acquire(&limiter, "a").expect("two are allowed")
    });
    let releaser = spawn(&limiter, move |_| drop(held));
    let after = reloader.join().unwrap();
    releaser.join().unwrap();
    only_is_out(&limiter, after);
}

#[test]
fn release_vs_moving_reload() {
    explore_bounded(Some(1), release_vs_moving_reload_model);
    assert!(coverage::count(Race::Released) > 0 && coverage::count(Race::Completed) > 0);
    let because = "is out";
    fails_bounded(Some(1), Fault::CompleteRelaxed, because, release_vs_moving_reload_model);
}

/// Publishes limits as a reload does, and moves no bucket yet.
fn publish(limiter: &Limiter, limits: Limits) -> Arc<Generation> {
    let inner = &limiter.inner;
    let now = inner.generation.share(&pin());
    let limits = limits.following(&now.limits, now.number + 1, &HashSet::new());
    let next = now.next(limits, CarryOver::Units, (1, UNIX_EPOCH), &inner.store);
    let next = Arc::new(next);
    next.mark_made();
    inner.generation.replace(&pin(), next.clone());
    next
}

/// Acquires a permit of "a" by the newest limits, as a batch does of which another bucket is under them already. (A model's table has
/// one shard, so no batch has buckets in two.)
fn acquire_by_newest(limiter: &Limiter) -> bool {
    let index = limiter.handle_of("Flights").unwrap().index;
    let key = KeyRef { limit: index, id: b"a" };
    let guard = pin();
    let view = limiter.inner.view(&guard);
    let limits = &view.generation.limits;
    let (limit, tag) = limits.entry(index).limit_for(key.id, view.limits_now_ns()).unwrap();
    let spent = view.spend(&view.store_key(key, tag), limit, 1.into(), 1);
    spent.expect("no limits are newer").decision.allowed()
}

/// Excluded: a permit that comes back, or is taken, while a caller moves their bucket to new limits is lost.
fn release_vs_renewing_acquire_model() {
    let limiter = with_flights(2, 8);
    let held = acquire(&limiter, "a").unwrap();
    let next = publish(&limiter, of_flights(Some(3)));
    let caller = spawn(&limiter, |limiter| acquire_by_newest(&limiter));
    let releaser = spawn(&limiter, move |_| drop(held));
    assert!(caller.join().unwrap(), "two are allowed");
    releaser.join().unwrap();
    limiter.inner.renew(&next);
    assert_eq!(in_flight(&limiter, "a"), 1, "one is out");
}

#[test]
fn release_vs_renewing_acquire() {
    explore_bounded(Some(2), release_vs_renewing_acquire_model);
    for race in [Race::ShardRenewed, Race::Released, Race::Completed] {
        assert!(coverage::count(race) > 0, "{race:?}");
    }
    for fault in [Fault::ChargeBeforeRenewal, Fault::SeedByMax, Fault::StoreForSwap] {
        fails_bounded(Some(2), fault, "is out", release_vs_renewing_acquire_model);
    }
}

/// Excluded: a permit that comes back while the table grows stays out.
fn release_vs_growth_model() {
    let limiter = with_flights(2, 8);
    let (held, other) = (acquire(&limiter, "a").unwrap(), acquire(&limiter, "a").unwrap());
    let migrator = spawn(&limiter, |limiter| migrate(&limiter));
    let releaser = spawn(&limiter, move |_| drop(held));
    migrator.join().unwrap();
    releaser.join().unwrap();
    only_is_out(&limiter, other);
}

#[test]
fn release_vs_growth() {
    explore_bounded(Some(1), release_vs_growth_model);
    assert!(coverage::count(Race::Released) > 0 && coverage::count(Race::Completed) > 0);
    fails_bounded(Some(1), Fault::SeedByMax, "one is out", release_vs_growth_model);
}
