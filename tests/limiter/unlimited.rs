//! Ids whose override lifts the limit.

use std::time::{Duration, SystemTime};

use tollgate::batch::MemberMode;
use tollgate::limits::{Applies, LimitMode, LimitOptions, OverrideOptions};
use tollgate::{IdFormat, KeyedLimit, LimiterOptions, Limits};

use super::support::{ENGINES, hourly, limiter, limiter_with, seconds, sweep_all};

/// 10 units for all, and no limit for "ops".
fn lifted(options: LimitOptions, end: OverrideOptions) -> Limits {
    let limits = Limits::builder().limit_with("A", IdFormat::String, hourly(10), options).unwrap();
    limits.override_with("A", "ops", None, end).unwrap().build()
}

fn for_good() -> Limits {
    lifted(LimitOptions::default(), OverrideOptions::default())
}

fn without() -> Limits {
    Limits::builder().limit("A", IdFormat::String, hourly(10)).unwrap().build()
}

fn left(handle: &KeyedLimit, id: &str) -> Option<u64> {
    handle.check(id, 0).unwrap().remaining()
}

#[test]
fn its_calls_charge_nothing_and_take_no_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) =
            limiter_with(for_good(), LimiterOptions::default().engine(engine).counting(true));
        let a = limiter.limit("A").unwrap();
        assert_eq!(a.limit_for("ops").unwrap(), None);
        for cost in [1, 10, 11, u64::MAX] {
            let decision = a.spend("ops", cost).unwrap();
            assert!(decision.allowed() && decision.remaining().is_none(), "{engine:?} {cost}");
            assert!(a.check("ops", cost).unwrap().allowed());
        }
        assert_eq!(a.spend_up_to("ops", 50).unwrap().0, 50);
        let (decision, receipt) = a.spend_estimate("ops", 50).unwrap();
        assert!(decision.allowed(), "{engine:?}");
        assert_eq!(receipt.unwrap().settle(90).remaining(), None, "{engine:?}");
        assert!(a.reserve("ops", 50, Duration::ZERO).is_ok());
        assert!(a.refund("ops", 1).unwrap().allowed() && a.reset("ops").unwrap().allowed());
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        let counters = limiter.counters();
        assert_eq!((counters.limits[0].allowed, counters.limits[0].errors), (0, 0), "{engine:?}");
        // Others have their limit.
        assert!(a.spend("user", 10).unwrap().allowed() && !a.spend("user", 1).unwrap().allowed());
    }
}

#[test]
fn a_batch_charges_its_other_members() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(for_good(), engine);
        let a = limiter.limit("A").unwrap();
        let spend =
            |id, cost| limiter.batch(&[a.member("ops").cost(99), a.member(id).cost(cost)]).spend();
        assert_eq!(spend("user", 9).unwrap().remaining(), Some(1), "{engine:?}");
        assert!(!spend("user", 2).unwrap().allowed(), "{engine:?}");
        let alone = [a.member("ops").cost(99).mode(MemberMode::CheckAndSpend)];
        assert_eq!(limiter.batch(&alone).spend().unwrap().remaining(), None);
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
    }
}

/// A block is a part of the limit.
#[test]
fn a_block_needs_a_limit() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(for_good(), engine);
        let a = limiter.limit("A").unwrap();
        let refused = a.block("ops", seconds(60)).unwrap_err();
        assert!(refused.is_invalid_block() && refused.to_string().contains("no limit applies"));
        // A block from before the override is listed, and denies no call while the limit is lifted.
        limiter.reload(without()).unwrap();
        a.block("ops", seconds(3600)).unwrap();
        assert!(!a.spend("ops", 1).unwrap().allowed());
        limiter.reload(for_good()).unwrap();
        assert!(a.spend("ops", 1).unwrap().allowed(), "{engine:?}");
        assert_eq!(limiter.blocks().len(), 1);
        limiter.reload(without()).unwrap();
        assert!(a.spend("ops", 1).unwrap().blocked(), "{engine:?}");
    }
}

#[test]
fn a_new_bucket_begins_at_its_end() {
    for engine in ENGINES {
        let end = OverrideOptions::default().expires(SystemTime::now() + seconds(7200));
        let (limiter, hand) = limiter(lifted(LimitOptions::default(), end), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("ops", 99).unwrap().allowed());
        hand.advance(seconds(7199 - 60));
        assert_eq!(left(&a, "ops"), None, "{engine:?}");
        hand.advance(seconds(120));
        assert_eq!(a.spend("ops", 4).unwrap().remaining(), Some(6), "{engine:?}");
        assert!(!a.spend("ops", 7).unwrap().allowed(), "{engine:?}");
        sweep_all(&limiter);
        assert_eq!(left(&a, "ops"), Some(6), "{engine:?}");
    }
}

