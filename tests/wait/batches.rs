//! Batches that wait: places for one time, members without places, callers that go away.

use std::collections::HashMap;
use std::task::Poll;

use tollgate::batch::Member;
use tollgate::reserve::{Receipt, ReserveError};

use super::virtual_time::{Task, World, run};
use super::*;
use crate::support::{full_size, seconds};

const BURST: [u64; 3] = [1, 4, 100];
const EVERY_MS: [u64; 3] = [10, 3, 1];

pub(crate) fn gcra_limits() -> Limits {
    let limit = |at: usize| Limit::new(BURST[at], 1, ms(EVERY_MS[at])).unwrap();
    support::limits(&[("A", limit(0)), ("B", limit(1)), ("C", limit(2))])
}

/// A batch of the model: for each member its limit, its id and its cost.
type Wish = Vec<(usize, u64, u64)>;

/// A bucket in plain integers, in ns: the time until which it is charged, and the parts before that which are free.
#[derive(Clone, Default)]
struct Bucket {
    charged: i128,
    free: Vec<(i128, i128)>,
}

#[derive(Clone, Default)]
struct Model(HashMap<(usize, u64), Bucket>);

impl Model {
    fn tat(&self, limit: usize, id: u64) -> i128 {
        self.0.get(&(limit, id)).map_or(0, |bucket| bucket.charged)
    }

    fn increment(limit: usize, cost: u64) -> i128 {
        i128::from(EVERY_MS[limit] * MS) * i128::from(cost)
    }

    /// The free part, or the end, where the member has its units first at `from` or later: the time of its grant, and the
    /// beginning of its units.
    fn first(&self, &(limit, id, cost): &(usize, u64, u64), from: i128) -> (i128, i128) {
        let units = Model::increment(limit, cost);
        let granted = |start: i128| from.max(start + units - Model::increment(limit, BURST[limit]));
        let bucket = self.0.get(&(limit, id)).cloned().unwrap_or_default();
        let end = bucket.charged.max(from);
        let starts = bucket.free.iter().map(|&(start, end)| (start.max(from), end));
        let fitting = starts.filter(|&(start, end)| start + units <= end).map(|(start, _)| start);
        let start = fitting.min().unwrap_or(end).min(end);
        (granted(start), start)
    }

    /// The time at which all members have their units.
    fn grant(&self, wish: &Wish, now: i128) -> i128 {
        let mut at = now;
        loop {
            let latest = wish.iter().map(|one| self.first(one, at).0).fold(at, i128::max);
            if latest == at {
                return at;
            }
            at = latest;
        }
    }

    fn spend(&mut self, wish: &Wish, now: i128) {
        for &(limit, id, cost) in wish {
            let bucket = self.0.entry((limit, id)).or_default();
            bucket.charged = bucket.charged.max(now) + Model::increment(limit, cost);
        }
    }

    /// Charges all members as of one time.
    fn charge(&mut self, wish: &Wish, at: i128) {
        for one in wish {
            let (limit, id, cost) = *one;
            let (start, units) = (self.first(one, at).1, Model::increment(limit, cost));
            let bucket = self.0.entry((limit, id)).or_default();
            if start < bucket.charged {
                let within = |&(from, end): &(i128, i128)| from <= start && start + units <= end;
                let place = bucket.free.iter().position(within).unwrap();
                let (from, end) = bucket.free.swap_remove(place);
                let rest = [(from, start), (start + units, end)];
                bucket.free.extend(rest.into_iter().filter(|(from, end)| from < end));
            } else {
                if bucket.charged < at {
                    let before = bucket.free.iter().position(|part| part.1 == bucket.charged);
                    let from = before.map(|part| bucket.free.swap_remove(part).0);
                    bucket.free.push((from.unwrap_or(bucket.charged), at));
                }
                bucket.charged = start + units;
            }
        }
    }
}

