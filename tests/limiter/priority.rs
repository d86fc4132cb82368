//! Calls with a priority, which must leave the units of a floor.

use tollgate::batch::MemberMode;
use tollgate::limits::{Floor, LimitMode, LimitOptions};
use tollgate::{IdFormat, KeyedLimit, Limit, LimiterOptions, Limits};

use super::support::rules::hooked;
use super::support::{ENGINES, hourly, limiter, limiter_with, limits_of_all, seconds};

/// Limits of 10 units at once: one of each built-in algorithm of units, and a custom one.
fn all_limits() -> Vec<Limit> {
    let mut all = limits_of_all(10, seconds(1)).to_vec();
    all.push(hooked(hourly(10), |_| ()));
    all
}

/// Half of the burst for `batch`, 7 units for `reports`, all of it for `none`, nothing for `all`.
fn floors() -> LimitOptions {
    LimitOptions::default()
        .floor("batch", Floor::Percent(45))
        .floor("reports", Floor::Units(7))
        .floor("none", Floor::Percent(100))
        .floor("all", Floor::Percent(0))
}

fn with_floors(limit: &Limit) -> Limits {
    let builder = Limits::builder().limit_with("A", IdFormat::String, limit.clone(), floors());
    builder.unwrap().build()
}

fn left(handle: &KeyedLimit, id: &str) -> Option<u64> {
    handle.check(id, 0).unwrap().remaining()
}

#[test]
fn each_priority_leaves_the_units_of_its_floor() {
    for engine in ENGINES {
        for limit in all_limits() {
            let (limiter, _hand) = limiter(with_floors(&limit), engine);
            let a = limiter.limit("A").unwrap();
            let quota = left(&a, "id").unwrap();
            let priority = |name: &str| a.priority(name).unwrap();
            for spent in 1..=5 {
                let checked = priority("batch").check("id", 1).unwrap();
                let decision = priority("batch").spend("id", 1).unwrap();
                assert!(decision.allowed() && checked.allowed(), "{limit:?}: {spent}");
                assert_eq!(decision.remaining(), Some(quota - spent));
            }
            for (name, units) in [("batch", 5), ("reports", 7)] {
                let (own, same) = (priority(name).spend("id", 1), a.leaving(units).spend("id", 1));
                let (own, same) = (own.unwrap(), same.unwrap());
                assert!(!own.allowed(), "{limit:?}: {name}");
                assert_eq!((own.remaining(), own.retry_in()), (same.remaining(), same.retry_in()));
                assert!(!priority(name).check("id", 1).unwrap().allowed());
            }
            assert!(priority("batch").check("id", 0).unwrap().allowed());
            assert!(priority("all").spend("id", 1).unwrap().allowed());
            assert!(!priority("batch").check("id", 0).unwrap().allowed());
            assert!(a.spend("id", 4).unwrap().allowed(), "{limit:?}: the rest is for others");
            for cost in [1, 4] {
                let error = priority("none").spend("new", cost).unwrap_err();
                assert!(error.is_cost_above_burst(), "{error}");
            }
            assert!(priority("none").spend("new", 0).unwrap().allowed());
            assert!(!priority("none").spend("id", 0).unwrap().allowed());
            assert!(priority("reports").spend("new", 4).unwrap_err().is_cost_above_burst());
            assert!(priority("reports").spend("new", 3).unwrap().allowed());
        }
    }
}

