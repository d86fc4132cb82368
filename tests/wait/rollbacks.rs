//! Bounds what settlements, cancels and rollbacks may return to a bucket: one history each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use tollgate::limit::Factor;
use tollgate::limits::OverrideOptions;
use tollgate::options::AtCap;
use tollgate::reload::CarryOver;

use super::support::limits;
use super::support::rules::{RuleCall, hooked, scripted};
use super::*;

/// Three units at once, one more every 50 ms.
fn three() -> Limit {
    Limit::new(3, 1, ms(50)).unwrap()
}

/// The last reservation is settled from 3 to 2 before its time. It keeps its time, so an earlier charge may
/// not return units that another caller would then have at that time.
#[test]
fn reservation_settled_early_keeps_its_time() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let handle = limiter_on(&three(), clock, engine).limit("Own").unwrap();
        assert!(handle.spend("id", 2).unwrap().allowed());
        hand.set(ms(8));
        let first = place(&handle, 1).into_receipt();
        hand.set(ms(48));
        let second = place(&handle, 3);
        assert_eq!(second.wait(), ms(150 - 48));
        let _ = second.into_receipt().settle(2);
        hand.set(ms(56));
        let _ = first.settle(0);
        assert_eq!(place(&handle, 3).wait(), ms(250 - 56), "{engine:?}");
    }
}

/// Ten charges, a reset, ten more charges: the reset has returned the first ten already.
#[test]
fn reset_ends_refunds_of_earlier_receipts() {
    for engine in ENGINES {
        for limit in limits_of_all(10) {
            for settles in [true, false] {
                let (clock, _hand) = Clock::manual();
                let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
                let receipts =
                    [(); 10].map(|()| handle.spend_estimate("id", 1).unwrap().1.unwrap());
                assert!(handle.reset("id").unwrap().allowed());
                assert!(handle.spend("id", if settles { 10 } else { 3 }).unwrap().allowed());
                let before = state(&handle);
                for receipt in receipts {
                    let _ = receipt.settle(0);
                }
                assert_eq!(state(&handle), before, "{engine:?} {limit:?}");
            }
        }
    }
}

/// A reset by a batch, of a key that the fast path does not know.
#[test]
fn batched_reset_ends_refunds_of_earlier_receipts() {
    for limit in limits_of_all(10) {
        let (clock, _hand) = Clock::manual();
        let limiter = limiter_on(&limit, clock, Engine::LockFree);
        let handle = limiter.limit("Own").unwrap();
        let receipt = handle.spend_estimate("id", 10).unwrap().1.unwrap();
        assert!(limiter.batch(&[handle.member("id")]).reset().unwrap().allowed());
        assert!(handle.spend("id", 10).unwrap().allowed());
        let before = state(&handle);
        let _ = receipt.settle(0);
        assert_eq!(state(&handle), before, "{limit:?}");
    }
}

/// A reservation from before a reset: the bucket is full without its refund.
#[test]
fn reset_ends_refunds_of_earlier_reservations() {
    for limit in limits_of_all(4) {
        let (handle, _hand) = by_hand(&limit);
        assert!(handle.spend("id", 4).unwrap().allowed());
        let places = [(); 3].map(|()| place(&handle, 1));
        assert!(handle.reset("id").unwrap().allowed());
        assert!(handle.spend("id", 4).unwrap().allowed());
        let again = [(); 3].map(|()| place(&handle, 1));
        let before = state(&handle);
        places.into_iter().rev().for_each(Reservation::cancel);
        assert_eq!(state(&handle), before, "{limit:?}");
        drop(again);
    }
}

/// Two units are spent. A refund returns all that has not come back by itself, then another caller spends
/// two. The word is again the one that the receipt's charge left.
#[test]
fn refund_and_spend_restoring_word_are_seen() {
    let (handle, hand) = by_hand(&three());
    assert!(handle.spend("id", 2).unwrap().allowed());
    hand.set(ms(8));
    let receipt = handle.spend_estimate("id", 1).unwrap().1.unwrap();
    hand.set(ms(50));
    assert!(handle.refund("id", 2).unwrap().allowed());
    assert!(handle.spend("id", 2).unwrap().allowed());
    let _ = receipt.settle(0);
    assert!(!handle.spend("id", 2).unwrap().allowed(), "two of three were spent at this instant");
}

