//! The wait of a call for which there is no room: until a bucket is full that makes room.

use std::time::Duration;

use tollgate::options::{AtCap, Engine};
use tollgate::{Bucket, Clock, IdFormat, Limit, Limits};

use super::cap::{options, with_own};
use super::support::{
    ENGINES, hourly, limiter_with, limits, limits_of_all, ms, seconds, sweep_all,
};

#[test]
fn denial_says_when_there_is_room() {
    for engine in ENGINES {
        for limit in limits_of_all(6, seconds(10)) {
            let why = format!("{engine:?} {}", limit.algorithm());
            let named = limits(&[("A", limit.clone())]);
            let (limiter, hand) = limiter_with(named, options(engine, 3).at_cap(AtCap::Deny));
            let a = limiter.limit("A").unwrap();
            for (id, cost) in [("x", 6), ("y", 4), ("z", 5)] {
                hand.advance(ms(100));
                assert!(a.spend(id, cost).unwrap().allowed());
            }
            let checked = a.check("new", 1).unwrap();
            let denied = a.spend("new", 1).unwrap();
            assert_eq!(denied, checked, "{why}");
            assert!(denied.out_of_room() && !denied.allowed() && !denied.blocked(), "{why}");
            assert_eq!(limiter.stats().denied_at_cap, 1, "{why}");
            let y = a.check("y", 0).unwrap().reset_in();
            let soonest = y.min(a.check("x", 0).unwrap().reset_in());
            assert_eq!(denied.retry_in(), soonest, "{why}");
            assert!(soonest > seconds(20), "{why}: {soonest:?}");
            assert!(!a.check("x", 6).unwrap().out_of_room(), "{why}: it has a bucket");
            hand.advance(soonest - ms(1));
            let denied = a.spend("new", 1).unwrap();
            assert!(denied.out_of_room(), "{why}");
            hand.advance(denied.retry_in());
            assert!(a.check("new", 1).unwrap().allowed(), "{why}");
            assert!(a.spend("new", 1).unwrap().allowed(), "{why}");
        }
    }
}

/// A denial counts from the call's own reading of the clock, also if it has gone back.
#[test]
fn wait_for_room_after_clock_went_back() {
    for engine in ENGINES {
        let (limiter, hand) =
            limiter_with(limits(&[("A", hourly(6))]), options(engine, 1).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 1).unwrap().allowed());
        hand.set(seconds(100_000));
        sweep_all(&limiter);
        assert!(a.spend("x", 1).unwrap().allowed());
        hand.set(seconds(50_000));
        let denied = a.spend("new", 1).unwrap();
        assert!(denied.out_of_room(), "{engine:?}");
        hand.advance(denied.retry_in());
        assert!(a.spend("new", 1).unwrap().allowed(), "{engine:?}: {denied:?}");
    }
}

#[test]
fn factor_at_the_cap_lacks_room() {
    for engine in ENGINES {
        let (limiter, hand) = limiter_with(limits(&[("A", hourly(6))]), options(engine, 1));
        let a = limiter.limit("A").unwrap();
        let twice = a.scaled("2".parse().unwrap());
        assert!(a.spend("x", 3).unwrap().allowed());
        assert_eq!(twice.spend("new", 1).unwrap(), twice.check("new", 1).unwrap());
        let denied = twice.spend("new", 1).unwrap();
        assert!(denied.out_of_room() && denied.retry_in() == seconds(1_800), "{engine:?}");
        hand.advance(denied.retry_in());
        assert!(twice.spend("new", 1).unwrap().allowed(), "{engine:?}");
    }
}

/// A bucket of another limit makes no room in a part, and gives back no common place that it has not.
#[test]
fn wait_is_for_a_bucket_that_makes_room() {
    for engine in ENGINES {
        let closed = with_own(&[("A", Some(1)), ("B", Some(1))]);
        let open = with_own(&[("A", None), ("B", None)]);
        // 2 places of B's own and 4 common ones.
        for (named, max_keys, of_a) in [(closed, 3, 1), (open, 8, 6)] {
            let (limiter, _) = limiter_with(named, options(engine, max_keys).at_cap(AtCap::Deny));
            let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
            assert!(b.spend("soon", 1).unwrap().allowed());
            for id in 0..of_a {
                assert!(a.spend(format!("late{id}").as_str(), 5).unwrap().allowed(), "{engine:?}");
            }
            let denied = a.spend("new", 1).unwrap();
            assert!(denied.out_of_room(), "{engine:?}");
            assert_eq!(denied.retry_in(), seconds(1_800), "{engine:?} {max_keys}");
        }
    }
}

