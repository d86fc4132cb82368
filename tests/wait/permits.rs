//! Batches that wait for permits: which of them gets a returned permit, and when.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tollgate::batch::Batch;
use tollgate::options::AtCap;
use tollgate::reserve::{Receipt, ReserveError};
use tollgate::{ConcurrencyLimit, Permit};

use super::virtual_time::{Task, World};
use super::*;
use crate::support::{in_own_process, seconds};

type Waits<'w> = Task<'w, Result<Receipt, ReserveError>>;

/// A limit of requests that none of the tests uses up, and one of permits, whose denials name a minute.
fn limits_of(world_of: Engine, permits: u64) -> (Limiter, World) {
    let at_once = Limit::concurrency(permits).unwrap().retry_after(seconds(60)).unwrap();
    let rate = Limit::new(100, 1, seconds(1)).unwrap();
    let limits = support::limits(&[("Rate", rate), ("AtOnce", at_once)]);
    let (limiter, hand) = support::limiter(limits, world_of);
    (limiter, World::new(hand))
}

/// Polls those that were woken, and returns which are done.
fn done(waits: &mut [Option<Waits<'_>>]) -> Vec<(usize, Result<Receipt, ReserveError>)> {
    let mut done = Vec::new();
    for (at, wait) in waits.iter_mut().enumerate() {
        if let Some(Poll::Ready(result)) = wait.as_mut().map(Task::poll) {
            *wait = None;
            done.push((at, result));
        }
    }
    done
}

/// A permit that comes back goes to the caller that has waited longest, at once.
#[test]
fn permits_go_to_those_who_wait_longest() {
    for engine in ENGINES {
        let (limiter, world) = limits_of(engine, 1);
        let (rate, at_once) =
            (limiter.limit("Rate").unwrap(), limiter.concurrency("AtOnce").unwrap());
        let members = [rate.member("id"), at_once.member("id")];
        let batch = limiter.batch(&members);
        let mut held = at_once.acquire("id", 1).unwrap().1;
        let mut waits = Vec::new();
        for _ in 0..10 {
            waits.push(Some(Task::new(batch.until_allowed(seconds(600), world.clone()))));
            assert!(done(&mut waits).is_empty(), "{engine:?}");
            world.advance(ms(1));
        }
        let mut receipts = Vec::new();
        for expected in 0..10 {
            held = None;
            receipts.clear();
            let now = done(&mut waits);
            let order: Vec<usize> = now.iter().map(|it| it.0).collect();
            assert_eq!(order, [expected], "{engine:?}");
            receipts.extend(now.into_iter().map(|it| it.1.unwrap()));
            assert_eq!(at_once.in_flight("id").unwrap(), 1, "{engine:?}");
        }
        assert!(held.is_none());
        assert_eq!(world.now_ns(), 10_000_000, "{engine:?}: no timer has fired");
    }
}

/// A caller that was woken for a permit and goes away leaves it to the next one. A caller that needs fewer permits than were
/// returned wakes the next one.
#[test]
fn unused_wakes_are_passed_on() {
    for engine in ENGINES {
        let (limiter, world) = limits_of(engine, 2);
        let at_once = limiter.concurrency("AtOnce").unwrap();
        let members = [at_once.member("id")];
        let batch = limiter.batch(&members);
        let held = at_once.acquire("id", 2).unwrap().1;
        let wait = || Some(Task::new(batch.until_allowed(seconds(600), world.clone())));
        let mut waits: Vec<Option<Waits<'_>>> = (0..4).map(|_| wait()).collect();
        assert!(done(&mut waits).is_empty());
        drop(held);
        waits[0] = None;
        let mut receipts = Vec::new();
        for _ in 0..4 {
            receipts.extend(done(&mut waits));
        }
        let order: Vec<usize> = receipts.iter().map(|it| it.0).collect();
        assert_eq!(order, [1, 2], "{engine:?}: two permits came back at once");
        waits[3] = None;
        drop(receipts);
        assert_eq!(at_once.in_flight("id").unwrap(), 0, "{engine:?}");
    }
}

/// A caller that was woken for fewer permits than it wants and goes away, or that leaves some, wakes one that wants fewer.
#[test]
fn unused_wakes_reach_those_who_want_fewer() {
    for engine in ENGINES {
        for goes_away in [true, false] {
            let (limiter, world) = limits_of(engine, 3);
            let at_once = limiter.concurrency("AtOnce").unwrap();
            let (two, one) = ([at_once.member("id").cost(2)], [at_once.member("id")]);
            let batches = [limiter.batch(&two), limiter.batch(&one)];
            let mut held =
                Vec::from([2, 1].map(|permits| at_once.acquire("id", permits).unwrap().1));
            let wait =
                |batch| Some(Task::new(Batch::until_allowed(batch, seconds(600), world.clone())));
            let mut waits: Vec<Option<Waits<'_>>> = batches.iter().map(wait).collect();
            assert!(done(&mut waits).is_empty());
            if goes_away {
                // The one permit wakes the first, which wants two.
                drop(held.pop());
                waits[0] = None;
            } else {
                let all = std::mem::take(&mut held);
                drop(all);
            }
            let order: Vec<usize> = done(&mut waits).iter().map(|it| it.0).collect();
            assert_eq!(order, if goes_away { vec![1] } else { vec![0, 1] }, "{engine:?}");
        }
    }
}

/// A clock that panics when a woken caller asks is a panic of that call, and ends no process.
#[test]
fn a_clock_that_panics_ends_no_process() {
    in_own_process(|| {
        let has_failed = Arc::new(AtomicBool::new(false));
        let fails = has_failed.clone();
        let clock = Clock::custom(move || {
            assert!(!fails.load(Ordering::SeqCst), "the clock has failed");
            seconds(10)
        });
        let limits = support::limits(&[("AtOnce", Limit::concurrency(1).unwrap())]);
        let limiter = Limiter::with_options(limits, clock).unwrap();
        let at_once = limiter.concurrency("AtOnce").unwrap();
        let members = [at_once.member("id")];
        let batch = limiter.batch(&members);
        let held = at_once.acquire("id", 1).unwrap().1;
        let timer = |_: Duration| std::future::pending();
        let mut wait = Some(Task::new(batch.until_allowed(seconds(600), timer)));
        assert!(wait.as_mut().unwrap().poll().is_pending());
        drop(held);
        has_failed.store(true, Ordering::SeqCst);
        let polled = catch_unwind(AssertUnwindSafe(|| drop(wait.as_mut().unwrap().poll())));
        assert!(polled.is_err(), "the panic of the clock");
        has_failed.store(false, Ordering::SeqCst);
        assert_eq!(at_once.in_flight("id").unwrap(), 0);
    });
}

/// The time at which a permit comes back is unknown, so a caller waits until its deadline, whatever time the denial names.
#[test]
fn permits_are_awaited_until_the_deadline() {
    for engine in ENGINES {
        for returned_ms in [998, 1_001] {
            let (limiter, world) = limits_of(engine, 1);
            let (rate, at_once) =
                (limiter.limit("Rate").unwrap(), limiter.concurrency("AtOnce").unwrap());
            let members = [rate.member("id"), at_once.member("id")];
            let batch = limiter.batch(&members);
            let held = at_once.acquire("id", 1).unwrap().1;
            let mut wait = [Some(Task::new(batch.until_allowed(seconds(1), world.clone())))];
            assert!(done(&mut wait).is_empty());
            world.advance_and_wake(ms(returned_ms));
            let late = done(&mut wait);
            drop(held);
            match done(&mut wait).into_iter().chain(late).next() {
                Some((_, Ok(receipt))) if returned_ms < 1_000 => drop(receipt),
                Some((_, Err(error))) if returned_ms > 1_000 => {
                    assert_eq!(error.needed(), Some(seconds(60)), "{engine:?}: its retry_after");
                    assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(100), "{engine:?}");
                }
                other => panic!("{engine:?} {returned_ms} ms: {other:?}"),
            }
        }
    }
}

