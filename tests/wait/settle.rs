//! Estimated charges and their settlement.

use tollgate::limits::{LimitOptions, OverrideOptions};

use super::*;

/// A limiter whose buckets may owe `max_debt` units.
fn limiter_owing(limit: &Limit, max_debt: u64, clock: Clock, engine: Engine) -> Limiter {
    let options = LimitOptions::default().max_debt(max_debt);
    let limits = Limits::builder().limit_with("Own", IdFormat::String, limit.clone(), options);
    let options = LimiterOptions::default().clock(clock).engine(engine);
    Limiter::with_options(limits.unwrap().build(), options).unwrap()
}

fn owing(limit: &Limit, max_debt: u64) -> (KeyedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    (limiter_owing(limit, max_debt, clock, Engine::LockFree).limit("Own").unwrap(), hand)
}

#[test]
fn overestimate_is_refunded_and_no_more() {
    for limit in limits_of_all(10) {
        let (handle, _hand) = by_hand(&limit);
        let left = |handle: &KeyedLimit| handle.check("id", 0).unwrap().remaining().unwrap();
        let full = left(&handle);
        let (_, receipt) = handle.spend_estimate("id", 8).unwrap();
        assert_eq!(receipt.unwrap().settle(3).remaining(), Some(full - 3), "{limit:?}");
        // Settled to nothing while another caller's charge builds on it.
        let (_, first) = handle.spend_estimate("id", 4).unwrap();
        assert!(handle.spend("id", 2).unwrap().allowed());
        assert_eq!(first.unwrap().settle(0).remaining(), Some(full - 5), "{limit:?}");
        // Settled at the estimate, and not settled.
        let (_, same) = handle.spend_estimate("id", 1).unwrap();
        assert_eq!(same.unwrap().settle(1).remaining(), Some(full - 6), "{limit:?}");
        drop(handle.spend_estimate("id", 1).unwrap());
        assert_eq!(left(&handle), full - 7, "{limit:?}: a receipt that is dropped");
        let (denied, none) = handle.spend_estimate("id", 9).unwrap();
        assert!(!denied.allowed() && none.is_none());
    }
}

#[test]
fn concurrent_receipts_settle_exactly_in_any_order() {
    for limit in limits_of_all(40) {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let (handle, _hand) = by_hand(&limit);
            let full = handle.check("id", 0).unwrap().remaining().unwrap();
            let mut receipts: Vec<_> =
                (0..4).map(|_| handle.spend_estimate("id", 10).unwrap().1).collect();
            for which in order {
                let _ = receipts[which].take().unwrap().settle(which as u64 + 1);
            }
            let left = handle.check("id", 0).unwrap().remaining();
            assert_eq!(left, Some(full - 10), "{limit:?} {order:?}: 1 + 2 + 3 + 4");
        }
    }
}

/// Calls some ms apart, of which the one that opened the window, or found the bucket empty, is settled to nothing.
#[test]
fn all_of_failed_calls_come_back() {
    const CALLS: usize = 6;
    let limits = [
        Limit::new(400, 1, ms(60_000)).unwrap(),
        Limit::fixed_window(400, ms(3_600_000)).unwrap(),
        Limit::token_bucket(400, 400, ms(3_600_000)).unwrap(),
        Limit::leaky_bucket(400, 1, ms(60_000)).unwrap(),
    ];
    for (engine, limit) in
        ENGINES.into_iter().flat_map(|engine| limits.iter().map(move |it| (engine, it)))
    {
        for first in 0..CALLS {
            for actual in [0, 3] {
                let (clock, hand) = Clock::manual();
                let handle = limiter_on(limit, clock, engine).limit("Own").unwrap();
                let mut receipts = Vec::new();
                for cost in [10, 10, 300, 10, 10, 10] {
                    hand.advance(ms(2));
                    receipts.push(handle.spend_estimate("id", cost).unwrap().1.unwrap());
                }
                // That call first, then the others in their order.
                receipts[..=first].rotate_right(1);
                for (at, receipt) in receipts.into_iter().enumerate() {
                    hand.advance(ms(2));
                    let _ = receipt.settle(if at == 0 { 0 } else { actual });
                }
                let left = handle.check("id", 0).unwrap().remaining();
                let charged = actual * (CALLS as u64 - 1);
                // gcra's charges lose the time for which they were held, which is part of a unit here.
                let lost = (400 - charged).checked_sub(left.unwrap()).unwrap();
                let is_gcra = limit.algorithm() == "gcra";
                assert!(
                    lost <= u64::from(is_gcra),
                    "{lost}: {engine:?} {limit:?} {first} {actual}"
                );
            }
        }
    }
}

