//! Threads return units of one bucket at once: none is lost.

use std::sync::Barrier;

use super::*;

#[test]
fn settlements_of_one_hot_key_are_all_returned() {
    let calls: u64 = support::full_size(5_000, 30_000);
    for engine in ENGINES {
        for limit in support::limits_of_all(1_000_000, Duration::from_secs(1)) {
            let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
            let full = handle.check("id", 0).unwrap().remaining().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..calls {
                            let (_, receipt) = handle.spend_estimate("id", 2).unwrap();
                            let _ = receipt.unwrap().settle(1);
                        }
                    });
                }
            });
            let left = handle.check("id", 0).unwrap().remaining().unwrap();
            assert_eq!(full - left, 8 * calls, "{engine:?} {limit:?}");
        }
    }
}

#[test]
fn cancelled_places_of_many_threads_all_go_back() {
    let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
    for engine in ENGINES {
        for _ in 0..support::full_size(150, 1000) {
            let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
            assert!(handle.spend("id", 1).unwrap().allowed());
            let begin = Barrier::new(3);
            let reserve_and_cancel = || {
                begin.wait();
                for _ in 0..20 {
                    let places = [(); 3].map(|()| place(&handle, 1));
                    places.into_iter().for_each(Reservation::cancel);
                }
            };
            std::thread::scope(|scope| {
                (0..3).for_each(|_| drop(scope.spawn(reserve_and_cancel)));
            });
            assert_eq!(place(&handle, 1).wait(), Duration::from_secs(1), "{engine:?}");
        }
    }
}

/// A rule stands still in a return. No other call waits for it, and it returns its units when it goes on.
#[test]
fn stalled_return_delays_no_other_call() {
    let (rule, stopped) = support::rules::stands_in_refund();
    let mail = Limit::new(3, 1, Duration::from_secs(1)).unwrap();
    let limits = support::limits(&[("Stands", rule), ("Mail", mail)]);
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let [slow, mail] = ["Stands", "Mail"].map(|name| limiter.limit(name).unwrap());
    let receipt = slow.spend_estimate("id", 5).unwrap().1.unwrap();
    let stalled = std::thread::spawn(move || receipt.settle(0));
    stopped.wait();
    // Each of these calls returns; if one waited, the test would hang.
    assert!(slow.spend("id", 1).unwrap().allowed());
    assert_eq!(slow.spend_estimate("id", 4).unwrap().1.unwrap().settle(2).remaining(), Some(2));
    for id in 0..5_000 {
        let id = id.to_string();
        assert!(mail.spend(&*id, 3).unwrap().allowed());
        let places = [(); 3].map(|()| mail.reserve(&*id, 1, Duration::MAX).unwrap());
        places.into_iter().for_each(Reservation::cancel);
        let place = mail.reserve(&*id, 2, Duration::MAX).unwrap();
        assert_eq!(place.wait(), Duration::from_secs(2), "as without the cancelled ones");
    }
    drop(stopped);
    let _ = stalled.join().unwrap();
    assert_eq!(slow.check("id", 0).unwrap().remaining(), Some(7));
}
