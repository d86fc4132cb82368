//! Limits that are only tried, beside calls.

use super::*;
use crate::limits::{LimitMode, LimitOptions};

/// A has two units and the numbers of one beside them; B has one, and only says that it would deny.
fn tried_limiter() -> Limiter {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let beside = LimitOptions::default().shadow(limit(1));
    let tried = LimitOptions::default().mode(LimitMode::Shadow);
    let limits = Limits::builder().limit_with("A", IdFormat::String, limit(2), beside).unwrap();
    let limits = limits.limit_with("B", IdFormat::String, limit(1), tried).unwrap().build();
    on_locks(limits, Clock::manual().0)
}

fn shadow_denied(limiter: &Limiter, at: usize) -> u64 {
    limiter.counters().limits[at].shadow_denied
}

/// Excluded: of two spends beside each other the shadow's one unit goes to both or to neither, or the
/// shadow changes what the limit says.
fn shadow_vs_spend_model(name: &'static str, at: usize) {
    let limiter = tried_limiter();
    let other = spawn(&limiter, move |limiter| spend(&limiter, name, 1));
    let here = spend(&limiter, name, 1);
    let other = other.join().unwrap();
    assert!(here && other, "nobody is denied");
    assert_eq!(shadow_denied(&limiter, at), 1, "one of two would have been denied");
}

#[test]
fn shadow_vs_spend() {
    for (name, at) in [("A", 0), ("B", 1)] {
        explore_bounded(Some(2), move || shadow_vs_spend_model(name, at));
        assert!(coverage::count(Race::InsertLost) > 0, "no insert met another's");
    }
    let model = || shadow_vs_spend_model("A", 0);
    fails_bounded(Some(2), Fault::ShadowByCheck, "one of two would", model);
}
