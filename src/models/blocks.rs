//! Models of blocks: beside spends, sweeps and other blocks.

use loom::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::limits::Id;

const SOME: Option<usize> = Some(2);

/// Makes a limiter with bursts of 4 and room for `max_blocks` blocks.
fn blocking(engine: Engine, max_blocks: usize) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(8);
    (Limiter::with_options(limits(4, 4), options.max_blocks(max_blocks)).unwrap(), hand)
}

fn block<'a>(limiter: &Limiter, id: impl Into<Id<'a>>, ns: u64) -> Option<u64> {
    let left = limiter.limit("A").unwrap().block(id, Duration::from_nanos(ns));
    left.ok().map(|left| left.as_nanos() as u64)
}

fn unblock(limiter: &Limiter, id: &str) -> bool {
    limiter.limit("A").unwrap().unblock(id).unwrap()
}

/// Returns the blocked ids with the times that are left, sorted. Asserts that the count is right.
fn listed(limiter: &Limiter) -> Vec<(String, u64)> {
    let blocked = limiter.blocks();
    let count = limiter.inner.blocks.count();
    assert_eq!(count, blocked.len(), "the count is not that of the list: {blocked:?}");
    let mut listed: Vec<_> =
        blocked.into_iter().map(|it| (it.id, it.left.as_nanos() as u64)).collect();
    listed.sort();
    listed
}

fn named(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|&(id, ns)| (id.to_owned(), ns)).collect()
}

/// Excluded: a spend that begins after `block` has returned is allowed.
fn block_vs_spend_model(engine: Engine) {
    let (limiter, _hand) = blocking(engine, 4);
    // Makes the key known, so that the lock-free engine decides on its fast path.
    assert!(spend(&limiter, "A", 1));
    let is_blocked = Arc::new(AtomicBool::new(false));
    let blocked = is_blocked.clone();
    let blocker = spawn(&limiter, move |limiter| {
        assert_eq!(block(&limiter, "k", 100), Some(100));
        blocked.store(true, Ordering::Release);
    });
    let spender = spawn(&limiter, move |limiter| {
        let began_after = is_blocked.load(Ordering::Acquire);
        (began_after, spend(&limiter, "A", 1))
    });
    blocker.join().unwrap();
    let (began_after, allowed) = spender.join().unwrap();
    assert!(!(began_after && allowed), "a spend that began after the block was allowed");
    if began_after {
        count("after");
    }
    if allowed {
        count("before");
    }
    assert!(!spend(&limiter, "A", 1), "a spend that began after the block was allowed");
    assert_eq!(unblock(&limiter, "k"), true);
    let left = 3 - u64::from(allowed);
    assert_eq!(remaining(&limiter, "A"), left, "a denied spend is charged");
}

#[test]
fn block_vs_spend() {
    for &engine in Engine::ALL {
        let model = move || block_vs_spend_model(engine);
        explore_bounded(SOME, model);
        assert_happened(&["after", "before"]);
        let because = "Causality violation: Concurrent load and mut accesses";
        fails_bounded(SOME, Fault::BlockRelaxed, because, model);
    }
}

/// Excluded: of two blocks of one id the shorter one stays, or the block of another id in the same bin is lost.
fn block_vs_block_model() {
    let (limiter, _hand) = blocking(Engine::LockFree, 4);
    let shorter = spawn(&limiter, |limiter| block(&limiter, "k", 100).unwrap());
    let longer = spawn(&limiter, |limiter| block(&limiter, "k", 200).unwrap());
    assert_eq!(block(&limiter, "x", 50), Some(50));
    let (shorter, longer) = (shorter.join().unwrap(), longer.join().unwrap());
    assert!(shorter >= 100 && longer == 200, "told {shorter} and {longer}");
    assert_eq!(listed(&limiter), named(&[("k", 200), ("x", 50)]), "the longer stays, none is lost");
}

#[test]
fn block_vs_block() {
    explore_bounded(SOME, block_vs_block_model);
    assert!(coverage::count(Race::BlockSwapLost) > 0, "no change met another");
    let count = "the count is not that of the list";
    fails_bounded(SOME, Fault::BlockByStore, count, block_vs_block_model);
    let because = "the longer stays, none is lost";
    fails_bounded(SOME, Fault::LaterBlockStays, because, block_vs_block_model);
}