#[test]
fn underestimate_is_owed_down_to_the_floor() {
    for limit in limits_of_all(10) {
        for (max_debt, more, owed) in [(0, 5, 2), (4, 5, 5), (4, 6, 6), (4, 50, 6)] {
            let (handle, _hand) = owing(&limit, max_debt);
            let (_, receipt) = handle.spend_estimate("id", 8).unwrap();
            let after = receipt.unwrap().settle(8 + more);
            assert_eq!(after.allowed(), owed <= 2, "{limit:?} {max_debt} {more}");
            // The debt has to come back before one unit is there.
            let (same, _same_hand) = owing(&limit, 100);
            let _ = same.spend_estimate("id", 8).unwrap().1.unwrap().settle(8 + owed);
            assert_eq!(state(&handle), state(&same), "{limit:?} {max_debt} {more}");
        }
    }
}

#[test]
fn an_overrides_own_floor_is_its_own() {
    let limit = Limit::new(10, 1, ms(1)).unwrap();
    let limits = Limits::builder()
        .limit_with("Own", IdFormat::String, limit.clone(), LimitOptions::default().max_debt(3))
        .unwrap()
        .override_with("Own", "deep", limit, OverrideOptions::default().max_debt(6))
        .unwrap();
    let handle =
        Limiter::with_options(limits.build(), Clock::manual().0).unwrap().limit("Own").unwrap();
    for (id, owed) in [("any", 3), ("deep", 6)] {
        let after = handle.spend_estimate(id, 1).unwrap().1.unwrap().settle(100);
        assert_eq!(after.reset_in(), ms(10 + owed), "{id}");
    }
}

#[test]
fn an_estimate_of_nothing_can_be_settled() {
    let (handle, _hand) = by_hand(&Limit::new(10, 1, ms(1)).unwrap());
    let (decision, receipt) = handle.spend_estimate("id", 0).unwrap();
    assert!(decision.allowed());
    assert_eq!(receipt.unwrap().settle(7).remaining(), Some(3));
}

#[test]
fn receipts_of_waiters_settle() {
    let (handle, hand) = by_hand(&Limit::new(10, 1, ms(1)).unwrap());
    assert!(handle.spend("id", 10).unwrap().allowed());
    let place = place(&handle, 6);
    assert_eq!(place.wait(), ms(6));
    hand.advance(ms(6));
    let said = place.into_receipt().settle(2);
    assert_eq!((said.allowed(), said.remaining()), (true, Some(4)));
}

/// One estimate is open while others of the same id are settled: each returns all that it has not used.
#[test]
fn long_request_beside_short_ones_returns_all() {
    for engine in ENGINES {
        for limit in support::limits_of_all(10_000, 1000 * ms(1000)) {
            for others in [1, 2, 3, 30] {
                let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
                let estimate = |cost| handle.spend_estimate("id", cost).unwrap().1.unwrap();
                let long = estimate(4000);
                for _ in 0..others {
                    let _ = estimate(2000).settle(100);
                }
                let full = handle.check("full", 0).unwrap().remaining().unwrap();
                let left = long.settle(1000).remaining();
                assert_eq!(left, Some(full - 1000 - 100 * others), "{engine:?} {limit:?}");
            }
        }
    }
}

#[test]
fn settlements_of_many_ids_return_all() {
    for engine in ENGINES {
        for limit in support::limits_of_all(10_000, 1000 * ms(1000)) {
            let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
            let estimate =
                |id: String| handle.spend_estimate(id.as_str(), 4000).unwrap().1.unwrap();
            let receipts: Vec<_> = (0..10_000).map(|id| estimate(format!("id {id}"))).collect();
            let left = handle.check("full", 1000).unwrap().remaining();
            for receipt in receipts {
                assert_eq!(receipt.settle(1000).remaining(), left, "{engine:?} {limit:?}");
            }
        }
    }
}

/// A sweep has dropped the bucket at a later time than the return's clock reads. The bucket that has come since is not lowered
/// below that time.
#[test]
fn return_by_an_older_clock_leaves_the_floor() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let limiter = limiter_on(&Limit::new(2, 1, ms(10)).unwrap(), clock, engine);
        let handle = limiter.limit("Own").unwrap();
        assert!(handle.spend("other", 1).unwrap().allowed());
        hand.set(ms(100));
        while limiter.stats().cells > 0 {
            limiter.sweep(1 << 20);
        }
        let (_, receipt) = handle.spend_estimate("id", 2).unwrap();
        let _ = handle.reset("id").unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        hand.set(ms(50));
        let _ = receipt.unwrap().settle(0);
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(50), "{engine:?}");
    }
}
