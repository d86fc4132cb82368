//! Permits, alone and in batches, beside reloads, sweeps, the cap, and blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::options::{AtCap, Engine};
use tollgate::reload::CarryOver;
use tollgate::{
    Clock, ConcurrencyLimit, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits, Permit,
};

use super::support::{self, ENGINES, hourly, limiter_with, limits, seconds, sweep_all};

pub(crate) fn at_most(max: u64) -> Limit {
    Limit::concurrency(max).unwrap()
}

/// A limiter with "Flights", of at most `max` permits, and "Units", of 10 an hour.
pub(crate) fn with_flights(
    max: u64,
    options: LimiterOptions,
) -> (Limiter, ConcurrencyLimit, KeyedLimit) {
    let both = limits(&[("Flights", at_most(max)), ("Units", hourly(10))]);
    let (limiter, _) = limiter_with(both, options);
    let (flights, units) =
        (limiter.concurrency("Flights").unwrap(), limiter.limit("Units").unwrap());
    (limiter, flights, units)
}

pub(crate) fn on(engine: Engine) -> LimiterOptions {
    LimiterOptions::default().engine(engine)
}

#[track_caller]
pub(crate) fn taken(flights: &ConcurrencyLimit, id: &str, permits: u64) -> Permit {
    flights.acquire(id, permits).unwrap().1.expect("allowed")
}

pub(crate) fn is_allowed(flights: &ConcurrencyLimit, id: &str, permits: u64) -> bool {
    let (decision, permit) = flights.acquire(id, permits).unwrap();
    assert_eq!(decision.allowed(), permit.is_some());
    decision.allowed()
}

#[test]
fn permits_are_out_until_dropped() {
    for engine in ENGINES {
        let (_, flights, _) = with_flights(3, on(engine));
        let first = taken(&flights, "a", 2);
        let (denied, none) = flights.acquire("a", 2).unwrap();
        assert!(none.is_none() && !denied.allowed());
        assert_eq!((denied.remaining(), denied.retry_in()), (Some(1), seconds(1)));
        let second = taken(&flights, "a", 1);
        assert!(is_allowed(&flights, "b", 3), "another id");
        assert_eq!((flights.in_flight("a").unwrap(), flights.total_in_flight()), (3, 3));
        drop(first);
        assert_eq!(flights.check("a", 1).unwrap().remaining(), Some(1), "{engine:?}");
        drop(second);
        assert_eq!((flights.in_flight("a").unwrap(), flights.total_in_flight()), (0, 0));
        assert!(flights.acquire("a", 4).unwrap_err().is_cost_above_burst());
        assert!(is_allowed(&flights, "a", 0));
    }
}

#[test]
fn batch_takes_permits_and_units_or_neither() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        let members = |cost| [units.member("a").cost(cost), flights.member("a")];
        let left = || units.check("a", 0).unwrap().remaining().unwrap();
        let batch = |cost| limiter.batch(&members(cost)).spend_estimate().unwrap();
        let mut first = batch(6).1.unwrap();
        assert_eq!((left(), flights.in_flight("a").unwrap()), (4, 1));
        // Denied by the units: no permit is taken.
        let (denied, none) = batch(5);
        assert!(none.is_none());
        assert_eq!((denied.denied_by(), flights.in_flight("a").unwrap()), (Some(0), 1));
        let second = batch(1).1.unwrap();
        // Denied by the permits: no unit is spent.
        let (denied, none) = batch(1);
        assert!(none.is_none());
        assert_eq!((denied.denied_by(), left()), (Some(1), 3), "{engine:?}");
        assert_eq!(first.settle_member(1, 0), None, "permits are not settled");
        assert_eq!(first.settle_member(0, 1).unwrap().remaining(), Some(8));
        drop(first);
        assert_eq!((left(), flights.in_flight("a").unwrap()), (8, 1));
        assert_eq!(second.settle(0).remaining(), Some(9));
        assert_eq!(flights.total_in_flight(), 0);
    }
}

#[test]
fn calls_that_keep_no_permit_are_refused() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        let members = [units.member("a"), flights.member("a")];
        let batch = limiter.batch(&members);
        let mut each = Vec::new();
        for error in [
            batch.spend().unwrap_err(),
            batch.spend_into(&mut each).unwrap_err(),
            batch.refund().unwrap_err(),
            batch.reset().unwrap_err(),
        ] {
            assert!(error.is_invalid_batch(), "{error}");
            assert!(error.to_string().contains("spend_estimate"), "{error}");
        }
        assert!(batch.check().unwrap().allowed());
        assert_eq!(units.check("a", 0).unwrap().remaining(), Some(10));
        assert!(limiter.limit("Flights").unwrap_err().is_invalid_name());
        assert!(limiter.concurrency("Units").unwrap_err().is_invalid_name());
        let scaled = flights.member("a").factor("2".parse().unwrap());
        let error = limiter.batch(&[scaled]).spend_estimate().unwrap_err();
        assert!(error.to_string().contains("does not support factors"), "{error}");
    }
}