fn acquired(at_once: &ConcurrencyLimit) -> u64 {
    at_once.in_flight("id").unwrap()
}

/// Threads take and leave permits: at most `max` are out, and each wait ends soon after a permit comes back. A wake that is lost
/// would cost ten seconds.
#[test]
fn permits_of_threads_are_handed_on() {
    let at_once = Limit::concurrency(2).unwrap().retry_after(seconds(10)).unwrap();
    for engine in ENGINES {
        let limits = support::limits(&[("AtOnce", at_once.clone())]);
        let options = LimiterOptions::default().engine(engine);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let handle = limiter.concurrency("AtOnce").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = { runtime }.enable_time().build().unwrap();
                    for _ in 0..support::full_size(100, 2_000) {
                        let members = [handle.member("id")];
                        let batch = limiter.batch(&members);
                        let wait = batch.until_allowed(seconds(1_200), tokio::time::sleep);
                        let receipt = runtime.block_on(wait).unwrap();
                        assert!(acquired(&handle) <= 2);
                        drop(receipt);
                    }
                });
            }
        });
        assert_eq!(acquired(&handle), 0, "{engine:?}");
    }
}

/// A batch whose id has no room in the table does not wait for the permits of others.
#[test]
fn batch_without_room_ends_at_once() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny] {
            let options = LimiterOptions::default().engine(engine).max_keys(1);
            let (clock, hand) = Clock::manual();
            let limits = support::limits(&[("AtOnce", Limit::concurrency(1).unwrap())]);
            let limiter = Limiter::with_options(limits, options.at_cap(at_cap).clock(clock));
            let (limiter, world) = (limiter.unwrap(), World::new(hand));
            let at_once = limiter.concurrency("AtOnce").unwrap();
            let held = at_once.acquire("id", 1).unwrap().1.expect("a permit is left");
            let members = [at_once.member("new"), at_once.member("other")];
            let (one, both) = (limiter.batch(&members[..1]), limiter.batch(&members));
            for batch in [&one, &both] {
                let mut wait = Task::new(batch.until_allowed(seconds(5), world.clone()));
                let Poll::Ready(Err(refused)) = wait.poll() else { panic!("{engine:?}") };
                assert!(matches!(refused, ReserveError::NoRoom), "{engine:?}: {refused}");
            }
            drop(held);
            world.advance(ms(1)); // the next search for room
            let mut wait = Task::new(one.until_allowed(seconds(5), world.clone()));
            let Poll::Ready(Ok(_receipt)) = wait.poll() else { panic!("{engine:?} {at_cap:?}") };
        }
    }
}

