//! Batches that wait again because members without places deny them, also beside a reload.

use std::task::Poll;

use super::virtual_time::{Task, World};
use super::*;
use crate::support::seconds;

/// A limit with places, and a window without.
fn with_window(most: u64) -> Limits {
    let window = Limit::fixed_window(most, seconds(3600)).unwrap();
    support::limits(&[("Rate", Limit::new(5, 1, seconds(1)).unwrap()), ("Window", window)])
}

/// The caller's deadline holds in each round. Each refusal is one denial of the member that refuses.
#[test]
fn deadline_holds_in_each_round() {
    for engine in ENGINES {
        let in_flight = Limit::concurrency(1).unwrap();
        let limits = support::limits(&[
            ("Rate", Limit::new(1, 1, ms(10)).unwrap()),
            ("InFlight", in_flight),
        ]);
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).counting(true);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let world = World::new(hand);
        let (rate, in_flight) =
            (limiter.limit("Rate").unwrap(), limiter.concurrency("InFlight").unwrap());
        let _held = in_flight.acquire("id", 1).unwrap().1.expect("a permit is left");
        let members = [rate.member("id"), in_flight.member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(ms(2500), world.clone()));
        for round in 0..2 {
            assert!(task.poll().is_pending(), "{engine:?} {round}");
            assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(1), "{engine:?} {round}");
            world.advance_and_wake(seconds(1));
        }
        assert!(task.poll().is_pending(), "{engine:?}: 500 ms are left");
        world.advance_and_wake(ms(500));
        let Poll::Ready(Err(error)) = task.poll() else { panic!("{engine:?}: it is too late") };
        assert!(error.is_not_in_time(), "{engine:?}: {error}");
        assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(1), "{engine:?}");
        let counters = limiter.counters();
        let of_permits = counters.limits.iter().find(|limit| limit.name == "InFlight").unwrap();
        assert_eq!((of_permits.allowed, of_permits.denied), (1, 1), "{engine:?}");
    }
}

/// Each member is settled by its position, also if a reload came between the places and the other charges.
#[test]
fn members_of_two_rounds_settle_each() {
    for engine in ENGINES {
        for (is_reloaded, is_rate_first) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let context = format!("{engine:?} {is_reloaded} {is_rate_first}");
            let (limiter, hand) = support::limiter(with_window(10), engine);
            let world = World::new(hand);
            let (rate, window) = (limiter.limit("Rate").unwrap(), limiter.limit("Window").unwrap());
            assert!(rate.spend("id", 5).unwrap().allowed());
            let mut members = [window.member("id").cost(6), rate.member("id").cost(4)];
            members[..].rotate_left(usize::from(is_rate_first));
            let batch = limiter.batch(&members);
            let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
            assert!(task.poll().is_pending(), "{context}");
            if is_reloaded {
                limiter.reload(with_window(20)).unwrap();
            }
            world.advance_and_wake(seconds(4));
            let Poll::Ready(Ok(mut receipt)) = task.poll() else { panic!("{context}") };
            let mut settle = |position, actual| {
                receipt.settle_member(position, actual).map(|decision| decision.remaining())
            };
            let (of_window, of_rate) = if is_rate_first { (1, 0) } else { (0, 1) };
            let left = if is_reloaded { 18 } else { 8 };
            assert_eq!(settle(of_window, 2), Some(Some(left)), "{context}");
            assert_eq!(settle(of_rate, 1), Some(Some(3)), "{context}");
            assert_eq!([settle(0, 1), settle(1, 1)], [None, None], "{context}");
        }
    }
}

/// The places of a later round are refused if they come after the deadline.
#[test]
fn later_places_keep_the_deadline() {
    for engine in ENGINES {
        let named = [
            ("Rate", Limit::new(1, 1, seconds(1)).unwrap()),
            ("InFlight", Limit::concurrency(1).unwrap()),
        ];
        let (limiter, hand) = support::limiter(support::limits(&named), engine);
        let world = World::new(hand);
        let (rate, in_flight) =
            (limiter.limit("Rate").unwrap(), limiter.concurrency("InFlight").unwrap());
        let held = in_flight.acquire("id", 1).unwrap().1;
        let members = [rate.member("id"), in_flight.member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(ms(2500), world.clone()));
        assert!(task.poll().is_pending(), "{engine:?}");
        drop(held);
        let others = [(); 5].map(|()| rate.reserve("id", 1, Duration::MAX).unwrap());
        world.advance_and_wake(seconds(1));
        let Poll::Ready(Err(error)) = task.poll() else { panic!("{engine:?}: 1.5 s are left") };
        assert_eq!(error.needed(), Some(others[4].wait() + seconds(1)), "{engine:?}");
        assert_eq!(in_flight.in_flight("id").unwrap(), 0, "{engine:?}");
    }
}

/// A caller that waits without places leaves the units to others while it sleeps.
#[test]
fn retry_holds_no_place() {
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(with_window(10), engine);
        let world = World::new(hand);
        let (rate, window) = (limiter.limit("Rate").unwrap(), limiter.limit("Window").unwrap());
        assert!(rate.spend("id", 5).unwrap().allowed());
        let members = [rate.member("id").cost(4), window.member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.retry(Duration::MAX, world.clone()));
        assert!(task.poll().is_pending(), "{engine:?}");
        world.advance(seconds(2));
        assert!(rate.spend("id", 2).unwrap().allowed(), "{engine:?}");
        world.advance_and_wake(seconds(2));
        assert!(task.poll().is_pending(), "{engine:?}: a faster caller came first");
        assert_eq!(window.check("id", 0).unwrap().remaining(), Some(10), "{engine:?}");
        world.advance_and_wake(seconds(2));
        assert!(task.poll().is_ready(), "{engine:?}");
    }
}
