//! Thousands of waiters on one key: they are served with two polls each, within the limit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use tollgate::Bucket;
use tollgate::batch::Batch;
use tollgate::reserve::{Parking, Waiting};

use super::virtual_time::{Task, World, run};
use super::*;

const WAITERS: usize = 1000;

/// Checks that grants, in ns since the origin and in order, keep to the limit: a fresh bucket would have
/// allowed a plain spend at each time.
fn keeps_the_bound(limit: &Limit, admitted: &[(u64, u64)]) {
    let (clock, hand) = Clock::manual();
    let bucket = Bucket::new(limit.clone(), clock);
    for &(at_ns, cost) in admitted {
        hand.set(Duration::from_nanos(at_ns));
        assert!(bucket.spend(cost).unwrap().allowed(), "{limit:?}: {cost} at {at_ns}");
    }
}

/// Checks that in every interval of length t at most `burst + t / emission interval` units were admitted.
fn keeps_gcras_bound(burst: u64, interval_ns: u64, admitted: &[(u64, u64)]) {
    for (first, &(from_ns, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for &(to_ns, cost) in &admitted[first..] {
            sum += cost;
            let most = burst + (to_ns - from_ns) / interval_ns;
            assert!(sum <= most, "{sum} from {from_ns} to {to_ns}, at most {most}");
        }
    }
}

#[test]
fn thousand_waiters_in_order_two_polls_each() {
    let limit = Limit::new(5, 1, ms(1)).unwrap();
    let (handle, hand) = by_hand(&limit);
    let world = World::new(hand);
    let cost = |number: usize| 1 + number as u64 % 3;
    let tasks = (0..WAITERS).map(|number| {
        let waiter = handle.until_allowed("id", cost(number), Duration::MAX, world.clone());
        Task::new(waiter)
    });
    let done = run(&world, tasks.collect());
    let order: Vec<usize> = done.iter().map(|&(number, ..)| number).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>(), "{limit:?}: first come, first served");
    assert!(done.iter().all(|&(_, _, polls, _)| polls <= 2), "{limit:?}");
    assert!(done.iter().all(|(_, _, _, said)| said.is_ok()), "{limit:?}");
    // A waiter whose time has come never sleeps, and no waiter sleeps twice.
    assert!(world.sleeps() < WAITERS as u64, "{limit:?}");
    let admitted: Vec<_> = done.iter().map(|&(number, at_ns, ..)| (at_ns, cost(number))).collect();
    keeps_the_bound(&limit, &admitted);
    keeps_gcras_bound(5, MS, &admitted);
    let units: u64 = admitted.iter().map(|&(_, cost)| cost).sum();
    assert_eq!(world.now_ns(), (units - 5) * MS, "and not a nanosecond late");
}

/// Batches of two limits, each of whose members leaves a free time in front of its place now and then.
#[test]
fn herd_of_batches_two_polls_each() {
    const BATCHES: usize = 4 * WAITERS;
    let limits = [Limit::new(3, 1, ms(10)).unwrap(), Limit::new(9, 1, ms(4)).unwrap()];
    let [a, b] = limits.each_ref().map(Limit::clone);
    let (limiter, hand) =
        support::limiter(support::limits(&[("A", a), ("B", b)]), Engine::LockFree);
    let world = World::new(hand);
    let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
    let costs = |number: usize| [1 + number as u64 / 7 % 2, 1 + number as u64 / 5 % 6];
    let all: Vec<_> = (0..BATCHES)
        .map(costs)
        .map(|[of_a, of_b]| [b.member("id").cost(of_b), a.member("id").cost(of_a)])
        .collect();
    let batches: Vec<_> = all.iter().map(|members| limiter.batch(members)).collect();
    let wait = |batch| Task::new(Batch::until_allowed(batch, Duration::MAX, world.clone()));
    let done = run(&world, batches.iter().map(wait).collect());
    assert_eq!(done.len(), BATCHES);
    assert!(done.iter().all(|(_, _, polls, receipt)| *polls <= 2 && receipt.is_ok()));
    assert!(world.sleeps() < BATCHES as u64, "none sleeps twice");
    for (at, limit) in limits.iter().enumerate() {
        let admitted: Vec<_> =
            done.iter().map(|&(number, at_ns, ..)| (at_ns, costs(number)[at])).collect();
        keeps_the_bound(limit, &admitted);
    }
    // No batch was later than its limits made it: the slower one had no free unit, but for the rest in front of a place.
    let units = |at: usize| (0..BATCHES).map(|number| costs(number)[at]).sum::<u64>();
    let least = [(units(0) - 3) * 10 * MS, (units(1) - 9) * 4 * MS].into_iter().max().unwrap();
    let taken = world.now_ns();
    assert!(taken >= least && taken < least + least / 4, "{taken} ns, at least {least}");
}

/// Counts the polls of a future.
struct Polled<F>(Pin<Box<F>>, Arc<AtomicU32>);

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(context)
    }
}

