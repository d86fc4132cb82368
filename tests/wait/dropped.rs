//! Futures dropped while they wait, and cancelled reservations.

use proptest::prelude::*;
use tollgate::Bucket;
use tollgate::limit::Parameters;

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
fn dropped_future_refunds_what_was_not_granted() {
    for limit in limits_of_all(3) {
        for at in [At::Unpolled, At::Asleep, At::Granted, At::InJitter] {
            let (handle, hand) = by_hand(&limit);
            let world = World::new(hand);
            assert!(handle.spend("id", 3).unwrap().allowed());
            let before = state(&handle);
            let jitter = if matches!(at, At::InJitter) { ms(1000) } else { ms(0) };
            let waiting = handle.waiting(world.clone()).jitter(jitter);
            let mut task = Task::new(waiting.until_allowed("id", 2));
            if !matches!(at, At::Unpolled) {
                assert!(task.poll().is_pending());
                assert_ne!(state(&handle), before, "{limit:?} {at:?}: the place is taken");
            }
            let granted_in = handle.check("id", 0).unwrap().retry_in();
            if matches!(at, At::Granted | At::InJitter) {
                world.advance(granted_in + Duration::from_nanos(1));
                let there = state(&handle);
                drop(task);
                assert_eq!(state(&handle), there, "{limit:?} {at:?}: it was used, or could be");
            } else {
                drop(task);
                assert_eq!(state(&handle), before, "{limit:?} {at:?}");
            }
        }
    }
}

/// The waits after which the next `number` units would be allowed.
fn next_places(handle: &KeyedLimit, number: usize) -> Vec<Duration> {
    let places: Vec<_> = (0..number).map(|_| place(handle, 1)).collect();
    let waits = places.iter().map(Reservation::wait).collect();
    // The last first, so that every probe is rolled back.
    places.into_iter().rev().for_each(Reservation::cancel);
    waits
}

#[test]
fn later_waiter_keeps_its_own_time() {
    for limit in limits_of_all(1) {
        let (handle, hand) = by_hand(&limit);
        let world = World::new(hand);
        assert!(handle.spend("id", 1).unwrap().allowed());
        let mut tasks: Vec<_> =
            (0..5).map(|_| Task::new(handle.until_allowed("id", 1, world.clone()))).collect();
        for task in &mut tasks {
            assert!(task.poll().is_pending());
        }
        let behind = next_places(&handle, 3);
        drop(tasks.remove(2));
        assert_eq!(next_places(&handle, 3), behind, "{limit:?}: others stand on it");
        let done = run(&world, tasks);
        let at_ms: Vec<u64> = done.iter().map(|&(_, at_ns, ..)| at_ns / MS).collect();
        // A token bucket of two units with a burst of one has its second unit when the window ends.
        let unit_ms = if limit.algorithm() == "token_bucket" { 2 } else { 1 };
        assert_eq!(at_ms, [1, 2, 4, 5].map(|ms| ms * unit_ms), "{limit:?}");
    }
}

#[test]
fn thousand_cancellations_in_order_restore_the_bucket() {
    for engine in ENGINES {
        for limit in limits_of_all(5) {
            let (clock, _hand) = Clock::manual();
            let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
            assert!(handle.spend("id", 4).unwrap().allowed());
            let before = state(&handle);
            let places: Vec<_> = (0..1000).map(|n| place(&handle, 1 + n % 3)).collect();
            places.into_iter().for_each(Reservation::cancel);
            assert_eq!(state(&handle), before, "{engine:?} {limit:?}");
        }
    }
}

/// Cancelled reservations wait in 256 lists for the reservations behind them. Here each list has two kinds
/// of buckets with equal words: one kind has spent 5 and cancels a reservation of 1, the other has spent 4
/// and cancels one of 2.
#[test]
fn cancelled_reservation_stays_with_its_bucket() {
    let handle = handle_on(&Limit::new(5, 1, ms(1)).unwrap(), Clock::manual().0);
    let mut behind: Vec<(String, u64, Reservation)> = Vec::new();
    for number in 0..600 {
        let (spent, cost) = if number % 2 == 0 { (5, 1) } else { (4, 2) };
        let id = number.to_string();
        assert!(handle.spend(&*id, spent).unwrap().allowed());
        let first = handle.reserve(&*id, cost, Duration::MAX).unwrap();
        let last = handle.reserve(&*id, 1, Duration::MAX).unwrap();
        first.cancel();
        behind.push((id, spent, last));
    }
    for (id, spent, last) in behind {
        last.cancel();
        assert_eq!(handle.check(&*id, 0).unwrap().reset_in(), ms(spent), "{id}");
    }
}

