//! Spends that must leave units in the bucket.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::options::AtCap;
use tollgate::{IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::hooked;
use super::support::{ENGINES, hourly, limiter, limiter_with, limits, limits_of_all, ms, seconds};

/// Limits of 10 units at once: one of each built-in algorithm, and a custom one.
fn all_limits() -> Vec<Limit> {
    let mut all = limits_of_all(10, seconds(1)).to_vec();
    all.push(hooked(hourly(10), |_| ()));
    all
}

/// For each engine and each of these limits, a limiter that has it as "A".
fn on_engines(of: &[Limit]) -> Vec<(Limiter, ManualClock, Limit)> {
    let on = |engine, limit: &Limit| {
        let (limiter, hand) = limiter(limits(&[("A", limit.clone())]), engine);
        (limiter, hand, limit.clone())
    };
    ENGINES.iter().flat_map(|&engine| of.iter().map(move |limit| on(engine, limit))).collect()
}

fn left(handle: &KeyedLimit, id: &str) -> Option<u64> {
    handle.check(id, 0).unwrap().remaining()
}

#[test]
fn it_spends_down_to_the_units_it_leaves() {
    for (limiter, _hand, limit) in on_engines(&all_limits()) {
        let a = limiter.limit("A").unwrap();
        let quota = left(&a, "id").unwrap();
        for spent in 1..=6 {
            let decision = a.leaving(4).spend("id", 1).unwrap();
            assert!(decision.allowed(), "{limit:?}: {spent}");
            assert_eq!(decision.remaining(), Some(quota - spent));
        }
        for denied in [a.leaving(4).spend("id", 1), a.leaving(4).check("id", 1)] {
            let denied = denied.unwrap();
            assert_eq!((denied.allowed(), denied.remaining()), (false, Some(quota - 6)));
            assert!(denied.retry_in() > Duration::ZERO, "{limit:?}");
        }
        assert!(a.leaving(4).check("id", 0).unwrap().allowed());
        assert!(!a.leaving(5).spend("id", 0).unwrap().allowed());
        assert!(a.leaving(3).check("id", 1).unwrap().allowed());
        assert!(a.spend("id", 4).unwrap().allowed(), "{limit:?}: the rest is for others");
        assert!(!a.spend("id", 1).unwrap().allowed());
        assert!(!a.leaving(1).spend("id", 0).unwrap().allowed());
        assert!(a.leaving(0).spend("id", 0).unwrap().allowed());
    }
}

/// To the nanosecond for gcra, to the millisecond for the algorithms that count.
#[test]
fn its_wait_ends_when_it_is_allowed() {
    let of_ms = ms(1);
    for engine in ENGINES {
        for (at, limit) in all_limits().into_iter().enumerate() {
            let tick = if matches!(at, 0 | 4) { Duration::from_nanos(1) } else { of_ms };
            for (used, cost, leave) in [(6, 1, 4), (10, 1, 1), (10, 3, 7), (5, 0, 8), (9, 2, 2)] {
                let (limiter, hand) = limiter(limits(&[("A", limit.clone())]), engine);
                let a = limiter.limit("A").unwrap();
                hand.advance(ms(12_345));
                assert!(a.spend("id", used).unwrap().allowed());
                hand.advance(ms(137));
                let wait = a.leaving(leave).spend("id", cost).unwrap().retry_in();
                assert!(wait > tick, "{limit:?}: {used} {cost} {leave}");
                hand.advance(wait - tick);
                let early = a.leaving(leave).check("id", cost).unwrap();
                assert_eq!((early.allowed(), early.retry_in()), (false, tick), "{limit:?}");
                hand.advance(tick);
                assert!(a.leaving(leave).spend("id", cost).unwrap().allowed(), "{limit:?}");
            }
        }
    }
}

#[test]
fn allowed_call_tells_when_it_is_allowed_again() {
    for (limiter, hand, limit) in on_engines(&all_limits()) {
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("A").unwrap());
        assert_eq!(a.leaving(4).spend("id", 3).unwrap().retry_in(), Duration::ZERO);
        let checked = a.leaving(4).check("id", 3).unwrap();
        let spent = a.leaving(4).spend("id", 3).unwrap();
        assert_eq!(checked, spent, "{limit:?}");
        let denied = b.leaving(4).check("id", 3).unwrap();
        assert!(spent.allowed() && !denied.allowed());
        assert_eq!(spent.retry_in(), denied.retry_in(), "{limit:?}");
        hand.advance(spent.retry_in());
        assert!(a.leaving(4).spend("id", 3).unwrap().allowed(), "{limit:?}");
    }
}

