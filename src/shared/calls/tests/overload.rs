//! A node that has too many calls under way.

use super::*;
use crate::algorithm::factor::Factor;
use crate::observe::store_counters::StoreCounters;
use crate::shared::block_on;

fn figures(node: &Node) -> StoreCounters {
    node.limiter.counters().store().unwrap()
}

/// The policy allows, and must not be asked.
#[test]
fn overloaded_calls_charge_nothing() {
    let node = node_of(exact().on_error(OnError::Allow));
    *node.store.is_overloaded.lock() = true;
    let members = [node.own.member("a").cost(3).into(), node.all.member("a").cost(3)];
    let batch = node.limiter.shared_batch(&members);
    for decision in [block_on(batch.spend()), block_on(batch.check())] {
        let decision = decision.unwrap();
        assert!(decision.overloaded() && !decision.allowed() && !decision.blocked());
        assert_eq!((decision.denied_by(), decision.retry_in()), (Some(1), Duration::from_secs(1)));
    }
    let (units, decision) = block_on(node.all.spend_up_to("a", 3)).unwrap();
    assert!(units == 0 && decision.overloaded());
    let refused = block_on(node.all.reserve("a", 1, MINUTE)).unwrap_err();
    assert!(refused.to_string().contains("planted"), "{refused}");
    assert_eq!((node.store.run_all(), figures(&node).outages), (0, 0));
    assert_eq!(node.answer(node.all.refund("a", 1)).unwrap().remaining(), Some(5));
    *node.store.is_overloaded.lock() = false;
    assert_eq!(node.left(), (Some(10), Some(5)));
}

/// Callers that began to wait together got an error at once, though the bucket had their units in time.
#[test]
fn waits_outlast_an_overload() {
    let node = node();
    let slept = Arc::new(Mutex::new(Vec::new()));
    let until_allowed = |at_most, overloads: usize| {
        *node.store.is_overloaded.lock() = true;
        slept.lock().clear();
        let (slept, is_overloaded) = (slept.clone(), node.store.is_overloaded.clone());
        let hand = node.hand.clone();
        let timer = move |time: Duration| {
            slept.lock().push(time);
            *is_overloaded.lock() = slept.lock().len() < overloads;
            hand.advance(time);
            std::future::ready(())
        };
        node.answer(node.all.until_allowed("a", 1, at_most, timer))
    };
    assert_eq!(until_allowed(MINUTE, 3).unwrap().cost(), 1);
    let times = slept.lock().clone();
    assert!(
        times.len() == 3 && times.iter().all(|time| (10 * MS..30 * MS).contains(time)),
        "{times:?}"
    );
    // The node has no place for the call until the deadline.
    let error = until_allowed(MINUTE / 60, 1_000).unwrap_err();
    assert!(error.to_string().contains("planted"), "{error}");
    assert!(slept.lock().iter().sum::<Duration>() <= MINUTE / 60);
    *node.store.is_overloaded.lock() = false;
    assert_eq!(node.left(), (Some(10), Some(4)));
}

/// An algorithm without places has no reservation: its denials named a wait of a second.
#[test]
fn windows_outlast_an_overload_too() {
    let window = Limit::fixed_window(5, MINUTE).unwrap();
    let node = node_with(
        Limits::builder()
            .limit("Own", IdFormat::String, window.clone())
            .unwrap()
            .limit_with("All", IdFormat::String, window, exact())
            .unwrap()
            .build(),
    );
    *node.store.is_overloaded.lock() = true;
    let slept = Arc::new(Mutex::new(Vec::new()));
    let (times, is_overloaded) = (slept.clone(), node.store.is_overloaded.clone());
    let hand = node.hand.clone();
    let timer = move |time: Duration| {
        times.lock().push(time);
        *is_overloaded.lock() = times.lock().len() < 3;
        hand.advance(time);
        std::future::ready(())
    };
    assert_eq!(node.answer(node.all.until_allowed("a", 1, MINUTE / 120, timer)).unwrap().cost(), 1);
    assert_eq!(slept.lock().len(), 3);
}

