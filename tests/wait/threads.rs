//! Four threads spend, reserve, settle and cancel: their grants keep to the limit.

use std::sync::Barrier;

use tollgate::algorithm::Algorithm;

use super::histories::{Grant, HISTORIES, Open, OpenCharge, Record, limiter_of};
use super::random::Random;
use super::*;

/// One thread's calls on a bucket at one time, with the times and final costs of its grants.
struct Worker<'a> {
    handle: &'a KeyedLimit,
    id: &'a str,
    random: Random,
    granted: Vec<Grant>,
    held: Vec<OpenCharge>,
}

impl Worker<'_> {
    fn call(&mut self, now_ns: u64, most: u64) {
        let cost = 1 + self.random.below(most);
        let granted = |at_ns| Grant { order: 0, at_ns, cost };
        match self.random.below(9) {
            0 if self.handle.spend(self.id, cost).unwrap().allowed() => {
                self.granted.push(granted(now_ns));
            }
            1..=2 => {
                if let (_, Some(receipt)) = self.handle.spend_estimate(self.id, cost).unwrap() {
                    self.hold(granted(now_ns), Open::Receipt(receipt));
                }
            }
            3..=4 => {
                let Ok(place) = self.handle.reserve(self.id, cost, Duration::MAX) else { return };
                let at_ns = now_ns + place.wait().as_nanos() as u64;
                let open = match self.random.below(2) {
                    0 => Open::Place(place),
                    _ => Open::Receipt(place.into_receipt()),
                };
                self.hold(granted(at_ns), open);
            }
            _ if !self.held.is_empty() => {
                let which = self.random.below(self.held.len() as u64) as usize;
                let OpenCharge { granted, cost, open } = self.held.swap_remove(which);
                let granted = &mut self.granted[granted];
                match open {
                    Open::Receipt(receipt) => {
                        granted.cost = self.random.below(cost + 1);
                        let _ = receipt.settle(granted.cost);
                    }
                    Open::Place(place) => {
                        if granted.at_ns >= now_ns {
                            granted.cost = 0;
                        }
                        place.cancel();
                    }
                }
            }
            _ => {}
        }
    }

    fn hold(&mut self, granted: Grant, open: Open) {
        self.held.push(OpenCharge { granted: self.granted.len(), cost: granted.cost, open });
        self.granted.push(granted);
    }
}

/// Four threads call at the same times: the clock moves while none of them calls.
fn histories_of_threads(limit: &Limit, engine: Engine, number: u64) {
    const THREADS: u64 = 4;
    const TIMES: u64 = 6;
    let (clock, hand) = Clock::manual();
    let limiter = limiter_of(limit, clock, engine);
    let handle = limiter.limit("Own").unwrap();
    let most = limit.max_cost();
    let meet = Barrier::new(THREADS as usize);
    let work = |thread: u64| {
        let mut all = Vec::new();
        for history in 0..number {
            let id = format!("id{history}");
            let random = Random(history << 8 | thread);
            let (granted, held) = (Vec::new(), Vec::new());
            let mut worker = Worker { handle: &handle, id: &id, random, granted, held };
            for time in 0..TIMES {
                let now_ns = (history * TIMES + time) * MS;
                if meet.wait().is_leader() {
                    hand.set(Duration::from_nanos(now_ns));
                }
                meet.wait();
                (0..4).for_each(|_| worker.call(now_ns, most));
            }
            all.push(worker.granted);
        }
        all
    };
    let work = &work;
    let of_threads: Vec<Vec<Vec<Grant>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || work(me))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for history in 0..number as usize {
        let granted = of_threads.iter().flat_map(|of| of[history].iter().copied()).collect();
        Record::from_grants(granted).keeps_the_bound(limit);
    }
}

#[test]
fn four_threads_are_granted_at_most_bound() {
    let number = HISTORIES / 100;
    let mut limits = limits_of_all(3).to_vec();
    limits.extend([Limit::new(5, 1, ms(2)).unwrap(), Limit::new(2, 1, ms(3)).unwrap()]);
    for limit in limits {
        histories_of_threads(&limit, Engine::LockFree, number);
        #[cfg(feature = "exact")]
        histories_of_threads(&limit, Engine::Exact, number / 4);
    }
}

/// While one thread has its turn, the others leave it more settlements than it has room for. A few may be given up on a
/// machine that keeps that thread from running for long.
#[test]
fn settlements_of_one_hot_key_are_all_returned() {
    const CALLS: u64 = 30_000;
    let limit = Limit::new(1_000_000, 1, Duration::from_secs(1)).unwrap();
    for engine in ENGINES {
        let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
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
        let spent = 1_000_000 - handle.check("id", 0).unwrap().remaining().unwrap();
        let given_up = spent - 8 * CALLS;
        assert!(given_up <= 8 * CALLS / 1000, "{engine:?}: {given_up} units did not come back");
    }
}

/// A reservation that comes while cancelled ones go back, one after the other, keeps none of them charged for good.
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
