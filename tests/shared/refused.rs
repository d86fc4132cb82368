//! Calls that do not ask the store, and limiters without one.

use std::time::Duration;

use tollgate::limits::{LimitMode, Shared};
use tollgate::reload::CarryOver;
use tollgate::reserve::ReserveError;
use tollgate::shared::Store;
use tollgate::shared::block_on;
use tollgate::{Clock, Error, IdFormat, Limiter, LimiterOptions, Limits};

use super::{exact, limits, minutely, node, now};

fn one_node() -> Limiter {
    let clock = Clock::manual().0;
    node(limits(10, 5), &Store::in_memory(clock.clone()), &clock)
}

#[test]
fn local_handles_are_for_local_limits() {
    let limiter = one_node();
    let error = limiter.limit("All").unwrap_err();
    assert!(error.to_string().contains("Limiter::shared"), "{error}");
    assert!(limiter.limit("None").unwrap_err().is_invalid_name());
    assert!(limiter.shared("None").unwrap_err().is_invalid_name());
    let own = limiter.shared("Own").unwrap();
    assert_eq!(now(own.spend("a", 1)).unwrap().remaining(), Some(9));
    assert_eq!(limiter.limit("Own").unwrap().check("a", 0).unwrap().remaining(), Some(9));
}

/// A reload has shared its limit since the handle was made.
#[test]
fn old_local_handles_refuse_their_calls() {
    let clock = Clock::manual().0;
    let limiter = node(limits(10, 5).as_one_node(), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.limit("All").unwrap());
    assert!(limiter.reload(limits(10, 5)).unwrap().changed);
    let minute = Duration::from_secs(60);
    let half = "0.5".parse().unwrap();
    let batch = [own.member("a"), all.member("a")];
    let batch = limiter.batch(&batch);
    let mut many = Vec::new();
    all.spend_many(["a", "b"], 1, &mut many);
    let mut each = Vec::new();
    let wrong = |result: Result<_, ReserveError>| match result {
        Err(ReserveError::Wrong(error)) => error,
        other => panic!("{other:?}"),
    };
    let errors: Vec<Error> = vec![
        all.spend("a", 1).unwrap_err(),
        all.check("a", 1).unwrap_err(),
        all.refund("a", 1).unwrap_err(),
        all.reset("a").unwrap_err(),
        all.spend_up_to("a", 1).unwrap_err(),
        all.drain("a", 1).unwrap_err(),
        all.scaled(half).spend("a", 1).unwrap_err(),
        all.scaled(half).drain("a", 1).unwrap_err(),
        all.leaving(1).spend("a", 1).unwrap_err(),
        all.leaving(1).check("a", 1).unwrap_err(),
        all.spend_estimate("a", 1).unwrap_err(),
        wrong(all.reserve("a", 1, minute).map(drop)),
        wrong(now(all.waiting(minute, |_| std::future::ready(())).until_allowed("a", 1)).map(drop)),
        all.block("a", minute).unwrap_err(),
        all.unblock("a").unwrap_err(),
        all.blocked_for("a").unwrap_err(),
        batch.spend().unwrap_err(),
        batch.spend_into(&mut each).unwrap_err(),
        batch.check().unwrap_err(),
        batch.refund().unwrap_err(),
        batch.reset().unwrap_err(),
        many.remove(0).unwrap_err(),
        many.remove(0).unwrap_err(),
    ];
    for error in errors {
        assert!(!error.is_store_failure(), "{error}");
        assert!(error.to_string().starts_with("All is shared"), "{error}");
    }
    assert!(each.is_empty());
    assert_eq!(own.check("a", 0).unwrap().remaining(), Some(10));
    let all = limiter.shared("All").unwrap();
    assert_eq!(now(all.check("a", 0)).unwrap().remaining(), Some(5));
    assert_eq!(limiter.stats().cells, 0, "no cell is made for a shared limit");
}

