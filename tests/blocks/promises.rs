//! A block changes no bucket, and no call on a bucket changes a block. Each of these tests failed when a
//! block was a word of the bucket.

use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use tollgate::limits::{LimitOptions, OverrideOptions};
use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked, stop_point};
use super::support::{ENGINES, limiter, limits as named, seconds, state};
use super::{limits, on};

const HOUR: Duration = Duration::from_secs(3600);

/// Spends one unit at a time until a denial. Returns the number of admitted units.
fn drain(handle: &KeyedLimit) -> u64 {
    (0..10_000).take_while(|_| handle.spend("id", 1).unwrap().allowed()).count() as u64
}

#[test]
fn window_blocked_repeatedly_still_admits_its_limit() {
    for limit in [Limit::fixed_window(10, HOUR).unwrap(), Limit::token_bucket(9, 10, HOUR).unwrap()]
    {
        for engine in ENGINES {
            let (_, handle, hand) = on(&limit, engine);
            hand.advance(2 * HOUR);
            let mut admitted = 0;
            for _ in 0..10 {
                admitted += u64::from(handle.spend("id", 9).unwrap().allowed()) * 9;
                handle.block("id", seconds(1)).unwrap();
                hand.advance(seconds(1));
            }
            admitted += drain(&handle);
            assert!(admitted <= 10, "{engine:?} {limit:?}: {admitted} of 10 in an hour");
        }
    }
}

#[test]
fn block_refunds_nothing_of_a_daily_quota() {
    let day = 24 * HOUR;
    let limits = [Limit::fixed_window(1000, day), Limit::token_bucket(999, 1000, day)];
    for limit in limits.map(Result::unwrap) {
        let (_, handle, hand) = on(&limit, Engine::LockFree);
        hand.advance(2 * day);
        assert!(handle.spend("id", 999).unwrap().allowed());
        handle.block("id", seconds(600)).unwrap();
        hand.advance(seconds(600));
        assert!(drain(&handle) <= 1 + 1, "{limit:?}");
    }
}

#[test]
fn waiting_past_a_block_keeps_id_blocked() {
    for engine in ENGINES {
        let (_, handle, _hand) = on(&Limit::new(1, 1, seconds(1)).unwrap(), engine);
        let places: Vec<_> =
            (0..100).map(|_| handle.reserve("id", 1, Duration::MAX).unwrap()).collect();
        assert_eq!(handle.block("id", seconds(60)).unwrap(), seconds(60));
        places.into_iter().rev().for_each(|place| place.cancel());
        let denied = handle.spend("id", 1).unwrap();
        assert!(!denied.allowed(), "{engine:?}: it is listed as blocked");
        assert_eq!(denied.retry_in(), seconds(60));
        // A second `unblock` refunds nothing of a later charge.
        assert!(handle.unblock("id").unwrap());
        assert!(handle.spend("id", 1).unwrap().allowed());
        assert!(!handle.unblock("id").unwrap());
        assert!(!handle.spend("id", 1).unwrap().allowed(), "{engine:?}");
    }
}

#[test]
fn reload_keeps_block_and_reservations() {
    for engine in ENGINES {
        let limit = Limit::new(1, 1, seconds(1)).unwrap();
        let (limiter, handle, hand) = on(&limit, engine);
        let places: Vec<_> =
            (0..20).map(|_| handle.reserve("id", 1, Duration::MAX).unwrap()).collect();
        handle.block("id", seconds(60)).unwrap();
        let more = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
        let more = more.limit("More", IdFormat::String, limit).unwrap().build();
        assert!(limiter.reload(more).unwrap().changed);
        assert_eq!(handle.blocked_for("id").unwrap(), Some(seconds(60)), "{engine:?}");
        assert_eq!(state(&handle).retry_in(), seconds(60), "{engine:?}");
        assert!(handle.unblock("id").unwrap());
        let next = handle.reserve("id", 1, Duration::MAX).unwrap();
        assert_eq!(next.wait(), seconds(20), "{engine:?}: behind the 20 that were there before");
        hand.advance(seconds(19));
        assert!(places[19].wait().is_zero() && !handle.spend("id", 1).unwrap().allowed());
    }
}

#[test]
fn the_end_of_an_override_keeps_a_block() {
    for engine in ENGINES {
        let numbers = Limit::new(100, 100, seconds(1)).unwrap();
        let options = OverrideOptions::default().expires(SystemTime::now() + seconds(60));
        let limits = Limits::builder()
            .limit("Own", IdFormat::String, Limit::new(10, 10, seconds(1)).unwrap())
            .and_then(|it| it.override_with("Own", "id", numbers, options))
            .unwrap();
        let (clock, hand) = Clock::manual();
        hand.set(seconds(10));
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let handle = limiter.limit("Own").unwrap();
        assert_eq!(handle.spend("id", 1).unwrap().remaining(), Some(99), "the override's");
        handle.block("id", seconds(1800)).unwrap();
        hand.advance(seconds(1799));
        limiter.sweep(1 << 20);
        assert_eq!(handle.blocked_for("id").unwrap(), Some(seconds(1)));
        assert!(!handle.spend("id", 1).unwrap().allowed(), "{engine:?}");
        hand.advance(seconds(1));
        assert_eq!(handle.spend("id", 1).unwrap().remaining(), Some(9), "the default's");
    }
}