#[test]
fn more_than_the_burst_is_an_error() {
    for (limiter, _hand, _) in on_engines(&all_limits()) {
        let a = limiter.limit("A").unwrap();
        for (cost, leave) in [(3, 8), (11, 1), (0, 11), (u64::MAX, u64::MAX), (1, u64::MAX)] {
            let (calls, member) = (a.leaving(leave), [a.member("id").cost(cost).leaving(leave)]);
            let batch = limiter.batch(&member);
            let estimate = batch.spend_estimate().map(|(decision, _)| decision);
            for call in [
                calls.spend("id", cost),
                calls.check("id", cost),
                batch.spend(),
                batch.check(),
                batch.spend_into(&mut Vec::new()),
                estimate,
            ] {
                let error = call.unwrap_err();
                assert!(error.is_cost_above_burst(), "{error}");
                let text = error.to_string();
                assert!(text.starts_with(&format!("cost {cost} leaving {leave} is above")));
                assert!(text.ends_with(" 10 of A"), "{text}");
            }
        }
        assert!(a.leaving(8).spend("id", 2).unwrap().allowed());
    }
}

#[test]
fn a_batch_charges_all_or_none() {
    for engine in ENGINES {
        for limit in all_limits() {
            let both = limits(&[("A", limit.clone()), ("B", hourly(5))]);
            let (limiter, _hand) = limiter(both, engine);
            let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
            let quota = left(&a, "id").unwrap();
            let batch = [b.member("id"), a.leaving(7).member("id").cost(2)];
            let batch = limiter.batch(&batch);
            assert!(batch.check().unwrap().allowed());
            assert!(batch.spend().unwrap().allowed(), "{limit:?}");
            let mut each = Vec::new();
            for denied in [batch.check(), batch.spend(), batch.spend_into(&mut each)] {
                let denied = denied.unwrap();
                assert_eq!((denied.denied_by(), denied.remaining()), (Some(1), Some(quota - 2)));
                assert_eq!(denied.retry_in(), a.leaving(7).check("id", 2).unwrap().retry_in());
            }
            assert_eq!((each[0].allowed(), each[0].remaining()), (true, Some(4)));
            let (denied, receipt) = batch.spend_estimate().unwrap();
            assert!(!denied.allowed() && receipt.is_none());
            assert_eq!((left(&a, "id"), left(&b, "id")), (Some(quota - 2), Some(4)), "{limit:?}");
            assert!(batch.refund().unwrap().allowed());
            assert_eq!((left(&a, "id"), left(&b, "id")), (Some(quota), Some(5)), "the cost alone");
        }
    }
}

#[test]
fn modes_leave_units_as_well() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10)), ("B", hourly(10))]), engine);
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        let spend = |mode: MemberMode| {
            let members = [a.member("id").cost(4).leaving(3).mode(mode), b.member("id")];
            limiter.batch(&members).spend().unwrap().allowed()
        };
        assert!(spend(MemberMode::CheckOnly));
        assert_eq!((left(&a, "id"), left(&b, "id")), (Some(10), Some(9)));
        assert!(spend(MemberMode::SpendOnly) && spend(MemberMode::SpendOnly));
        assert_eq!((left(&a, "id"), left(&b, "id")), (Some(6), Some(7)), "the second did not fit");
        assert!(!spend(MemberMode::CheckOnly) && !spend(MemberMode::CheckAndSpend));
        assert_eq!((left(&a, "id"), left(&b, "id")), (Some(6), Some(7)));
    }
}

#[test]
fn receipt_of_a_batch_has_the_cost_alone() {
    for (limiter, _hand, limit) in on_engines(&all_limits()[..4]) {
        let a = limiter.limit("A").unwrap();
        let quota = left(&a, "id").unwrap();
        let estimate = || {
            let members = [a.leaving(3).member("id").cost(5)];
            limiter.batch(&members).spend_estimate().unwrap()
        };
        let (decision, receipt) = estimate();
        assert_eq!(decision.remaining(), Some(quota - 5));
        assert!(estimate().1.is_none());
        assert_eq!(receipt.unwrap().settle(2).remaining(), Some(quota - 2), "{limit:?}");
        let receipt = estimate().1.unwrap();
        assert_eq!(receipt.settle(0).remaining(), Some(quota - 2), "{limit:?}");
        // Above the estimate, it takes the units that were left.
        let receipt = estimate().1.unwrap();
        assert_eq!(receipt.settle(8).remaining(), Some(quota - 10), "{limit:?}");
    }
}

