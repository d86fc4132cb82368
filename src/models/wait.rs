//! Models of places in the future and of estimates: cancels and settlements beside spends and later places.

use super::*;
use crate::algorithm::factor::Factor;
use crate::limiter::reserve::{Reservation, ReserveError};

/// The bound on preemptions of the longest model. Without a bound it takes 16 s, and passes as well.
const SOME: Option<usize> = Some(3);

fn place(limiter: &Limiter, cost: u64) -> Reservation {
    let placed: Result<_, ReserveError> =
        limiter.limit("A").unwrap().reserve("k", cost, Duration::from_secs(1));
    placed.unwrap()
}

fn wait_ns(place: &Reservation) -> u64 {
    place.wait().as_nanos() as u64
}

/// Excluded: a spend and a reservation both get the last unit, or two reservations get one place.
fn reserve_vs_spend_model() {
    let (limiter, _hand) = limiter(2, 1);
    assert!(spend(&limiter, "A", 1));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let waiter = spawn(&limiter, |limiter| wait_ns(&place(&limiter, 1)));
    let (spent, first_ns) = (spender.join().unwrap(), waiter.join().unwrap());
    assert_eq!(spent, first_ns == 10, "one unit was there: spent {spent}, waits {first_ns}");
    count(if spent { "waited" } else { "at once" });
    let behind_ns = wait_ns(&place(&limiter, 1));
    assert_eq!(
        behind_ns,
        if spent { 20 } else { 10 },
        "one unit was there: a place was given twice"
    );
}

#[test]
fn reserve_vs_spend() {
    explore(reserve_vs_spend_model);
    assert_happened(&["waited", "at once"]);
    assert!(coverage::count(Race::SwapLost) > 0, "no swap was lost");
    fails_with(Fault::StoreForSwap, "one unit was there", reserve_vs_spend_model);
}

/// Excluded: a place is cancelled in front of another place, and a third call gets the time that the other place has.
fn cancel_vs_reserve_model() {
    let (limiter, hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let first = place(&limiter, 1);
    let canceller = loom::thread::spawn(move || first.cancel());
    let reserver = spawn(&limiter, |limiter| wait_ns(&place(&limiter, 1)));
    canceller.join().unwrap();
    let told_ns = reserver.join().unwrap();
    assert!(told_ns == 10 || told_ns == 20, "{told_ns}");
    // No spend is admitted up to the place's time. After it one is admitted every 10 ns.
    let mut admitted = Vec::new();
    for now_ns in [10, 20, 30] {
        hand.set(Duration::from_nanos(now_ns));
        if spend(&limiter, "A", 1) {
            admitted.push(now_ns);
        }
    }
    let free: Vec<u64> = [10, 20, 30].into_iter().filter(|&at| at > told_ns).collect();
    assert_eq!(admitted, free, "a time that another place has: {told_ns}");
}

#[test]
fn cancel_vs_reserve() {
    explore(cancel_vs_reserve_model);
    assert!(coverage::count(Race::VacatedBeneath) > 0, "no cancelled place had a place behind it");
    let because = "a time that another place has";
    fails_with(Fault::RefundForCancel, because, cancel_vs_reserve_model);
}

/// Excluded: of two places, one behind the other, that are cancelled at once, one stays taken.
fn cancel_vs_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let (first, second) = (place(&limiter, 1), place(&limiter, 1));
    let one = loom::thread::spawn(move || first.cancel());
    let two = loom::thread::spawn(move || second.cancel());
    one.join().unwrap();
    two.join().unwrap();
    assert_eq!(wait_ns(&place(&limiter, 1)), 10, "both were cancelled");
}

#[test]
fn cancel_vs_cancel() {
    explore(cancel_vs_cancel_model);
    assert!(coverage::count(Race::VacatedLater) > 0, "no place went back later");
    assert!(coverage::count(Race::RollbackLeft) > 0, "no cancel was left to the other thread");
    fails_with(Fault::VacateUnlocked, "both were cancelled", cancel_vs_cancel_model);
    let left = Fault::LeftNotLookedForAgain;
    fails_with(left, "both were cancelled", cancel_vs_cancel_model);
}

