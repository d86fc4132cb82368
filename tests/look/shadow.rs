//! Limits in shadow mode, which deny no call, and shadow limits beside enforced ones.

use super::*;
use tollgate::batch::MemberMode;
use tollgate::reload::CarryOver;

fn shadow_denied(limiter: &Limiter, name: &str) -> u64 {
    counters_of(limiter, name).shadow_denied
}

#[test]
fn shadow_mode_charges_counts_and_denies_no_call() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(add(no_limits(), "A", 2, shadow_mode()), engine);
        let a = limiter.limit("A").unwrap();
        let remaining = |cost| a.spend("k", cost).unwrap().remaining();
        assert_eq!([remaining(1), remaining(1), remaining(1)], [Some(1), Some(0), Some(0)]);
        let denied = a.spend("k", 1).unwrap();
        assert!(denied.allowed() && denied.denied_by().is_none(), "{engine:?}");
        assert_eq!(denied.retry_in(), Duration::from_secs(1800), "as the bucket says");
        assert!(a.check("k", 1).unwrap().allowed());
        assert!(a.spend("k", 3).unwrap().allowed(), "more than the burst");
        assert!(a.refund("k", 3).is_ok() && a.spend("", 1).is_err());
        let of_a = counters_of(&limiter, "A");
        assert_eq!((of_a.shadow_denied, of_a.allowed, of_a.denied), (3, 5, 0), "{engine:?}");
        assert_eq!(of_a.cost, 2, "a spend that it would have denied is not charged");
        hand.advance(Duration::from_secs(1800));
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 3, "a unit came back");
    }
}

#[test]
fn shadow_limits_count_every_spend_and_decide_nothing() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(add(no_limits(), "A", 4, shadow_beside(2)), engine);
        let a = limiter.limit("A").unwrap();
        for (said, so_far) in [(true, 0), (true, 0), (true, 1), (true, 2), (false, 3)] {
            let decision = a.spend("k", 1).unwrap();
            assert_eq!((decision.allowed(), shadow_denied(&limiter, "A")), (said, so_far));
        }
        assert_eq!(limiter.stats().cells, 2, "{engine:?}: two buckets");
        let _ = a.check("k", 1).unwrap();
        assert!(a.spend("k", 3).unwrap().retry_in() > Duration::ZERO);
        assert_eq!(shadow_denied(&limiter, "A"), 4, "3 is above the shadow's burst");
        // The refund goes to both buckets: the shadow has one unit again, and then none.
        let _ = a.refund("k", 1).unwrap();
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 4, "{engine:?}");
        let _ = a.reset("k").unwrap();
        let _ = (a.spend("k", 2).unwrap(), a.spend("k", 1).unwrap());
        assert_eq!(shadow_denied(&limiter, "A"), 5, "{engine:?}");
        hand.advance(Duration::from_secs(3600));
        while !limiter.sweep(64).finished {}
        assert_eq!(limiter.stats().cells, 0, "{engine:?}: both are full and dropped");
    }
}

#[test]
fn refunds_above_a_shadows_burst_fill_it() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 100, shadow_beside(5)), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("k", 5).unwrap().allowed());
        assert!(a.spend("k", 5).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}: it is empty");
        assert!(a.refund("k", 10).unwrap().allowed());
        assert!(a.spend("k", 5).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}: it was full");
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 2, "{engine:?}: it is empty again");
    }
}

#[test]
fn a_looser_shadow_is_charged_by_denied_spends() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 1, shadow_beside(3)), engine);
        let said = [1, 1, 1, 1].map(|cost| allowed(&limiter, "A", "k", cost));
        assert_eq!(said, [true, false, false, false]);
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}: the fourth");
    }
}

#[test]
fn overrides_replace_shadows_and_factors_scale_both() {
    for engine in ENGINES {
        let limits = add(no_limits(), "A", 4, shadow_beside(2));
        let limits = limits.override_id("A", "alice", hourly(9)).unwrap();
        let (limiter, _hand) = limiter(limits, engine);
        assert!(allowed(&limiter, "A", "alice", 9));
        assert_eq!((shadow_denied(&limiter, "A"), limiter.stats().cells), (0, 1), "{engine:?}");
        let a = limiter.limit("A").unwrap();
        let twice = a.scaled("0.5".parse().unwrap());
        assert!(twice.spend("bob", 4).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 0, "{engine:?}: 4 are 2 times 2");
        assert!(twice.spend("bob", 4).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}");
    }
}

