//! Rollbacks beside a reload that is not complete.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::{Clock, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, hourly, limits};

/// Panics once in `name`, which a reload asks: the reload's thread ends in the middle of its migrations.
#[derive(Debug)]
struct PanicsInName {
    limit: Limit,
    calls_left: Arc<AtomicU64>,
}

impl Algorithm for PanicsInName {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.limit.spend(word, now_ns, cost)
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.limit.refund(word, now_ns, cost)
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.limit.is_full(word, now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        self.limit.full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.limit.max_cost()
    }

    fn name(&self) -> &'static str {
        assert!(self.calls_left.fetch_sub(1, Ordering::Relaxed) != 1, "as a rule may");
        "panics in name"
    }
}

#[test]
fn charges_under_limits_being_loaded_are_returned() {
    const MANY: u64 = u64::MAX / 2;
    let mut stopped = 0;
    for engine in ENGINES {
        for calls in 1..8 {
            let calls_left = Arc::new(AtomicU64::new(MANY));
            let with_rule = || -> Limits {
                let calls_left = calls_left.clone();
                let rule = PanicsInName { limit: hourly(5), calls_left };
                limits(&[("Own", hourly(10)), ("Rule", Limit::custom(Arc::new(rule)).unwrap())])
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