#[test]
fn reload_to_fewer_leaves_holders_alone() {
    for engine in ENGINES {
        for carry in [CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh] {
            let (limiter, flights, _) = with_flights(5, on(engine));
            let held = [(); 4].map(|()| taken(&flights, "a", 1));
            let fewer = limits(&[("Flights", at_most(2)), ("Units", hourly(10))]);
            limiter.reload_with(fewer, carry).unwrap();
            assert_eq!(flights.in_flight("a").unwrap(), 4, "{engine:?} {carry:?}");
            let mut left = 4;
            for permit in held {
                assert_eq!(is_allowed(&flights, "a", 1), left < 2, "{left} are out");
                drop(permit);
                left -= 1;
            }
            assert_eq!((flights.in_flight("a").unwrap(), flights.total_in_flight()), (0, 0));
        }
    }
}

#[test]
fn permits_of_a_lifted_limit_count_no_more() {
    for engine in ENGINES {
        let (limiter, flights, _) = with_flights(2, on(engine));
        let before = taken(&flights, "a", 2);
        let units = ("Units", hourly(10));
        let lifted = Limits::builder().limit("Flights", IdFormat::String, None).unwrap();
        let lifted = lifted.limit("Units", IdFormat::String, hourly(10)).unwrap().build();
        limiter.reload(lifted).unwrap();
        assert!(is_allowed(&flights, "a", 1) && flights.in_flight("a").unwrap() == 0);
        limiter.reload(limits(&[("Flights", at_most(2)), units])).unwrap();
        let after = taken(&flights, "a", 2);
        drop(before);
        assert_eq!(flights.in_flight("a").unwrap(), 2, "{engine:?}: they are of another count");
        assert!(!is_allowed(&flights, "a", 1));
        drop(after);
        assert_eq!(flights.in_flight("a").unwrap(), 0);
    }
}

#[test]
fn permits_never_become_units() {
    let (limiter, flights, _) = with_flights(2, LimiterOptions::default());
    let permit = taken(&flights, "a", 1);
    let units = limits(&[("Flights", hourly(5)), ("Units", hourly(10))]);
    for carry in [CarryOver::Share, CarryOver::Afresh] {
        let error = limiter.reload_with(units.clone(), carry).unwrap_err();
        assert!(error.to_string().contains("concurrency cannot become gcra"), "{error}");
    }
    drop(permit);
}

#[test]
fn sweep_drops_what_is_full_alone() {
    for engine in ENGINES {
        let (limiter, flights, _) = with_flights(2, on(engine));
        let held = taken(&flights, "a", 1);
        drop(taken(&flights, "b", 1));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
        assert_eq!(flights.in_flight("a").unwrap(), 1);
        drop(held);
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0);
        assert!(is_allowed(&flights, "a", 2));
    }
}

/// Ids without room once shared a bucket, and one long stream in it denied all new ids until it ended.
#[test]
fn ids_without_room_get_no_permit() {
    for engine in ENGINES {
        let options = on(engine).max_keys(8).at_cap(AtCap::Share);
        let (limiter, hand) = limiter_with(limits(&[("Flights", at_most(1))]), options);
        let flights = limiter.concurrency("Flights").unwrap();
        let first: Vec<_> = (0..8).map(|id| taken(&flights, &format!("first{id}"), 1)).collect();
        let (decision, long) = flights.acquire("long", 1).unwrap();
        let checked = flights.check("long", 1).unwrap();
        assert!(decision.out_of_room() && checked.out_of_room(), "{engine:?}: {decision:?}");
        assert!(long.is_none() && !decision.allowed() && !checked.allowed());
        let known = flights.acquire("first0", 1).unwrap().0;
        assert!(!known.allowed() && !known.out_of_room(), "{engine:?}: it has a bucket");
        assert_eq!((limiter.stats().denied_at_cap, limiter.stats().overflowed), (1, 0));
        drop(first);
        hand.advance(seconds(3_600));
        for id in 0..100 {
            let new: Vec<_> = (0..8).map(|at| taken(&flights, &format!("{id}.{at}"), 1)).collect();
            assert_eq!(flights.total_in_flight(), 8, "{engine:?}");
            drop(new);
        }
    }
}