#[test]
fn a_reservation_that_is_dropped_stays_charged() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    drop(place(&handle, 1));
    drop(place(&handle, 1));
    assert_eq!(place(&handle, 1).wait(), ms(20));
}

#[test]
fn due_reservation_is_not_refunded() {
    let (handle, hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    let (first, second) = (place(&handle, 1), place(&handle, 1));
    hand.advance(ms(10));
    second.cancel();
    assert!(state(&handle).allowed(), "at its very time it is not used yet");
    let third = place(&handle, 1);
    hand.advance(ms(1));
    let before = state(&handle);
    third.cancel();
    first.cancel();
    assert_eq!(state(&handle), before, "a millisecond later they may be");
}

/// An operation on reservations.
#[derive(Clone, Copy, Debug)]
enum Op {
    Take(u64),
    /// Cancels one of the open reservations.
    Cancel(usize),
    Spend(u64),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1..4u64).prop_map(Op::Take),
        4 => any::<usize>().prop_map(Op::Cancel),
        2 => (1..4u64).prop_map(Op::Spend),
        2 => (0..4 * MS).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..60)
}

/// Checks grants against a limit. For windows, in which a reservation may stay unused, it bounds the units
/// of any interval. For the other algorithms a fresh bucket must have allowed every grant.
pub(super) fn keeps_the_bound(limit: &Limit, used: &[(u64, u64)]) {
    if let Parameters::FixedWindow { limit: most, window }
    | Parameters::TokenBucket { limit: most, window, .. } = limit.parameters()
    {
        for (first, &(from_ns, _)) in used.iter().enumerate() {
            let mut sum = 0;
            for &(to_ns, cost) in &used[first..] {
                sum += cost;
                let windows = (to_ns - from_ns) / window.as_nanos() as u64 + 2;
                assert!(sum <= windows * most, "{limit:?}: {sum} from {from_ns} to {to_ns}");
            }
        }
        return;
    }
    let (clock, hand) = Clock::manual();
    let bucket = Bucket::new(limit.clone(), clock);
    for &(at_ns, cost) in used {
        hand.set(Duration::from_nanos(at_ns));
        assert!(bucket.spend(cost).unwrap().allowed(), "{limit:?}: {cost} at {at_ns} of {used:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// After any cancellations in any order, the used and the open grants keep to the limit.
    #[test]
    fn granted_cost_keeps_bound_despite_cancellations(burst in 3..6u64, ops in ops()) {
        for limit in limits_of_all(burst) {
            let (handle, hand) = by_hand(&limit);
            let mut now_ns = 0;
            let mut used = Vec::new();
            let mut held: Vec<(u64, u64, Reservation)> = Vec::new();
            for &op in &ops {
                match op {
                    Op::Take(cost) => {
                        let taken = place(&handle, cost);
                        // In whole ms: by the bucket's own time a grant counts from the beginning of its
                        // ms.
                        let at_ns = now_ns + taken.wait().as_nanos() as u64;
                        held.push((at_ns, cost, taken));
                    }
                    Op::Cancel(which) if !held.is_empty() => {
                        let (at_ns, cost, taken) = held.swap_remove(which % held.len());
                        // Due reservations count as used.
                        if at_ns < now_ns {
                            used.push((at_ns, cost));
                        }
                        taken.cancel();
                    }
                    Op::Spend(cost) if handle.spend("id", cost).unwrap().allowed() => used.push((now_ns, cost)),
                    Op::Advance(by_ns) => {
                        now_ns += by_ns;
                        hand.advance(Duration::from_nanos(by_ns));
                    }
                    Op::Cancel(_) | Op::Spend(_) => {}
                }
            }
            used.extend(held.iter().map(|&(at_ns, cost, _)| (at_ns, cost)));
            used.sort_unstable();
            keeps_the_bound(&limit, &used);
        }
    }

    /// After all reservations were cancelled, in any order and without other calls, the bucket is as
    /// before.
    #[test]
    fn all_that_give_up_leave_nothing(
        burst in 3..6u64, costs in prop::collection::vec(1..4u64, 1..12), order in any::<u64>(), spent in 0..4u64,
    ) {
        for limit in limits_of_all(burst) {
            let (handle, _hand) = by_hand(&limit);
            prop_assert!(handle.spend("id", spent.min(burst)).unwrap().allowed());
            let before = state(&handle);
            let mut places: Vec<_> = costs.iter().map(|&cost| place(&handle, cost)).collect();
            let mut order = order;
            while !places.is_empty() {
                let which = order as usize % places.len();
                order = order.rotate_right(7) ^ 0x9e37_79b9;
                places.swap_remove(which).cancel();
            }
            prop_assert_eq!(state(&handle), before, "{:?}", limit);
        }
    }
}
