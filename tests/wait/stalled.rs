//! A thread that stands still in the middle of a cancel holds up no call, and nothing is lost by it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use tollgate::Decision;
use tollgate::algorithm::{Algorithm, Charge, Outcome};

use super::*;

/// A rule that allows all, and stands still when it first takes a charge back, until it is let go.
#[derive(Debug)]
struct Stands {
    has_stood: AtomicBool,
    stands: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Algorithm for Stands {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let decision = Decision::to_spend(true, 1, Duration::ZERO, Duration::ZERO);
        Outcome { word: (cost > 0).then_some(word.max(now_ns) + 1_000_000_000_000), decision }
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

    fn roll_back(&self, _: u64, _: Charge, _: &dyn Fn() -> u64) -> Option<u64> {
        if !self.has_stood.swap(true, Ordering::Relaxed) {
            self.stands.send(()).unwrap();
            // An error, once the other end is gone.
            let _ = self.go_on.lock().unwrap().recv();
        }
        None
    }
}

/// 5,000 keys, some of which share their part of the list of cancels with the one that stands still.
const KEYS: u64 = 5_000;

#[test]
fn thread_stalled_in_cancel_blocks_no_other() {
    let (stand, stands) = channel();
    let (let_go, waits) = channel::<()>();
    let rule =
        Stands { has_stood: AtomicBool::new(false), stands: stand, go_on: Mutex::new(waits) };
    let second = Duration::from_secs(1);
    let limits = Limits::builder()
        .limit("Mail", IdFormat::RegId, Limit::new(3, 1, second).unwrap())
        .unwrap()
        .limit("Stands", IdFormat::String, Limit::custom(Arc::new(rule)).unwrap())
        .unwrap();
    let limiter = Limiter::with_clock(limits.build(), Clock::manual().0);
    let (mail, slow) = (limiter.limit("Mail").unwrap(), limiter.limit("Stands").unwrap());
    let stalled = thread::spawn(move || slow.reserve("id", 1, Duration::MAX).unwrap().cancel());
    stands.recv().unwrap();
    // Each of these calls comes back; the test does not, if one waits.
    for id in 0..KEYS {
        assert!(mail.spend(id, 3).unwrap().allowed());
        let places = [(); 3].map(|()| mail.reserve(id, 1, Duration::MAX).unwrap());
        places.into_iter().for_each(Reservation::cancel);
        let receipt = mail.reserve(id, 2, Duration::MAX).unwrap().into_receipt();
        let _ = receipt.settle(0);
    }
    let owing = || {
        let reset_in = |id| mail.check(id, 0).unwrap().reset_in();
        (0..KEYS).filter(|&id| reset_in(id) > 3 * second).count()
    };
    let left = owing();
    assert!((1..200).contains(&left), "{left} keys share a part with the one that stands still");
    // The list that the stalled thread has is bounded, and so is what a key may lose by it.
    let shares = (0..KEYS).find(|&id| mail.check(id, 0).unwrap().reset_in() > 3 * second).unwrap();
    let places: Vec<_> =
        (0..5_000).map(|_| mail.reserve(shares, 1, Duration::MAX).unwrap()).collect();
    places.into_iter().rev().for_each(Reservation::cancel);
    assert!(mail.reset(shares).unwrap().allowed());
    drop(let_go);
    stalled.join().unwrap();
    assert_eq!(owing(), 0, "what was left to the stalled thread was given back by it");
}
