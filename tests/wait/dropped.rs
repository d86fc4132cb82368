//! Futures dropped while they wait.

use tollgate::algorithm::Algorithm;

use super::virtual_time::{Task, World, run};
use super::*;

/// When a waiter is dropped.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Before its first poll.
    Unpolled,
    /// While it sleeps.
    Asleep,
    /// After its time has come, before the next poll.
    Granted,
    /// During its jitter.
    InJitter,
}

#[test]
fn dropped_future_returns_what_it_did_not_use() {
    for at in [At::Unpolled, At::Asleep, At::Granted, At::InJitter] {
        let (handle, hand) = by_hand(&Limit::new(3, 1, ms(1)).unwrap());
        let world = World::new(hand);
        assert!(handle.spend("id", 3).unwrap().allowed());
        let jitter = if matches!(at, At::InJitter) { ms(1000) } else { ms(0) };
        let waiting = handle.waiting(Duration::MAX, world.clone()).jitter(jitter);
        let mut task = Task::new(waiting.until_allowed("id", 2));
        if !matches!(at, At::Unpolled) {
            assert!(task.poll().is_pending());
            assert_eq!(
                handle.check("id", 0).unwrap().reset_in(),
                ms(5),
                "{at:?}: the place is taken"
            );
        }
        if matches!(at, At::Granted | At::InJitter) {
            world.advance(ms(2) + Duration::from_nanos(1));
        }
        drop(task);
        let left = ms(3).saturating_sub(Duration::from_nanos(world.now_ns()));
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), left, "{at:?}");
    }
}

/// A waiter under the other algorithms holds nothing.
#[test]
fn dropped_retry_has_charged_nothing() {
    for limit in &limits_of_all(3)[1..] {
        let (handle, hand) = by_hand(limit);
        let world = World::new(hand);
        assert!(handle.spend("id", Algorithm::max_cost(limit)).unwrap().allowed());
        let before = state(&handle);
        let mut task = Task::new(handle.until_allowed("id", 2, Duration::MAX, world.clone()));
        assert!(task.poll().is_pending());
        assert_eq!(state(&handle), before, "{limit:?}");
        drop(task);
        assert_eq!(state(&handle), before, "{limit:?}");
    }
}

#[test]
fn later_waiter_keeps_its_own_time() {
    let (handle, hand) = by_hand(&Limit::new(1, 1, ms(1)).unwrap());
    let world = World::new(hand);
    assert!(handle.spend("id", 1).unwrap().allowed());
    let wait = || Task::new(handle.until_allowed("id", 1, Duration::MAX, world.clone()));
    let mut tasks: Vec<_> = (0..5).map(|_| wait()).collect();
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    drop(tasks.remove(2));
    // Two later waiters: the first takes the vacant place, the second comes last.
    tasks.extend([wait(), wait()]);
    let done = run(&world, tasks);
    let at_ms: Vec<_> = done.iter().map(|&(number, at_ns, ..)| (number, at_ns / MS)).collect();
    assert_eq!(at_ms, [(0, 1), (1, 2), (4, 3), (2, 4), (3, 5), (5, 6)]);
}

#[test]
fn cancelled_grants_leave_all_units() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let limit = Limit::new(5, 1, ms(10)).unwrap();
        let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
        let at_once = || handle.reserve("id", 1, Duration::ZERO).unwrap();
        at_once().cancel();
        assert_eq!(state(&handle).remaining(), Some(4), "{engine:?}: five, less that of the check");
        let places = [(); 3].map(|()| at_once());
        hand.advance(ms(5));
        places.into_iter().for_each(Reservation::cancel);
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(0), "{engine:?}");
    }
}

/// A client goes away with a thousand calls that wait.
#[test]
fn thousand_dropped_futures_restore_the_bucket() {
    let (handle, hand) = by_hand(&Limit::new(5, 1, ms(1)).unwrap());
    let world = World::new(hand);
    assert!(handle.spend("id", 5).unwrap().allowed());
    let before = state(&handle);
    let call = |cost| handle.until_allowed("id", cost, Duration::MAX, world.clone());
    let mut tasks: Vec<_> = (0..1000).map(|n| Task::new(call(1 + n % 3))).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    let mut random = Random(38);
    while !tasks.is_empty() {
        drop(tasks.swap_remove(random.below(tasks.len() as u64) as usize));
    }
    assert_eq!(state(&handle), before);
}

#[test]
fn thousand_cancellations_in_any_order_restore_the_bucket() {
    for engine in ENGINES {
        for seed in 0..6 {
            let (clock, _hand) = Clock::manual();
            let limit = Limit::new(5, 1, ms(1)).unwrap();
            let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
            assert!(handle.spend("id", 5).unwrap().allowed());
            let before = state(&handle);
            let mut places: Vec<_> = (0..1000).map(|n| place(&handle, 1 + n % 3)).collect();
            let mut random = Random(seed);
            while !places.is_empty() {
                let which = match seed {
                    0 => 0,
                    1 => places.len() - 1,
                    _ => random.below(places.len() as u64) as usize,
                };
                places.remove(which).cancel();
            }
            assert_eq!(state(&handle), before, "{engine:?} {seed}");
        }
    }
}

#[test]
fn a_reservation_that_is_dropped_stays_charged() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    drop(place(&handle, 1));
    drop(place(&handle, 1));
    assert_eq!(place(&handle, 1).wait(), ms(20));
}