/// Excluded: of three cancels, each of which may be left to another thread, one is lost.
fn cancel_vs_cancel_vs_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let places = [(); 3].map(|()| place(&limiter, 1));
    let cancel = |place: Reservation| loom::thread::spawn(move || place.cancel());
    places.map(cancel).into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(wait_ns(&place(&limiter, 1)), 10, "all were cancelled");
}

#[test]
fn cancel_vs_cancel_vs_cancel() {
    explore_bounded(Some(2), cancel_vs_cancel_vs_cancel_model);
    assert!(coverage::count(Race::RollbackLeft) > 0, "no cancel was left to another thread");
    let left = Fault::LeftNotLookedForAgain;
    fails_bounded(Some(2), left, "all were cancelled", cancel_vs_cancel_vs_cancel_model);
}

/// Excluded: a charge goes back twice, by a reset and by its receipt.
fn settle_vs_reset_model() {
    let (limiter, _hand) = limiter(3, 1);
    let receipt = limiter.limit("A").unwrap().spend_estimate("k", 2).unwrap().1.unwrap();
    let settler = spawn(&limiter, |limiter| {
        let _ = receipt.settle(0);
        remaining(&limiter, "A")
    });
    let resetter = spawn(&limiter, |limiter| {
        let is_reset = limiter.limit("A").unwrap().reset("k").unwrap().allowed();
        // One unit, not two: docs/internals/rollback.md ("One case is left") says what happens if the word becomes the
        // same.
        (is_reset, spend(&limiter, "A", 1))
    });
    let (left, (is_reset, spent)) = (settler.join().unwrap(), resetter.join().unwrap());
    assert!(is_reset && spent);
    count(if left == 3 { "settled first" } else { "settled last" });
    assert_eq!(remaining(&limiter, "A"), 2, "one of three is spent since the reset");
}

#[test]
fn settle_vs_reset() {
    explore(settle_vs_reset_model);
    assert_happened(&["settled first", "settled last"]);
    fails_with(Fault::RefundNotCounted, "one of three is spent", settle_vs_reset_model);
}

/// Excluded: a reset by the fast path and the settlement of an earlier receipt give the same units back, and a third
/// call's charge is forgotten.
fn settle_vs_reset_of_known_key_model() {
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(8);
    let limiter = Limiter::with_options(limits(3, 1), options);
    let receipt = limiter.limit("A").unwrap().spend_estimate("k", 3).unwrap().1.unwrap();
    let resetter = spawn(&limiter, |limiter| {
        let _ = limiter.limit("A").unwrap().reset("k").unwrap();
    });
    // The order in which loom runs them, which orders no memory.
    let steps = Tally::default();
    let step_at = move || {
        steps.add();
        steps.get()
    };
    let spent = step_at.clone();
    // Two units, not three: the word does not become the same.
    let spender = spawn(&limiter, move |limiter| spend(&limiter, "A", 2).then(spent));
    let settler = spawn(&limiter, move |_| {
        let begun_at = step_at();
        let _ = receipt.settle(0);
        begun_at
    });
    let (spent_at, begun_at) = (spender.join().unwrap(), settler.join().unwrap());
    resetter.join().unwrap();
    if spent_at.is_some_and(|at| at < begun_at) {
        count("settled last");
        // Only the reset can have made room for the spend.
        assert_eq!(remaining(&limiter, "A"), 1, "units went back twice");
    }
}

#[test]
fn settle_vs_reset_of_known_key() {
    explore_bounded(Some(2), settle_vs_reset_of_known_key_model);
    assert_happened(&["settled last"]);
    let because = "units went back twice";
    let fault = Fault::RefundNotCounted;
    fails_bounded(Some(2), fault, because, settle_vs_reset_of_known_key_model);
}