/// Lets a thousand tasks wait on tokio's timer. Returns when each was admitted, by the handle's clock.
async fn with_tokio(
    handle: &KeyedLimit,
    now_ns: impl Fn() -> u64 + Clone + Send + 'static,
) -> Vec<u64> {
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let polls = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (handle, admitted, now_ns) = (handle.clone(), admitted.clone(), now_ns.clone());
            let waiter = async move {
                let waited = handle.until_allowed("id", 1, Duration::MAX, tokio::time::sleep).await;
                admitted.lock().unwrap().push(now_ns());
                waited.is_ok()
            };
            tokio::spawn(Polled(Box::pin(waiter), polls.clone()))
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 2 * WAITERS as u32, "{polls} polls of {WAITERS} that were admitted");
    Arc::try_unwrap(admitted).unwrap().into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn thousand_waiters_keep_bound_on_paused_clock() {
    let started = tokio::time::Instant::now();
    let clock = Clock::custom(move || started.elapsed());
    let limit = Limit::new(10, 1, ms(1)).unwrap();
    let handle = handle_on(&limit, clock);
    let admitted = with_tokio(&handle, move || started.elapsed().as_nanos() as u64).await;
    let admitted: Vec<_> = admitted.into_iter().map(|at_ns| (at_ns, 1)).collect();
    assert_eq!(admitted.len(), WAITERS);
    keeps_the_bound(&limit, &admitted);
    keeps_gcras_bound(10, MS, &admitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousand_waiters_keep_bound_on_real_clock() {
    let limit = Limit::new(10, 1, Duration::from_micros(200)).unwrap();
    let handle = handle_on(&limit, Clock::instant());
    let started = std::time::Instant::now();
    let mut admitted = with_tokio(&handle, move || started.elapsed().as_nanos() as u64).await;
    admitted.sort_unstable();
    // The scheduler decides when a task resumes, but no task resumes before its time.
    for (number, &at_ns) in admitted.iter().enumerate() {
        let earliest_ns = (number as u64).saturating_sub(9) * 200_000;
        assert!(at_ns >= earliest_ns, "number {number} at {at_ns} ns, allowed at {earliest_ns}");
    }
}

#[test]
fn threads_that_park_are_not_early() {
    let limit = Limit::new(2, 1, ms(1)).unwrap();
    let handle = handle_on(&limit, Clock::instant());
    let started = std::time::Instant::now();
    let mut back: Vec<u64> = std::thread::scope(|scope| {
        let park = || {
            let waiting: Waiting<'_, Parking> =
                handle.parking(Duration::from_secs(60)).jitter(Duration::from_micros(300));
            waiting.wait_until_allowed("id", 1).unwrap();
            waiting.wait_until_allowed("id", 1).unwrap();
            started.elapsed().as_nanos() as u64
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(park)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    back.sort_unstable();
    assert!(back.last().is_some_and(|&last_ns| last_ns >= (16 - 2) * MS), "{back:?}");
}

#[test]
fn a_thread_that_may_not_park_is_refused() {
    let (handle, _hand) = by_hand(&Limit::new(2, 1, ms(1)).unwrap());
    assert!(handle.spend("id", 2).unwrap().allowed());
    let refused = handle.parking(ms(1)).wait_until_allowed("id", 2);
    assert!(refused.unwrap_err().is_not_in_time(), "2 ms would be needed");
}

#[test]
fn jitter_delays_within_its_maximum_never_early() {
    let limit = Limit::new(1, 1, ms(10)).unwrap();
    let (handle, hand) = by_hand(&limit);
    let world = World::new(hand);
    let waiting = handle.waiting(Duration::MAX, world.clone()).jitter(ms(7));
    let tasks = (0..200).map(|_| Task::new(waiting.until_allowed("id", 1)));
    let done = run(&world, tasks.collect());
    let late: Vec<u64> = done
        .iter()
        .map(|&(number, at_ns, ..)| at_ns.checked_sub(number as u64 * 10 * MS).expect("not early"))
        .collect();
    assert!(late.iter().all(|&late_ns| late_ns < 7 * MS), "{late:?}");
    assert!(late.iter().any(|&late_ns| late_ns > 4 * MS) && late.iter().any(|&ns| ns < 3 * MS));
    assert_eq!(done[0].1, 0, "a caller with a unit at once does not wait");
}

#[test]
fn a_timer_that_is_early_waits_again() {
    let limit = Limit::new(1, 1, ms(10)).unwrap();
    let (handle, hand) = by_hand(&limit);
    let world = World::new(hand);
    assert!(handle.spend("id", 1).unwrap().allowed());
    let sleeper = world.clone();
    let early = move |time: Duration| {
        let sleeper = sleeper.clone();
        async move { tollgate::reserve::Timer::sleep(&sleeper, time.min(ms(4))).await }
    };
    let done = run(&world, vec![Task::new(handle.until_allowed("id", 1, Duration::MAX, early))]);
    let (_, at_ns, polls, _) = &done[0];
    assert_eq!((*at_ns, *polls), (10 * MS, 4), "after 4, 8 and 10 ms");
}