#[test]
fn percentages_are_of_the_terms_of_the_id() {
    let half = "0.5".parse().unwrap();
    for engine in ENGINES {
        for (limit, large) in all_limits().iter().zip(limits_of_all(21, seconds(1))) {
            let builder = Limits::builder();
            let builder = builder.limit_with("A", IdFormat::String, limit.clone(), floors());
            let builder = builder.unwrap().override_id("A", "large", large).unwrap();
            let limits = builder.override_id("A", "lifted", None).unwrap().build();
            let (limiter, _hand) = limiter(limits, engine);
            let a = limiter.limit("A").unwrap();
            let batch = a.priority("batch").unwrap();
            // 45 % of 21 are 9.45.
            assert!(batch.spend("large", 12).unwrap_err().is_cost_above_burst(), "{limit:?}");
            assert!(batch.spend("large", 11).unwrap().allowed(), "{limit:?}");
            assert!(!batch.spend("large", 1).unwrap().allowed(), "{limit:?}");
            // Of 20 they are 9.
            let scaled = a.scaled(half).priority("batch").unwrap();
            assert!(scaled.spend("id", 11).unwrap().allowed(), "{limit:?}");
            assert!(!scaled.spend("id", 1).unwrap().allowed());
            assert!(!scaled.check("id", 1).unwrap().allowed());
            assert!(scaled.spend("id", 12).unwrap_err().is_cost_above_burst());
            assert!(!limiter.batch(&[scaled.member("id")]).spend().unwrap().allowed());
            // 7 units are 7 of the caller with the factor.
            let reports = a.scaled(half).priority("reports").unwrap();
            assert!(reports.spend("other", 13).unwrap().allowed());
            assert!(!reports.spend("other", 1).unwrap().allowed());
            // No limit applies.
            let lifted = a.scaled("0".parse().unwrap()).priority("none").unwrap();
            assert_eq!(lifted.spend("id", 99).unwrap().remaining(), None);
            let none = a.priority("none").unwrap();
            assert_eq!(none.spend("lifted", 99).unwrap().remaining(), None);
            let members = [lifted.member("id").cost(99), none.member("lifted").cost(99)];
            assert_eq!(limiter.batch(&members).spend().unwrap().remaining(), None);
        }
    }
}

#[test]
fn members_of_batches_have_priorities() {
    for engine in ENGINES {
        for limit in all_limits() {
            let builder = Limits::builder();
            let builder = builder.limit_with("A", IdFormat::String, limit.clone(), floors());
            let builder = builder.unwrap().limit("B", IdFormat::String, hourly(5)).unwrap();
            let (limiter, _hand) = limiter(builder.build(), engine);
            let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
            let quota = left(&a, "id").unwrap();
            let reports = a.priority("reports").unwrap();
            let members = [b.member("id"), reports.member("id").cost(2)];
            let batch = limiter.batch(&members);
            assert!(batch.check().unwrap().allowed());
            assert!(batch.spend().unwrap().allowed(), "{limit:?}");
            let mut each = Vec::new();
            for denied in [batch.check(), batch.spend(), batch.spend_into(&mut each)] {
                let denied = denied.unwrap();
                assert_eq!((denied.denied_by(), denied.remaining()), (Some(1), Some(quota - 2)));
                assert_eq!(denied.retry_in(), reports.check("id", 2).unwrap().retry_in());
            }
            assert_eq!((left(&a, "id"), left(&b, "id")), (Some(quota - 2), Some(4)), "{limit:?}");
            assert!(batch.refund().unwrap().allowed());
            assert_eq!((left(&a, "id"), left(&b, "id")), (Some(quota), Some(5)), "the cost alone");
            let members = [reports.member("id").cost(3).mode(MemberMode::SpendOnly)];
            let batch = limiter.batch(&members);
            assert!(batch.spend().unwrap().allowed() && batch.spend().unwrap().allowed());
            assert_eq!(left(&a, "id"), Some(quota - 3), "the second did not fit");
            let above = [reports.member("id").cost(4)];
            assert!(limiter.batch(&above).spend().unwrap_err().is_cost_above_burst());
            // A number of units in place of the floor.
            assert!(limiter.batch(&[reports.member("id").leaving(1)]).spend().unwrap().allowed());
        }
    }
}

#[test]
fn unknown_floors_are_errors_when_asked_for() {
    let limit = hourly(10);
    let none = Limits::builder().limit("B", IdFormat::String, limit.clone()).unwrap();
    for engine in ENGINES {
        let (with, without) =
            (limiter(with_floors(&limit), engine).0, limiter(none.clone().build(), engine).0);
        let a = with.limit("A").unwrap();
        let error = a.priority("report").unwrap_err();
        assert!(error.is_invalid_name());
        assert_eq!(
            error.to_string(),
            "A has no floor \"report\"; did you mean reports?; its floors: {batch: 45%, reports: 7, none: 100%, all: 0%}"
        );
        let scaled = a.scaled("2".parse().unwrap());
        assert!(scaled.priority("").unwrap_err().is_invalid_name());
        let error = without.limit("B").unwrap().priority("batch").unwrap_err();
        assert_eq!(error.to_string(), "B has no floor \"batch\"; its floors: none");
    }
}

