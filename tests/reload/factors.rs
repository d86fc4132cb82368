//! Calls with a factor beside a reload.

use std::sync::{Arc, Mutex};

#[path = "../../examples/custom_algorithm/halves.rs"]
mod halves;

use tollgate::limit::Factor;
use tollgate::reload::CarryOver;
use tollgate::{Clock, Limit, Limiter};

use super::support::{ENGINES, hourly, limiter, limits, seconds, sweep_all};
use halves::Halves;

/// A limiter, and a slot for a limiter whose limits the clock doubles at its next reading.
fn reloaded_by_its_clock() -> (Limiter, Arc<Mutex<Option<Limiter>>>) {
    let armed: Arc<Mutex<Option<Limiter>>> = Arc::default();
    let taken = armed.clone();
    let clock = Clock::custom(move || {
        let limiter = taken.lock().unwrap().take();
        if let Some(limiter) = limiter {
            limiter.reload(limits(&[("A", hourly(20))])).unwrap();
        }
        seconds(1000)
    });
    (Limiter::with_options(limits(&[("A", hourly(10))]), clock).unwrap(), armed)
}

#[test]
fn batched_refund_during_reload_keeps_factor() {
    // 8 of 10 are used, 4 of them at half the price. With the reload that is 16 of 20.
    for (with_reload, left) in [(false, 6), (true, 8)] {
        let (limiter, armed) = reloaded_by_its_clock();
        let handle = limiter.limit("A").unwrap();
        let half = Factor::try_from(0.5).unwrap();
        let members = [handle.member("id").cost(8).factor(half)];
        let batch = limiter.batch(&members);
        assert!(batch.spend().unwrap().allowed());
        assert!(handle.spend("id", 4).unwrap().allowed());
        *armed.lock().unwrap() = with_reload.then(|| limiter.clone());
        let _ = batch.refund().unwrap();
        assert!(armed.lock().unwrap().is_none());
        // 8 units at half the price are 4.
        assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(left), "reload: {with_reload}");
    }
}

/// A custom algorithm has no factors, also if the limit was another when a call used one.
#[test]
fn sweep_drops_custom_buckets_despite_earlier_factor() {
    for engine in ENGINES {
        let drips = Limit::leaky_bucket(10, 1, seconds(1)).unwrap();
        let (limiter, hand) = limiter(limits(&[("A", drips)]), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.scaled("2".parse().unwrap()).spend("id", 1).unwrap().allowed());
        let custom = Limit::custom(Arc::new(Halves::new(10, 6, seconds(20)))).unwrap();
        limiter.reload_with(limits(&[("A", custom)]), CarryOver::Afresh).unwrap();
        assert!(a.spend("id", 1).unwrap().allowed());
        hand.advance(seconds(20));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

/// One check with a factor kept all buckets of a leaky bucket's limit for longer, for good.
#[test]
fn checks_with_a_factor_keep_no_bucket() {
    for engine in ENGINES {
        let drips = Limit::leaky_bucket(5, 1, seconds(1)).unwrap();
        let (limiter, hand) = limiter(limits(&[("A", drips)]), engine);
        let handle = limiter.limit("A").unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        let slow: Factor = "100".parse().unwrap();
        assert!(handle.scaled(slow).check("other", 1).unwrap().allowed());
        let member = handle.member("other").factor(slow);
        assert!(limiter.batch(&[member]).check().unwrap().allowed());
        let member = member.mode(tollgate::batch::MemberMode::CheckOnly);
        assert!(limiter.batch(&[member]).spend().unwrap().allowed());
        hand.advance(seconds(1));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

#[test]
fn sweep_after_reload_keeps_slower_drip() {
    let drips = Limit::leaky_bucket(10, 1, seconds(1)).unwrap();
    let with_other = |other| limits(&[("A", drips.clone()), ("B", hourly(other))]);
    for engine in ENGINES {
        let (limiter, hand) = limiter(with_other(1), engine);
        let handle = limiter.limit("A").unwrap();
        let twice: Factor = "2".parse().unwrap();
        assert!(handle.scaled(twice).spend("id", 5).unwrap().allowed());
        assert!(limiter.reload(with_other(2)).unwrap().changed);
        hand.advance(seconds(6));
        sweep_all(&limiter);
        // By the limit itself the bucket is empty after 5 s, by the factor's after 10 s.
        let left = handle.scaled(twice).check("id", 0).unwrap().remaining();
        assert_eq!(left, Some(3), "{engine:?}");
    }
}