/// Draws a batch of different buckets.
fn wish(random: &mut Random) -> Wish {
    let mut wish = Wish::new();
    for (limit, &burst) in BURST.iter().enumerate() {
        for id in 0..2 {
            if random.chance(1, 3) {
                wish.push((limit, id, random.within(1, burst)));
            }
        }
    }
    for at in (1..wish.len()).rev() {
        wish.swap(at, random.below(at as u64 + 1) as usize);
    }
    wish
}

fn members<'h>(handles: &'h [KeyedLimit], wish: &Wish) -> Vec<Member<'h>> {
    wish.iter().map(|&(limit, id, cost)| handles[limit].member(id).cost(cost)).collect()
}

/// Reservations of batches beside a model in plain integers: the same times, the same refusals, and buckets that a cancelled
/// batch leaves as they were.
#[test]
fn reservations_are_those_of_the_model() {
    for engine in ENGINES {
        let mut granted = 0;
        for seed in 0..full_size(300, 100_000) {
            let mut random = Random(seed);
            let (limiter, hand) = support::limiter(numbered(), engine);
            let handles = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
            let (mut model, mut now) = (Model::default(), 0_i128);
            for step in 0..60 {
                let at = format!("{engine:?} seed {seed} step {step}");
                now += i128::from(random.below(12 * MS));
                hand.set(Duration::from_nanos(now as u64));
                let wish = wish(&mut random);
                let members = members(&handles, &wish);
                let batch = limiter.batch(&members);
                let wait = model.grant(&wish, now) - now;
                if random.chance(1, 4) {
                    // A spend takes no place: it comes behind all charges.
                    let is_there = wish.iter().all(|&(limit, id, cost)| {
                        let room = Model::increment(limit, BURST[limit] - cost);
                        model.tat(limit, id) <= now + room
                    });
                    let allowed = batch.spend().unwrap().allowed();
                    assert_eq!(allowed, is_there, "{at}: {wish:?}");
                    if allowed {
                        model.spend(&wish, now);
                    }
                } else {
                    let at_most = random.below(60 * MS);
                    match batch.reserve(Duration::from_nanos(at_most)) {
                        Ok(place) => {
                            assert_eq!(place.wait().as_nanos() as i128, wait, "{at}: {wish:?}");
                            assert!(wait <= i128::from(at_most), "{at}");
                            // A place that is granted is a spend: its return is no place.
                            if wait > 0 && random.chance(1, 3) {
                                place.cancel();
                            } else {
                                model.charge(&wish, now + wait);
                                granted += u64::from(wait > 0);
                            }
                        }
                        Err(error) => {
                            assert!(wait > i128::from(at_most), "{at}: {error}");
                            let needed = error.needed().map(|needed| needed.as_nanos() as i128);
                            assert_eq!(needed, Some(wait), "{at}: {wish:?}");
                        }
                    }
                }
                for (limit, handle) in handles.iter().enumerate() {
                    for id in 0..2 {
                        let left = handle.check(id, 0).unwrap().reset_in().as_nanos() as i128;
                        assert_eq!(left, (model.tat(limit, id) - now).max(0), "{at}: {limit}:{id}");
                    }
                }
            }
        }
        assert!(granted > 1000, "{engine:?}: {granted} waits");
    }
}

fn numbered() -> Limits {
    let mut builder = Limits::builder();
    for (at, name) in ["A", "B", "C"].into_iter().enumerate() {
        let limit = Limit::new(BURST[at], 1, ms(EVERY_MS[at])).unwrap();
        builder = builder.limit(name, IdFormat::Integer, limit).unwrap();
    }
    builder.build()
}