#[test]
fn shadow_mode_counts_calls_with_a_priority() {
    for engine in ENGINES {
        let shadow = Limits::builder().limit_with(
            "A",
            IdFormat::String,
            hourly(10),
            floors().mode(LimitMode::Shadow),
        );
        let options = LimiterOptions::default().engine(engine).counting(true);
        let (limiter, _hand) = limiter_with(shadow.unwrap().build(), options);
        let a = limiter.limit("A").unwrap();
        let batch = a.priority("batch").unwrap();
        assert_eq!(batch.spend("id", 5).unwrap().remaining(), Some(5));
        for cost in [1, 6] {
            assert!(batch.spend("id", cost).unwrap().allowed());
            assert!(limiter.batch(&[batch.member("id").cost(cost)]).spend().unwrap().allowed());
        }
        assert_eq!(left(&a, "id"), Some(5), "{engine:?}");
        assert_eq!(limiter.counters().limits[0].shadow_denied, 4, "{engine:?}");
    }
}

#[test]
fn percentages_are_of_the_shadow_limits_burst() {
    for engine in ENGINES {
        let tried = Limits::builder().limit_with(
            "A",
            IdFormat::String,
            hourly(20),
            floors().shadow(hourly(10)),
        );
        let options = LimiterOptions::default().engine(engine).counting(true);
        let (limiter, _hand) = limiter_with(tried.unwrap().build(), options);
        let a = limiter.limit("A").unwrap();
        let denied = || limiter.counters().limits[0].shadow_denied;
        let (batch, reports) = (a.priority("batch").unwrap(), a.priority("reports").unwrap());
        // It leaves 9 of 20, and 5 of 10.
        assert!(batch.spend("a", 5).unwrap().allowed());
        assert!(limiter.batch(&[batch.member("b").cost(5)]).spend().unwrap().allowed());
        assert_eq!(denied(), 0, "{engine:?}");
        assert!(batch.check("a", 1).unwrap().allowed());
        assert_eq!(denied(), 0, "a check is not counted");
        assert!(batch.spend("a", 1).unwrap().allowed());
        assert!(limiter.batch(&[batch.member("b")]).spend().unwrap().allowed());
        assert_eq!(denied(), 2, "{engine:?}");
        // Of both it leaves 7.
        assert!(reports.spend("c", 3).unwrap().allowed());
        assert_eq!(denied(), 2);
        assert!(reports.spend("c", 1).unwrap().allowed());
        assert!(limiter.batch(&[reports.member("c")]).spend().unwrap().allowed());
        assert_eq!(denied(), 4);
        assert!(batch.spend("d", 6).unwrap().allowed());
        assert_eq!(denied(), 5, "above the burst of the shadow limit");
    }
}

#[test]
fn code_gives_valid_floors_only() {
    let limit = |options: LimitOptions, limit: Limit| {
        let made = Limits::builder().limit_with("A", IdFormat::String, limit, options);
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    let floor = |name: &str, floor| LimitOptions::default().floor(name, floor);
    let permits = Limit::concurrency(4).unwrap();
    for (options, of, fault) in [
        (
            floor("a", Floor::Units(11)),
            hourly(10),
            "A: invalid floor 11: at most 10, the burst, is allowed",
        ),
        (
            floor("a", Floor::Percent(101)),
            hourly(10),
            "A: invalid floor 101%: at most 100% is allowed",
        ),
        (
            floor("a b", Floor::Units(1)),
            hourly(10),
            "A: invalid name of a floor \"a b\": a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed",
        ),
        (
            floor("a", Floor::Units(1)),
            permits,
            "A: not for what is in flight: a batch leaves permits by Member::leaving",
        ),
        (
            (0..17).fold(LimitOptions::default(), |all, at| {
                all.floor(&format!("f{at}"), Floor::Units(1))
            }),
            hourly(10),
            "A: too many floors: at most 16 are allowed",
        ),
    ] {
        assert_eq!(limit(options, of), Err(fault.into()));
    }
    // The later one replaces the first.
    let twice = floor("a", Floor::Units(11)).floor("a", Floor::Units(10));
    assert_eq!(limit(twice, hourly(10)), Ok(()));
}

#[test]
fn a_limiter_that_is_off_needs_no_floor() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with_floors(&hourly(10)), engine);
        let a = limiter.limit("A").unwrap();
        let none = a.priority("none").unwrap();
        limiter.set_enabled(false);
        assert_eq!(none.spend("id", 99).unwrap().remaining(), None);
        assert_eq!(limiter.batch(&[none.member("id")]).spend().unwrap().remaining(), None);
    }
}