#[test]
fn shadow_limits_never_deny_a_batch() {
    for engine in ENGINES {
        let limits = add(no_limits(), "Tried", 1, shadow_mode());
        let limits = add(limits, "Beside", 4, shadow_beside(1));
        let (limiter, _hand) = limiter(add(limits, "Plain", 3, LimitOptions::default()), engine);
        let handles = ["Tried", "Beside", "Plain"].map(|name| limiter.limit(name).unwrap());
        let members = handles.each_ref().map(|handle| handle.member("k"));
        let batch = limiter.batch(&members);
        let counts = || ["Tried", "Beside", "Plain"].map(|name| shadow_denied(&limiter, name));
        for expected in [[0, 0, 0], [1, 1, 0], [2, 2, 0]] {
            let mut each = Vec::new();
            assert!(batch.spend_into(&mut each).unwrap().allowed());
            assert!(each.iter().all(|decision| decision.allowed()), "{each:?}");
            assert_eq!(counts(), expected, "{engine:?}");
        }
        let mut each = Vec::new();
        assert_eq!(batch.spend_into(&mut each).unwrap().denied_by(), Some(2));
        assert_eq!(each[0].denied_by(), None);
        assert_eq!(
            counts(),
            [2, 2, 0],
            "{engine:?}: not asked, for the batch was denied by another"
        );
        let _ = batch.reset().unwrap();
        assert!(batch.spend().unwrap().allowed());
        assert_eq!(counts(), [2, 2, 0], "{engine:?}: all were reset");
        let _ = batch.refund().unwrap();
        assert!(batch.spend().unwrap().allowed());
        assert_eq!(counts(), [2, 2, 0], "{engine:?}: all were given back");
        let above =
            [handles[0].member("k").cost(2), handles[1].member("k").mode(MemberMode::CheckOnly)];
        assert!(limiter.batch(&above).spend().unwrap().allowed());
        assert_eq!(counts(), [3, 3, 0], "{engine:?}: a check-only member asks its shadow");
        let denied = [handles[1].member("k").cost(4)];
        assert!(!limiter.batch(&denied).spend().unwrap().allowed());
        assert_eq!(counts(), [3, 4, 0], "{engine:?}: the denier's shadow is asked");
    }
}

#[test]
fn reloads_add_keep_and_remove_shadows() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 8, shadow_beside(2)), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("k", 2).unwrap().allowed());
        let reload =
            |limits: LimitsBuilder| limiter.reload_with(limits.build(), CarryOver::Units).unwrap();
        // The shadow's bucket keeps its debt: 2 of 3.
        assert!(reload(add(no_limits(), "A", 8, shadow_beside(3))).changed);
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 0, "{engine:?}");
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}");
        assert!(reload(add(no_limits(), "A", 8, LimitOptions::default())).changed);
        assert_eq!(limiter.stats().cells, 1, "{engine:?}: the shadow's bucket is gone");
        assert!(a.spend("k", 1).unwrap().allowed());
        assert!(reload(add(no_limits(), "A", 8, shadow_beside(3))).changed);
        assert!(a.spend("k", 3).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}: it begins full");
        assert!(!a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 2);
        // In shadow mode the bucket keeps its debt; after the next reload the limit denies again.
        assert!(reload(add(no_limits(), "A", 8, shadow_mode())).changed);
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 3, "{engine:?}");
        assert!(reload(add(no_limits(), "A", 8, LimitOptions::default())).changed);
        assert!(!a.spend("k", 1).unwrap().allowed(), "{engine:?}");
    }
}

#[test]
#[cfg(feature = "exact")]
fn shadows_have_no_public_name() {
    let (limiter, _hand) = limiter(add(no_limits(), "A", 4, shadow_beside(2)), Engine::Exact);
    assert!(allowed(&limiter, "A", "k", 1));
    assert_eq!(limiter.limits().names().collect::<Vec<_>>(), ["A"]);
    assert_eq!(limiter.counters().limits.len(), 1);
    let error = limiter.limit("A (shadow)").unwrap_err();
    assert!(error.is_invalid_name() && !error.to_string().contains("mean A ("), "{error}");
    assert_eq!(limiter.limit("A").unwrap().ids(), Some(vec!["k".to_owned()]));
}

#[test]
fn cancels_refund_the_shadow() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 1, shadow_beside(3)), engine);
        let a = limiter.limit("A").unwrap();
        let place = || a.reserve("k", 1, Duration::MAX).unwrap();
        assert!(a.spend("k", 1).unwrap().allowed());
        let [_first, last] = [place(), place()];
        last.cancel();
        let _again = place();
        assert_eq!(shadow_denied(&limiter, "A"), 0, "{engine:?}: the shadow has the unit again");
        let _more = place();
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}");
    }
}

#[test]
fn settlements_after_another_limit_leave_the_shadow() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 4, shadow_beside(4)), engine);
        let a = limiter.limit("A").unwrap();
        let (_, receipt) = a.spend_estimate("k", 4).unwrap();
        let changed = add(no_limits(), "A", 6, shadow_beside(4)).build();
        limiter.reload_with(changed, CarryOver::Units).unwrap();
        let _ = receipt.unwrap().settle(0);
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(shadow_denied(&limiter, "A"), 1, "{engine:?}: nothing was returned");
    }
}
