//! The debt of buckets across a reload.

use proptest::prelude::*;
use tollgate::Limit;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;

use super::support::{ENGINES, hourly, limiter, limits, seconds};

/// Spends `spent` units under `old`, reloads with `new`, and returns the units left.
fn left_after(engine: Engine, debt: CarryOver, old: Limit, spent: u64, new: Limit) -> u64 {
    let (limiter, _hand) = limiter(limits(&[("A", old)]), engine);
    let handle = limiter.limit("A").unwrap();
    assert!(spent == 0 || handle.spend("x", spent).unwrap().allowed());
    assert!(limiter.reload_with(limits(&[("A", new)]), debt).unwrap().changed);
    handle.check("x", 0).unwrap().remaining().unwrap()
}

#[test]
fn each_rule_keeps_what_it_says() {
    for engine in ENGINES {
        for (debt, spent, left) in [
            (CarryOver::Share, 50, 0),
            (CarryOver::Share, 40, 1_000),
            (CarryOver::Units, 40, 4_960),
            // 40 of 50 an hour take 48 minutes to come back, in which 4,000 of 5,000 do.
            (CarryOver::Time, 40, 1_000),
            (CarryOver::Afresh, 50, 5_000),
            (CarryOver::Share, 0, 5_000),
        ] {
            let left_now = left_after(engine, debt, hourly(50), spent, hourly(5_000));
            assert_eq!(left_now, left, "{engine:?}, {debt:?}, {spent} of 50");
        }
        // Fewer units: no id owes more than there is.
        for (debt, spent, left) in [
            (CarryOver::Share, 4_000, 10),
            (CarryOver::Units, 4_000, 0),
            (CarryOver::Units, 30, 20),
        ] {
            let left_now = left_after(engine, debt, hourly(5_000), spent, hourly(50));
            assert_eq!(left_now, left, "{engine:?}, {debt:?}, {spent} of 5,000");
        }
        // A day becomes an hour: if the time were carried over, the bucket would owe for a day.
        let daily = Limit::new(10, 10, seconds(86_400)).unwrap();
        for (debt, left) in [(CarryOver::Time, 0), (CarryOver::Share, 5), (CarryOver::Units, 5)] {
            assert_eq!(left_after(engine, debt, daily.clone(), 5, hourly(10)), left, "{debt:?}");
        }
    }
}

fn window(limit: u64, s: u64) -> Limit {
    Limit::fixed_window(limit, seconds(s)).unwrap()
}

#[test]
fn windows_keep_their_use_and_their_end() {
    for engine in ENGINES {
        for (debt, left) in [(CarryOver::Share, 20), (CarryOver::Units, 92), (CarryOver::Time, 20)]
        {
            let left_now = left_after(engine, debt, window(10, 60), 8, window(100, 60));
            assert_eq!(left_now, left, "{engine:?}, {debt:?}");
        }
        // Ten seconds into a window of a minute, which becomes one of an hour or of five seconds.
        for (s, ends_in_s) in [(3600, 50), (5, 5)] {
            let (limiter, hand) = limiter(limits(&[("A", window(10, 60))]), engine);
            let handle = limiter.limit("A").unwrap();
            // No window begins before the clock did.
            hand.advance(seconds(7200));
            assert!(handle.spend("x", 10).unwrap().allowed());
            hand.advance(seconds(10));
            limiter.reload(limits(&[("A", window(20, s))])).unwrap();
            let decision = handle.check("x", 1).unwrap();
            assert!(!decision.allowed());
            assert_eq!(decision.retry_in(), seconds(ends_in_s), "{engine:?}, {s} s");
            hand.advance(seconds(ends_in_s));
            assert_eq!(handle.check("x", 0).unwrap().remaining(), Some(20));
        }
    }
}

#[test]
fn drips_keep_what_is_in_the_bucket() {
    let drips = |size, ms, drip| {
        Limit::leaky_bucket(size, drip, std::time::Duration::from_millis(ms)).unwrap()
    };
    for engine in ENGINES {
        for (debt, left) in [(CarryOver::Share, 20), (CarryOver::Units, 92), (CarryOver::Time, 60)]
        {
            // 8 of 10 take 8 s to drip out, in which 40 of 100 do that drip 5 a second.
            let left_now = left_after(engine, debt, drips(10, 1000, 1), 8, drips(100, 200, 1));
            assert_eq!(left_now, left, "{engine:?}, {debt:?}");
        }
    }
}

