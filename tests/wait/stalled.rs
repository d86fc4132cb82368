//! A thread that stalls in the middle of a cancel delays no call, and no charge is lost by it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::support::hourly;
use super::support::rules::{RuleCall, hooked, stop_point};
use super::*;

/// 5,000 keys: some share their list of cancels with the stalled thread.
const KEYS: u64 = 5_000;

#[test]
fn thread_stalled_in_cancel_blocks_no_other() {
    let (point, stopped) = stop_point();
    let has_stopped = AtomicBool::new(false);
    let rule = hooked(hourly(10), move |call| {
        if call == RuleCall::RollBack && !has_stopped.swap(true, Ordering::Relaxed) {
            point.stop();
        }
    });
    let second = Duration::from_secs(1);
    let limits = Limits::builder()
        .limit("Mail", IdFormat::RegId, Limit::new(3, 1, second).unwrap())
        .unwrap()
        .limit("Stands", IdFormat::String, rule)
        .unwrap();
    let limiter = Limiter::with_clock(limits.build(), Clock::manual().0);
    let (mail, slow) = (limiter.limit("Mail").unwrap(), limiter.limit("Stands").unwrap());
    let stalled = thread::spawn(move || slow.reserve("id", 1, Duration::MAX).unwrap().cancel());
    stopped.wait();
    // Each of these calls returns; if one waited, the test would hang.
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
    // The stalled thread's list is bounded, and so is a key's loss by it.
    let shares = (0..KEYS).find(|&id| mail.check(id, 0).unwrap().reset_in() > 3 * second).unwrap();
    let places: Vec<_> =
        (0..5_000).map(|_| mail.reserve(shares, 1, Duration::MAX).unwrap()).collect();
    places.into_iter().rev().for_each(Reservation::cancel);
    assert!(mail.reset(shares).unwrap().allowed());
    drop(stopped);
    stalled.join().unwrap();
    // One of 4,096 keys shares its entry of the ledger with the key that was reset: its earlier charges stay.
    assert!(owing() <= 1, "what was left to the stalled thread was given back by it");
}
