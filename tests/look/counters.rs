//! Counters: which calls count, and for which limit.

use std::sync::{Arc, Mutex};

use super::support::rules::{RuleCall, hooked};
use super::*;
use tollgate::batch::MemberMode;
use tollgate::limit::Factor;

fn figures(limiter: &Limiter, name: &str) -> [u64; 6] {
    let of = counters_of(limiter, name);
    [of.allowed, of.denied, of.near, of.cost, of.shadow_denied, of.errors]
}

#[test]
fn only_spends_count_and_each_once() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 10, LimitOptions::default()), engine);
        let a = limiter.limit("A").unwrap();
        // After 8 of 10, two units remain, which is a fifth; after 9, one remains, which is less.
        for (cost, expected) in [
            (3, [1, 0, 0, 3, 0, 0]),
            (5, [2, 0, 0, 8, 0, 0]),
            (1, [3, 0, 1, 9, 0, 0]),
            (2, [3, 1, 1, 9, 0, 0]),
            (1, [4, 1, 2, 10, 0, 0]),
        ] {
            let _ = a.spend("k", cost).unwrap();
            assert_eq!(figures(&limiter, "A"), expected, "{engine:?}, cost {cost}");
        }
        let _ = (a.check("k", 1).unwrap(), a.refund("k", 9).unwrap(), a.reset("k").unwrap());
        assert_eq!(figures(&limiter, "A"), [4, 1, 2, 10, 0, 0], "{engine:?}");
        assert!(a.spend("k", 11).is_err() && a.spend("", 1).is_err() && a.check("k", 11).is_err());
        assert_eq!(figures(&limiter, "A"), [4, 1, 2, 10, 0, 3], "{engine:?}");
    }
}

#[test]
fn scaled_calls_and_spend_many_count() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 2, LimitOptions::default()), engine);
        let a = limiter.limit("A").unwrap();
        let _ = a.scaled("0.5".parse().unwrap()).spend("k", 3).unwrap();
        assert_eq!(figures(&limiter, "A"), [1, 0, 0, 3, 0, 0], "1 of 4 is more than a fifth");
        let _ = a.scaled(Factor::ZERO).spend("k", 3).unwrap();
        let mut decisions = Vec::new();
        a.spend_many(["x", "y", "x", "x"], 1, &mut decisions);
        assert_eq!(figures(&limiter, "A"), [4, 1, 1, 6, 0, 0], "{engine:?}");
        limiter.set_enabled(false);
        let _ = a.spend("x", 1).unwrap();
        assert_eq!(figures(&limiter, "A"), [4, 1, 1, 6, 0, 0], "{engine:?}");
    }
}

#[test]
fn a_batch_counts_each_member_or_its_denier() {
    for engine in ENGINES {
        let limits = add(no_limits(), "A", 9, LimitOptions::default());
        let limits = add(limits, "B", 2, LimitOptions::default());
        let (limiter, _hand) = limiter(add(limits, "C", 9, LimitOptions::default()), engine);
        let handles = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
        let [a, b, c] = &handles;
        let members = [
            a.member("k").cost(2),
            b.member("k"),
            c.member("k").mode(MemberMode::CheckOnly).cost(4),
        ];
        let batch = limiter.batch(&members);
        assert!(batch.spend().unwrap().allowed());
        let mut each = Vec::new();
        assert!(batch.spend_into(&mut each).unwrap().allowed());
        assert_eq!(batch.spend().unwrap().denied_by(), Some(1));
        assert_eq!(batch.spend_into(&mut each).unwrap().denied_by(), Some(1));
        assert!(batch.check().is_ok() && batch.refund().is_ok() && batch.reset().is_ok());
        assert_eq!(figures(&limiter, "A"), [2, 0, 0, 4, 0, 0], "{engine:?}");
        assert_eq!(figures(&limiter, "B"), [2, 2, 1, 2, 0, 0], "{engine:?}");
        assert_eq!(figures(&limiter, "C"), [2, 0, 0, 0, 0, 0], "{engine:?}: it was not charged");
        let spend_only = [b.member("k").mode(MemberMode::SpendOnly).cost(2)];
        for _ in 0..2 {
            assert!(limiter.batch(&spend_only).spend().unwrap().allowed());
        }
        assert_eq!(
            figures(&limiter, "B"),
            [3, 2, 2, 4, 0, 0],
            "a spend-only member that did not fit is not counted"
        );
        assert!(limiter.batch(&[b.member("k").cost(3)]).spend().is_err());
        assert!(limiter.batch(&[b.member("")]).spend().is_err());
        assert_eq!(figures(&limiter, "B"), [3, 2, 2, 4, 0, 2], "{engine:?}");
    }
}