#[test]
fn its_units_are_those_of_the_factor() {
    let half = "0.5".parse().unwrap();
    for (limiter, _hand, limit) in on_engines(&all_limits()[..4]) {
        let a = limiter.limit("A").unwrap();
        let twice = a.scaled(half).leaving(12);
        assert!(twice.spend("id", 8).unwrap().allowed(), "{limit:?}: 8 of 20");
        assert!(
            !twice.spend("id", 1).unwrap().allowed() && !twice.check("id", 1).unwrap().allowed()
        );
        assert!(twice.spend("id", 9).unwrap_err().is_cost_above_burst());
        let batch = [twice.member("id")];
        assert!(!limiter.batch(&batch).spend().unwrap().allowed(), "{limit:?}");
        let lifted = a.scaled("0".parse().unwrap()).leaving(99);
        assert_eq!(lifted.spend("id", 99).unwrap().remaining(), None);
    }
}

#[test]
fn shadow_mode_counts_what_it_would_deny() {
    let options = LimitOptions::default().mode(LimitMode::Shadow);
    for engine in ENGINES {
        let shadow =
            Limits::builder().limit_with("A", IdFormat::String, hourly(10), options.clone());
        let options = LimiterOptions::default().engine(engine).counting(true);
        let (limiter, _hand) = limiter_with(shadow.unwrap().build(), options);
        let a = limiter.limit("A").unwrap();
        assert_eq!(a.leaving(4).spend("id", 6).unwrap().remaining(), Some(4));
        for (cost, leave) in [(1, 4), (1, 10)] {
            let denied = a.leaving(leave).spend("id", cost).unwrap();
            assert!(denied.allowed());
            let members = [a.member("id").cost(cost).leaving(leave)];
            assert!(limiter.batch(&members).spend().unwrap().allowed());
        }
        assert_eq!(left(&a, "id"), Some(4), "{engine:?}");
        let counters = limiter.counters();
        assert_eq!(counters.limits[0].shadow_denied, 4, "{engine:?}");
    }
}

#[test]
fn the_shadow_limit_leaves_the_same_units() {
    let options = LimitOptions::default().shadow(hourly(8));
    for engine in ENGINES {
        let tried =
            Limits::builder().limit_with("A", IdFormat::String, hourly(10), options.clone());
        let options = LimiterOptions::default().engine(engine).counting(true);
        let (limiter, _hand) = limiter_with(tried.unwrap().build(), options);
        let a = limiter.limit("A").unwrap();
        let denied = |limiter: &Limiter| limiter.counters().limits[0].shadow_denied;
        assert!(a.leaving(4).spend("a", 4).unwrap().allowed());
        assert_eq!(denied(&limiter), 0, "it leaves 4 of 8");
        assert!(a.leaving(4).spend("a", 2).unwrap().allowed());
        assert_eq!(denied(&limiter), 1);
        let members = [a.leaving(4).member("b").cost(5)];
        assert!(limiter.batch(&members).spend().unwrap().allowed());
        assert_eq!(denied(&limiter), 2);
        assert!(a.leaving(9).spend("c", 1).unwrap().allowed());
        assert_eq!(denied(&limiter), 3, "above the burst of the shadow limit");
    }
}

#[test]
fn a_block_waits_for_the_left_units_too() {
    for (limiter, hand, limit) in on_engines(&all_limits()) {
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("id", 10).unwrap().allowed());
        let wait = a.leaving(9).check("id", 1).unwrap().retry_in();
        let _ = a.block("id", ms(1)).unwrap();
        let members = [a.leaving(9).member("id")];
        for denied in [a.leaving(9).spend("id", 1), limiter.batch(&members).spend()] {
            let denied = denied.unwrap();
            assert!(denied.blocked(), "{limit:?}");
            assert_eq!((denied.retry_in(), denied.remaining()), (wait, Some(0)), "{limit:?}");
        }
        hand.advance(wait);
        assert!(a.leaving(9).spend("id", 1).unwrap().allowed(), "{limit:?}");
    }
}