/// A batch that was woken for a permit, and then has to wait for its place, leaves the permit to the next one.
#[test]
fn permit_is_not_idle_beside_places() {
    for engine in ENGINES {
        let (limiter, world) = limits_of(engine, 1);
        let (rate, at_once) =
            (limiter.limit("Rate").unwrap(), limiter.concurrency("AtOnce").unwrap());
        let held = at_once.acquire("id", 1).unwrap().1;
        let (both, one) = ([rate.member("id"), at_once.member("id")], [at_once.member("id")]);
        let (both, one) = (limiter.batch(&both), limiter.batch(&one));
        let mut waits = [
            Some(Task::new(both.until_allowed(seconds(600), world.clone()))),
            Some(Task::new(one.until_allowed(seconds(600), world.clone()))),
        ];
        assert!(done(&mut waits).is_empty());
        assert!(rate.spend("id", 100).unwrap().allowed());
        drop(held);
        let order: Vec<usize> = done(&mut waits).iter().map(|it| it.0).collect();
        assert_eq!(order, [1], "{engine:?}");
    }
}

/// An address is in a network that has an override. A permit of the address that comes back wakes the callers that wait for it.
#[cfg(feature = "yaml")]
#[test]
fn permits_of_a_network_wake_callers() {
    for engine in ENGINES {
        let defaults =
            "AtOnce: {algorithm: concurrency, max: 9, retry_after: 60s, id: ipAddress}\n";
        let overrides = "- AtOnce:\n    max: 1\n    ids:\n      - 10.0.0.0/8\n";
        let limits = Limits::from_yaml_with_overrides(defaults, overrides).unwrap();
        let (limiter, hand) = support::limiter(limits, engine);
        let world = World::new(hand);
        let at_once = limiter.concurrency("AtOnce").unwrap();
        let id = std::net::IpAddr::from([10, 1, 2, 3]);
        let held = at_once.acquire(id, 1).unwrap().1.expect("a permit is left");
        let members = [at_once.member(id)];
        let batch = limiter.batch(&members);
        let mut waits = [Some(Task::new(batch.until_allowed(seconds(600), world.clone())))];
        assert!(done(&mut waits).is_empty(), "{engine:?}");
        drop(held);
        assert_eq!(done(&mut waits).len(), 1, "{engine:?}");
    }
}

/// Takes and drops the only permit while a batch reads the clock in its attempts and waits.
#[derive(Default)]
struct Holder {
    /// None while the holder itself reads the clock.
    of: Option<ConcurrencyLimit>,
    held: Option<Permit>,
    /// The readings at which the permit is dropped, taken and dropped.
    plan: Vec<u32>,
    readings: u32,
}

