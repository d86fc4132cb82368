//! A thread that stands still in the middle of a call holds back a bounded part of the table's memory, and
//! nobody. A process of its own: all limiters of a process share one reclaimer.
#![cfg(not(tollgate_loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

#[test]
fn a_thread_that_stands_still_holds_back_a_bounded_part() {
    let (stand_still, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (reached, has_reached) = mpsc::channel();
    let time_ns = Arc::new(AtomicU64::new(0));
    let read = time_ns.clone();
    let clock = Clock::custom(move || {
        if thread::current().name() == Some("stalled") {
            reached.send(()).unwrap();
            // In the middle of an insert, whose cell is in its hand.
            let _ = wait.lock().unwrap().recv();
        }
        Duration::from_nanos(read.load(Ordering::Relaxed))
    });
    let limit = Limit::new(3, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap().build();
    let options = LimiterOptions::default().max_keys(8000).clock(clock);
    let limiter = Limiter::with_options(limits, options);
    let a = limiter.limit("A").unwrap();
    let in_thread = a.clone();
    // The clock is read before the first pin, and for a new key once more within one.
    let stalled = thread::Builder::new().name("stalled".into());
    let stalled = stalled.spawn(move || in_thread.spend(u64::MAX, 1).is_ok()).unwrap();
    has_reached.recv().unwrap();
    stand_still.send(()).unwrap();
    has_reached.recv().unwrap();
    for id in 0..2_000_000_u64 {
        assert!(a.spend(id, 1).is_ok());
        if id % 1000 == 0 {
            time_ns.fetch_add(4_000_000_000, Ordering::Relaxed);
            while !limiter.sweep(1000).finished {}
        }
    }
    let held = limiter.stats();
    assert!(held.retired > 0 && held.put_off > 0, "something was held back: {held:?}");
    assert!(held.retired <= 65_536, "{held:?}");
    assert!(held.bytes < 100 << 20, "{held:?}");
    drop(stand_still);
    let _ = stalled.join().unwrap();
    // Each of these is freed some hundred at a time.
    for round in 0..10_000_u64 {
        time_ns.fetch_add(4_000_000_000, Ordering::Relaxed);
        (0..10).for_each(|id| assert!(a.spend(round * 10 + id, 1).is_ok()));
        while !limiter.sweep(1000).finished {}
        if limiter.stats().retired < 100 {
            return;
        }
    }
    panic!("{:?}", limiter.stats());
}
