//! Reservations: their waits, their refusals, and other calls on the same bucket.

use std::sync::Arc;

use tollgate::Decision;
use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::options::AtCap;
use tollgate::reserve::{Receipt, ReserveError};

use super::virtual_time::{Task, World};
use super::*;

#[test]
fn refusal_is_immediate_and_charges_nothing() {
    for limit in limits_of_all(2) {
        let (handle, hand) = by_hand(&limit);
        let world = World::new(hand);
        assert!(handle.spend("id", 2).unwrap().allowed());
        let (before, needed) = (state(&handle), handle.check("id", 2).unwrap().retry_in());
        let short = needed - Duration::from_nanos(1);
        let late = handle.reserve("id", 2, short).unwrap_err();
        assert_eq!(late.needed(), Some(needed), "{limit:?}");
        assert!(late.is_not_in_time() && !late.is_never());
        let never = handle.reserve("id", 3, Duration::MAX).unwrap_err();
        assert!(never.is_never() && !never.is_not_in_time(), "{limit:?}");
        let waiting = handle.waiting(world.clone()).at_most(short);
        let mut future = Task::new(waiting.until_allowed("id", 2));
        assert!(matches!(future.poll(), std::task::Poll::Ready(Err(_))), "at its first poll");
        assert_eq!(state(&handle), before, "{limit:?}");
        let in_time = handle.reserve("id", 2, needed).unwrap();
        assert_eq!(in_time.wait(), needed, "{limit:?}");
    }
}

#[test]
fn a_refusal_says_why() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 1).unwrap().allowed());
    let text = |refused: Result<Reservation, ReserveError>| refused.unwrap_err().to_string();
    assert_eq!(
        text(handle.reserve("id", 1, ms(9))),
        "not in time: allowed in 10ms, which is longer than the caller would wait"
    );
    assert_eq!(text(handle.reserve("id", 2, ms(9))), "cost 2 is above the burst 1 of Own");
    assert!(
        matches!(handle.reserve("", 1, ms(9)), Err(ReserveError::Wrong(error)) if error.is_invalid_id())
    );
}

#[test]
fn zero_cost_waits_for_debt_without_reservation() {
    let (handle, hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    assert!(place(&handle, 0).wait().is_zero());
    let _held = (place(&handle, 1), place(&handle, 1));
    let nothing = place(&handle, 0);
    assert_eq!(nothing.wait(), ms(10), "until nothing is owed");
    assert_eq!(place(&handle, 1).wait(), ms(20));
    nothing.cancel();
    hand.advance(ms(20));
    assert_eq!(state(&handle).retry_in(), ms(10));
}

#[test]
fn unlimited_ids_never_wait() {
    let (clock, _hand) = Clock::manual();
    let limit = Limit::new(1, 1, ms(10)).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, limit).unwrap();
    let limiter = Limiter::with_clock(limits.build(), clock);
    let handle = limiter.limit("Own").unwrap();
    limiter.set_enabled(false);
    for _ in 0..3 {
        let place = place(&handle, 100);
        assert!(place.wait().is_zero());
        assert_eq!(place.into_receipt().settle(7).remaining(), None);
    }
    limiter.set_enabled(true);
    assert!(state(&handle).allowed(), "nothing was charged");
}

#[test]
fn older_clock_waits_from_the_last_sweep() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let limiter = limiter_on(&Limit::new(1, 1, ms(10)).unwrap(), clock, engine);
        let handle = limiter.limit("Own").unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        hand.set(ms(100));
        while limiter.stats().cells > 0 {
            limiter.sweep(1 << 20);
        }
        hand.set(ms(50));
        assert!(place(&handle, 1).wait().is_zero(), "there as of the sweep: {engine:?}");
        assert_eq!(place(&handle, 1).wait(), ms(60), "{engine:?}");
    }
}