/// Waiters of one bucket have its units one after the other in a moment. Of another bucket, which was free for a minute before
/// that, they have no more than it allows in that moment.
#[test]
fn early_places_are_not_used_at_once_later() {
    for engine in ENGINES {
        let named = [
            ("Busy", Limit::new(1000, 1000, seconds(1)).unwrap()),
            ("Free", Limit::new(1, 1, seconds(1)).unwrap()),
        ];
        let (limiter, _hand) = support::limiter(support::limits(&named), engine);
        let (busy, free) = (limiter.limit("Busy").unwrap(), limiter.limit("Free").unwrap());
        for _ in 0..60 {
            let _ = busy.reserve("id", 1000, Duration::MAX).unwrap();
        }
        let members = [busy.member("id"), free.member("id")];
        let batch = limiter.batch(&members);
        let waits: Vec<Duration> =
            (0..10).map(|_| batch.reserve(Duration::MAX).unwrap().wait()).collect();
        assert_eq!(waits[0], ms(59_001), "{engine:?}");
        for pair in waits.windows(2) {
            assert_eq!(pair[1], pair[0] + seconds(1), "{engine:?}: {waits:?}");
        }
        // The minute is free for callers who wait for the other bucket alone.
        assert!(free.reserve("id", 1, Duration::MAX).unwrap().wait().is_zero());
        assert_eq!(free.reserve("id", 1, Duration::MAX).unwrap().wait(), seconds(1));
    }
}

#[test]
fn waiters_are_granted_in_order_of_calls() {
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(gcra_limits(), engine);
        let world = World::new(hand);
        let handles = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
        let all: Vec<[Member<'_>; 3]> = (0..50)
            .map(|at| {
                [
                    handles[2].member("id").cost(1 + at % 8),
                    handles[0].member("id"),
                    handles[1].member("id").cost(2),
                ]
            })
            .collect();
        let batches: Vec<_> = all.iter().map(|members| limiter.batch(members)).collect();
        let tasks = batches
            .iter()
            .map(|batch| Task::new(batch.until_allowed(Duration::MAX, world.clone())))
            .collect();
        let done = run(&world, tasks);
        let order: Vec<usize> = done.iter().map(|(number, ..)| *number).collect();
        assert_eq!(order, (0..50).collect::<Vec<_>>(), "{engine:?}");
        assert!(done.iter().all(|(_, _, polls, receipt)| *polls <= 2 && receipt.is_ok()));
        // 49 intervals of the slowest limit.
        assert_eq!(done[49].1, 49 * 10 * MS, "{engine:?}");
    }
}

/// Every second waiter is dropped at a random moment: the others lose nothing, and what is charged in the end is theirs.
#[test]
fn dropped_waiters_lose_no_unit() {
    for engine in ENGINES {
        for seed in 0..50 {
            let mut random = Random(seed);
            let (limiter, hand) = support::limiter(gcra_limits(), engine);
            let world = World::new(hand);
            let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
            let members = [handles[0].member("id"), handles[1].member("id").cost(2)];
            let batch = limiter.batch(&members);
            let mut tasks: Vec<_> = (0..20)
                .map(|_| Some(Task::new(batch.until_allowed(Duration::MAX, world.clone()))))
                .collect();
            let mut granted = 0;
            while tasks.iter().any(Option::is_some) {
                for (at, slot) in tasks.iter_mut().enumerate() {
                    let Some(task) = slot else { continue };
                    if at % 2 == 1 && random.chance(1, 8) {
                        *slot = None;
                    } else if let Poll::Ready(receipt) = task.poll() {
                        granted += 1;
                        drop::<Receipt>(receipt.unwrap());
                        *slot = None;
                    }
                }
                world.advance_and_wake(Duration::from_nanos(random.below(4 * MS)));
            }
            assert!(granted >= 10, "{engine:?} seed {seed}: {granted}");
            world.advance(seconds(10));
            for (handle, burst) in [(&handles[0], 1), (&handles[1], 4)] {
                assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(burst));
            }
        }
    }
}

/// The last waiter of a bucket leaves it as it was before it came, also the idle time in front of its place.
#[test]
fn dropped_batch_leaves_the_buckets_as_they_were() {
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(gcra_limits(), engine);
        let world = World::new(hand);
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        assert!(handles[0].spend("id", 1).unwrap().allowed());
        let members = [handles[1].member("id").cost(2), handles[0].member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(task.poll().is_pending());
        assert!(!handles[1].spend("id", 1).unwrap().allowed(), "{engine:?}: it waits");
        drop(task);
        assert_eq!(handles[1].check("id", 0).unwrap().remaining(), Some(4), "{engine:?}");
        assert_eq!(handles[0].check("id", 0).unwrap().reset_in(), ms(10), "{engine:?}");
    }
}

