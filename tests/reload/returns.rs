//! Returns beside a reload that is not complete.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{Clock, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked};
use super::support::{ENGINES, hourly, limits};

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
            let limiter = Limiter::with_options(with_rule(), options);
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