/// The store's scripts know no units that must be left. Local members of the batch leave theirs.
#[test]
fn members_in_the_store_leave_no_units() {
    let clock = Clock::manual().0;
    let limiter = node(limits(10, 5).as_one_node(), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.limit("All").unwrap());
    assert!(limiter.reload(limits(10, 5)).unwrap().changed);
    let refused = [own.member("a").into(), all.leaving(1).member("a").into()];
    let batch = limiter.shared_batch(&refused);
    for refused in [now(batch.spend()), now(batch.check()), block_on(batch.spend())] {
        let error = refused.unwrap_err();
        assert!(error.is_invalid_batch(), "{error}");
        assert!(error.to_string().starts_with("All is shared, and a store decides no"), "{error}");
    }
    let shared = limiter.shared("All").unwrap();
    let leaving = [own.leaving(7).member("a").cost(3).into(), shared.member("a")];
    let batch = limiter.shared_batch(&leaving);
    assert!(now(batch.check()).unwrap().allowed() && now(batch.spend()).unwrap().allowed());
    for denied in [now(batch.check()), now(batch.spend()), block_on(batch.spend())] {
        assert_eq!(denied.unwrap().denied_by(), Some(0));
    }
    assert_eq!(now(batch.refund()).unwrap().remaining(), Some(5), "the members of a refund");
    assert_eq!(own.check("a", 0).unwrap().remaining(), Some(10));
}

#[test]
fn a_limiter_without_a_store_says_so() {
    let limiter = Limiter::new(limits(10, 5));
    let error = limiter.shared("All").unwrap_err();
    assert!(error.is_store_failure(), "{error}");
    assert!(error.to_string().contains("LimiterOptions::store"), "{error}");
    let own = limiter.shared("Own").unwrap();
    assert_eq!(now(own.spend("a", 1)).unwrap().remaining(), Some(9), "local limits need none");
}

#[test]
fn other_errors_are_those_of_a_local_limit() {
    let limiter = one_node();
    let all = limiter.shared("All").unwrap();
    assert!(now(all.spend("a", 6)).unwrap_err().is_cost_above_burst());
    assert!(now(all.refund("a", 6)).unwrap_err().is_cost_above_burst());
    let long = "x".repeat(5000);
    assert!(now(all.spend(&*long, 1)).unwrap_err().is_invalid_id());
    let twice = [all.member("a"), all.member("a")];
    assert!(now(limiter.shared_batch(&twice).spend()).unwrap_err().is_invalid_batch());
    limiter.set_enabled(false);
    assert_eq!(now(all.spend("a", 6)).unwrap().remaining(), None);
    assert_eq!(
        block_on(all.spend("a", 1)).unwrap().remaining(),
        None,
        "switched off, it needs no store"
    );
}

#[test]
fn a_reload_shares_a_limit_and_back() {
    let clock = Clock::manual().0;
    let limiter = node(limits(10, 5), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.shared("Own").unwrap(), limiter.shared("All").unwrap());
    assert!(block_on(own.spend("a", 4)).unwrap().allowed());
    assert!(now(all.spend("a", 4)).unwrap().allowed());
    let builder = Limits::builder().limit_with("Own", IdFormat::String, minutely(10), exact());
    let swapped = builder.unwrap().limit("All", IdFormat::String, minutely(5)).unwrap().build();
    assert!(limiter.reload(swapped).unwrap().changed);
    assert_eq!(now(own.spend("a", 1)).unwrap().remaining(), Some(9), "a bucket of the store");
    assert_eq!(block_on(all.spend("a", 1)).unwrap().remaining(), Some(4), "a bucket of this node");
    // Back: the debts of both are where they were.
    assert!(limiter.reload(limits(10, 5)).unwrap().changed);
    assert_eq!(block_on(own.spend("a", 1)).unwrap().remaining(), Some(5));
    assert_eq!(now(all.spend("a", 0)).unwrap().remaining(), Some(1));
}

