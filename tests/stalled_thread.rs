//! A thread that stands still in the middle of a call holds back a bounded part of the table's memory, and
//! nobody. A process of its own: all limiters of a process share one reclaimer.
#![cfg(not(tollgate_loom))]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tollgate::Limits;
use tollgate::algorithm::Algorithm;
use tollgate::algorithm::Outcome;
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions};

/// A rule that allows all, and stands still when it is asked for this cost, until it is let go.
#[derive(Debug)]
struct Stands {
    stands: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

const STAND: u64 = 7;

impl Algorithm for Stands {
    fn spend(&self, _: u64, now_ns: u64, cost: u64) -> Outcome {
        if cost == STAND {
            self.stands.send(()).unwrap();
            // An error, once the other end is gone.
            let _ = self.go_on.lock().unwrap().recv();
        }
        let decision = Decision::to_spend(true, 1, Duration::ZERO, Duration::ZERO);
        Outcome { word: Some(now_ns + 1_000_000_000_000), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::to_refund(false, 1, Duration::ZERO) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        10
    }
}

/// Stands still in a call.
type Stall = fn(&KeyedLimit);

/// In the middle of a call for a key that is new.
fn pinned(b: &KeyedLimit) {
    assert!(b.spend("new", STAND).unwrap().allowed());
}

/// In the middle of a call for a key that is known.
fn reading(b: &KeyedLimit) {
    // The first makes the key known, and the thread.
    for cost in [1, 1, STAND] {
        assert!(b.spend("known", cost).unwrap().allowed());
    }
}

// One after the other: what either holds back the other would hold back, too.
#[test]
fn stalled_thread_holds_back_a_bounded_part() {
    holds_back_a_bounded_part(pinned);
    holds_back_a_bounded_part(reading);
}

fn holds_back_a_bounded_part(stall: Stall) {
    let (clock, hand) = Clock::manual();
    let (stand, stands) = channel();
    let (let_go, waits) = channel::<()>();
    let rule = Stands { stands: stand, go_on: Mutex::new(waits) };
    let limit = Limit::new(3, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap();
    let own = Limit::custom(Arc::new(rule)).unwrap();
    let limits = limits.limit("B", IdFormat::String, own).unwrap().build();
    let options = LimiterOptions::default().max_keys(8000).clock(clock);
    let limiter = Limiter::with_options(limits, options);
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let stalled = thread::spawn(move || stall(&b));
    stands.recv().unwrap();
    for id in 0..2_000_000_u64 {
        assert!(a.spend(id, 1).is_ok());
        if id % 1000 == 0 {
            hand.advance(Duration::from_secs(4));
            while !limiter.sweep(1000).finished {}
        }
    }
    let held = limiter.stats();
    assert!(held.retired > 0 && held.put_off > 0, "something was held back: {held:?}");
    assert!(held.retired <= 65_536, "{held:?}");
    assert!(held.bytes < 100 << 20, "{held:?}");
    drop(let_go);
    stalled.join().unwrap();
    // Each round frees a part of what was held back.
    let is_little_left = (0..10_000_u64).any(|round| {
        hand.advance(Duration::from_secs(4));
        (0..10).for_each(|id| assert!(a.spend(round * 10 + id, 1).is_ok()));
        while !limiter.sweep(1000).finished {}
        limiter.stats().retired < 100
    });
    assert!(is_little_left, "{:?}", limiter.stats());
    // Where there is no traffic sweeps free the rest.
    hand.advance(Duration::from_secs(4));
    let is_nothing_left = (0..100).any(|_| {
        while !limiter.sweep(1000).finished {}
        limiter.stats().retired == 0
    });
    assert!(is_nothing_left, "{:?}", limiter.stats());
}
