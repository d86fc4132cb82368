//! Returns after a reload, and beside one that is not complete.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::options::AtCap;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked};
use super::support::{ENGINES, hourly, limits, seconds};

/// A rule panics when a reload asks for its name: the reload's thread ends in the middle of its migrations.
#[test]
fn charges_under_limits_being_loaded_are_returned() {
    const MANY: u64 = u64::MAX / 2;
    let mut stopped = 0;
    for engine in ENGINES {
        for calls in 1..8 {
            let calls_left = Arc::new(AtomicU64::new(MANY));
            let with_rule = || -> Limits {
                let calls_left = calls_left.clone();
                let rule = hooked(hourly(5), move |call| {
                    let is_last =
                        call == RuleCall::Name && calls_left.fetch_sub(1, Ordering::Relaxed) == 1;
                    assert!(!is_last, "as a rule may");
                });
                limits(&[("Own", hourly(10)), ("Rule", rule)])
            };
            let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
            let limiter = Limiter::with_options(with_rule(), options).unwrap();
            let own = limiter.limit("Own").unwrap();
            assert!(limiter.limit("Rule").unwrap().spend("id", 1).unwrap().allowed());
            let ids: Vec<String> = (0..200).map(|id| format!("id{id}")).collect();
            for id in &ids {
                assert!(own.spend(id, 1).unwrap().allowed());
            }
            let next = with_rule();
            calls_left.store(calls, Ordering::Relaxed);
            let reloaded = catch_unwind(AssertUnwindSafe(|| limiter.reload(next)));
            calls_left.store(MANY, Ordering::Relaxed);
            stopped += u64::from(reloaded.is_err());
            for id in &ids {
                let (_, receipt) = own.spend_estimate(id, 3).unwrap();
                assert_eq!(receipt.unwrap().settle(0).remaining(), Some(9), "{engine:?} {calls}");
                assert!(own.spend(id, 9).unwrap().allowed());
                let place = own.reserve(id, 5, Duration::MAX).unwrap();
                let wait = place.wait();
                place.cancel();
                let again = own.reserve(id, 5, Duration::MAX).unwrap().wait();
                assert_eq!(again, wait, "{engine:?} {calls}");
            }
        }
    }
    assert!(stopped > 4, "{stopped} reloads did not complete");
}

/// A receipt returns its units if the limit of its id is that of the charge: after a reload of another limit, and after two
/// reloads that change it and change it back.
#[test]
fn receipts_return_under_their_limit_alone() {
    let pairs = |burst: u64| {
        [
            Limit::new(burst, 1, seconds(1)),
            Limit::fixed_window(burst, seconds(60)),
            Limit::token_bucket(10, burst, seconds(60)),
            Limit::leaky_bucket(burst, 1, seconds(1)),
        ]
    };
    for engine in ENGINES {
        for (own, changed) in pairs(10).into_iter().zip(pairs(20)) {
            let (own, changed) = (own.unwrap(), changed.unwrap());
            let of = |own: &Limit, other| limits(&[("Own", own.clone()), ("Other", hourly(other))]);
            for (reloads, returns) in [
                (vec![of(&own, 2)], true),
                (vec![of(&changed, 1)], false),
                (vec![of(&changed, 1), of(&own, 1)], true),
            ] {
                let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
                let limiter = Limiter::with_options(of(&own, 1), options).unwrap();
                let handle = limiter.limit("Own").unwrap();
                let receipt = handle.spend_estimate("id", 6).unwrap().1.unwrap();
                let place = handle.reserve("id", 4, Duration::ZERO).ok();
                for limits in reloads {
                    assert!(limiter.reload_with(limits, CarryOver::Units).unwrap().changed);
                }
                let before = handle.check("id", 0).unwrap();
                let after = receipt.settle(0);
                if let Some(place) = place {
                    place.cancel();
                }
                let left = handle.check("id", 0).unwrap();
                let context = format!("{engine:?} {own:?} {returns}: {after:?}");
                assert_eq!(left.reset_in().is_zero(), returns, "{context}");
                assert_eq!(left == before, !returns, "{context}");
            }
        }
    }
}

/// After 2,048 reloads the tags of limits are the same again.
#[test]
fn receipt_before_many_reloads_returns_nothing() {
    let of = |burst| limits(&[("Own", Limit::new(burst, 1, seconds(60)).unwrap())]);
    let options = LimiterOptions::default().clock(Clock::manual().0).max_keys(64);
    let limiter = Limiter::with_options(of(4), options).unwrap();
    let own = limiter.limit("Own").unwrap();
    let (_, receipt) = own.spend_estimate("id", 3).unwrap();
    for reload in 1..=2048 {
        let burst = if reload == 2048 { 6 } else { 4 + reload % 2 };
        assert!(limiter.reload_with(of(burst), CarryOver::Units).unwrap().changed);
    }
    let before = own.check("id", 0).unwrap();
    let _ = receipt.unwrap().settle(0);
    assert_eq!(own.check("id", 0).unwrap(), before);
}

/// The bucket that untracked keys share is the default's. A receipt of the default found its own limit again in an override, and
/// lowered the overflow bucket of the next default.
#[test]
fn receipt_leaves_the_shared_bucket_of_another_default() {
    let limits = |count, own: Option<u64>| {
        let builder = Limits::builder().limit("Own", IdFormat::String, hourly(count)).unwrap();
        match own {
            Some(count) => builder.override_id("Own", "id", hourly(count)).unwrap().build(),
            None => builder.build(),
        }
    };
    for engine in ENGINES {
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let options = options.max_keys(1).at_cap(AtCap::Share);
        let limiter = Limiter::with_options(limits(10, None), options).unwrap();
        let own = limiter.limit("Own").unwrap();
        assert!(own.spend("tracked", 10).unwrap().allowed());
        let (_, receipt) = own.spend_estimate("id", 10).unwrap();
        limiter.reload_with(limits(3600, Some(10)), CarryOver::Units).unwrap();
        assert!(own.spend("other", 3000).unwrap().allowed());
        let before = own.check("other", 0).unwrap();
        let _ = receipt.unwrap().settle(0);
        assert_eq!(own.check("other", 0).unwrap(), before, "{engine:?}");
    }
}
