//! A thread that stalls in the middle of a call holds back a bounded part of the table's memory, and no
//! other thread. The test has its own process: all limiters of a process share one reclaimer.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked, stop_point};
use super::support::{full_size, hourly, in_own_process, limiter_with, sweep_all};

/// The cost at which the rule stops the thread.
const STOP: u64 = 7;

/// Makes a call that stalls.
type Stall = fn(&KeyedLimit);

/// Stalls in a call for a new key.
fn pinned(b: &KeyedLimit) {
    assert!(b.spend("new", STOP).unwrap().allowed());
}

/// Stalls in a call for a known key.
fn reading(b: &KeyedLimit) {
    // The first call makes the key and the thread known.
    for cost in [1, 1, STOP] {
        assert!(b.spend("known", cost).unwrap().allowed());
    }
}

// One stall after the other: each would hold back what the other retires.
#[test]
fn stalled_thread_holds_back_a_bounded_part() {
    in_own_process(|| {
        holds_back_a_bounded_part(pinned);
        holds_back_a_bounded_part(reading);
    });
}

fn holds_back_a_bounded_part(stall: Stall) {
    let (point, stopped) = stop_point();
    let rule = hooked(hourly(10), move |call| {
        if let RuleCall::Spend { cost: STOP, .. } = call {
            point.stop();
        }
    });
    let limit = Limit::new(3, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap();
    let limits = limits.limit("B", IdFormat::String, rule).unwrap().build();
    let (limiter, hand) = limiter_with(limits, LimiterOptions::default().max_keys(8000));
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let stalled = thread::spawn(move || stall(&b));
    stopped.wait();
    for id in 0..full_size(200_000, 2_000_000_u64) {
        assert!(a.spend(id, 1).is_ok());
        if id % 1000 == 0 {
            hand.advance(Duration::from_secs(4));
            sweep_all(&limiter);
        }
    }
    let held = limiter.stats();
    assert!(held.retired > 0 && held.put_off > 0, "something was held back: {held:?}");
    assert!(held.retired <= 65_536, "{held:?}");
    assert!(held.bytes < 100 << 20, "{held:?}");
    drop(stopped);
    stalled.join().unwrap();
    // Each round frees a part of the retired memory.
    let is_little_left = (0..10_000_u64).any(|round| {
        hand.advance(Duration::from_secs(4));
        (0..10).for_each(|id| assert!(a.spend(round * 10 + id, 1).is_ok()));
        sweep_all(&limiter);
        limiter.stats().retired < 100
    });
    assert!(is_little_left, "{:?}", limiter.stats());
    // Without traffic, sweeps free the rest.
    hand.advance(Duration::from_secs(4));
    let is_nothing_left = (0..100).any(|_| {
        sweep_all(&limiter);
        limiter.stats().retired == 0
    });
    assert!(is_nothing_left, "{:?}", limiter.stats());
}

thread_local! {
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// A clock is the caller's code: nothing is pinned while it is read.
#[test]
fn clock_that_stops_holds_nothing_back() {
    in_own_process(|| {
        let (point, stopped) = stop_point();
        let clock = Clock::custom(move || {
            if STOPS.get() {
                point.stop();
            }
            Duration::from_secs(9)
        });
        let limits = Limits::builder().limit("A", IdFormat::RegId, hourly(10)).unwrap().build();
        let options = LimiterOptions::default().max_keys(8000).clock(clock);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let a = limiter.limit("A").unwrap();
        let of_thread = a.clone();
        let stalled = thread::spawn(move || {
            // The first calls make the key and the thread known.
            for stops in [false, false, true] {
                STOPS.set(stops);
                assert!(of_thread.spend(9_999, 1).unwrap().allowed());
            }
        });
        stopped.wait();
        (0..5000_u64).for_each(|id| assert!(a.spend(id, 1).unwrap().allowed()));
        assert!(limiter.stats().migrations > 0);
        let is_nothing_left = (0..100).any(|_| {
            sweep_all(&limiter);
            limiter.stats().retired == 0
        });
        assert!(is_nothing_left, "{:?}", limiter.stats());
        drop(stopped);
        stalled.join().unwrap();
    });
}