/// Overrides had ten buckets beside the cap. Without the overrides there are fourteen under a cap of 6.
#[test]
fn wait_is_until_enough_buckets_are_full() {
    for engine in ENGINES {
        let builder = Limits::builder().limit("A", IdFormat::String, hourly(20)).unwrap();
        let with_overrides = (0..10).fold(builder, |builder, id| {
            builder.override_id("A", format!("vip{id}").as_str(), hourly(20)).unwrap()
        });
        let options = options(engine, 6).at_cap(AtCap::Deny);
        let (limiter, hand) = limiter_with(with_overrides.build(), options);
        let a = limiter.limit("A").unwrap();
        // A unit takes 180 s.
        for id in 0..10 {
            assert!(a.spend(format!("vip{id}").as_str(), 10 - id).unwrap().allowed());
        }
        for id in 0..4 {
            assert!(a.spend(format!("id{id}").as_str(), 20).unwrap().allowed());
        }
        limiter.reload(limits(&[("A", hourly(20))])).unwrap();
        assert_eq!(limiter.stats().cells, 14, "{engine:?}");
        // Nine have to end: those that have used 1 to 9 units.
        for expected in [seconds(9 * 180), ms(1)] {
            let denied = a.spend("new", 1).unwrap();
            assert!(denied.out_of_room(), "{engine:?} {denied:?}");
            assert_eq!(a.check("new", 1).unwrap(), denied, "{engine:?}");
            assert_eq!(denied.retry_in(), expected, "{engine:?}");
            hand.advance(expected.saturating_sub(ms(1)).max(ms(1)));
        }
        assert!(a.check("new", 1).unwrap().allowed(), "{engine:?}");
        assert!(a.spend("new", 1).unwrap().allowed(), "{engine:?}");
    }
}

/// In a small table a call looks at all buckets, also if the place where calls look is near the table's end, or a shard moves.
#[test]
fn check_and_the_next_spend_agree() {
    for max in 12..40 {
        for _ in 0..10 {
            let options = options(Engine::LockFree, max).at_cap(AtCap::Deny);
            let (limiter, hand) = limiter_with(limits(&[("A", hourly(10))]), options);
            let a = limiter.limit("A").unwrap();
            assert!(a.spend("soon", 1).unwrap().allowed());
            for id in 1..max {
                assert!(a.spend(id, 10).unwrap().allowed());
            }
            hand.advance(seconds(360));
            assert!(a.check("new", 1).unwrap().allowed(), "{max}");
            assert!(a.spend("new", 1).unwrap().allowed(), "{max}");
        }
    }
}

/// If no bucket tells when there is room, it is when a bucket of the default is full.
#[test]
fn wait_without_a_bucket_is_the_defaults() {
    for engine in ENGINES {
        let drips = Limit::leaky_bucket(5, 2, seconds(10)).unwrap();
        for limit in limits_of_all(6, seconds(10)).into_iter().chain([drips]) {
            let named = limits(&[("A", limit.clone())]);
            let (limiter, _) = limiter_with(named, options(engine, 0).at_cap(AtCap::Deny));
            let denied = limiter.limit("A").unwrap().spend("new", 1).unwrap();
            assert!(denied.out_of_room(), "{engine:?}");
            let empty = Bucket::new(limit.clone(), Clock::manual().0).spend(limit.burst()).unwrap();
            assert_eq!(denied.retry_in(), empty.reset_in(), "{engine:?} {}", limit.algorithm());
        }
    }
}

/// A limit with few of many buckets was told to wait until an empty one of its buckets would be full.
#[test]
fn wait_beside_many_other_buckets_is_short() {
    for engine in ENGINES {
        let named = with_own(&[("A", Some(1)), ("B", Some(20_000))]);
        let options = options(engine, 20_001).at_cap(AtCap::Deny);
        let (limiter, hand) = limiter_with(named, options);
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        for id in 0..20_000 {
            assert!(b.spend(id.to_string().as_str(), 5).unwrap().allowed());
        }
        assert!(a.spend("old", 1).unwrap().allowed());
        hand.advance(ms(100));
        let of_old = a.check("old", 0).unwrap().reset_in();
        let denied = a.spend("new", 1).unwrap();
        assert!(denied.out_of_room(), "{engine:?}");
        // If the call has met the bucket of "old", it knows the time.
        assert!([seconds(1), of_old].contains(&denied.retry_in()), "{engine:?}: {denied:?}");
    }
}