#[test]
fn debts_in_the_store_outlive_reloads() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let limiter = node(limits(10, 5), &store, &clock);
    let all = limiter.shared("All").unwrap();
    assert!(now(all.spend("a", 5)).unwrap().allowed());
    for debt in [CarryOver::Share, CarryOver::Afresh] {
        let twice = if debt == CarryOver::Share { 7 } else { 6 };
        limiter.reload_with(limits(10, twice), debt).unwrap();
        let left = now(all.check("a", 0)).unwrap();
        assert_eq!(left.remaining(), Some(twice - 5), "five minutes of {twice} are used");
    }
    hand.advance(Duration::from_secs(60));
    assert_eq!(now(all.check("a", 0)).unwrap().remaining(), Some(2));
}

#[test]
fn a_shared_limit_in_shadow_mode_denies_nothing() {
    let clock = Clock::manual().0;
    let options = exact().mode(LimitMode::Shadow);
    let limits =
        Limits::builder().limit_with("All", IdFormat::String, minutely(2), options).unwrap();
    let options = LimiterOptions::default().store(Store::in_memory(clock.clone())).counting(true);
    let limiter = Limiter::with_options(limits.build(), options.clock(clock)).unwrap();
    let all = limiter.shared("All").unwrap();
    for left in [Some(1), Some(0), Some(0), Some(0)] {
        let decision = now(all.spend("a", 1)).unwrap();
        assert_eq!((decision.allowed(), decision.remaining()), (true, left));
    }
    assert!(now(all.spend("a", 3)).unwrap().allowed(), "above the burst");
    assert_eq!(limiter.counters().limits[0].shadow_denied, 3);
}

#[test]
fn leased_limits_ask_the_store_as_exact_ones() {
    let clock = Clock::manual().0;
    let options = exact().shared(Shared::Leased);
    let limits =
        Limits::builder().limit_with("All", IdFormat::String, minutely(3), options).unwrap();
    let limits = limits.build();
    let store = Store::in_memory(clock.clone());
    let nodes = [node(limits.clone(), &store, &clock), node(limits, &store, &clock)];
    let spent = (0..6).filter(|at| {
        let all = nodes[at % 2].shared("All").unwrap();
        now(all.spend("a", 1)).unwrap().allowed()
    });
    assert_eq!(spent.count(), 3);
}

/// A reload has shared a limit of a limiter that has no store: the local member kept its units.
#[test]
fn refunds_without_a_store_change_nothing() {
    let limiter = Limiter::new(limits(10, 5).as_one_node());
    let (own, all) = (limiter.shared("Own").unwrap(), limiter.shared("All").unwrap());
    assert!(now(own.spend("a", 5)).unwrap().allowed());
    assert!(limiter.reload(limits(10, 5)).unwrap().changed);
    let members = [own.member("a").cost(2), all.member("a")];
    assert!(now(limiter.shared_batch(&members).refund()).unwrap_err().is_store_failure());
    assert!(now(limiter.shared_batch(&members).reset()).unwrap_err().is_store_failure());
    assert_eq!(now(own.check("a", 0)).unwrap().remaining(), Some(5));
}

/// Of a local limit its waits and explanations count as those of its local handle.
#[test]
fn calls_of_local_limits_count_alike() {
    let window = tollgate::Limit::fixed_window(5, Duration::from_secs(60)).unwrap();
    let counts = |is_shared: bool| {
        let (clock, hand) = Clock::manual();
        let limits = Limits::builder().limit("Own", IdFormat::String, window.clone()).unwrap();
        let options = LimiterOptions::default().clock(clock).counting(true);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let (own, shared) = (limiter.limit("Own").unwrap(), limiter.shared("Own").unwrap());
        assert!(own.spend("a", 5).unwrap().allowed());
        let (most, timer) = (Duration::from_secs(90), |time| {
            hand.advance(time);
            std::future::ready(())
        });
        match is_shared {
            true => assert!(now(shared.until_allowed("a", 2, most, timer)).is_ok()),
            false => assert!(now(own.until_allowed("a", 2, most, timer)).is_ok()),
        }
        match is_shared {
            true => assert!(now(shared.explain("", 1)).is_err()),
            false => assert!(own.explain("", 1).is_err()),
        }
        let counters = limiter.counters();
        (counters.limits[0].allowed, counters.limits[0].denied, counters.limits[0].errors)
    };
    assert_eq!(counts(true), counts(false));
}