/// Excluded: a reset comes between a charge and its mark in the ledger, and the receipt gives the units back once more.
fn charge_vs_reset_model() {
    let (limiter, _hand) = limiter(2, 1);
    let charger = spawn(&limiter, |limiter| {
        let receipt = limiter.limit("A").unwrap().spend_estimate("k", 2).unwrap().1;
        if let Some(receipt) = receipt {
            let _ = receipt.settle(0);
        }
    });
    let resetter = spawn(&limiter, |limiter| {
        let is_reset = limiter.limit("A").unwrap().reset("k").unwrap().allowed();
        (is_reset, spend(&limiter, "A", 1))
    });
    charger.join().unwrap();
    let (is_reset, spent) = resetter.join().unwrap();
    if spent {
        count(if is_reset { "reset first" } else { "not reset" });
        assert_eq!(remaining(&limiter, "A"), 1, "units went back twice");
    }
}

#[test]
fn charge_vs_reset() {
    explore(charge_vs_reset_model);
    assert_happened(&["reset first"]);
    fails_with(Fault::RefundNotCounted, "units went back twice", charge_vs_reset_model);
}

/// Excluded: a settlement gives back the unused part of its estimate, and a part of another call's charge with it.
fn settle_vs_spend_model() {
    let (limiter, hand) = limiter(4, 1);
    let (_, receipt) = limiter.limit("A").unwrap().spend_estimate("k", 3).unwrap();
    let receipt = receipt.unwrap();
    hand.advance(Duration::from_nanos(5));
    let settler = loom::thread::spawn(move || receipt.settle(0));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let _ = settler.join().unwrap();
    assert!(spender.join().unwrap());
    // The spender's unit alone, charged now, in whichever order they came.
    let reset_ns = reset_in_ns(&limiter, "A");
    assert!(reset_ns >= 10, "another charge is forgotten in part: full in {reset_ns} ns");
    assert_eq!(reset_ns, 10, "the unused part of the estimate stays");
}

#[test]
fn settle_vs_spend() {
    explore(settle_vs_spend_model);
    assert!(coverage::count(Race::RolledBack) > 0, "no rollback came before the other charge");
    assert!(
        coverage::count(Race::RolledBackBeneath) > 0,
        "no rollback came beneath the other charge"
    );
    let because = "another charge is forgotten in part";
    fails_with(Fault::RefundForSettle, because, settle_vs_spend_model);
}

/// Excluded: a charge with a factor empties a leaky bucket. A settlement takes the units of that charge for those that its
/// own charge has left in the bucket.
fn settle_vs_spend_with_factor_model() {
    let rate = Duration::from_millis(10);
    let limit = Limit::leaky_bucket(10, rate, 1).unwrap();
    let (clock, hand) = Clock::manual();
    let limiter =
        exact(Limits::builder().limit("A", IdFormat::String, limit).unwrap().build(), clock);
    let (_, receipt) = limiter.limit("A").unwrap().spend_estimate("k", 3).unwrap();
    let receipt = receipt.unwrap();
    hand.advance(2 * rate);
    let settler = loom::thread::spawn(move || receipt.settle(0));
    let spender = spawn(&limiter, |limiter| {
        let limit = limiter.limit("A").unwrap();
        limit.scaled(Factor::from_millionths(250_000)).spend("k", 3).unwrap().allowed()
    });
    let _ = settler.join().unwrap();
    assert!(spender.join().unwrap());
    let left = remaining(&limiter, "A");
    assert!(left <= 7, "another charge is forgotten in part: {left} are left");
    assert_eq!(left, 7, "the unused part of the estimate stays");
}

#[test]
fn settle_vs_spend_with_factor() {
    explore(settle_vs_spend_with_factor_model);
    assert!(coverage::count(Race::RolledBack) > 0, "no rollback came before the other charge");
    assert!(
        coverage::count(Race::RolledBackBeneath) > 0,
        "no rollback came beneath the other charge"
    );
    let because = "another charge is forgotten in part";
    fails_with(Fault::DrainNotCounted, because, settle_vs_spend_with_factor_model);
}