/// Permits are tried at the grant. While they are denied, nothing is charged.
#[test]
fn permits_are_tried_at_the_grant() {
    for engine in ENGINES {
        let in_flight = Limit::concurrency(1).unwrap();
        let named = [("Rate", Limit::new(1, 1, ms(10)).unwrap()), ("InFlight", in_flight)];
        let (limiter, hand) = support::limiter(support::limits(&named), engine);
        let world = World::new(hand);
        let (rate, in_flight) =
            (limiter.limit("Rate").unwrap(), limiter.concurrency("InFlight").unwrap());
        let members = [in_flight.member("id"), rate.member("id")];
        let batch = limiter.batch(&members);
        let first = batch.until_allowed(ms(0), world.clone());
        let Poll::Ready(Ok(first)) = Task::new(first).poll() else { panic!("{engine:?}") };
        let mut second = Task::new(batch.until_allowed(seconds(5), world.clone()));
        assert!(second.poll().is_pending());
        world.advance_and_wake(ms(10));
        assert!(second.poll().is_pending(), "{engine:?}: the permit is out");
        assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(1), "{engine:?}: returned");
        assert_eq!(in_flight.in_flight("id").unwrap(), 1);
        drop(first);
        let Poll::Ready(Ok(mut receipt)) = second.poll() else { panic!("{engine:?}") };
        assert_eq!(in_flight.in_flight("id").unwrap(), 1);
        assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(0));
        assert_eq!(receipt.settle_member(1, 0).unwrap().remaining(), Some(1), "{engine:?}");
        drop(receipt);
        assert_eq!(in_flight.in_flight("id").unwrap(), 0);

        let held = in_flight.acquire("id", 1).unwrap().1;
        let mut late = Task::new(batch.until_allowed(ms(999), world.clone()));
        assert!(late.poll().is_pending(), "{engine:?}");
        world.advance_and_wake(ms(999));
        let Poll::Ready(Err(error)) = late.poll() else { panic!("{engine:?}") };
        assert_eq!(error.needed(), Some(seconds(1)), "{engine:?}: its retry_after");
        assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(1), "{engine:?}");
        drop(held);
    }
}

#[test]
fn every_algorithm_can_wait_in_a_batch() {
    for engine in ENGINES {
        for other in &limits_of_all(4)[1..] {
            let named = [("Rate", Limit::new(2, 1, ms(1)).unwrap()), ("Other", other.clone())];
            let (limiter, hand) = support::limiter(support::limits(&named), engine);
            let world = World::new(hand);
            let (rate, other) = (limiter.limit("Rate").unwrap(), limiter.limit("Other").unwrap());
            let members = [other.member("id").cost(4), rate.member("id")];
            let batch = limiter.batch(&members);
            let error = batch.reserve(Duration::MAX).unwrap_err();
            assert!(error.is_without_places(), "{engine:?}: {error}");
            for with_places in [true, false] {
                let tasks: Vec<Task<'_, Result<Receipt, ReserveError>>> = (0..3)
                    .map(|_| match with_places {
                        true => Task::new(batch.until_allowed(Duration::MAX, world.clone())),
                        false => Task::new(batch.retry(Duration::MAX, world.clone())),
                    })
                    .collect();
                let done = run(&world, tasks);
                assert!(done.iter().all(|(.., receipt)| receipt.is_ok()), "{engine:?}");
            }
        }
    }
}

