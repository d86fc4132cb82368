//! Reservations and estimates whose callers go away, and stores that fail.

use std::time::SystemTime;

use super::*;
use crate::limiter::reserve::ReserveError;
use crate::limits::{OnError, OverrideOptions};

const WAIT: Duration = Duration::from_secs(600);

#[test]
fn abandoned_reservations_give_their_units_back() {
    let node = node();
    for polls in [0, 1, 2] {
        let mut place = Box::pin(node.all.reserve("a", 4, WAIT));
        if polls > 0 {
            assert!(poll(place.as_mut()).is_pending());
        }
        if polls > 1 {
            // The store has answered, and the caller has not taken the answer.
            node.store.run_all();
        }
        drop(place);
        while node.store.run_all() > 0 {}
        assert_eq!(node.left().1, Some(5), "after {polls} polls");
    }
    assert_eq!(node.counts()[1], (0, 0));
}

#[test]
fn dropped_waiters_leave_the_queue() {
    let node = node();
    assert!(node.is_allowed(5));
    let never = |_| std::future::pending::<()>();
    let waiting = |cost| Box::pin(node.all.until_allowed("a", cost, Duration::MAX, never));
    let mut waiters = [waiting(1), waiting(2), waiting(1)];
    for waiter in &mut waiters {
        assert!(poll(waiter.as_mut()).is_pending());
        node.store.run_all();
        assert!(poll(waiter.as_mut()).is_pending(), "its time has not come");
    }
    let wait = |node: &Node| node.answer(node.all.reserve("a", 1, MINUTE)).unwrap_err().needed();
    assert_eq!(wait(&node), Some(5 * MINUTE));
    let [one, two, three] = waiters;
    for waiter in [three, two, one] {
        drop(waiter);
        while node.store.run_all() > 0 {}
    }
    assert!(node.answer(node.all.reserve("a", 1, MINUTE)).is_ok());
}

#[test]
fn an_outage_decides_places_by_the_policy() {
    let node = node_of(exact().fraction(Factor::ONE));
    let time = node.hand.clone();
    node.set_outage(true);
    let reserve = |cost| node.answer(node.all.reserve("a", cost, WAIT));
    let is_failure =
        |error| matches!(error, ReserveError::Wrong(error) if error.is_store_failure());
    assert!(is_failure(reserve(1).unwrap_err()), "nobody waits for a part");
    time.advance(2 * MINUTE);
    let place = reserve(2).unwrap();
    assert!(place.wait().is_zero());
    place.cancel();
    assert!(is_failure(reserve(1).unwrap_err()));
    time.advance(MINUTE);
    let (decision, receipt) = node.answer(node.all.spend_estimate("a", 1)).unwrap();
    assert!(decision.allowed());
    let settled = node.answer(receipt.unwrap().settle(0)).unwrap();
    assert_eq!(settled.remaining(), None, "there was no charge in the store");
    time.advance(MINUTE);
    assert_eq!(node.answer(node.all.spend_up_to("a", 9)).unwrap().0, 0, "5 of 9 are not there");
    assert_eq!(node.answer(node.all.spend_up_to("a", 1)).unwrap().0, 1);
    node.set_outage(false);
    assert_eq!(node.left().1, Some(5));
}

#[test]
fn a_store_that_fails_keeps_an_estimate() {
    let node = node();
    let (_, receipt) = node.answer(node.all.spend_estimate("a", 4)).unwrap();
    node.set_outage(true);
    let error = node.answer(receipt.unwrap().settle(1)).unwrap_err();
    assert!(error.is_store_failure());
    node.set_outage(false);
    assert_eq!(node.left().1, Some(1));
    let (_, receipt) = node.answer(node.all.spend_estimate("a", 1)).unwrap();
    drop(receipt.unwrap().settle(0)); // nobody waits for it
    assert_eq!(node.store.run_all(), 1);
    while node.store.run_all() > 0 {}
    assert_eq!(node.left().1, Some(1));
}

#[test]
fn places_are_counted_as_spends() {
    let node = node();
    assert!(node.answer(node.all.reserve("a", 3, WAIT)).is_ok());
    assert!(node.answer(node.all.reserve("a", 3, WAIT)).is_ok());
    assert!(node.answer(node.all.reserve("a", 3, Duration::ZERO)).is_err());
    assert_eq!(node.counts()[1], (2, 1));
    assert_eq!(node.limiter.counters().limits[1].cost, 6);
    assert!(node.answer(node.all.reserve("a", 6, WAIT)).is_err_and(|error| error.is_never()));
}

