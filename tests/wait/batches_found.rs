//! What an adversary found in batches that wait.

use std::task::Poll;

use super::batches::gcra_limits;
use super::virtual_time::{Task, World};
use super::*;
use crate::support::seconds;

/// The clock goes on between the members, so that each later one is granted a little later than the one before.
#[test]
fn batch_returns_under_any_clock() {
    for engine in ENGINES {
        for clock in [Clock::system(), Clock::coarse(ms(1)).unwrap()] {
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let limiter = Limiter::with_options(gcra_limits(), options).unwrap();
            let handles = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
            let members = handles.each_ref().map(|handle| handle.member("id"));
            let batch = limiter.batch(&members);
            assert!(batch.reserve(seconds(1)).unwrap().wait().is_zero(), "{engine:?}");
            assert!(batch.reserve(seconds(1)).unwrap().wait() <= ms(10), "{engine:?}");
            assert!(batch.reserve(ms(2)).unwrap_err().is_not_in_time(), "{engine:?}");
        }
    }
}

/// A waiter that the permit denies has taken the time in front of another batch's place. It gives back what it took, and not units
/// behind that place.
#[test]
fn refused_waits_admit_nothing_more() {
    for engine in ENGINES {
        let named = [
            ("A", Limit::new(10, 1, seconds(1)).unwrap()),
            ("B", Limit::new(1, 1, seconds(100)).unwrap()),
            ("C", Limit::concurrency(1).unwrap()),
        ];
        let (limiter, hand) = support::limiter(support::limits(&named), engine);
        let world = World::new(hand);
        let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let c = limiter.concurrency("C").unwrap();
        assert!(b.spend("x", 1).unwrap().allowed());
        let permit = c.acquire("x", 1).unwrap().1;
        let first = [a.member("x").cost(10), b.member("x")];
        let place = limiter.batch(&first).reserve(Duration::MAX).unwrap();
        let second = [a.member("x"), c.member("x")];
        let waits = limiter.batch(&second);
        let mut task = Task::new(waits.until_allowed(seconds(50), world.clone()));
        let refused = loop {
            if let Poll::Ready(refused) = task.poll() {
                break refused;
            }
            world.advance_and_wake(seconds(1));
        };
        assert!(refused.unwrap_err().is_not_in_time(), "{engine:?}");
        drop(permit);
        world.advance(seconds(50));
        assert!(place.wait().is_zero());
        let more = a.spend_up_to("x", 100).unwrap().0;
        assert_eq!(more, 0, "{engine:?}: ten are admitted at this instant, the burst");
    }
}

#[test]
fn cancelled_vacant_units_stay_vacant() {
    for engine in ENGINES {
        let named = [
            ("A", Limit::new(1, 1, seconds(1)).unwrap()),
            ("B", Limit::new(1, 1, seconds(100)).unwrap()),
        ];
        let (limiter, _hand) = support::limiter(support::limits(&named), engine);
        let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        assert!(b.spend("x", 1).unwrap().allowed());
        let members = [a.member("x"), b.member("x")];
        let place = limiter.batch(&members).reserve(Duration::MAX).unwrap();
        assert_eq!(place.wait(), seconds(100));
        for _ in 0..100 {
            a.reserve("x", 1, Duration::ZERO).unwrap().cancel();
        }
        assert_eq!(a.check("x", 0).unwrap().reset_in(), seconds(101), "{engine:?}");
        let waits: Vec<_> =
            (0..101).map(|_| a.reserve("x", 1, Duration::MAX).unwrap().wait()).collect();
        assert_eq!(waits[99], seconds(99), "{engine:?}");
        assert_eq!(waits[100], seconds(101), "{engine:?}: one is granted at 100 s already");
    }
}

#[test]
fn refused_batch_makes_no_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) = support::limiter(gcra_limits(), engine);
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        assert!(handles[0].spend("id", 1).unwrap().allowed());
        for at in 0..40 {
            let id = format!("new{at}");
            let members = [handles[1].member(&*id), handles[0].member("id")];
            let refused = limiter.batch(&members).reserve(ms(5)).unwrap_err();
            assert_eq!(refused.needed(), Some(ms(10)));
        }
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
    }
}

/// Several threads take and cancel places of the same two buckets, while the clock stands still. The places that are kept hold the
/// bound of both buckets, and those of the cancelled ones are taken by others.
#[test]
fn threads_take_places_within_the_bound() {
    const THREADS: u64 = 4;
    for engine in ENGINES {
        let (limiter, _hand) = support::limiter(gcra_limits(), engine);
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let mut kept: Vec<Duration> = std::thread::scope(|scope| {
            let threads = (0..THREADS).map(|seed| {
                let (limiter, handles) = (&limiter, &handles);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let members = [handles[1].member("id").cost(2), handles[0].member("id")];
                    let mut kept = Vec::new();
                    for _ in 0..300 {
                        let place = limiter.batch(&members).reserve(Duration::MAX).unwrap();
                        if random.chance(1, 3) {
                            place.cancel();
                        } else {
                            kept.push(place.wait());
                        }
                    }
                    kept
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        kept.sort();
        // One at once and one in 10 ms; of the other four at once and one in 3 ms, two for each.
        for (first, pair) in kept.windows(2).enumerate() {
            assert!(pair[1] >= pair[0] + ms(10), "{engine:?}: {first}: {pair:?}");
        }
        let last = kept.last().unwrap().as_millis() as usize / 10;
        assert!(last <= kept.len() + kept.len() / 20, "{engine:?}: {last} for {}", kept.len());
    }
}

/// A batch's place that is cancelled at its time stays where it is: the places behind it are granted as they were, and no spend
/// comes beside them.
#[test]
fn place_cancelled_late_stays_charged() {
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(gcra_limits(), engine);
        let handle = limiter.limit("A").unwrap();
        let members = [handle.member("id")];
        let place = || limiter.batch(&members).reserve(Duration::MAX).unwrap();
        let [_now, second, third] = [(); 3].map(|()| place());
        hand.set(ms(10));
        assert!(second.wait().is_zero());
        second.cancel();
        assert_eq!(third.wait(), ms(10), "{engine:?}");
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(20), "{engine:?}");
        assert_eq!([place().wait(), place().wait()], [ms(0), ms(20)], "{engine:?}: its units");
    }
}