#[test]
fn untracked_keys_wait_from_the_last_sweep() {
    let limits =
        Limits::builder().limit("Own", IdFormat::String, Limit::new(1, 1, ms(10)).unwrap());
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(AtCap::Share);
    let limiter = Limiter::with_options(limits.unwrap().build(), options);
    let handle = limiter.limit("Own").unwrap();
    let place = |id: &str| handle.reserve(id, 1, Duration::MAX).unwrap();
    assert!(place("first").wait().is_zero());
    hand.set(ms(100));
    while limiter.stats().cells > 0 {
        limiter.sweep(1 << 20);
    }
    assert!(place("first").wait().is_zero());
    hand.set(ms(50));
    assert!(place("second").wait().is_zero());
    assert_eq!(place("third").wait(), ms(60));
}

/// Builds a limiter with room for one key, which is taken.
fn at_cap(policy: AtCap) -> KeyedLimit {
    let limit = Limit::new(1, 1, ms(10)).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, limit).unwrap();
    let options = LimiterOptions::default().clock(Clock::manual().0).max_keys(1).at_cap(policy);
    let handle = Limiter::with_options(limits.build(), options).limit("Own").unwrap();
    assert!(handle.spend("first", 1).unwrap().allowed());
    handle
}

#[test]
fn untracked_keys_beyond_cap_follow_the_policy() {
    let refused = at_cap(AtCap::Deny).reserve("new", 1, Duration::MAX).unwrap_err();
    assert!(matches!(refused, ReserveError::NoRoom), "{refused}");

    let free = at_cap(AtCap::Allow);
    for _ in 0..3 {
        assert!(free.reserve("new", 1, Duration::MAX).unwrap().wait().is_zero());
    }

    let shared = at_cap(AtCap::Share);
    let place = |id: &str| shared.reserve(id, 1, Duration::MAX).unwrap();
    let places = [place("a"), place("b"), place("c")];
    assert_eq!(places.each_ref().map(Reservation::wait), [0, 10, 20].map(ms));
    // Their reservations in the shared bucket roll back like those in a separate bucket.
    let [_a, b, c] = places;
    b.cancel();
    assert_eq!(place("d").wait(), ms(30));
    let shared = at_cap(AtCap::Share);
    let place = |id: &str| shared.reserve(id, 1, Duration::MAX).unwrap();
    let places = [place("a"), place("b"), place("c")];
    let [_a, b, c_too] = places;
    b.cancel();
    c_too.cancel();
    assert_eq!(place("d").wait(), ms(10));
    drop(c);
}

/// One unit, then a pause: a rule that cannot reserve.
#[derive(Debug)]
struct Pausing;

impl Algorithm for Pausing {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let left = Duration::from_nanos(word.saturating_sub(now_ns));
        let allowed = cost == 0 || left.is_zero();
        let decision = Decision::to_spend(allowed, u64::from(left.is_zero()), left, left);
        Outcome { word: (allowed && cost > 0).then_some(now_ns + MS), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::to_refund(false, 0, Duration::ZERO) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }
}

#[test]
fn custom_rule_grants_only_what_is_there() {
    let (handle, hand) = by_hand(&Limit::custom(Arc::new(Pausing)).unwrap());
    let there = place(&handle, 1);
    assert!(there.wait().is_zero());
    let refused = handle.reserve("id", 1, Duration::MAX).unwrap_err();
    assert!(matches!(refused, ReserveError::TooFarAhead), "{refused}");
    there.cancel();
    let (decision, receipt) = handle.spend_estimate("id", 1).unwrap();
    assert!(decision.allowed(), "given back");
    assert_eq!(receipt.unwrap().settle(3).remaining(), Some(0), "the rest is forgiven");
    hand.advance(ms(1));
    assert!(place(&handle, 1).wait().is_zero());
}

#[test]
fn denied_batch_takes_nothing_from_later_waiter() {
    // The batch charges "Own" and is denied by "Last". Between the two another caller reserves behind it.
    // The test charges and rolls back by hand.
    let limit = Limit::new(1, 1, Duration::from_nanos(10)).unwrap();
    let batchs = limit.spend(0, 1, 1).word.unwrap();
    let waiter = limit.reserve(batchs, 1, 1).unwrap();
    let charge = tollgate::algorithm::Charge::new(0, batchs, 1);
    let after = limit.roll_back(waiter.word, charge, &|| 1).unwrap_or(waiter.word);
    let next = limit.reserve(after, 1, 1).unwrap();
    assert!(next.at_ns >= waiter.at_ns + 10, "{} and {}", next.at_ns, waiter.at_ns);
}