#[test]
fn reloads_keep_counters_by_name() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(add(no_limits(), "A", 2, LimitOptions::default()), engine);
        let before = limiter.counters();
        assert_eq!((before.generation, before.reload_errors), (0, 0));
        assert!(before.last_reload.is_none() && before.is_counting);
        assert!(allowed(&limiter, "A", "k", 1));
        let next = add(no_limits(), "B", 5, LimitOptions::default());
        let next = add(next, "A", 4, LimitOptions::default()).build();
        limiter.reload(next).unwrap();
        assert!(allowed(&limiter, "A", "k", 1) && allowed(&limiter, "B", "k", 3));
        assert_eq!(
            (counters_of(&limiter, "A").allowed, counters_of(&limiter, "B").cost),
            (2, 3),
            "{engine:?}"
        );
        let numbers = Limits::builder().limit("A", IdFormat::RegId, hourly(1)).unwrap();
        let held = limiter.limit("A").unwrap();
        assert!(limiter.reload(numbers.build()).is_err());
        let after = limiter.counters();
        assert_eq!((after.generation, after.reload_errors), (1, 1));
        assert!(after.last_reload.is_some());
        drop(held);
        assert_eq!(limiter.reload(no_limits().build()).unwrap().removed, ["A", "B"]);
        assert_eq!(limiter.counters().limits_removed, 2);
    }
}

#[test]
fn without_counting_only_shadow_denials_count() {
    let limits = add(no_limits(), "A", 1, LimitOptions::default());
    let limiter = Limiter::new(add(limits, "B", 1, shadow_mode()).build());
    for name in ["A", "B"] {
        assert!(allowed(&limiter, name, "k", 1));
        let _ = limiter.limit(name).unwrap().spend("k", 1).unwrap();
        assert!(limiter.limit(name).unwrap().spend("", 1).is_err());
    }
    assert_eq!(figures(&limiter, "A"), [0; 6]);
    assert_eq!(figures(&limiter, "B"), [0, 0, 0, 0, 1, 0]);
    assert!(!limiter.counters().is_counting);
}

#[test]
#[cfg(feature = "exact")]
fn counters_include_table_stats() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).engine(Engine::Exact).max_keys(1);
    let limits = add(no_limits(), "A", 1, LimitOptions::default()).build();
    let limiter =
        Limiter::with_options(limits, options.at_cap(tollgate::options::AtCap::Deny)).unwrap();
    assert!(allowed(&limiter, "A", "x", 1) && !allowed(&limiter, "A", "y", 1));
    hand.advance(Duration::from_secs(3600));
    while !limiter.sweep(64).finished {}
    let stats = limiter.counters().stats;
    assert_eq!((stats.denied_at_cap, stats.swept, stats.cells), (1, 1, 0));
}

#[test]
fn errors_of_factors_count_alone_and_in_batches() {
    for engine in ENGINES {
        let slow = tollgate::Limit::new(10, 1, Duration::from_secs(24 * 3600)).unwrap();
        let limits = no_limits().limit("A", IdFormat::String, slow).unwrap();
        let (limiter, _hand) = limiter(limits, engine);
        let a = limiter.limit("A").unwrap();
        // The time of ten units by this factor is out of range.
        let huge: Factor = "9000000".parse().unwrap();
        assert!(a.scaled(huge).spend("k", 1).is_err());
        assert_eq!(figures(&limiter, "A"), [0, 0, 0, 0, 0, 1], "{engine:?}");
        assert!(limiter.batch(&[a.member("k").factor(huge)]).spend().is_err());
        assert_eq!(figures(&limiter, "A"), [0, 0, 0, 0, 0, 2], "{engine:?}");
    }
}

#[test]
fn batch_repeated_after_a_reload_counts_once() {
    for engine in ENGINES {
        let armed: Arc<Mutex<Option<(Limiter, Limits)>>> = Arc::default();
        let taken = armed.clone();
        // Reloads when the batch, which is denied, looks again at a cost of 0.
        let rule = hooked(hourly(9), move |call| {
            if matches!(call, RuleCall::Spend { cost: 0, .. })
                && let Some((limiter, limits)) = taken.lock().unwrap().take()
            {
                assert!(limiter.reload(limits).unwrap().changed);
            }
        });
        let of = |burst| {
            let builder = no_limits().limit("A", IdFormat::String, rule.clone()).unwrap();
            let builder = add(builder, "B", 1, LimitOptions::default());
            add(builder, "C", burst, LimitOptions::default())
        };
        let (limiter, _hand) = limiter(of(4), engine);
        let [a, b, c] = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
        assert!(b.spend("k", 1).unwrap().allowed() && c.spend("k", 1).unwrap().allowed());
        *armed.lock().unwrap() = Some((limiter.clone(), of(8).build()));
        let members = [a.member("k"), b.member("k"), c.member("k")];
        let denied = limiter.batch(&members).spend_into(&mut Vec::new()).unwrap();
        assert_eq!(denied.denied_by(), Some(1));
        assert!(armed.lock().unwrap().is_none(), "{engine:?}: it was reloaded");
        assert_eq!(figures(&limiter, "B"), [1, 1, 1, 1, 0, 0], "{engine:?}");
    }
}

#[test]
fn limit_that_is_off_is_not_enforced() {
    let both =
        add(add(no_limits(), "A", 5, LimitOptions::default()), "B", 5, LimitOptions::default());
    let limiter = Limiter::new(both.disable("A").unwrap().build());
    let counters = limiter.counters();
    let enabled: Vec<_> = counters.limits.iter().map(|of| (&*of.name, of.enabled)).collect();
    assert_eq!(enabled, [("A", false), ("B", true)]);
    let text = limiter.prometheus();
    for sample in [r#"enforced{limit="A"} 0"#, r#"enforced{limit="B"} 1"#] {
        assert!(text.contains(&format!("tollgate_limit_{sample}\n")), "{text}");
    }
}