#[test]
fn batch_is_refused_at_once() {
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(gcra_limits(), engine);
        let world = World::new(hand);
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let refused = |members: &[Member<'_>]| {
            let batch = limiter.batch(members);
            let errors = [
                batch.reserve(Duration::MAX).map(|_| ()).unwrap_err(),
                match Task::new(batch.until_allowed(Duration::MAX, world.clone())).poll() {
                    Poll::Ready(done) => done.map(|_| ()).unwrap_err(),
                    Poll::Pending => panic!("it waits"),
                },
            ];
            assert_eq!(
                handles[1].check("id", 0).unwrap().remaining(),
                Some(4),
                "nothing is charged"
            );
            errors
        };
        let member = |at: usize| handles[at].member("id");
        let never = refused(&[member(1), member(0).cost(2)]);
        assert!(never.iter().all(ReserveError::is_never), "{engine:?}: {never:?}");
        let twice = refused(&[member(1), member(1)]);
        let is_twice = |error: &ReserveError| matches!(error, ReserveError::Wrong(error) if error.is_invalid_batch());
        assert!(twice.iter().all(is_twice), "{engine:?}: {twice:?}");
        handles[0].block("id", seconds(7)).unwrap();
        let blocked = refused(&[member(1), member(0)]);
        assert!(blocked.iter().all(ReserveError::is_blocked), "{engine:?}: {blocked:?}");
    }
}

/// A reload between the places and the other charges: each is settled under its own limits.
#[test]
fn receipt_over_a_reload_settles_all() {
    for engine in ENGINES {
        let limits = |other| {
            let named = [
                ("Rate", Limit::new(5, 1, seconds(1)).unwrap()),
                ("Window", Limit::fixed_window(other, seconds(3600)).unwrap()),
            ];
            support::limits(&named)
        };
        let (limiter, hand) = support::limiter(limits(10), engine);
        let world = World::new(hand);
        let (rate, window) = (limiter.limit("Rate").unwrap(), limiter.limit("Window").unwrap());
        assert!(rate.spend("id", 5).unwrap().allowed());
        let members = [rate.member("id").cost(4), window.member("id").cost(6)];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(task.poll().is_pending());
        limiter.reload(limits(20)).unwrap();
        world.advance_and_wake(seconds(4));
        let Poll::Ready(Ok(receipt)) = task.poll() else { panic!("{engine:?}") };
        assert_eq!(receipt.cost(), 10);
        let after = receipt.settle(1);
        assert_eq!(rate.check("id", 0).unwrap().remaining(), Some(3), "{engine:?}");
        assert_eq!(window.check("id", 0).unwrap().remaining(), Some(19), "{engine:?}");
        assert_eq!(after.remaining(), Some(3));
    }
}

#[test]
fn batch_counts_each_member_once() {
    for engine in ENGINES {
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).counting(true);
        let limiter = Limiter::with_options(gcra_limits(), options).unwrap();
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let members = [handles[1].member("id"), handles[0].member("id")];
        let batch = limiter.batch(&members);
        for _ in 0..3 {
            let _ = batch.reserve(Duration::MAX).unwrap();
        }
        assert!(batch.reserve(ms(1)).unwrap_err().is_not_in_time());
        let counters = limiter.counters();
        let counts = |name: &str| {
            let limit = counters.limits.iter().find(|limit| limit.name == name).unwrap();
            (limit.allowed, limit.denied)
        };
        assert_eq!(counts("A"), (3, 1), "{engine:?}: it is not in time");
        assert_eq!(counts("B"), (3, 0), "{engine:?}");
    }
}

/// A batch with a blocked id is refused at once, whichever member comes first.
#[test]
fn blocked_member_refuses_in_any_order() {
    for engine in ENGINES {
        let limit = Limit::new(1, 1, seconds(1)).unwrap();
        let limits = support::limits(&[("A", limit.clone()), ("B", limit)]);
        let (limiter, hand) = support::limiter(limits, engine);
        let world = World::new(hand);
        let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let _places = [(); 11].map(|()| a.reserve("id", 1, Duration::MAX).unwrap());
        b.block("id", seconds(5)).unwrap();
        for members in [[a.member("id"), b.member("id")], [b.member("id"), a.member("id")]] {
            let batch = limiter.batch(&members);
            assert!(batch.reserve(Duration::MAX).unwrap_err().is_blocked(), "{engine:?}");
            let mut wait = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
            let Poll::Ready(Err(error)) = wait.poll() else { panic!("{engine:?}") };
            assert!(error.is_blocked(), "{engine:?}");
        }
    }
}