/// A bucket that a factor has made slower is full when the factor says so.
#[test]
fn wait_counts_by_the_factor_of_a_bucket() {
    for engine in ENGINES {
        for limit in limits_of_all(6, seconds(10)) {
            for (factor, cost) in [("0.5", 12), ("2", 2), ("2", 3)] {
                let why = format!("{engine:?} {} {factor} {cost}", limit.algorithm());
                let named = limits(&[("A", limit.clone())]);
                let (limiter, hand) = limiter_with(named, options(engine, 1).at_cap(AtCap::Deny));
                let a = limiter.limit("A").unwrap();
                assert!(
                    a.scaled(factor.parse().unwrap()).spend("slow", cost).unwrap().allowed(),
                    "{why}"
                );
                let denied = a.spend("new", 1).unwrap();
                assert!(denied.out_of_room(), "{why}");
                hand.advance(denied.retry_in());
                assert!(a.spend("new", 1).unwrap().allowed(), "{why}: {denied:?}");
            }
        }
    }
}

/// Calls sweep a full table of the exact engine once in a millisecond.
#[test]
fn wait_for_room_outlasts_the_next_sweep() {
    for engine in ENGINES {
        let quick = Limit::new(1, 1, Duration::from_micros(100)).unwrap();
        let (limiter, hand) =
            limiter_with(limits(&[("A", quick)]), options(engine, 1).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 1).unwrap().allowed());
        let denied = a.spend("new", 1).unwrap();
        assert!(denied.out_of_room(), "{engine:?}");
        hand.advance(denied.retry_in());
        assert!(a.spend("new", 1).unwrap().allowed(), "{engine:?}: {denied:?}");
    }
}

/// While a full bucket comes near that the next sweep drops, a denial waits for a unit, not for a moment.
#[test]
fn wait_for_room_that_came_is_a_unit() {
    let (limiter, hand) = limiter_with(
        limits(&[("A", hourly(10))]),
        options(Engine::LockFree, 2_000).at_cap(AtCap::Deny),
    );
    let a = limiter.limit("A").unwrap();
    for id in 0..20 {
        assert!(a.spend(format!("near{id}").as_str(), 1).unwrap().allowed());
    }
    for id in 0..1_980 {
        assert!(a.spend(id.to_string().as_str(), 10).unwrap().allowed());
    }
    hand.advance(seconds(360));
    for id in 0..200 {
        let id = format!("new{id}");
        let asked = a.spend(id.as_str(), 10).unwrap();
        assert!(asked.allowed() || asked.retry_in() >= seconds(360), "{asked:?}");
    }
    assert_eq!(limiter.stats().cells, 2_000);
}

/// The exact engine looked for full buckets at the call's own time, and told a wait of 1 ms until the clock had come back.
#[test]
fn room_after_a_step_back_is_found() {
    for engine in ENGINES {
        let limit = Limit::new(10, 10, seconds(1000)).unwrap();
        let (limiter, hand) =
            limiter_with(limits(&[("A", limit)]), options(engine, 2).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        hand.set(seconds(100_000));
        assert!(a.spend("x", 10).unwrap().allowed() && a.spend("y", 10).unwrap().allowed());
        hand.set(seconds(102_000)); // both buckets are full; a step of a sweep drops one of them
        while limiter.stats().swept == 0 {
            limiter.sweep(1);
        }
        for id in ["z1", "z2"] {
            if limiter.stats().cells < 2 {
                assert!(a.spend(id, 10).unwrap().allowed());
            }
        }
        hand.set(seconds(100_500));
        let mut denials = 0;
        while !a
            .spend("new", 1)
            .inspect(|denied| hand.advance(denied.retry_in()))
            .unwrap()
            .allowed()
        {
            denials += 1;
            assert!(denials < 3, "{engine:?}: an obedient client is denied again and again");
        }
    }
}

/// By a clock that has gone back, a bucket of no units is kept until its own time.
#[test]
fn wait_for_refunded_bucket_after_clock_step() {
    for engine in ENGINES {
        for limit in limits_of_all(6, seconds(10)) {
            let why = format!("{engine:?} {}", limit.algorithm());
            let named = limits(&[("A", limit.clone())]);
            let (limiter, hand) = limiter_with(named, options(engine, 1).at_cap(AtCap::Deny));
            let a = limiter.limit("A").unwrap();
            hand.set(seconds(100_000));
            assert!(a.spend("x", 1).unwrap().allowed() && a.refund("x", 1).unwrap().allowed());
            hand.set(seconds(50_000));
            let checked = a.check("new", 1).unwrap();
            let spent = a.spend("new", 1).unwrap();
            assert_eq!(checked.allowed(), spent.allowed(), "{why}");
            hand.advance(spent.retry_in());
            assert!(a.check("new", 1).unwrap().allowed(), "{why}: {spent:?}");
            assert!(a.spend("new", 1).unwrap().allowed(), "{why}: {spent:?}");
        }
    }
}
