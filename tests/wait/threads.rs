//! Threads return units of one bucket at once: none is lost.

use std::sync::Barrier;

use super::*;

#[test]
fn settlements_of_one_hot_key_are_all_returned() {
    const CALLS: u64 = 30_000;
    for engine in ENGINES {
        for limit in support::limits_of_all(1_000_000, Duration::from_secs(1)) {
            let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
            let full = handle.check("id", 0).unwrap().remaining().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..CALLS {
                            let (_, receipt) = handle.spend_estimate("id", 2).unwrap();
                            let _ = receipt.unwrap().settle(1);
                        }
                    });
                }
            });
            let left = handle.check("id", 0).unwrap().remaining().unwrap();
            assert_eq!(full - left, 8 * CALLS, "{engine:?} {limit:?}");
        }
    }
}

#[test]
fn cancelled_places_of_many_threads_all_go_back() {
    let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
    for engine in ENGINES {
        for _ in 0..1000 {
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