#[test]
fn cancels_after_another_limit_return_nothing() {
    let needed = |node: &Node| {
        node.answer(node.all.reserve("a", 1, MINUTE)).err().and_then(|it| it.needed())
    };
    // A reload that changes another limit, and one that changes this one.
    for (own, burst, missing) in [(11, 5, None), (10, 6, Some(2))] {
        let node = node();
        assert!(node.is_allowed(5));
        let place = node.answer(node.all.reserve("a", 2, WAIT)).unwrap();
        let _ = node.limiter.reload(limits_of((own, burst), exact())).unwrap();
        place.cancel();
        while node.store.run_all() > 0 {}
        assert_eq!(needed(&node), missing.map(|missing| MINUTE * missing), "burst {burst}");
    }
}

#[test]
fn settlements_after_an_override_return_nothing() {
    // The second override has the default's numbers.
    for (own, passed, expected) in
        [(20, Duration::ZERO, 20), (20, MINUTE, 36), (40, Duration::ZERO, 40), (40, MINUTE, 36)]
    {
        let limit = |burst| Limit::new(burst, 1, 10 * MINUTE).unwrap();
        let until = OverrideOptions::default().expires(SystemTime::now() + MINUTE / 2);
        let limits = Limits::builder().limit("Own", IdFormat::String, limit(5)).unwrap();
        let limits = limits.limit_with("All", IdFormat::String, limit(40), exact()).unwrap();
        let node = node_with(limits.override_with("All", "a", limit(own), until).unwrap().build());
        let (_, receipt) = node.answer(node.all.spend_estimate("a", 4)).unwrap();
        node.hand.advance(passed);
        let settled = node.answer(receipt.unwrap().settle(0)).unwrap();
        assert_eq!(settled.remaining(), Some(expected), "{own} after {passed:?}");
    }
}

#[test]
fn settlements_owe_by_modes_of_now() {
    let settled = |node: &Node, receipt: crate::shared::SharedReceipt, actual| {
        node.answer(receipt.settle(actual)).unwrap().remaining()
    };
    let shadow = || exact().mode(LimitMode::Shadow);
    // A place that was charged, of a limit that is tried now.
    let node = node();
    let place = node.answer(node.all.reserve("a", 3, WAIT)).unwrap();
    let _ = node.limiter.reload(limits(shadow())).unwrap();
    assert_eq!(settled(&node, place.into_receipt(), 4), Some(1));
    // An estimate that was not charged, of a limit that denies now.
    let node = node_of(shadow());
    assert!(node.is_allowed(5));
    let (_, receipt) = node.answer(node.all.spend_estimate("a", 1)).unwrap();
    node.hand.advance(2 * MINUTE);
    let _ = node.limiter.reload(limits(exact())).unwrap();
    assert_eq!(settled(&node, receipt.unwrap(), 2), Some(1));
}

#[test]
fn cancels_after_an_override_return_nothing() {
    for passed in [Duration::ZERO, MINUTE] {
        let limit = |burst| Limit::new(burst, 1, 10 * MINUTE).unwrap();
        let until = OverrideOptions::default().expires(SystemTime::now() + MINUTE / 2);
        let limits = Limits::builder().limit("Own", IdFormat::String, limit(5)).unwrap();
        let limits = limits.limit_with("All", IdFormat::String, limit(40), exact()).unwrap();
        let node = node_with(limits.override_with("All", "a", limit(40), until).unwrap().build());
        let place = node.answer(node.all.reserve("a", 4, WAIT)).unwrap();
        node.hand.advance(passed);
        place.cancel();
        while node.store.run_all() > 0 {}
        let left = node.answer(node.all.check("a", 0)).unwrap().remaining();
        assert_eq!(left, Some(if passed.is_zero() { 40 } else { 36 }), "{passed:?}");
    }
}