/// A bucket became full and was dropped, and another caller with an older clock has spent in it since. The
/// receipt's charge has come back by itself.
#[test]
fn receipt_of_a_dropped_bucket_refunds_nothing() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let limiter = limiter_on(&Limit::new(3, 1, ms(10)).unwrap(), clock, engine);
        let handle = limiter.limit("Own").unwrap();
        let receipt = handle.spend_estimate("id", 1).unwrap().1.unwrap();
        hand.set(ms(12));
        while limiter.stats().cells > 0 {
            limiter.sweep(1 << 20);
        }
        hand.set(ms(5));
        assert!(handle.spend("id", 1).unwrap().allowed());
        let before = state(&handle);
        let _ = receipt.settle(0);
        assert_eq!(state(&handle), before, "{engine:?}: the other's unit is spent");
    }
}

/// A reservation belongs to the limits that it was taken under. A reload, with the same limits or others,
/// ends its refund.
#[test]
fn reservation_before_a_reload_refunds_nothing() {
    let limits = |count: u64, more: &str| {
        let limit = Limit::new(3, count, ms(150)).unwrap();
        let limits = Limits::builder().limit("Own", IdFormat::String, limit).unwrap();
        limits.limit(more, IdFormat::String, three()).unwrap().build()
    };
    for engine in ENGINES {
        for (count, debt) in [
            (3, CarryOver::Units),
            (30, CarryOver::Units),
            (30, CarryOver::Time),
            (1, CarryOver::Share),
        ] {
            let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
            let limiter = Limiter::with_options(limits(3, "First"), options);
            let handle = limiter.limit("Own").unwrap();
            assert!(handle.spend("id", 3).unwrap().allowed());
            let (first, second) = (place(&handle, 2), place(&handle, 3));
            let receipt = place(&handle, 3).into_receipt();
            first.cancel();
            limiter.reload_with(limits(count, "Second"), debt).unwrap();
            let before = state(&handle);
            let _ = receipt.settle(1);
            second.cancel();
            assert_eq!(state(&handle), before, "{engine:?} {count} {debt:?}");
        }
    }
}

/// An ended override leaves its bucket under another limit, without a reload.
#[test]
fn reservation_before_override_end_refunds_nothing() {
    for engine in ENGINES {
        let now = SystemTime::now();
        let (clock, hand) = Clock::manual();
        let soon = OverrideOptions::default().expires(now + Duration::from_secs(3600));
        let hourly = |burst| Limit::new(burst, burst, Duration::from_secs(3600)).unwrap();
        let limits = Limits::builder()
            .limit("Own", IdFormat::String, hourly(10))
            .unwrap()
            .override_with("Own", "id", hourly(2), soon)
            .unwrap();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let handle = Limiter::with_options(limits.build(), options).limit("Own").unwrap();
        assert!(handle.spend("id", 2).unwrap().allowed());
        let places = [(); 4].map(|()| place(&handle, 2));
        hand.set(Duration::from_secs(3660));
        assert!(!handle.spend("id", 10).unwrap().allowed());
        let before = state(&handle);
        places.into_iter().rev().for_each(Reservation::cancel);
        assert_eq!(state(&handle), before, "{engine:?}");
    }
}

/// The bucket is full under the default, and other callers have spent all of it since.
#[test]
fn receipt_before_override_end_refunds_nothing() {
    let seconds = Duration::from_secs;
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let soon = OverrideOptions::default().expires(SystemTime::now() + seconds(100));
        let limits = Limits::builder()
            .limit("Own", IdFormat::String, Limit::new(10, 1, seconds(10)).unwrap())
            .unwrap()
            .override_with("Own", "id", Limit::new(10, 1, seconds(1000)).unwrap(), soon)
            .unwrap();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let handle = Limiter::with_options(limits.build(), options).limit("Own").unwrap();
        let receipt = handle.spend_estimate("id", 5).unwrap().1.unwrap();
        hand.advance(seconds(160));
        assert!(handle.spend("id", 10).unwrap().allowed(), "{engine:?}: full since");
        let _ = receipt.settle(0);
        assert!(!handle.spend("id", 1).unwrap().allowed(), "{engine:?}");
    }
}

