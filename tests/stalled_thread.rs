//! A thread that stands still in the middle of a call holds back a bounded part of the table's memory, and
//! nobody. A process of its own: all limiters of a process share one reclaimer.
#![cfg(not(tollgate_loom))]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

#[test]
fn a_thread_that_stands_still_holds_back_a_bounded_part() {
    let (clock, hand) = Clock::manual();
    let limit = Limit::new(3, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap().build();
    let options = LimiterOptions::default().max_keys(8000).clock(clock);
    let limiter = Limiter::with_options(limits, options);
    let a = limiter.limit("A").unwrap();
    let (go_on, wait) = mpsc::channel::<()>();
    let (stand, stands) = mpsc::channel();
    let stalled = thread::spawn(move || {
        // What a call does first, and then it is not scheduled any more.
        let _pinned = crossbeam_epoch::pin();
        stand.send(()).unwrap();
        let _ = wait.recv();
    });
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
    drop(go_on);
    stalled.join().unwrap();
    // Each round frees a part of what was held back.
    for round in 0..10_000_u64 {
        hand.advance(Duration::from_secs(4));
        (0..10).for_each(|id| assert!(a.spend(round * 10 + id, 1).is_ok()));
        while !limiter.sweep(1000).finished {}
        if limiter.stats().retired < 100 {
            return;
        }
    }
    panic!("{:?}", limiter.stats());
}
