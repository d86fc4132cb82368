//! Reservations: their waits, their refusals, and other calls on the same bucket.

use tollgate::options::AtCap;
use tollgate::reserve::{Receipt, ReserveError};

use super::virtual_time::{Task, World};
use super::*;

#[test]
fn refusal_is_immediate_and_charges_nothing() {
    let limit = Limit::new(2, 1, ms(1)).unwrap();
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
    let waiting = handle.waiting(short, world.clone());
    let mut future = Task::new(waiting.until_allowed("id", 2));
    assert!(matches!(future.poll(), std::task::Poll::Ready(Err(_))), "at its first poll");
    assert_eq!(state(&handle), before, "{limit:?}");
    let in_time = handle.reserve("id", 2, needed).unwrap();
    assert_eq!(in_time.wait(), needed, "{limit:?}");
}

#[test]
fn a_refusal_says_why() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 1).unwrap().allowed());
    let text = |refused: Result<Reservation, ReserveError>| refused.unwrap_err().to_string();
    assert_eq!(
        text(handle.reserve("id", 1, ms(9))),
        "not in time: allowed in 10ms, which is longer than the caller would wait from now on"
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
    let limiter = Limiter::with_options(limits.build(), clock).unwrap();
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
    let limiter = Limiter::with_options(limits.unwrap().build(), options).unwrap();
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
    let handle = Limiter::with_options(limits.build(), options).unwrap().limit("Own").unwrap();
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
    // The last place of the overflow bucket goes back. It has no list of vacant places.
    let [_a, b, c] = places;
    c.cancel();
    assert_eq!(place("d").wait(), ms(20));
    b.cancel();
    assert_eq!(place("e").wait(), ms(30));
}

#[test]
fn only_gcra_has_places() {
    for limit in &limits_of_all(2)[1..] {
        let (handle, _hand) = by_hand(limit);
        let refused = handle.reserve("id", 1, Duration::MAX).unwrap_err();
        assert!(refused.is_without_places(), "{refused}");
        let algorithm = limit.algorithm();
        assert_eq!(
            refused.to_string(),
            format!(
                "{algorithm} has no reservations: only gcra has; wait with until_allowed, or spend after retry_in"
            )
        );
        assert_eq!(state(&handle), handle.check("new", 1).unwrap(), "nothing was charged");
    }
}

#[test]
fn reload_keeps_reservations_and_refunds_nothing() {
    let with = |burst| {
        let limit = Limit::new(burst, 1, ms(10)).unwrap();
        Limits::builder().limit("Own", IdFormat::String, limit).unwrap().build()
    };
    let (clock, _hand) = Clock::manual();
    let limiter = Limiter::with_options(with(1), clock).unwrap();
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