/// A limiter with the limits "Own" and "Then". A batch finds that "Then" allows; when the batch charges it,
/// `when_charged` runs, which may panic, and "Then" denies.
fn with_late_denial(
    limit: &Limit,
    options: LimiterOptions,
    when_charged: impl Fn() + Send + Sync + 'static,
) -> (Limiter, KeyedLimit, KeyedLimit) {
    let asked = AtomicU64::new(0);
    let then = scripted(move || {
        let asked_before = asked.fetch_add(1, Ordering::Relaxed);
        if asked_before == 1 {
            when_charged();
        }
        asked_before == 0
    });
    let limits = limits(&[("Own", limit.clone()), ("Then", then)]);
    let limiter = Limiter::with_options(limits, options);
    let (own, then) = (limiter.limit("Own").unwrap(), limiter.limit("Then").unwrap());
    (limiter, own, then)
}

/// Two untracked keys at the cap share one bucket, so the second charge builds on the first. A batch that
/// undid the first charge first would leave the time that has passed since.
#[test]
fn a_denied_batch_undoes_its_last_charge_first() {
    for limit in limits_of_all(9) {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(AtCap::Share);
        let then_hand = hand.clone();
        let (limiter, own, then) =
            with_late_denial(&limit, options, move || then_hand.advance(ms(1)));
        assert!(own.spend("the one key", 1).unwrap().allowed());
        let members = [own.member("a").cost(3), own.member("b").cost(4), then.member("c")];
        assert!(!limiter.batch(&members).spend().unwrap().allowed());
        assert_eq!(limiter.stats().shared, 2, "both were charged to the shared bucket");
        let left = own.check("any", 0).unwrap();
        assert!(left.reset_in().is_zero(), "{limit:?}: {left:?}");
        assert!(own.spend("any", 9).unwrap().allowed(), "{limit:?}");
    }
}

/// A batch with a factor occupies a bucket for longer than the limit's burst offset; the reservation behind
/// it has no factor.
#[test]
fn denied_batch_with_factor_leaves_later_reservation() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock);
    let waiting = Arc::new(Mutex::new(None));
    let (waits, handle) = (waiting.clone(), Arc::new(OnceLock::<KeyedLimit>::new()));
    let (in_between, factor) = (handle.clone(), "10".parse::<Factor>().unwrap());
    let (limiter, own, then) = with_late_denial(&three(), options, move || {
        *waits.lock().unwrap() = Some(place(in_between.get().unwrap(), 1));
    });
    handle.set(own.clone()).unwrap();
    let members = [own.member("id").factor(factor), then.member("c")];
    assert!(!limiter.batch(&members).spend().unwrap().allowed());
    let place = waiting.lock().unwrap().take().unwrap();
    assert_eq!(place.wait(), ms(400));
    hand.set(ms(400));
    assert!(!own.spend("id", 3).unwrap().allowed(), "beside the one that waited");
    assert!(own.spend("id", 2).unwrap().allowed());
    drop(limiter);
}

#[test]
fn panic_between_batch_charges_leaves_none() {
    for engine in ENGINES {
        for limit in limits_of_all(5) {
            let (clock, hand) = Clock::manual();
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let (limiter, own, then) = with_late_denial(&limit, options, move || {
                hand.advance(ms(1));
                panic!("as a rule may");
            });
            let members = [own.member("id").cost(2), own.member("other").cost(3), then.member("c")];
            let caught = catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend()));
            assert!(caught.is_err());
            for id in ["id", "other"] {
                let left = own.check(id, 0).unwrap();
                assert!(left.reset_in().is_zero(), "{engine:?} {limit:?}: {left:?}");
            }
            // No lock is left held: the next batch goes through the same cells.
            assert!(limiter.batch(&members[..2]).spend().unwrap().allowed());
        }
    }
}

/// This covers a rule that is asked again after its bucket was charged.
#[test]
fn panicking_rule_leaves_no_batch_half_charged() {
    for engine in ENGINES {
        for calls in 1..12 {
            let rule = Limit::new(5, 1, ms(1000)).unwrap();
            let spends_left = Arc::new(AtomicU64::new(u64::MAX));
            let left_of_rule = spends_left.clone();
            let panics = hooked(rule.clone(), move |call| {
                if let RuleCall::Spend { .. } = call {
                    let left = left_of_rule.fetch_sub(1, Ordering::Relaxed);
                    assert_ne!(left, 1, "as a rule may");
                }
            });
            let limits = limits(&[("Own", rule), ("Panics", panics)]);
            let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
            let limiter = Limiter::with_options(limits, options);
            let [first, second] = ["Own", "Panics"].map(|name| limiter.limit(name).unwrap());
            let members = [first.member("id"), second.member("id"), second.member("other")];
            spends_left.store(calls, Ordering::Relaxed);
            let caught = catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend()));
            spends_left.store(u64::MAX, Ordering::Relaxed);
            let left = [(&first, "id"), (&second, "id"), (&second, "other")];
            let left = left.map(|(handle, id)| handle.check(id, 0).unwrap().remaining());
            let is_charged = caught.is_ok();
            assert_eq!(left, [Some(if is_charged { 4 } else { 5 }); 3], "{engine:?}: {calls}");
        }
    }
}