#[test]
fn reload_keeps_reservations_and_refunds_nothing() {
    let with = |burst| {
        let limit = Limit::new(burst, 1, ms(10)).unwrap();
        Limits::builder().limit("Own", IdFormat::String, limit).unwrap().build()
    };
    let (clock, _hand) = Clock::manual();
    let limiter = Limiter::with_clock(with(1), clock);
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("id", 1).unwrap().allowed());
    let (held, given_up) = (place(&handle, 1), place(&handle, 1));
    let (_, receipt) = handle.spend_estimate("other", 1).unwrap();
    limiter.reload(with(2)).unwrap();
    let (before, others) = (state(&handle), handle.check("other", 1).unwrap());
    given_up.cancel();
    assert_eq!(state(&handle), before);
    let said = receipt.unwrap().settle(0);
    assert_eq!(said.reset_in(), others.reset_in(), "nothing is given back");
    assert_eq!(held.wait(), ms(10));
}

/// The documentation of `KeyedLimit::reserve` says so.
#[test]
fn later_calls_may_use_returned_units_first() {
    type Return = fn(&KeyedLimit, Receipt);
    let returns: [Return; 3] = [
        |_, receipt| assert!(receipt.settle(0).allowed()),
        |handle, _| assert!(handle.refund("id", 2).unwrap().allowed()),
        |handle, _| assert!(handle.reset("id").unwrap().allowed()),
    ];
    for give_back in returns {
        let (handle, _hand) = by_hand(&Limit::new(10, 1, ms(10)).unwrap());
        let (_, receipt) = handle.spend_estimate("id", 10).unwrap();
        let held = place(&handle, 1);
        assert!(!handle.spend("id", 1).unwrap().allowed());
        give_back(&handle, receipt.expect("allowed"));
        assert!(handle.spend("id", 1).unwrap().allowed());
        assert_eq!(held.wait(), ms(10), "it keeps its time");
    }
}

#[test]
fn cancelled_place_goes_back_once_last_is_undone() {
    for limit in limits_of_all(2) {
        let (handle, _hand) = by_hand(&limit);
        assert!(handle.spend("id", 2).unwrap().allowed());
        let before = state(&handle);
        let place = handle.reserve("id", 1, Duration::MAX).unwrap();
        let behind = handle.reserve("id", 1, Duration::MAX).unwrap().into_receipt();
        place.cancel();
        assert_ne!(state(&handle), before, "{limit:?}: another place is behind it");
        let _ = behind.settle(0);
        assert_eq!(state(&handle), before, "{limit:?}");
    }
}

/// A refund in between makes a place of the list one that can never go back. A later place has the same word.
#[test]
fn place_after_refund_goes_back_beside_older_one() {
    let (handle, hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 1).unwrap().allowed());
    hand.advance(ms(1));
    let (first, behind) = (place(&handle, 1), place(&handle, 1));
    first.cancel();
    for _ in 0..2 {
        assert!(handle.refund("id", 1).unwrap().allowed());
    }
    drop(behind);
    let (second, last) = (place(&handle, 1), place(&handle, 1));
    second.cancel();
    last.cancel();
    assert_eq!(place(&handle, 1).wait(), ms(9));
}

#[test]
fn places_that_cannot_go_back_make_room() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 1).unwrap().allowed());
    let places: Vec<_> = (0..1025).map(|_| place(&handle, 1)).collect();
    places.into_iter().take(1024).for_each(Reservation::cancel);
    assert!(handle.reset("id").unwrap().allowed());
    assert!(handle.spend("id", 1).unwrap().allowed());
    let (first, last) = (place(&handle, 1), place(&handle, 1));
    first.cancel();
    last.cancel();
    assert_eq!(place(&handle, 1).wait(), ms(10));
}