#[test]
fn override_gets_permits_in_a_full_table() {
    for engine in ENGINES {
        let with = |own: Option<u64>| {
            let flights = Limits::builder().limit("Flights", IdFormat::String, at_most(2));
            match own {
                Some(own) => flights.unwrap().override_id("Flights", "x", at_most(own)).unwrap(),
                None => flights.unwrap(),
            }
            .build()
        };
        let (limiter, hand) = limiter_with(with(None), on(engine).max_keys(1));
        let flights = limiter.concurrency("Flights").unwrap();
        let own = taken(&flights, "own", 1);
        assert!(flights.acquire("x", 1).unwrap().0.out_of_room(), "{engine:?}");
        limiter.reload(with(Some(5))).unwrap();
        let held = taken(&flights, "x", 5);
        assert!(!is_allowed(&flights, "x", 1) && !is_allowed(&flights, "y", 1), "{engine:?}");
        limiter.reload(with(None)).unwrap();
        assert_eq!(flights.in_flight("x").unwrap(), 5, "{engine:?}: they are out all the same");
        drop((own, held));
        hand.advance(seconds(1)); // the next search for room
        assert!(is_allowed(&flights, "x", 2) && is_allowed(&flights, "y", 2), "{engine:?}");
        assert_eq!(flights.total_in_flight(), 0);
    }
}

#[test]
fn cap_denies_or_allows_as_told() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny, AtCap::Allow] {
            let options = on(engine).max_keys(1).at_cap(at_cap);
            let (limiter, _) = limiter_with(limits(&[("Flights", at_most(1))]), options);
            let flights = limiter.concurrency("Flights").unwrap();
            let own = taken(&flights, "own", 1);
            let (decision, permit) = flights.acquire("x", 1).unwrap();
            assert_eq!(decision.allowed(), at_cap == AtCap::Allow);
            assert_eq!(decision.out_of_room(), at_cap != AtCap::Allow, "{engine:?} {at_cap:?}");
            drop((own, permit));
            assert_eq!(flights.total_in_flight(), 0);
            sweep_all(&limiter); // a call at the cap looks at 80 buckets for one without permits
            assert!(is_allowed(&flights, "x", 1));
        }
    }
}

#[test]
fn shadow_mode_counts_and_denies_none() {
    for engine in ENGINES {
        let options = LimitOptions::default().mode(LimitMode::Shadow);
        let shadow = Limits::builder().limit_with("Flights", IdFormat::String, at_most(1), options);
        let (limiter, _) = limiter_with(shadow.unwrap().build(), on(engine).counting(true));
        let flights = limiter.concurrency("Flights").unwrap();
        let first = taken(&flights, "a", 1);
        let second = taken(&flights, "a", 1);
        assert_eq!(flights.in_flight("a").unwrap(), 1, "the second would be denied");
        assert_eq!(limiter.counters().limits[0].shadow_denied, 1);
        drop(second);
        assert_eq!(flights.in_flight("a").unwrap(), 1, "{engine:?}: it had none");
        drop(first);
        assert_eq!(flights.in_flight("a").unwrap(), 0);
    }
}

#[test]
fn blocks_deny_new_permits_alone() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        let held = taken(&flights, "a", 1);
        flights.block("a", seconds(60)).unwrap();
        let (denied, none) = flights.acquire("a", 1).unwrap();
        assert!(denied.blocked() && none.is_none());
        let members = [flights.member("a"), units.member("a")];
        assert!(limiter.batch(&members).spend_estimate().unwrap().0.blocked());
        drop(held);
        assert!(flights.unblock("a").unwrap());
        assert!(is_allowed(&flights, "a", 2), "{engine:?}");
    }
}

#[test]
fn switched_off_limiter_takes_permits_back() {
    for engine in ENGINES {
        let (limiter, flights, _) = with_flights(1, on(engine));
        let held = taken(&flights, "a", 1);
        limiter.set_enabled(false);
        assert!(is_allowed(&flights, "a", 1), "nothing counts");
        drop(held);
        limiter.set_enabled(true);
        assert_eq!(flights.in_flight("a").unwrap(), 0, "{engine:?}");
    }
}

#[test]
fn set_max_lasts_until_the_default_changes() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        flights.set_max(4);
        let held = [taken(&flights, "a", 2), taken(&flights, "a", 2)];
        assert!(!is_allowed(&flights, "a", 1));
        assert!(flights.acquire("a", 3).unwrap_err().is_cost_above_burst(), "above `max`");
        let same = limits(&[("Flights", at_most(2)), ("Units", hourly(11))]);
        limiter.reload(same).unwrap();
        assert_eq!(flights.max(), Some(4), "{engine:?}: another limit has changed");
        flights.set_max(0);
        assert!(!is_allowed(&flights, "b", 1));
        let members = [flights.member("b"), units.member("b")];
        assert_eq!(limiter.batch(&members).spend_estimate().unwrap().0.denied_by(), Some(0));
        let changed = limits(&[("Flights", at_most(3)), ("Units", hourly(11))]);
        limiter.reload(changed).unwrap();
        assert_eq!(flights.max(), Some(3));
        drop(held);
        assert!(is_allowed(&flights, "b", 3));
    }
}

