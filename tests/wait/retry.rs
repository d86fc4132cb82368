//! Waiting under algorithms without reservations: the future spends, sleeps `retry_in`, and spends again.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use tollgate::algorithm::Algorithm;

use super::support::rules::hooked;
use super::virtual_time::{Task, World, run};
use super::*;

/// Three units at once, about one per ms, by each algorithm without places.
fn without_places() -> Vec<Limit> {
    let [gcra, others @ ..] = limits_of_all(3);
    others.into_iter().chain([hooked(gcra, |_| ())]).collect()
}

#[test]
fn waiter_is_admitted_when_units_come() {
    for limit in &without_places() {
        let (handle, hand) = by_hand(limit);
        let world = World::new(hand);
        assert!(handle.spend("id", Algorithm::max_cost(limit)).unwrap().allowed());
        let retry_in = handle.check("id", 2).unwrap().retry_in();
        let done = run(
            &world,
            vec![Task::new(handle.until_allowed("id", 2, Duration::MAX, world.clone()))],
        );
        let (_, at_ns, polls, said) = &done[0];
        let late = Duration::from_nanos(*at_ns).checked_sub(retry_in).expect("not too early");
        assert!(late < ms(1) && *polls == 2, "{limit:?} {late:?} late");
        assert!(said.is_ok());
    }
}

#[test]
fn hundred_waiters_keep_the_limit() {
    for limit in without_places() {
        let (handle, hand) = by_hand(&limit);
        let world = World::new(hand);
        let tasks = (0..100)
            .map(|_| Task::new(handle.until_allowed("id", 1, Duration::MAX, world.clone())));
        let done = run(&world, tasks.collect());
        let (clock, hand) = Clock::manual();
        let bucket = tollgate::Bucket::new(limit.clone(), clock);
        for (_, at_ns, _, said) in done {
            hand.set(Duration::from_nanos(at_ns));
            assert!(said.is_ok() && bucket.spend(1).unwrap().allowed(), "{limit:?} at {at_ns}");
        }
    }
}

#[test]
fn too_long_wait_is_refused_at_once() {
    for limit in &without_places() {
        let (handle, hand) = by_hand(limit);
        let world = World::new(hand);
        assert!(handle.spend("id", Algorithm::max_cost(limit)).unwrap().allowed());
        let needed = handle.check("id", 1).unwrap().retry_in();
        let short = needed - Duration::from_nanos(1);
        let done =
            run(&world, vec![Task::new(handle.until_allowed("id", 1, short, world.clone()))]);
        let refused = done.into_iter().next().unwrap().3.unwrap_err();
        assert_eq!((refused.needed(), world.now_ns()), (Some(needed), 0), "{limit:?}");
    }
}

/// Another caller takes the units while the first sleeps.
#[test]
fn deadline_is_kept_across_attempts() {
    let (handle, hand) = by_hand(&Limit::fixed_window(1, ms(10)).unwrap());
    let world = World::new(hand);
    assert!(handle.spend("id", 1).unwrap().allowed());
    let mut slow = Task::new(handle.until_allowed("id", 1, ms(15), world.clone()));
    assert!(slow.poll().is_pending());
    world.advance(ms(10));
    assert!(handle.spend("id", 1).unwrap().allowed());
    let done = run(&world, vec![slow]);
    let (_, at_ns, _, said) = &done[0];
    assert!((10 * MS..11 * MS).contains(at_ns), "{at_ns}");
    assert!(said.as_ref().unwrap_err().is_not_in_time());
}

#[test]
fn blocked_id_is_refused_at_once() {
    for limit in limits_of_all(5).iter().chain(&without_places()) {
        let (handle, hand) = by_hand(limit);
        let world = World::new(hand);
        let _ = handle.block("id", ms(20)).unwrap();
        let wait = handle.until_allowed("id", 1, ms(1000), world.clone());
        let done = run(&world, vec![Task::new(wait)]);
        assert!(done[0].3.as_ref().unwrap_err().is_blocked(), "{limit:?}");
        assert_eq!(world.now_ns(), 0, "{limit:?}");
    }
}