fn next_reading(holder: &Mutex<Holder>) {
    let (of, held) = {
        let mut holder = holder.lock().unwrap();
        if holder.of.is_none() {
            return;
        }
        holder.readings += 1;
        let at = holder.readings;
        if holder.plan.first() != Some(&at) {
            return;
        }
        holder.plan.remove(0);
        (holder.of.take().unwrap(), holder.held.take())
    };
    let taken = if held.is_some() { None } else { of.acquire("id", 1).unwrap().1 };
    drop(held);
    let mut holder = holder.lock().unwrap();
    (holder.of, holder.held) = (Some(of), taken);
}

/// A permit that came back between an attempt and the wait after it woke no caller.
#[test]
fn a_return_before_the_next_wait_is_seen() {
    for engine in ENGINES {
        for first in 1..12 {
            for (second, third) in (1..6).flat_map(|by| (1..4).map(move |then| (by, by + then))) {
                let plan = vec![first, first + second, first + third];
                let holder = Arc::new(Mutex::new(Holder::default()));
                let reader = holder.clone();
                let clock = Clock::custom(move || {
                    next_reading(&reader);
                    seconds(1)
                });
                let at_once = Limit::concurrency(1).unwrap().retry_after(seconds(60)).unwrap();
                let options = LimiterOptions::default().engine(engine).clock(clock);
                let limits = support::limits(&[("AtOnce", at_once)]);
                let limiter = Limiter::with_options(limits, options).unwrap();
                let at_once = limiter.concurrency("AtOnce").unwrap();
                let held = at_once.acquire("id", 1).unwrap().1;
                *holder.lock().unwrap() =
                    Holder { of: Some(at_once.clone()), held, plan: plan.clone(), readings: 0 };
                let members = [at_once.member("id")];
                let batch = limiter.batch(&members);
                let mut wait =
                    Task::new(batch.until_allowed(seconds(600), |_| std::future::pending()));
                let is_done = (0..20).any(|_| wait.poll().is_ready());
                holder.lock().unwrap().of = None;
                let is_free = at_once.check("id", 1).unwrap().allowed();
                assert!(is_done || !is_free, "{engine:?}: it waits beside a free permit, {plan:?}");
            }
        }
    }
}

/// A caller that comes back at once took the permit that it had returned, before the caller that was woken for it could run: of ten
/// callers one had all permits.
#[test]
fn newer_waiter_leaves_the_permit_to_the_woken() {
    for engine in ENGINES {
        for is_retry in [false, true] {
            let (limiter, world) = limits_of(engine, 2);
            let (rate, at_once) =
                (limiter.limit("Rate").unwrap(), limiter.concurrency("AtOnce").unwrap());
            let members = [at_once.member("id").cost(2)];
            let batch = limiter.batch(&members);
            let single = [rate.member("id"), at_once.member("id")];
            let single = limiter.batch(&single);
            let wait = |batch| -> Waits<'_> {
                let batch: &Batch<'_> = batch;
                let world = world.clone();
                match is_retry {
                    false => Task::new(batch.until_allowed(seconds(600), world)),
                    true => Task::new(batch.retry(seconds(600), world)),
                }
            };
            let held = at_once.acquire("id", 2).unwrap().1;
            let mut first = wait(&batch);
            assert!(first.poll().is_pending());
            drop(held);
            let [mut second, mut third] = [&single, &single].map(wait);
            let is_pending = second.poll().is_pending() && third.poll().is_pending();
            assert!(is_pending, "{engine:?} {is_retry}: they took the permits of the first");
            // They keep their places of the other limit meanwhile.
            let left = rate.check("id", 0).unwrap().remaining();
            assert_eq!(left, Some(if is_retry { 100 } else { 98 }), "{engine:?} {is_retry}");
            let Poll::Ready(Ok(of_first)) = first.poll() else { panic!("{engine:?} {is_retry}") };
            drop(of_first);
            // Both permits came back at once. The one that is woken passes the wake on.
            let Poll::Ready(Ok(_of_second)) = second.poll() else {
                panic!("{engine:?} {is_retry}")
            };
            let Poll::Ready(Ok(of_third)) = third.poll() else { panic!("{engine:?} {is_retry}") };
            // One that was woken and does not run holds up the next ones for a moment only.
            let mut asleep = wait(&single);
            assert!(asleep.poll().is_pending());
            drop(of_third);
            let mut fourth = wait(&single);
            assert!(fourth.poll().is_pending());
            world.advance_and_wake(ms(20));
            assert!(fourth.poll().is_ready(), "{engine:?} {is_retry}");
        }
    }
}
