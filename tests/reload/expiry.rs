//! Overrides that end while the limiter runs.

use std::time::SystemTime;

use tollgate::clock::ManualClock;
use tollgate::limits::OverrideOptions;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{IdFormat, Limit, Limiter, Limits};

use super::support::{ENGINES, limiter, seconds, sweep_all};

const DAY_S: u64 = 86_400;

/// Admits `burst` units at once and refills them all in a hundred days.
fn slow(burst: u64) -> Limit {
    Limit::new(burst, burst, seconds(100 * DAY_S)).unwrap()
}

/// 10 units for every id; 100 for x for an hour, and 50 for y without an end.
fn ending_in_an_hour(engine: Engine) -> (Limiter, ManualClock) {
    let until = OverrideOptions::default().expires(SystemTime::now() + seconds(3600));
    let builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
    let builder = builder.override_with("A", "x", slow(100), until).unwrap();
    limiter(builder.override_id("A", "y", slow(50)).unwrap().build(), engine)
}

#[test]
fn after_an_override_has_ended_the_default_applies() {
    for engine in ENGINES {
        let (limiter, hand) = ending_in_an_hour(engine);
        let a = limiter.limit("A").unwrap();
        let burst = |id: &str| a.limit_for(id).unwrap().unwrap().burst();
        let left = |id: &str| a.check(id, 0).unwrap().remaining().unwrap();
        assert!(a.spend("x", 50).unwrap().allowed());
        assert!(a.spend("y", 10).unwrap().allowed());
        hand.advance(seconds(3500));
        assert_eq!((burst("x"), burst("y")), (100, 50), "{engine:?}");
        assert_eq!(left("x"), 50);
        hand.advance(seconds(3 * 3600));
        assert_eq!((burst("x"), burst("y")), (10, 50), "{engine:?}");
        // Half of it was used, and half of it is.
        assert_eq!(left("x"), 5, "{engine:?}");
        assert!(a.spend("x", 11).is_err(), "more than the default's burst");
        assert!(a.spend("x", 5).unwrap().allowed());
        assert!(!a.spend("x", 1).unwrap().allowed());
        assert_eq!(left("y"), 40, "{engine:?}");
        // Also in a batch.
        let members = [a.member("x"), a.member("y")];
        assert_eq!(limiter.batch(&members).spend().unwrap().denied_by(), Some(0));
    }
}

/// As documented at `OverrideOptions::expires`.
#[test]
fn override_end_uses_the_reloads_carry_over() {
    let until = SystemTime::now() + seconds(3600);
    let limits = |burst| {
        let options = OverrideOptions::default().expires(until);
        let builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
        builder.override_with("A", "x", slow(burst), options).unwrap().build()
    };
    for engine in ENGINES {
        for (debt, left) in [(CarryOver::Share, 9), (CarryOver::Units, 2), (CarryOver::Afresh, 10)]
        {
            let (limiter, hand) = limiter(limits(50), engine);
            limiter.reload_with(limits(100), debt).unwrap();
            let a = limiter.limit("A").unwrap();
            assert!(a.spend("x", 8).unwrap().allowed());
            hand.advance(seconds(2 * 3600));
            assert_eq!(a.check("x", 0).unwrap().remaining(), Some(left), "{engine:?} {debt:?}");
        }
    }
}

#[test]
fn an_override_that_has_ended_before_never_applies() {
    for engine in ENGINES {
        let past = OverrideOptions::default().expires(SystemTime::now() - seconds(1));
        let builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
        let limits = builder.override_with("A", "x", slow(100), past).unwrap().build();
        let (limiter, _hand) = limiter(limits, engine);
        let a = limiter.limit("A").unwrap();
        assert_eq!(a.check("x", 0).unwrap().remaining(), Some(10), "{engine:?}");
    }
}

#[test]
fn ended_override_applies_to_no_older_clock() {
    for engine in ENGINES {
        let past = OverrideOptions::default().expires(SystemTime::now() - seconds(1));
        let default = || Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
        let (limiter, hand) = limiter(default().build(), engine);
        let a = limiter.limit("A").unwrap();
        hand.set(seconds(3600));
        let limits = default().override_with("A", "x", slow(100), past).unwrap();
        assert!(limiter.reload(limits.build()).unwrap().changed);
        // A call that read its clock before the reload. The override had ended when it came.
        hand.set(seconds(60));
        assert_eq!(a.limit_for("x").unwrap().unwrap().burst(), 10, "{engine:?}");
        assert!(a.spend("x", 11).is_err(), "{engine:?}: more than the default's burst");
    }
}

/// By the override the bucket is full long before it is by the default.
#[test]
fn sweep_keeps_debt_counted_by_the_default() {
    let fast = |burst| Limit::new(burst, 1, seconds(1)).unwrap();
    let until = OverrideOptions::default().expires(SystemTime::now() + seconds(100));
    let builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
    let limits = builder.override_with("A", "x", fast(1000), until).unwrap().build();
    let (limiter, hand) = limiter(limits, Engine::LockFree);
    let a = limiter.limit("A").unwrap();
    assert!(a.spend("x", 590).unwrap().allowed());
    // About 490 of 1,000 units were used when the override ended. By the override a unit came back each
    // second.
    hand.advance(seconds(5000));
    sweep_all(&limiter);
    assert_eq!(limiter.stats().cells, 1, "it owes for 50 days");
    assert_eq!(a.check("x", 0).unwrap().remaining(), Some(5));
    hand.advance(seconds(51 * DAY_S));
    for _ in 0..2 {
        sweep_all(&limiter);
    }
    assert_eq!(limiter.stats().cells, 0);
}

#[test]
fn overrides_ending_at_once_migrate_together() {
    let until = OverrideOptions::default().expires(SystemTime::now() + seconds(100));
    let mut builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
    let ids: Vec<String> = (0..3000).map(|i| format!("id {i}")).collect();
    for id in &ids {
        builder = builder.override_with("A", id.as_str(), slow(100), until.clone()).unwrap();
    }
    let (limiter, hand) = limiter(builder.build(), Engine::LockFree);
    let a = limiter.limit("A").unwrap();
    for id in &ids {
        assert!(a.spend(id.as_str(), 50).unwrap().allowed());
    }
    let before = limiter.stats().migrations;
    hand.advance(seconds(3600));
    for id in &ids {
        assert_eq!(a.spend(id.as_str(), 1).unwrap().remaining(), Some(4), "{id}");
    }
    let migrations = limiter.stats().migrations - before;
    assert!(migrations < 2 * 768, "{migrations}: about one a part of the table");
}