/// Excluded: of two estimates that are settled to nothing, the later settlement uses a base that the other has moved.
/// It gives back time that has passed since, which is a third call's charge.
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
    assert!(reset_ns >= 50, "another charge is forgotten in part: full in {reset_ns} ns");
    // 190 ns if neither settlement gave anything back. A settlement that meets a failed attempt gives back less.
    assert!(reset_ns <= 140, "the unused part of the estimates stays: full in {reset_ns} ns");
}

#[test]
fn settle_vs_settle() {
    explore_bounded(SOME, settle_vs_settle_model);
    let because = "another charge is forgotten in part";
    fails_bounded(SOME, Fault::LoweringNotCounted, because, settle_vs_settle_model);
    fails_bounded(SOME, Fault::RefundForSettle, because, settle_vs_settle_model);
}

/// Excluded: a rollback stands still between the reading of the word and its swap. Meanwhile another rollback lowers the
/// word, and a later charge brings it back. Then the swap stores a word that was computed without that charge.
fn settle_vs_settle_and_spend_model() {
    let (limiter, hand) = limiter(3, 1);
    let charge = |cost| limiter.limit("A").unwrap().spend_estimate("k", cost).unwrap().1.unwrap();
    let (first, second) = (charge(1), charge(1));
    let one = loom::thread::spawn(move || first.settle(0));
    let two = spawn(&limiter, move |limiter| {
        let _ = second.settle(0);
        hand.advance(Duration::from_nanos(10));
        spend(&limiter, "A", 1)
    });
    let _ = one.join().unwrap();
    assert!(two.join().unwrap());
    count("settled");
    let reset_ns = reset_in_ns(&limiter, "A");
    assert!(reset_ns >= 10, "another charge is forgotten in part: full in {reset_ns} ns");
}

#[test]
fn settle_vs_settle_and_spend() {
    explore(settle_vs_settle_and_spend_model);
    assert_happened(&["settled"]);
    assert!(coverage::count(Race::RollbackLeft) > 0, "no settlement was left to another thread");
    let because = "another charge is forgotten in part";
    fails_with(Fault::RollBackWithoutTurn, because, settle_vs_settle_and_spend_model);
}

/// Excluded: a settlement does not see the time of a reservation that was settled in part meanwhile, and returns units that
/// the reservation builds on.
fn settle_vs_reserve_and_settle_model() {
    let (limiter, hand) = limiter(3, 1);
    assert!(spend(&limiter, "A", 2));
    hand.advance(Duration::from_nanos(2));
    let first = limiter.limit("A").unwrap().spend_estimate("k", 1).unwrap().1.unwrap();
    hand.advance(Duration::from_nanos(8));
    let settler = loom::thread::spawn(move || first.settle(0));
    let waiter = spawn(&limiter, |limiter| {
        let second = place(&limiter, 3);
        let granted_ns = wait_ns(&second);
        let _ = second.into_receipt().settle(2);
        granted_ns
    });
    let _ = settler.join().unwrap();
    let granted_ns = waiter.join().unwrap();
    count(if granted_ns == 20 { "behind the estimate" } else { "behind less" });
    let next_ns = wait_ns(&place(&limiter, 3));
    let apart_ns = next_ns - granted_ns;
    assert!(apart_ns >= 20, "three more are granted {apart_ns} ns after two of a burst of three");
}

#[test]
fn settle_vs_reserve_and_settle() {
    explore_bounded(SOME, settle_vs_reserve_and_settle_model);
    assert_happened(&["behind the estimate", "behind less"]);
    let because = "three more are granted";
    fails_bounded(SOME, Fault::GrantNotRecorded, because, settle_vs_reserve_and_settle_model);
}
