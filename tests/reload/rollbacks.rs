//! Rollbacks beside a reload that is not complete, and left ones beside two.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tollgate::reload::CarryOver;
use tollgate::{Clock, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked, scripted, stands_in_rollback, stop_point};
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

/// Allows the first spend of each pair that a thread makes: the look of a batch, and not its charge.
fn denies_charges() -> Limit {
    let asked: Mutex<HashMap<ThreadId, u64>> = Mutex::default();
    scripted(move || {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(thread::current().id()).or_default();
        *times += 1;
        *times % 2 == 1
    })
}

/// Two batches are denied at once. The second leaves its rollback to the first, which stands still in its own. On the
/// lock-free table: on the other, the first has the lock that a reload needs.
#[test]
fn left_rollback_is_made_after_a_reload() {
    for has_reload in [false, true] {
        let (point, stopped) = stop_point();
        let has_stopped = AtomicBool::new(false);
        let stops = hooked(hourly(10), move |call| {
            if call == RuleCall::RollBack && !has_stopped.swap(true, Ordering::Relaxed) {
                point.stop();
            }
        });
        let denies = denies_charges();
        let with_other = |other| {
            let (own, denier) = (stops.clone(), denies.clone());
            limits(&[("Own", own), ("Denier", denier), ("Other", hourly(other))])
        };
        let limiter = Limiter::with_clock(with_other(1), Clock::manual().0);
        let [own, denier] = ["Own", "Denier"].map(|name| limiter.limit(name).unwrap());
        assert!(own.spend("id", 1).unwrap().allowed());
        let denied = || {
            let (limiter, own, denier) = (limiter.clone(), own.clone(), denier.clone());
            thread::spawn(move || {
                let batch = [own.member("id").cost(2), denier.member("id")];
                assert!(!limiter.batch(&batch).spend().unwrap().allowed());
            })
        };
        let first = denied();
        stopped.wait();
        denied().join().unwrap();
        assert_eq!(own.check("id", 0).unwrap().remaining(), Some(5), "both are charged still");
        if has_reload {
            assert!(limiter.reload(with_other(2)).unwrap().changed);
        }
        drop(stopped);
        first.join().unwrap();
        assert_eq!(own.check("id", 0).unwrap().remaining(), Some(9), "reload: {has_reload}");
    }
}

/// The rollbacks of a denied batch are left to a thread that stands still. The limit changes before they are left, and once
/// more before they are made.
#[test]
fn left_rollback_beside_two_reloads_forgets_no_debt() {
    let ids: Vec<String> = (0..1000).map(|id| format!("id{id}")).collect();
    let (stands, stopped) = stands_in_rollback();
    let asked = AtomicU64::new(0);
    let in_rule: Arc<Mutex<Option<Limiter>>> = Arc::default();
    let (of_rule, others) = (in_rule.clone(), ids.clone());
    let then_of_rule: Arc<Mutex<Option<Limits>>> = Arc::default();
    let next = then_of_rule.clone();
    let then = scripted(move || {
        let before = asked.fetch_add(1, Ordering::Relaxed);
        if before == 1 {
            let limiter = of_rule.lock().unwrap().take().unwrap();
            let own = limiter.limit("Own").unwrap();
            for id in &others {
                assert!(own.spend(id.as_str(), 7).unwrap().allowed());
            }
            limiter.reload_with(next.lock().unwrap().take().unwrap(), CarryOver::Units).unwrap();
        }
        before == 0
    });
    let of = |burst| {
        let own = Limit::fixed_window(burst, seconds(3600)).unwrap();
        limits(&[("Own", own), ("Stands", stands.clone()), ("Zthen", then.clone())])
    };
    let limiter = Limiter::with_clock(of(10), Clock::manual().0);
    let [own, slow, then] = ["Own", "Stands", "Zthen"].map(|name| limiter.limit(name).unwrap());
    *in_rule.lock().unwrap() = Some(limiter.clone());
    *then_of_rule.lock().unwrap() = Some(of(3));
    let stalled = thread::spawn(move || slow.reserve("id", 1, Duration::MAX).unwrap().cancel());
    stopped.wait();
    let mut batch: Vec<_> = ids.iter().map(|id| own.member(id).cost(3)).collect();
    batch.push(then.member("id"));
    assert!(!limiter.batch(&batch).spend().unwrap().allowed());
    limiter.reload_with(of(10), CarryOver::Units).unwrap();
    drop(stopped);
    stalled.join().unwrap();
    for id in &ids {
        // Of 3 all were used.
        assert!(own.check(id.as_str(), 0).unwrap().remaining() <= Some(7), "{id}");
    }
}