/// Each change began the drip anew: if changes came more often than drips, the bucket never got a unit back.
#[test]
fn a_change_keeps_the_begun_drip() {
    let all = [CarryOver::Share, CarryOver::Units, CarryOver::Time];
    let cases = ENGINES.iter().flat_map(|engine| all.map(|debt| (*engine, debt)));
    // In 4,200 s 70 drips fall.
    for (engine, debt) in cases {
        for (drip, per_drip) in [(1, 1), (2, 2), (3, 3), (10, 3)] {
            let drips = |ms| {
                let limit = Limit::leaky_bucket(3, drip, std::time::Duration::from_millis(ms));
                limits(&[("A", limit.unwrap())])
            };
            let (limiter, hand) = limiter(drips(60_000), engine);
            let handle = limiter.limit("A").unwrap();
            assert!(handle.spend("x", 3).unwrap().allowed());
            let mut served = 0;
            for step in 1..=600 {
                hand.advance(seconds(7));
                limiter.reload_with(drips(60_000 + step % 2), debt).unwrap();
                while handle.spend("x", 1).unwrap().allowed() {
                    served += 1;
                }
            }
            // A bucket that has become empty begins its drips with the next call, up to 7 s later: 66 in all.
            let wanted = 66 * per_drip..=70 * per_drip;
            let case = format!("{engine:?}, {debt:?}, drips of {drip}");
            assert!(wanted.contains(&served), "{case}: {served} in 4,200 s");
            let full_in = || handle.check("x", 0).unwrap().reset_in();
            let before = full_in();
            limiter.reload_with(drips(90_000), debt).unwrap();
            // Some drips are left, and each takes 30 s longer.
            let left = before.as_millis().div_ceil(60_000) as u32;
            let longer = left * seconds(30);
            let longer = if debt == CarryOver::Time { before } else { before + longer };
            assert_eq!(full_in(), longer, "{case}");
        }
    }
}

#[test]
fn another_algorithm_keeps_the_share() {
    let all = [
        hourly(100),
        window(100, 3600),
        Limit::token_bucket(100, 100, seconds(3600)).unwrap(),
        Limit::leaky_bucket(100, 1, seconds(36)).unwrap(),
    ];
    for engine in ENGINES {
        for old in &all {
            for new in &all {
                for (debt, left) in [(CarryOver::Share, 25), (CarryOver::Afresh, 100)] {
                    if old == new {
                        continue;
                    }
                    let left_now = left_after(engine, debt, old.clone(), 75, new.clone());
                    assert_eq!(left_now, left, "{engine:?} {debt:?}: {old:?} to {new:?}");
                }
            }
        }
    }
}

proptest! {
    /// Compares gcra, whose word is a time, with arithmetic on whole numbers.
    #[test]
    fn gcra_keeps_each_rules_figure(
        (old_burst, new_burst) in (1..500u64, 1..500u64),
        (old_ms, new_ms) in (1..5_000u64, 1..5_000u64),
        part in 0..=1000u64,
        waited in 0..=1000u64,
        rule in 0..3usize,
    ) {
        let gcra = |burst, ms| Limit::new(burst, 1, std::time::Duration::from_millis(ms)).unwrap();
        let (limiter, hand) = limiter(limits(&[("A", gcra(old_burst, old_ms))]), Engine::LockFree);
        let handle = limiter.limit("A").unwrap();
        let spent = (old_burst * part / 1000).max(1);
        assert!(handle.spend("x", spent).unwrap().allowed());
        let owed_ns = u128::from(spent * old_ms) * 1_000_000;
        let passed_ns = owed_ns * u128::from(waited) / 1000;
        hand.advance(std::time::Duration::from_nanos(passed_ns as u64));
        let owed_ns = owed_ns - passed_ns;
        let debt = [CarryOver::Share, CarryOver::Units, CarryOver::Time][rule];
        let changed = limiter.reload_with(limits(&[("A", gcra(new_burst, new_ms))]), debt).unwrap();
        prop_assert_eq!(changed.changed, (old_burst, old_ms) != (new_burst, new_ms));
        let (old_ns, new_ns) = (u128::from(old_ms) * 1_000_000, u128::from(new_ms) * 1_000_000);
        let most_ns = new_ns * u128::from(new_burst);
        let kept_ns = match debt {
            CarryOver::Share => (owed_ns * most_ns).div_ceil(old_ns * u128::from(old_burst)),
            CarryOver::Units => (owed_ns * new_ns).div_ceil(old_ns),
            _ => owed_ns,
        };
        let said = handle.check("x", 0).unwrap();
        prop_assert_eq!(said.reset_in().as_nanos(), kept_ns.min(most_ns));
    }
}
