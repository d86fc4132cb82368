//! Places and receipts count as spends, and no caller waits for a limit in shadow mode.

use super::*;
use tollgate::reserve::ReserveError;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn places_count_as_allowed_and_refusals_as_denied() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 10, LimitOptions::default()), engine);
        let a = limiter.limit("A").unwrap();
        let place = a.reserve("k", 4, HOUR).unwrap();
        assert_eq!(
            (counters_of(&limiter, "A").allowed, counters_of(&limiter, "A").near),
            (1, 0),
            "6 of 10 are left"
        );
        let behind = a.reserve("k", 8, HOUR).unwrap();
        assert!(behind.wait() > Duration::ZERO);
        assert!(matches!(a.reserve("k", 1, Duration::ZERO), Err(ReserveError::NotInTime { .. })));
        assert!(a.reserve("k", 11, HOUR).unwrap_err().is_never());
        let of_a = counters_of(&limiter, "A");
        assert_eq!(
            (of_a.allowed, of_a.near, of_a.denied, of_a.errors, of_a.cost),
            (2, 1, 1, 1, 12)
        );
        drop((place, behind));

        let (decision, receipt) = a.spend_estimate("other", 3).unwrap();
        assert!(decision.allowed());
        let _ = receipt.unwrap().settle(1);
        let of_a = counters_of(&limiter, "A");
        assert_eq!((of_a.allowed, of_a.cost), (3, 15), "settled units are not subtracted");
    }
}

#[test]
fn shadow_mode_makes_no_caller_wait() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 2, shadow_mode()), engine);
        let a = limiter.limit("A").unwrap();
        for so_far in [0, 0, 1, 2] {
            assert_eq!(a.reserve("k", 1, Duration::ZERO).unwrap().wait(), Duration::ZERO);
            assert_eq!(counters_of(&limiter, "A").shadow_denied, so_far, "{engine:?}");
        }
        assert!(a.reserve("k", 3, HOUR).unwrap().wait().is_zero(), "more than the burst");
        let (decision, receipt) = a.spend_estimate("k", 1).unwrap();
        assert!(decision.allowed());
        assert!(receipt.unwrap().settle(0).allowed(), "there was nothing to give back");
        let of_a = counters_of(&limiter, "A");
        assert_eq!((of_a.shadow_denied, of_a.allowed, of_a.denied, of_a.cost), (4, 6, 0, 2));
        assert_eq!(a.check("k", 0).unwrap().remaining(), Some(0));
    }
}

#[test]
fn settling_in_shadow_mode_denies_nothing() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 2, shadow_mode().max_debt(5)), engine);
        let a = limiter.limit("A").unwrap();
        // Two units more than the estimate: the bucket is in debt, and the limit denies no call.
        let (_, receipt) = a.spend_estimate("k", 2).unwrap();
        let after = receipt.unwrap().settle(4);
        assert!(after.allowed() && after.retry_in() > Duration::ZERO, "{engine:?} {after:?}");
        assert_eq!(after, a.check("k", 0).unwrap(), "{engine:?}: as a check");
        // It would have denied this estimate, and charges nothing of the call.
        let (decision, receipt) = a.spend_estimate("k", 1).unwrap();
        assert!(decision.allowed());
        assert_eq!(receipt.unwrap().settle(3), after, "{engine:?}");
    }
}

#[test]
fn shadow_limits_follow_places_and_receipts() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 8, shadow_beside(3)), engine);
        let a = limiter.limit("A").unwrap();
        let would_deny = || counters_of(&limiter, "A").shadow_denied;
        a.reserve("k", 3, HOUR).unwrap().cancel();
        let (_, receipt) = a.spend_estimate("k", 3).unwrap();
        assert_eq!(would_deny(), 0, "{engine:?}: the place was cancelled in both buckets");
        let _ = receipt.unwrap().settle(1);
        let (_, receipt) = a.spend_estimate("k", 1).unwrap();
        assert_eq!(would_deny(), 0, "two of three came back");
        let _ = receipt.unwrap().settle(2);
        let (_, receipt) = a.spend_estimate("k", 1).unwrap();
        assert_eq!(would_deny(), 1, "{engine:?}: three of three are used, one of them settled");
        // The shadow was not charged, so nothing is returned to it.
        let _ = receipt.unwrap().settle(0);
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(would_deny(), 2, "{engine:?}");
    }
}
