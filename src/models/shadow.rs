//! Model of shadow limits beside calls.

use super::*;
use crate::limits::{LimitMode, LimitOptions};

/// Limit A has two units, and a shadow limit of one unit. Limit B has one unit, and is itself in shadow mode.
fn shadow_limiter() -> Limiter {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let beside = LimitOptions::default().shadow(limit(1));
    let shadow = LimitOptions::default().mode(LimitMode::Shadow);
    let limits = Limits::builder().limit_with("A", IdFormat::String, limit(2), beside).unwrap();
    let limits = limits.limit_with("B", IdFormat::String, limit(1), shadow).unwrap().build();
    exact(limits, Clock::manual().0)
}

fn shadow_denied(limiter: &Limiter, at: usize) -> u64 {
    limiter.counters().limits[at].shadow_denied
}

/// Excluded: of two spends at once both or neither get the shadow's one unit, or the shadow changes a decision.
fn shadow_vs_spend_model(name: &'static str, at: usize) {
    let limiter = shadow_limiter();
    let other = spawn(&limiter, move |limiter| spend(&limiter, name, 1));
    let here = spend(&limiter, name, 1);
    let other = other.join().unwrap();
    assert!(here && other, "no call is denied");
    assert_eq!(shadow_denied(&limiter, at), 1, "one of two would have been denied");
}

#[test]
fn shadow_vs_spend() {
    for (name, at) in [("A", 0), ("B", 1)] {
        explore_bounded(Some(2), move || shadow_vs_spend_model(name, at));
        assert!(coverage::count(Race::InsertLost) > 0, "no insert was lost");
    }
    let model = || shadow_vs_spend_model("A", 0);
    fails_bounded(Some(2), Fault::ShadowByCheck, "one of two would", model);
}
