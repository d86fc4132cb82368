//! Models of places in the future and of estimates: cancels and settlements beside spends and other places.

use super::*;
use crate::limiter::reserve::{Reservation, ReserveError};

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
    count(if told_ns == 10 { "took the place" } else { "behind it" });
    // The place of the first caller is free if the second one is behind it.
    let third_ns = wait_ns(&place(&limiter, 1));
    assert_eq!(third_ns, 30 - told_ns, "a time that another place has");
    hand.set(Duration::from_nanos(20));
    assert!(!spend(&limiter, "A", 1), "a time that another place has");
    hand.set(Duration::from_nanos(30));
    assert!(spend(&limiter, "A", 1));
}

#[test]
fn cancel_vs_reserve() {
    explore(cancel_vs_reserve_model);
    assert_happened(&["took the place", "behind it"]);
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
    assert_eq!(reset_in_ns(&limiter, "A"), 10, "both were cancelled");
}

#[test]
fn cancel_vs_cancel() {
    explore(cancel_vs_cancel_model);
    assert!(coverage::count(Race::VacatedLater) > 0, "no place went back later");
    for fault in [Fault::VacantUnfenced, Fault::VacantNotLookedFor] {
        fails_with(fault, "both were cancelled", cancel_vs_cancel_model);
    }
}

/// Excluded: of three cancels at once, one is lost.
fn cancel_vs_cancel_vs_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let places = [(); 3].map(|()| place(&limiter, 1));
    let cancel = |place: Reservation| loom::thread::spawn(move || place.cancel());
    places.map(cancel).into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(reset_in_ns(&limiter, "A"), 10, "all were cancelled");
}

#[test]
fn cancel_vs_cancel_vs_cancel() {
    explore_bounded(Some(2), cancel_vs_cancel_vs_cancel_model);
    let fault = Fault::VacantNotLookedFor;
    fails_bounded(Some(2), fault, "all were cancelled", cancel_vs_cancel_vs_cancel_model);
}

/// Excluded: a vacant place goes back while a new caller takes it, or two callers take it.
fn cancel_vs_reserves_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let (first, second) = (place(&limiter, 1), place(&limiter, 1));
    first.cancel();
    let canceller = loom::thread::spawn(move || second.cancel());
    let reserve = |limiter: Limiter| wait_ns(&place(&limiter, 1));
    let (one, two) = (spawn(&limiter, reserve), spawn(&limiter, reserve));
    canceller.join().unwrap();
    let (one_ns, two_ns) = (one.join().unwrap(), two.join().unwrap());
    assert_ne!(one_ns, two_ns, "a place was given twice");
    count(if one_ns.max(two_ns) == 20 { "close" } else { "apart" });
    let third_ns = wait_ns(&place(&limiter, 1));
    assert_eq!(third_ns + one_ns + two_ns, 60, "a place was given twice, or was lost");
}

#[test]
fn cancel_vs_reserves() {
    explore_bounded(Some(2), cancel_vs_reserves_model);
    assert_happened(&["close", "apart"]);
    assert!(coverage::count(Race::BlockSwapLost) > 0 || coverage::count(Race::SwapLost) > 0);
    let because = "a place was given twice";
    fails_bounded(Some(2), Fault::BlockByStore, because, cancel_vs_reserves_model);
}

/// Reserves a unit of A and of B; B comes first if `reversed`.
fn place_of_both(limiter: &Limiter, reversed: bool) -> Reservation {
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let mut members = [a.member("k"), b.member("k")];
    if reversed {
        members.reverse();
    }
    limiter.batch(&members).reserve(Duration::from_secs(1)).unwrap()
}

/// Excluded: of two batches that take places of the same buckets in opposite orders, and of which one is cancelled, one has two
/// times, both have one unit, or a unit is lost.
fn batch_reserve_vs_batch_cancel_model() {
    let (limiter, _hand) = limiter(1, 1);
    assert!(spend(&limiter, "A", 1));
    let cancelled = spawn(&limiter, |limiter| place_of_both(&limiter, false).cancel());
    let kept = spawn(&limiter, |limiter| place_of_both(&limiter, true));
    cancelled.join().unwrap();
    let kept = kept.join().unwrap();
    let times: Vec<u64> = kept.others.iter().map(|other| other.granted_at_ns).collect();
    assert_eq!(times, [kept.granted_at_ns], "all members of a batch have one time");
    let kept_ns = wait_ns(&kept);
    assert!(kept_ns >= 10, "A has none before: {kept_ns}");
    count(if kept_ns == 10 { "first" } else { "behind" });
    // All times but that of the place that is kept are free again.
    let next = place_of_both(&limiter, false);
    let next_ns = if kept_ns == 10 { 20 } else { 10 };
    assert_eq!(wait_ns(&next), next_ns, "a unit was given twice, or was lost");
    next.cancel();
    kept.cancel();
    let left_ns = (reset_in_ns(&limiter, "A"), reset_in_ns(&limiter, "B"));
    assert_eq!(left_ns, (10, 0), "all were cancelled");
}

#[test]
fn batch_reserve_vs_batch_cancel() {
    explore_bounded(Some(2), batch_reserve_vs_batch_cancel_model);
    assert_happened(&["first", "behind"]);
    let taken_first = coverage::count(Race::PlaceTakenFirst);
    println!("another batch took a place first: {taken_first}");
    assert!(taken_first > 0, "no batch lost a place that it had found");
    assert!(coverage::count(Race::VacatedBeneath) > 0, "no cancelled place had a place behind it");
    let twins = [
        (Fault::BatchPlacesApart, "have one time"),
        (Fault::RefundForCancel, "a unit was given twice"),
        (Fault::VacantNotLookedFor, "all were cancelled"),
    ];
    for (fault, because) in twins {
        fails_bounded(Some(2), fault, because, batch_reserve_vs_batch_cancel_model);
    }
}

/// Excluded: of a settlement and a spend at the same time one is lost.
fn settle_vs_spend_model() {
    let (limiter, hand) = limiter(4, 1);
    let (_, receipt) = limiter.limit("A").unwrap().spend_estimate("k", 3).unwrap();
    let receipt = receipt.unwrap();
    hand.advance(Duration::from_nanos(5));
    let settler = loom::thread::spawn(move || receipt.settle(1));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let _ = settler.join().unwrap();
    assert!(spender.join().unwrap());
    assert_eq!(reset_in_ns(&limiter, "A"), 15, "two units, of which a half has refilled");
}

#[test]
fn settle_vs_spend() {
    explore(settle_vs_spend_model);
    assert!(coverage::count(Race::SwapLost) > 0, "no swap was lost");
    assert!(coverage::count(Race::Returned) > 0, "nothing was returned");
    fails_with(Fault::StoreForSwap, "of which a half has refilled", settle_vs_spend_model);
}
