//! Rollbacks that are left to a thread which stands still, and places that stay cancelled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, SystemTime};

use tollgate::limits::OverrideOptions;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

use super::support::rules::{RuleCall, hooked, stands_in_rollback};
use super::support::{hourly, limits, ms, seconds, state};

/// More than a slot's stack holds.
#[test]
fn many_cancels_of_one_id_all_return() {
    let limits = limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let own = Limiter::with_clock(limits, Clock::manual().0).limit("Own").unwrap();
    assert!(own.spend("id", 1).unwrap().allowed());
    let before = state(&own);
    for _ in 0..8_200 {
        own.reserve("id", 1, Duration::MAX).unwrap().cancel();
    }
    assert_eq!(state(&own), before);
}

/// The override ends while a settlement is left. It would return units of the override.
#[test]
fn left_settlement_returns_nothing_after_override_end() {
    const IDS: usize = 2_000;
    let (rule, stopped) = stands_in_rollback();
    let (clock, hand) = Clock::manual();
    let end = OverrideOptions::default().expires(SystemTime::now() + seconds(100));
    let mut builder = Limits::builder()
        .limit("Stands", IdFormat::String, rule)
        .unwrap()
        .limit("Own", IdFormat::String, Limit::new(10, 1, seconds(10)).unwrap())
        .unwrap();
    let ids: Vec<String> = (0..IDS).map(|id| format!("id{id}")).collect();
    for id in &ids {
        let slow = Limit::new(10, 1, seconds(1000)).unwrap();
        builder = builder.override_with("Own", id, slow, end.clone()).unwrap();
    }
    let limiter = Limiter::with_clock(builder.build(), clock);
    let [own, slow] = ["Own", "Stands"].map(|name| limiter.limit(name).unwrap());
    let stalled = thread::spawn(move || slow.reserve("id", 1, Duration::MAX).unwrap().cancel());
    stopped.wait();
    for id in &ids {
        let _ = own.spend_estimate(id, 5).unwrap().1.unwrap().settle(0);
    }
    let remaining = |id: &str| own.check(id, 0).unwrap().remaining();
    let left: Vec<_> = ids.iter().filter(|id| remaining(id) == Some(5)).collect();
    assert!(!left.is_empty(), "no settlement was left to the thread that stands still");
    hand.advance(seconds(160));
    for &id in &left {
        assert!(own.spend(id, 10).unwrap().allowed(), "full since the override's end");
    }
    drop(stopped);
    stalled.join().unwrap();
    for &id in &left {
        assert_eq!(remaining(id), Some(0), "{id}");
    }
}

/// The thread that makes the rollback did not call the rule that panics.
#[test]
fn panic_in_left_rollback_stays_within_it() {
    const IDS: usize = 2_000;
    let (rule, stopped) = stands_in_rollback();
    let panics = hooked(hourly(10), |call| assert!(call != RuleCall::RollBack, "as a rule may"));
    let limits = limits(&[("Stands", rule), ("Panics", panics), ("Own", hourly(10))]);
    let limiter = Limiter::with_clock(limits, Clock::manual().0);
    let [own, slow, panics] = ["Own", "Stands", "Panics"].map(|name| limiter.limit(name).unwrap());
    let stalled = thread::spawn(move || slow.reserve("id", 1, Duration::MAX).unwrap().cancel());
    stopped.wait();
    let ids: Vec<String> = (0..IDS).map(|id| format!("id{id}")).collect();
    let mut left = 0;
    for id in &ids {
        let receipt = panics.spend_estimate(id, 5).unwrap().1.unwrap();
        // Panics here if it is this thread's turn.
        let settled = catch_unwind(AssertUnwindSafe(|| {
            let _ = receipt.settle(0);
        }));
        left += u64::from(settled.is_ok());
        let _ = own.spend_estimate(id, 5).unwrap().1.unwrap().settle(0);
    }
    assert!(left > 0);
    drop(stopped);
    assert!(stalled.join().is_ok(), "a panic of another limit's rule");
    assert_eq!(limiter.stats().rule_panics, left);
    for id in &ids {
        assert_eq!(own.check(id, 0).unwrap().remaining(), Some(10), "{id}");
    }
}

/// All buckets have the same words.
#[test]
fn cancelled_place_of_one_id_is_no_others() {
    let limits = limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let own = Limiter::with_clock(limits, Clock::manual().0).limit("Own").unwrap();
    let place = |id: &str| own.reserve(id, 1, Duration::MAX).unwrap();
    let mut kept = Vec::new();
    // Each slot has cancelled places with other places behind them.
    for id in 0..4_000 {
        let id = format!("first{id}");
        let [_, first, last] = [(); 3].map(|()| place(&id));
        first.cancel();
        kept.push(last);
    }
    for id in 0..100 {
        let id = format!("second{id}");
        let [_, first, last] = [(); 3].map(|()| place(&id));
        last.cancel();
        assert_eq!(place(&id).wait(), ms(20), "behind {:?}", first.wait());
        kept.push(first);
    }
}