#[test]
fn a_reload_drops_its_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(without(), engine);
        let a = limiter.limit("A").unwrap();
        for id in ["ops", "user"] {
            assert!(a.spend(id, 7).unwrap().allowed());
        }
        limiter.reload(for_good()).unwrap();
        assert_eq!((left(&a, "ops"), left(&a, "user")), (None, Some(3)), "{engine:?}");
        assert!(a.spend("ops", 20).unwrap().allowed());
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
        limiter.reload(without()).unwrap();
        assert_eq!((left(&a, "ops"), left(&a, "user")), (Some(10), Some(3)), "{engine:?}");
    }
}

#[test]
fn a_full_table_allows_its_calls() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(1);
        let options = options.at_cap(tollgate::options::AtCap::Deny);
        let (limiter, _hand) = limiter_with(for_good(), options);
        let a = limiter.limit("A").unwrap();
        assert!(
            (0..2_000_u64).any(|id| !a.spend(id, 1).unwrap().allowed()),
            "{engine:?}: not full"
        );
        assert!(a.spend("ops", 99).unwrap().allowed(), "{engine:?}");
    }
}

#[test]
fn shadows_do_not_count_its_calls() {
    for engine in ENGINES {
        for options in [
            LimitOptions::default().mode(LimitMode::Shadow),
            LimitOptions::default().shadow(hourly(1)),
        ] {
            let options_of = LimiterOptions::default().engine(engine).counting(true);
            let limits = lifted(options.clone(), OverrideOptions::default());
            let (limiter, _hand) = limiter_with(limits, options_of);
            let a = limiter.limit("A").unwrap();
            assert!(a.spend("ops", 99).unwrap().remaining().is_none(), "{engine:?} {options:?}");
            assert_eq!(limiter.counters().limits[0].shadow_denied, 0, "{engine:?} {options:?}");
            assert_eq!(limiter.stats().cells, 0, "{engine:?} {options:?}");
        }
    }
}

#[test]
fn explain_names_the_override() {
    for engine in ENGINES {
        let options = OverrideOptions::default().comment("our probes");
        let (limiter, _hand) = limiter(lifted(LimitOptions::default(), options), engine);
        let explained = limiter.limit("A").unwrap().explain("ops", 99).unwrap();
        assert_eq!((explained.applies, explained.limit), (Applies::Override, None));
        assert_eq!(explained.comment.as_deref(), Some("our probes"));
        let decision = explained.call.unwrap().decision.unwrap();
        assert!(decision.allowed() && decision.remaining().is_none(), "{engine:?}");
    }
}

/// The limit is lifted from the end of the id's override to the end of its account's override. Permits from before that time do not
/// come back to the permits after it, though all are of one generation of limits.
#[cfg(feature = "boulder")]
#[test]
fn permits_lifted_between_two_ends_begin_anew() {
    for engine in ENGINES {
        let at_most = |max| tollgate::Limit::concurrency(max).unwrap();
        let ends = |s| OverrideOptions::default().expires(SystemTime::now() + seconds(s));
        let limits = Limits::builder().limit("Flights", IdFormat::RegIdDomain, at_most(2)).unwrap();
        let limits = limits.override_with("Flights", "7:a.com", at_most(3), ends(60)).unwrap();
        let limits = limits.override_with("Flights", "7", None, ends(120)).unwrap().build();
        let (limiter, hand) = limiter_with(limits, LimiterOptions::default().engine(engine));
        let flights = limiter.concurrency("Flights").unwrap();
        let before = flights.acquire("7:a.com", 3).unwrap().1;
        hand.advance(seconds(90));
        assert_eq!(flights.limit_for("7:a.com").unwrap(), None, "{engine:?}");
        hand.advance(seconds(60));
        let after = flights.acquire("7:a.com", 2).unwrap().1;
        assert!(before.is_some() && after.is_some());
        drop(before);
        assert_eq!(flights.in_flight("7:a.com").unwrap(), 2, "{engine:?}");
        drop(after);
        assert_eq!((flights.in_flight("7:a.com").unwrap(), flights.total_in_flight()), (0, 0));
    }
}