#[test]
fn jitter_ends_by_the_deadline() {
    for limit in [Limit::new(1, 1, ms(10)), Limit::fixed_window(1, ms(10))].map(Result::unwrap) {
        for number in 0..50 {
            let (handle, hand) = by_hand(&limit);
            let world = World::new(hand);
            assert!(handle.spend("id", 1).unwrap().allowed());
            let waiting = handle.waiting(ms(12), world.clone()).jitter(ms(1000));
            let done = run(&world, vec![Task::new(waiting.until_allowed("id", 1))]);
            let (_, at_ns, _, said) = &done[0];
            assert!((10 * MS..=12 * MS).contains(at_ns) && said.is_ok(), "{number}: {at_ns}");
        }
    }
}

/// The clock jumps by 60 ms at a reading of the wait, as if its thread had stood still there. The unit comes before the deadline. The
/// caller was refused, because the wait and the time that was left were counted from different readings.
#[test]
fn a_thread_that_stood_still_is_not_refused() {
    for engine in ENGINES {
        for (call, jump) in (0..3).flat_map(|call| (0..14).map(move |jump| (call, jump))) {
            // In ms, and the number of readings until the jump.
            let time = Arc::new(Mutex::new((0, u64::MAX)));
            let read = time.clone();
            let clock = Clock::custom(move || {
                let mut time = read.lock().unwrap();
                if time.1 == 0 {
                    time.0 += 60;
                }
                time.1 = time.1.wrapping_sub(1);
                ms(time.0)
            });
            let limits = support::limits(&[("Limit", Limit::leaky_bucket(1, 1, ms(100)).unwrap())]);
            let options = LimiterOptions::default().engine(engine).clock(clock).counting(true);
            let limiter = Limiter::with_options(limits, options).unwrap();
            let handle = limiter.limit("Limit").unwrap();
            assert!(handle.spend("id", 1).unwrap().allowed());
            time.lock().unwrap().1 = jump;
            let sleep = |wait: Duration| {
                time.lock().unwrap().0 += wait.as_nanos().div_ceil(1_000_000) as u64;
                std::future::ready(())
            };
            let members = [handle.member("id")];
            let batch = limiter.batch(&members);
            let said = match call {
                0 => ready(handle.until_allowed("id", 1, ms(120), sleep)).map(drop),
                1 => ready(batch.retry(ms(120), sleep)).map(drop),
                _ => ready(batch.until_allowed(ms(120), sleep)).map(drop),
            };
            assert!(said.is_ok(), "{engine:?}, call {call}, reading {jump}: {said:?}");
            assert_eq!(limiter.counters().limits[0].allowed, 2);
        }
    }
}

/// Returns the output of a future whose sleeps are over at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match Task::new(future).poll() {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a sleep is over at once"),
    }
}

/// Callers that slept whole milliseconds came in the same order each time, and the first one got all units.
#[test]
fn callers_that_retry_share_the_units() {
    let every = ms(10);
    for limit in [
        Limit::leaky_bucket(1, 1, every).unwrap(),
        Limit::fixed_window(1, every).unwrap(),
        Limit::token_bucket(1, 1, every).unwrap(),
    ] {
        for in_batches in [false, true] {
            let (handle, hand) = by_hand(&limit);
            let world = World::new(hand);
            let counts = [(); 5].map(|()| std::cell::Cell::new(0_u32));
            let caller = async |at: usize| {
                world.sleep_for(Duration::from_micros(100 * at as u64 + 50)).await;
                while world.now_ns() < 3_000 * MS {
                    let member = [handle.member("id")];
                    let said = match in_batches {
                        false => handle.until_allowed("id", 1, Duration::MAX, world.clone()).await,
                        true => {
                            handle
                                .limiter()
                                .batch(&member)
                                .retry(Duration::MAX, world.clone())
                                .await
                        }
                    };
                    assert!(said.is_ok());
                    counts[at].set(counts[at].get() + 1);
                }
            };
            run(&world, (0..5).map(|at| Task::new(caller(at))).collect());
            let counts = counts.map(std::cell::Cell::into_inner);
            // 300 units: a fair share is 60.
            assert!(counts.iter().all(|&count| count > 20), "{limit:?} {in_batches}: {counts:?}");
            assert!(counts.iter().sum::<u32>() > 250, "{limit:?} {in_batches}: {counts:?}");
        }
    }
}