/// The limits change between the charges of a batch and its rollback.
#[test]
fn denied_batch_beside_reload_returns_new_units() {
    for engine in ENGINES {
        let armed: Arc<Mutex<Option<(Limiter, Limits)>>> = Arc::default();
        let (taken, calls) = (armed.clone(), AtomicU64::new(0));
        // The first look allows the batch; then its charge reloads, and is denied.
        let rule = scripted(move || {
            let is_look = calls.fetch_add(1, Ordering::Relaxed) == 0;
            if !is_look && let Some((limiter, limits)) = taken.lock().unwrap().take() {
                assert!(limiter.reload(limits).unwrap().changed);
            }
            is_look
        });
        let of = |period_ms| {
            let own = Limit::new(4, 4, ms(period_ms)).unwrap();
            limits(&[("Own", own), ("Rule", rule.clone())])
        };
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(of(40), options);
        let [own, rule] = ["Own", "Rule"].map(|name| limiter.limit(name).unwrap());
        assert!(own.spend("id", 1).unwrap().allowed());
        *armed.lock().unwrap() = Some((limiter.clone(), of(400)));
        let batch = [own.member("id").cost(2), rule.member("id")];
        assert!(!limiter.batch(&batch).spend().unwrap().allowed());
        assert!(armed.lock().unwrap().is_none(), "{engine:?}: it was reloaded");
        let left = own.check("id", 0).unwrap();
        assert_eq!((left.remaining(), left.reset_in()), (Some(3), ms(100)), "{engine:?}");
    }
}

/// After 2,048 reloads the tags of limits are the same again.
#[test]
fn receipt_before_many_reloads_refunds_nothing() {
    let of = |burst| limits(&[("Own", Limit::new(burst, 1, ms(50)).unwrap())]);
    let options = LimiterOptions::default().clock(Clock::manual().0).max_keys(64);
    let limiter = Limiter::with_options(of(4), options);
    let own = limiter.limit("Own").unwrap();
    let (_, receipt) = own.spend_estimate("id", 3).unwrap();
    for reload in 1..=2048 {
        let reloaded = limiter.reload_with(of(4 + reload % 2), CarryOver::Units).unwrap();
        assert!(reloaded.changed);
    }
    let before = state(&own);
    let _ = receipt.unwrap().settle(0);
    assert_eq!(state(&own), before);
}

/// The override ends by another call, which converts the bucket's word, between a batch's charge and its rollback.
#[test]
fn denied_batch_returns_units_after_override_end() {
    for engine in ENGINES {
        let end = OverrideOptions::default().expires(SystemTime::now() + 1000 * ms(1000));
        let others: Arc<OnceLock<(KeyedLimit, ManualClock)>> = Arc::default();
        let (asked, others_call) = (AtomicU64::new(0), others.clone());
        let then = scripted(move || {
            let before = asked.fetch_add(1, Ordering::Relaxed);
            if before == 1 {
                let (users, hand) = others_call.get().unwrap();
                hand.advance(2000 * ms(1000));
                assert!(users.spend("alice", 1).unwrap().allowed());
            }
            before == 0
        });
        let daily = |burst| Limit::new(burst, 1, 86_400 * ms(1000)).unwrap();
        let builder = Limits::builder().limit("Users", IdFormat::String, daily(10)).unwrap();
        let builder = builder.override_with("Users", "alice", daily(100), end).unwrap();
        let limits = builder.limit("Then", IdFormat::String, then).unwrap().build();
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits, options);
        let [users, then] = ["Users", "Then"].map(|name| limiter.limit(name).unwrap());
        assert!(others.set((users.clone(), hand)).is_ok());
        assert!(users.spend("alice", 30).unwrap().allowed());
        let batch = [users.member("alice").cost(40), then.member("id")];
        assert!(!limiter.batch(&batch).spend().unwrap().allowed());
        let left = users.check("alice", 0).unwrap().remaining();
        assert_eq!(left, Some(6), "{engine:?}: 30 of 100, which are 3 of 10, and 1 are spent");
    }
}