/// A second call might charge twice, and a wait would not help.
#[test]
fn waits_ask_once_after_other_errors() {
    use ErrorKind::{StoreGone, StoreLate, StoreOutage};
    let no_sleep = |_| -> std::future::Ready<()> { panic!("a sleep") };
    for kind in [StoreLate, StoreOutage, StoreGone] {
        let node = node_of(exact().on_error(OnError::Deny));
        *node.store.fails.lock() = Some(Error::new(kind, "planted"));
        let error = node.answer(node.all.until_allowed("a", 1, MINUTE, no_sleep)).unwrap_err();
        assert!(error.to_string().contains("planted"), "{kind:?}: {error}");
    }
    let node = node();
    assert!(node.is_allowed(5));
    let error = node.answer(node.all.until_allowed("a", 1, MS, no_sleep)).unwrap_err();
    assert!(error.needed().is_some(), "{error}");
    node.answer(node.all.block("a", MINUTE)).unwrap();
    let error = node.answer(node.all.until_allowed("a", 1, MINUTE, no_sleep)).unwrap_err();
    assert!(error.to_string().contains("blocked"), "{error}");
}

#[test]
fn checks_of_nodes_record_no_factor() {
    let node = node();
    let all = &node.all;
    let largest = || {
        let inner = &node.limiter.inner;
        inner.with_view(|view| Ok(view.generation.largest_factors.get(node.all.limit.index)))
    };
    let member = || all.member("a").factor("3".parse().unwrap());
    assert!(node.answer(node.limiter.shared_batch(&[member()]).check()).unwrap().allowed());
    assert_eq!(largest(), Factor::ONE);
    assert!(node.answer(node.limiter.shared_batch(&[member()]).spend()).unwrap().allowed());
    assert_eq!(largest(), Factor::from(3));
}

#[test]
fn overloaded_calls_pass_in_shadow_mode() {
    let node = node_of(exact().mode(LimitMode::Shadow));
    *node.store.is_overloaded.lock() = true;
    assert!(block_on(node.all.spend("a", 1)).unwrap().allowed());
    assert!(node.are_allowed(1));
}

/// The lease goes back with the next call. One that was never sent does not end it.
#[test]
fn unsent_calls_keep_the_lease() {
    use ErrorKind::{StoreGone, StoreLate, StoreOutage, StoreOverload};
    for (kind, held) in [(StoreOverload, 8), (StoreGone, 8), (StoreLate, 0), (StoreOutage, 0)] {
        let node = node_with_lease();
        *node.store.fails.lock() = Some(Error::new(kind, "planted"));
        assert!(!node.is_allowed(15), "{kind:?}");
        assert_eq!(figures(&node).held_units, held, "{kind:?}");
    }
}

/// Each denied call puts the lease back.
#[test]
fn denied_calls_list_their_lease_once() {
    let node = node_with_lease();
    let leases = node.limiter.inner.leases().unwrap();
    for _ in 0..50 {
        assert!(!node.is_allowed(20));
        assert_eq!((leases.listed(), figures(&node).held_units), (1, 8));
    }
    node.hand.advance(850 * MS);
    assert_eq!(node.limiter.return_ending_leases().0, 0, "not yet");
    // The next lease takes the place of the first in the list when that one's time has come.
    node.hand.advance(20 * MS);
    assert!(node.is_allowed(9) && node.is_allowed(1));
    let held = figures(&node).held_units;
    node.hand.advance(10 * MS);
    let (returned, next_ns) = node.limiter.return_ending_leases();
    assert_eq!((returned, figures(&node).held_units, leases.listed()), (0, held, 1));
    assert!(next_ns.is_some());
    node.hand.advance(2_000 * MS);
    assert_eq!((node.limiter.return_ending_leases(), leases.listed()), ((1, None), 0));
    node.store.run_all();
    assert_eq!(figures(&node).held_units, 0);
}