#[test]
fn upward_settlement_of_blocked_id_is_owed() {
    for engine in ENGINES {
        let owing = LimitOptions::default().max_debt(100);
        let limit = Limit::new(10, 1, seconds(1)).unwrap();
        let limits = Limits::builder().limit_with("Own", IdFormat::String, limit, owing).unwrap();
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let handle = Limiter::with_options(limits.build(), options).unwrap().limit("Own").unwrap();
        let (_, receipt) = handle.spend_estimate("id", 5).unwrap();
        handle.block("id", seconds(1)).unwrap();
        let _ = receipt.unwrap().settle(20);
        assert!(handle.unblock("id").unwrap());
        let denied = handle.check("id", 1).unwrap();
        assert_eq!((denied.allowed(), denied.retry_in()), (false, seconds(11)), "{engine:?}");
    }
}

#[test]
fn untracked_id_is_blocked_at_the_cap() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny, AtCap::Allow] {
            let (clock, _hand) = Clock::manual();
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let options = options.max_keys(1).at_cap(at_cap);
            let limit = Limit::new(10, 1, HOUR).unwrap();
            let limiter = Limiter::with_options(limits(&limit), options).unwrap();
            let handle = limiter.limit("Own").unwrap();
            assert!(handle.spend("first", 1).unwrap().allowed());
            assert_eq!(handle.block("id", HOUR).unwrap(), HOUR, "{engine:?} {at_cap:?}");
            let denied = handle.spend("id", 1).unwrap();
            assert!(!denied.allowed() && denied.retry_in() == HOUR, "{engine:?} {at_cap:?}");
            let batch = limiter.batch(&[handle.member("first"), handle.member("id")]).spend();
            assert_eq!(batch.unwrap().denied_by(), Some(1), "{engine:?} {at_cap:?}");
            assert_eq!(limiter.stats().cells, 1, "a block takes no cell");
            assert!(handle.unblock("id").unwrap());
            let after = handle.check("id", 1).unwrap();
            if at_cap == AtCap::Deny {
                assert!(after.out_of_room() && !after.blocked(), "{engine:?}");
                continue;
            }
            assert!(after.allowed() && after.remaining() >= Some(9), "{engine:?} {at_cap:?}");
        }
    }
}

#[test]
#[cfg(feature = "snapshot")]
fn restored_limiter_has_blocks_and_their_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, handle, _hand) = on(&Limit::new(10, 1, HOUR).unwrap(), engine);
        handle.block("id", HOUR).unwrap();
        old.snapshot(&path).unwrap();
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        // Units come back a thousand times as fast.
        let faster = limits(&Limit::new(20, 1, seconds(3)).unwrap());
        let (new, restored) = Limiter::restore(faster, options, &path).unwrap();
        let handle = new.limit("Own").unwrap();
        let left = HOUR - restored.elapsed;
        assert_eq!(handle.blocked_for("id").unwrap(), Some(left), "{engine:?}");
        assert_eq!(new.blocks().len(), 1, "{engine:?}");
        hand.advance(left - super::NS);
        assert!(!handle.spend("id", 1).unwrap().allowed(), "{engine:?}");
        hand.advance(super::NS);
        assert_eq!(handle.spend("id", 1).unwrap().remaining(), Some(19), "{engine:?}");
    }
}

/// `block` asks no rule, so no custom algorithm can delay it, and it holds no lock.
#[test]
fn block_calls_no_rule_and_delays_no_refund() {
    let (point, stopped) = stop_point();
    // A unit comes back in more than two hours, so that one can be refunded below.
    let daily = Limit::new(10, 10, 24 * HOUR).unwrap();
    let rule = hooked(daily, move |call| {
        if matches!(call, RuleCall::Spend { now_ns, .. } if now_ns > 1_000_000_000_000) {
            point.stop();
        }
    });
    let (limiter, hand) = limiter(named(&[("Own", rule)]), Engine::LockFree);
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("other", 1).unwrap().allowed());
    hand.set(seconds(2000));
    let (done, is_done) = channel();
    let blocker = {
        let (handle, done) = (handle.clone(), done.clone());
        std::thread::spawn(move || {
            let blocked = handle.block("id", HOUR);
            let _ = done.send("blocked");
            blocked.map(drop)
        })
    };
    let first = is_done.recv_timeout(seconds(5));
    let has_stopped = stopped.has_stopped();
    std::thread::spawn(move || {
        let refunded = handle.refund("other", 1).unwrap().allowed();
        let _ = done.send(if refunded { "refunded" } else { "nothing" });
    });
    let second = is_done.recv_timeout(seconds(5));
    drop(stopped);
    assert!(blocker.join().unwrap().is_ok());
    assert_eq!((first, second, has_stopped), (Ok("blocked"), Ok("refunded"), false));
}
