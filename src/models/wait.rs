//! Places in the future, given up and settled, beside those who spend and those who come behind.

use super::*;
use crate::limiter::reserve::{Reservation, ReserveError};

/// The bound on preemptions of the longest: without one it takes 16 s, and passes, too.
const SOME: Option<usize> = Some(3);

fn place(limiter: &Limiter, cost: u64) -> Reservation {
    let placed: Result<_, ReserveError> =
        limiter.limit("A").unwrap().reserve("k", cost, Duration::from_secs(1));
    placed.unwrap()
}

fn wait_ns(place: &Reservation) -> u64 {
    place.wait().as_nanos() as u64
}

/// Excluded: a spender and one who takes a place both have the last unit, or two have one place.
fn reserve_vs_spend_model(waited: &Tally, at_once: &Tally) {
    let (limiter, _hand) = limiter(2, 1);
    assert!(spend(&limiter, "A", 1));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let waiter = spawn(&limiter, |limiter| wait_ns(&place(&limiter, 1)));
    let (spent, first_ns) = (spender.join().unwrap(), waiter.join().unwrap());
    assert_eq!(spent, first_ns == 10, "one unit was there: spent {spent}, waits {first_ns}");
    if spent {
        waited.add()
    } else {
        at_once.add()
    }
    let behind_ns = wait_ns(&place(&limiter, 1));
    assert_eq!(
        behind_ns,
        if spent { 20 } else { 10 },
        "one unit was there: a place was given twice"
    );
}

#[test]
fn reserve_vs_spend() {
    let (waited, at_once) = (Tally::default(), Tally::default());
    let (in_waited, in_at_once) = (waited.clone(), at_once.clone());
    explore(move || reserve_vs_spend_model(&in_waited, &in_at_once));
    assert!(waited.get() > 0 && at_once.get() > 0, "{} and {}", waited.get(), at_once.get());
    assert!(coverage::count(Race::SwapLost) > 0, "no swap met another's");
    fails_without_the_rule(Fault::StoreForSwap, "one unit was there", || {
        reserve_vs_spend_model(&Tally::default(), &Tally::default());
    });
}

/// Excluded: a place is given up from beneath one that comes behind it, and somebody else gets the time
/// that the one behind was told.
fn cancel_vs_reserve_model() {
    let (limiter, hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let first = place(&limiter, 1);
    let canceller = loom::thread::spawn(move || first.cancel());
    let reserver = spawn(&limiter, |limiter| wait_ns(&place(&limiter, 1)));
    canceller.join().unwrap();
    let told_ns = reserver.join().unwrap();
    assert!(told_ns == 10 || told_ns == 20, "{told_ns}");
    // Nobody spends at the time that was told; before it, one does if nobody stands there.
    let mut admitted = Vec::new();
    for now_ns in [10, 20, 30] {
        hand.set(Duration::from_nanos(now_ns));
        if spend(&limiter, "A", 1) {
            admitted.push(now_ns);
        }
    }
    let free: Vec<u64> = [10, 20, 30].into_iter().filter(|&at| at > told_ns).collect();
    assert_eq!(admitted, free, "a time that was told to another: told {told_ns}");
}

#[test]
fn cancel_vs_reserve() {
    explore(cancel_vs_reserve_model);
    assert!(coverage::count(Race::VacatedBeneath) > 0, "nobody was behind one that was given up");
    let because = "a time that was told to another";
    fails_without_the_rule(Fault::RefundForCancel, because, cancel_vs_reserve_model);
}

/// Excluded: of two places that are given up at once, of which one stands on the other, one stays taken.
fn cancel_vs_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let (first, second) = (place(&limiter, 1), place(&limiter, 1));
    let one = loom::thread::spawn(move || first.cancel());
    let two = loom::thread::spawn(move || second.cancel());
    one.join().unwrap();
    two.join().unwrap();
    assert_eq!(wait_ns(&place(&limiter, 1)), 10, "both were given up");
}

#[test]
fn cancel_vs_cancel() {
    explore(cancel_vs_cancel_model);
    assert!(coverage::count(Race::VacatedLater) > 0, "none was given back later");
    assert!(coverage::count(Race::CancelLeftToAnother) > 0, "none was left to the other thread");
    fails_without_the_rule(Fault::VacateUnlocked, "both were given up", cancel_vs_cancel_model);
    let left = Fault::CancelsNotLookedForAgain;
    fails_without_the_rule(left, "both were given up", cancel_vs_cancel_model);
}

/// Excluded: of three cancels, each of which may be left to either of the other threads, one is lost.
fn cancel_vs_cancel_vs_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let places = [(); 3].map(|()| place(&limiter, 1));
    let cancel = |place: Reservation| loom::thread::spawn(move || place.cancel());
    places.map(cancel).into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(wait_ns(&place(&limiter, 1)), 10, "all were given up");
}