#[test]
fn overrides_have_their_own_max() {
    for engine in ENGINES {
        let limits = Limits::builder().limit("Flights", IdFormat::String, at_most(1)).unwrap();
        let limits = limits.override_id("Flights", "vip", at_most(3)).unwrap().build();
        let (limiter, _) = limiter_with(limits, on(engine));
        let flights = limiter.concurrency("Flights").unwrap();
        flights.set_max(0);
        assert!(is_allowed(&flights, "vip", 3) && !is_allowed(&flights, "a", 1), "{engine:?}");
    }
}

#[test]
fn panicking_holder_gives_permits_back() {
    let (_, flights, _) = with_flights(1, LimiterOptions::default());
    let work = catch_unwind(AssertUnwindSafe(|| {
        let _permit = taken(&flights, "a", 1);
        panic!("planned");
    }));
    assert!(work.is_err());
    assert_eq!(flights.in_flight("a").unwrap(), 0);
}

#[cfg(feature = "snapshot")]
#[test]
fn permits_are_in_no_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("buckets");
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine).max_keys(2));
        let held = [taken(&flights, "a", 2), taken(&flights, "b", 1)];
        assert!(units.spend("a", 4).unwrap().allowed());
        limiter.snapshot(&file).unwrap();
        let both = limits(&[("Flights", at_most(2)), ("Units", hourly(10))]);
        let options = on(engine).clock(Clock::manual().0);
        let (restored, _) = Limiter::restore(both, options, &file).unwrap();
        let flights = restored.concurrency("Flights").unwrap();
        assert!(is_allowed(&flights, "a", 2) && is_allowed(&flights, "b", 2), "{engine:?}");
        let left = restored.limit("Units").unwrap().check("a", 0).unwrap().remaining();
        assert_eq!(left, Some(6));
        drop(held);
    }
}

/// Threads take and give back one id's permits while others sweep, reload and fill the table. `PERMIT_TURNS`: the turns of each of
/// eight threads, of three permits each.
#[test]
fn threads_never_hold_more_than_max() {
    const MAX: u64 = 3;
    let turns = support::count_of("PERMIT_TURNS", support::full_size(10_000, 100_000));
    for engine in ENGINES {
        let began = std::time::Instant::now();
        let options = on(engine).max_keys(4).clock(Clock::system());
        let of = |other| limits(&[("Flights", at_most(MAX)), ("Other", hourly(other))]);
        let limiter = Limiter::with_options(of(5), options).unwrap();
        let flights = limiter.concurrency("Flights").unwrap();
        let (out, barrier) = (AtomicU64::new(0), Barrier::new(9));
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let mut taken = 0;
                        for turn in 0..turns {
                            let fill = [(); 2].map(|()| flights.acquire(turn % 7, 1).unwrap().1);
                            if let Some(permit) = flights.acquire("hot", 1).unwrap().1 {
                                let now = out.fetch_add(1, Ordering::SeqCst) + 1;
                                assert!(now <= MAX, "{engine:?}: {now} at once");
                                out.fetch_sub(1, Ordering::SeqCst);
                                drop(permit);
                                taken += 1;
                            }
                            drop(fill);
                        }
                        taken
                    })
                })
                .collect();
            scope.spawn(|| {
                barrier.wait();
                let mut other = 5;
                while !is_done.load(Ordering::Relaxed) {
                    limiter.sweep(16);
                    other = 11 - other;
                    limiter.reload(of(other)).unwrap();
                }
            });
            let callers: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
            is_done.store(true, Ordering::Relaxed); // also after a panic
            let taken: u64 = callers.into_iter().map(Result::unwrap).sum();
            println!("{engine:?}: 8 x {turns} turns, {taken} permits taken, {:?}", began.elapsed());
            assert!(taken > 1_000, "{taken}");
        });
        assert_eq!(flights.total_in_flight(), 0);
        assert_eq!(flights.in_flight("hot").unwrap(), 0);
        sweep_all(&limiter); // a call that has found no room lets none search for a millisecond
        assert!(is_allowed(&flights, "hot", MAX), "{engine:?}: all are back");
    }
}