/// Excluded: more ids are blocked than the list has room for, or fewer.
fn block_vs_block_at_the_bound_model() {
    let (limiter, _hand) = blocking(Engine::LockFree, 1);
    let one = spawn(&limiter, |limiter| block(&limiter, "x", 100).is_some());
    let other = spawn(&limiter, |limiter| block(&limiter, "y", 100).is_some());
    let (one, other) = (one.join().unwrap(), other.join().unwrap());
    assert!(one ^ other, "there was room for one: {one} {other}");
    assert_eq!(listed(&limiter), named(&[(if one { "x" } else { "y" }, 100)]));
}

#[test]
fn block_vs_block_at_the_bound() {
    explore(block_vs_block_at_the_bound_model);
    let because = "there was room for one: true true";
    fails_with(Fault::CapUnreserved, because, block_vs_block_at_the_bound_model);
}

/// Excluded: a block is removed in part: it is listed but not counted, so that no call looks for it, or counted but not
/// listed.
fn unblock_vs_block_model() {
    let (limiter, _hand) = blocking(Engine::LockFree, 4);
    assert_eq!(block(&limiter, "k", 100), Some(100));
    let unblocker = spawn(&limiter, |limiter| unblock(&limiter, "k"));
    let blocker = spawn(&limiter, |limiter| block(&limiter, "k", 200));
    assert!(unblocker.join().unwrap(), "it was blocked all the time");
    assert_eq!(blocker.join().unwrap(), Some(200));
    let is_blocked = !spend(&limiter, "A", 1);
    count(if is_blocked { "stays" } else { "ends" });
    // Calls look for a block that is listed but not counted again once another block is counted.
    assert_eq!(block(&limiter, "x", 50), Some(50));
    let expected: &[_] = if is_blocked { &[("k", 200), ("x", 50)] } else { &[("x", 50)] };
    assert_eq!(listed(&limiter), named(expected));
}

#[test]
fn unblock_vs_block() {
    explore(unblock_vs_block_model);
    assert_happened(&["stays", "ends"]);
    assert!(coverage::count(Race::BlockSwapLost) > 0, "no change met another");
    let because = "the count is not that of the list";
    fails_with(Fault::BlockByStore, because, unblock_vs_block_model);
}

/// Excluded: two threads that remove one block both lower the count, so that no call looks for the other blocks.
fn unblock_vs_unblock_model() {
    let (limiter, _hand) = blocking(Engine::LockFree, 4);
    assert_eq!((block(&limiter, "k", 100), block(&limiter, "x", 100)), (Some(100), Some(100)));
    let one = spawn(&limiter, |limiter| unblock(&limiter, "x"));
    let other = spawn(&limiter, |limiter| unblock(&limiter, "x"));
    let (one, other) = (one.join().unwrap(), other.join().unwrap());
    assert!(!spend(&limiter, "A", 1), "a block that is listed was not looked for");
    assert!(one ^ other, "one of them removes it: {one} {other}");
    assert_eq!(listed(&limiter), named(&[("k", 100)]));
}

#[test]
fn unblock_vs_unblock() {
    explore(unblock_vs_unblock_model);
    let because = "a block that is listed was not looked for";
    fails_with(Fault::BlockDiscountedEarly, because, unblock_vs_unblock_model);
}

/// Excluded: a sweep that drops an ended block also drops a block that is listed at the same time.
fn block_vs_sweep_model() {
    let (limiter, hand) = blocking(Engine::LockFree, 4);
    assert_eq!(block(&limiter, "x", 10), Some(10));
    hand.advance(Duration::from_nanos(10));
    let blocker = spawn(&limiter, |limiter| block(&limiter, "k", 100));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(8).finished);
    assert_eq!(blocker.join().unwrap(), Some(100));
    assert!(sweeper.join().unwrap(), "a whole pass");
    assert_eq!(listed(&limiter), named(&[("k", 100)]), "none is lost");
}

#[test]
fn block_vs_sweep() {
    explore_bounded(SOME, block_vs_sweep_model);
    assert!(coverage::count(Race::EndedBlocksDropped) > 0, "none was dropped");
    assert!(coverage::count(Race::BlockSwapLost) > 0, "no change met another");
    fails_bounded(SOME, Fault::BlockByStore, "none is lost", block_vs_sweep_model);
}