/// An algorithm without places spends again and again; in shadow mode a place is a spend.
#[test]
fn waiters_that_go_away_take_nothing() {
    let window = Limit::fixed_window(5, MINUTE).unwrap();
    let gcra = Limit::new(5, 1, MINUTE).unwrap();
    let shadow = || exact().mode(LimitMode::Shadow);
    for (limit, options) in [(window, exact()), (gcra, shadow())] {
        let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
        let limits = limits.limit_with("All", IdFormat::String, limit, options).unwrap();
        let node = node_with(limits.build());
        let never = |_| std::future::pending::<()>();
        for polls in [1, 2] {
            let mut wait = Box::pin(node.all.until_allowed("a", 2, MINUTE, never));
            assert!(poll(wait.as_mut()).is_pending());
            if polls > 1 {
                // The store has answered, and the caller has not taken the answer.
                node.store.run_all();
            }
            drop(wait);
            while node.store.run_all() > 0 {}
            assert_eq!(node.left().1, Some(5), "after {polls} polls");
        }
        let receipt = node.answer(node.all.until_allowed("a", 2, MINUTE, never)).unwrap();
        assert_eq!((receipt.cost(), node.left().1), (2, Some(3)));
    }
}

/// The bucket has the units long after the block has ended.
#[test]
fn a_blocked_waiter_is_told_of_its_block() {
    let second = Duration::from_secs(1);
    let leaky = Limit::leaky_bucket(10, 1, Duration::from_secs(50)).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, leaky.clone()).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, leaky, exact()).unwrap();
    let node = node_with(limits.build());
    let _ = node.answer(node.all.drain("a", 1)).unwrap();
    let _ = node.answer(node.all.block("a", second)).unwrap();
    let ready = |_| std::future::ready(());
    let waiting = Box::pin(node.all.until_allowed("a", 5, Duration::MAX, ready));
    let mut waiting = waiting;
    let error = loop {
        match poll(waiting.as_mut()) {
            Poll::Ready(answer) => break answer.unwrap_err(),
            Poll::Pending => assert!(node.store.run_all() > 0),
        }
    };
    assert!(matches!(error, ReserveError::Blocked { left } if left == second), "{error:?}");
}

#[test]
fn failed_places_are_counted_errors() {
    let node = node();
    node.store.inner.put("All:a", "12 apples");
    assert!(node.answer(node.all.reserve("a", 1, WAIT)).is_err());
    assert_eq!(node.limiter.counters().limits[1].errors, 1);
}

/// The node's wait begins with the answer: one that began with the question would end before the store's time.
#[test]
fn waits_begin_when_the_answer_is_there() {
    let node = node();
    assert!(node.is_allowed(5));
    let mut place = Box::pin(node.all.reserve("a", 1, WAIT));
    assert!(poll(place.as_mut()).is_pending());
    node.hand.advance(MINUTE / 2);
    node.store.run_all();
    let Poll::Ready(place) = poll(place.as_mut()) else { panic!("it is answered") };
    assert_eq!(place.unwrap().wait(), MINUTE / 2, "a unit a minute, and half of it has passed");
}

/// As spends they had no place in the gate, and made spends late.
#[test]
fn calls_that_admit_nothing_are_returns() {
    let node = node_of(exact().on_error(OnError::Allow).allow_for(60 * MINUTE));
    let returns = |node: &Node| std::mem::take(&mut *node.store.returns.lock());
    assert!(node.is_allowed(1));
    assert_eq!(returns(&node), 0);
    node.answer(node.all.explain("a", 1)).unwrap();
    assert_eq!(returns(&node), 1, "an explanation");
    node.set_outage(true);
    assert!(node.is_allowed(1));
    node.set_outage(false);
    assert!(node.is_allowed(1));
    assert_eq!(returns(&node), 0);
    while node.store.run_all() > 0 {}
    assert_eq!(returns(&node), 1, "a report of what is owed");
    for (is_split, text) in [(false, "in one call"), (true, "one after the other")] {
        let node = node_with_lease();
        for _ in 0..2 {
            node.hand.advance(MS);
            assert!(node.answer(node.all.spend("b", 1)).unwrap().allowed());
        }
        *node.store.is_split.lock() = is_split;
        assert_eq!(node.answer(node.limiter.give_leases_back()).unwrap(), 2);
        assert_eq!(returns(&node), 1 + usize::from(is_split), "leases {text}");
    }
}