#[test]
fn a_full_table_shares_and_leaves_units() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny, AtCap::Allow] {
            let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(at_cap);
            let (limiter, _hand) = limiter_with(limits(&[("A", hourly(10))]), options);
            let a = limiter.limit("A").unwrap();
            // More keys than the table has room for, whatever its rounding.
            let mut ids = (0..10_000).map(|id| id.to_string());
            let stats = || limiter.stats();
            let without_room = ids.find(|id| {
                let before = stats().cells;
                let _ = a.spend(id, 1).unwrap();
                stats().cells == before
            });
            let id = without_room.expect("the table is full");
            let spend = |leave, cost| a.leaving(leave).spend(&*id, cost).unwrap();
            match at_cap {
                AtCap::Share => {
                    let has = a.check(&*id, 0).unwrap().remaining().unwrap();
                    assert_eq!(spend(4, has - 4).remaining(), Some(4), "{engine:?}");
                    assert!(!spend(4, 1).allowed());
                    let members = [a.leaving(4).member(&*id)];
                    assert!(!limiter.batch(&members).spend().unwrap().allowed());
                    assert!(spend(3, 1).allowed());
                }
                AtCap::Deny => {
                    assert!(spend(4, 1).out_of_room());
                    assert!(a.leaving(4).check(&*id, 1).unwrap().out_of_room());
                }
                _ => assert!((0..20).all(|_| spend(4, 6).allowed())),
            }
        }
    }
}

#[test]
fn permits_can_be_left_as_well() {
    for engine in ENGINES {
        let named = [("Streams", Limit::concurrency(4).unwrap()), ("A", hourly(10))];
        let (limiter, _hand) = limiter(limits(&named), engine);
        let (streams, a) = (limiter.concurrency("Streams").unwrap(), limiter.limit("A").unwrap());
        let members = [streams.member("id").cost(2).leaving(1), a.member("id")];
        let batch = limiter.batch(&members);
        let (decision, receipt) = batch.spend_estimate().unwrap();
        assert_eq!((decision.allowed(), decision.retry_in()), (true, seconds(1)));
        assert_eq!(streams.in_flight("id").unwrap(), 2);
        for denied in [batch.check().unwrap(), batch.spend_estimate().unwrap().0] {
            assert_eq!((denied.denied_by(), denied.remaining()), (Some(0), Some(2)), "{engine:?}");
        }
        assert_eq!(left(&a, "id"), Some(9));
        let (_, last) = streams.acquire("id", 2).unwrap();
        assert!(last.is_some());
        drop((receipt, last));
        assert!(batch.spend_estimate().unwrap().0.allowed());
        let above = [streams.member("id").cost(2).leaving(3)];
        let error = limiter.batch(&above).spend_estimate().unwrap_err();
        assert!(error.to_string().contains("cost 2 leaving 3 is above the max 4 of Streams"));
    }
}

/// A sweep has set the time before which no new bucket begins, and the clock has gone back since.
#[test]
fn decisions_fit_together_behind_a_sweep() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(limits(&[("A", hourly(10))]), engine);
        let a = limiter.limit("A").unwrap();
        hand.set(seconds(5000));
        assert!(a.spend("old", 1).unwrap().allowed());
        hand.set(seconds(9000));
        super::support::sweep_all(&limiter);
        hand.set(seconds(8900));
        let checked = a.leaving(4).check("id", 4).unwrap();
        let spent = a.leaving(4).spend("id", 4).unwrap();
        assert_eq!(checked, spent, "{engine:?}");
        let denied = a.leaving(4).check("id", 4).unwrap();
        assert!(!denied.allowed());
        assert_eq!(spent.retry_in(), denied.retry_in(), "{engine:?}");
    }
}

#[test]
fn racing_threads_leave_the_units() {
    for engine in ENGINES {
        let named = [("A", hourly(1000)), ("B", hourly(10_000))];
        let (limiter, _hand) = limiter(limits(&named), engine);
        let barrier = Arc::new(Barrier::new(4));
        let allowed: u64 = std::thread::scope(|scope| {
            let spends = (0..4).map(|thread| {
                let (limiter, barrier) = (limiter.clone(), barrier.clone());
                scope.spawn(move || {
                    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
                    let members = [a.leaving(300).member("id"), b.member(thread)];
                    barrier.wait();
                    let allowed = |at: &u64| match at % 2 {
                        0 => a.leaving(300).spend("id", 1).unwrap().allowed(),
                        _ => limiter.batch(&members).spend().unwrap().allowed(),
                    };
                    (0..1000).filter(allowed).count() as u64
                })
            });
            let spends: Vec<_> = spends.collect();
            spends.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(allowed, 700, "{engine:?}");
        assert_eq!(left(&limiter.limit("A").unwrap(), "id"), Some(300));
    }
}