#[test]
fn cancel_vs_cancel_vs_cancel() {
    explore_bounded(Some(2), cancel_vs_cancel_vs_cancel_model);
    assert!(coverage::count(Race::CancelLeftToAnother) > 0, "none was left to another thread");
    let left = Fault::CancelsNotLookedForAgain;
    fails_bounded(Some(2), left, "all were given up", cancel_vs_cancel_vs_cancel_model);
}

/// Excluded: a charge goes back by a reset and by its receipt.
fn settle_vs_reset_model(first: &Tally, last: &Tally) {
    let (limiter, _hand) = limiter(3, 1);
    let receipt = limiter.limit("A").unwrap().spend_estimate("k", 2).unwrap().1.unwrap();
    let settler = spawn(&limiter, |limiter| {
        let _ = receipt.settle(0);
        remaining(&limiter, "A")
    });
    let resetter = spawn(&limiter, |limiter| {
        let is_given = limiter.limit("A").unwrap().reset("k").unwrap().allowed();
        // Not as much as was charged: docs/internals/rollback.md has what becomes of the same word.
        (is_given, spend(&limiter, "A", 1))
    });
    let (left, (is_given, spent)) = (settler.join().unwrap(), resetter.join().unwrap());
    assert!(is_given && spent);
    if left == 3 {
        first.add();
    } else {
        last.add();
    }
    assert_eq!(remaining(&limiter, "A"), 2, "one of three is spent since the reset");
}

#[test]
fn settle_vs_reset() {
    let (first, last) = (Tally::default(), Tally::default());
    let (in_first, in_last) = (first.clone(), last.clone());
    explore(move || settle_vs_reset_model(&in_first, &in_last));
    assert!(first.get() > 0 && last.get() > 0, "{} and {}", first.get(), last.get());
    fails_without_the_rule(Fault::RefundNotCounted, "one of three is spent", || {
        settle_vs_reset_model(&Tally::default(), &Tally::default());
    });
}

/// Excluded: what was estimated too much is given back, and part of another's charge with it.
fn settle_vs_spend_model() {
    let (limiter, hand) = limiter(4, 1);
    let (_, receipt) = limiter.limit("A").unwrap().spend_estimate("k", 3).unwrap();
    let receipt = receipt.unwrap();
    hand.advance(Duration::from_nanos(5));
    let settler = loom::thread::spawn(move || receipt.settle(0));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let _ = settler.join().unwrap();
    assert!(spender.join().unwrap());
    // The spender's unit alone, of now, whoever was first.
    let reset_ns = reset_in_ns(&limiter, "A");
    assert!(reset_ns >= 10, "part of another's charge is forgotten: full in {reset_ns} ns");
    assert_eq!(reset_ns, 10, "what was estimated too much stays");
}

#[test]
fn settle_vs_spend() {
    explore(settle_vs_spend_model);
    assert!(coverage::count(Race::RolledBack) > 0, "never before the other's charge");
    assert!(coverage::count(Race::RolledBackBeneath) > 0, "never from beneath it");
    let because = "part of another's charge is forgotten";
    fails_without_the_rule(Fault::RefundForSettle, because, settle_vs_spend_model);
}

/// Excluded: of two that are settled to nothing the later one reckons with a base that the other has moved,
/// and gives back what has come back by itself since: a third's charge.
fn settle_vs_settle_model() {
    let (limiter, hand) = limiter(30, 1);
    let charge = |cost| limiter.limit("A").unwrap().spend_estimate("k", cost).unwrap().1.unwrap();
    let (first, second) = (charge(10), charge(10));
    let one = loom::thread::spawn(move || first.settle(0));
    let two = spawn(&limiter, move |limiter| {
        hand.advance(Duration::from_nanos(60));
        assert!(spend(&limiter, "A", 5));
        let _ = second.settle(0);
    });
    let _ = one.join().unwrap();
    two.join().unwrap();
    let reset_ns = reset_in_ns(&limiter, "A");
    assert!(reset_ns >= 50, "part of another's charge is forgotten: full in {reset_ns} ns");
    // 190 if both gave back nothing. Who meets an attempt that failed gives back less.
    assert!(reset_ns <= 140, "what was estimated too much stays: full in {reset_ns} ns");
}

#[test]
fn settle_vs_settle() {
    explore_bounded(SOME, settle_vs_settle_model);
    let because = "part of another's charge is forgotten";
    fails_bounded(SOME, Fault::LoweringNotCounted, because, settle_vs_settle_model);
    fails_bounded(SOME, Fault::RefundForSettle, because, settle_vs_settle_model);
}
