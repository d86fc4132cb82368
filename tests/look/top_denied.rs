//! The list of ids denied most.

use super::*;
use tollgate::metrics::DeniedId;

fn limiter_with_list(entries: usize) -> Limiter {
    let limits = add(no_limits(), "A", 1, LimitOptions::default());
    let limits = add(add(limits, "B", 1, LimitOptions::default()), "Tried", 1, shadow_mode());
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).top_denied(entries);
    Limiter::with_options(limits.build(), options).unwrap()
}

fn as_text(ids: &[DeniedId]) -> Vec<String> {
    ids.iter().map(|of| format!("{}:{} {} {}", of.limit, of.id, of.denied, of.error)).collect()
}

#[test]
fn every_denial_is_listed_and_nothing_else() {
    let limiter = limiter_with_list(8);
    let handles = ["A", "B", "Tried"].map(|name| limiter.limit(name).unwrap());
    let [a, b, in_shadow] = &handles;
    for _ in 0..4 {
        let _ = a.spend("x", 1).unwrap();
        let _ = in_shadow.spend("x", 1).unwrap();
    }
    let _ = (a.check("x", 1).unwrap(), a.spend("x", 2).is_err());
    let _ = a.scaled("0.5".parse().unwrap()).spend("y", 2).unwrap();
    let _ = a.scaled("0.5".parse().unwrap()).spend("y", 1).unwrap();
    let members = [b.member("x"), a.member("x"), in_shadow.member("x")];
    let denied = limiter.batch(&members).spend().unwrap();
    assert_eq!(denied.denied_by(), Some(1));
    assert_eq!(as_text(&limiter.top_denied()), ["A:x 4 0", "A:y 1 0"]);
    assert_eq!(counters_of(&limiter, "A").denied, 5, "the list enables counting");
    assert_eq!(limiter.top_denied_missed(), 0);
}

#[test]
fn a_short_list_has_the_most_denied() {
    let limiter = limiter_with_list(2);
    let a = limiter.limit("A").unwrap();
    for id in ["x", "y", "z", "x", "x", "x"] {
        let times = if id == "x" { 3 } else { 2 };
        for _ in 0..times {
            let _ = a.spend(id, 1).unwrap();
        }
    }
    let listed = limiter.top_denied();
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[0].id.as_str(), listed[0].denied, listed[0].error), ("x", 11, 0));
    assert_eq!((listed[1].id.as_str(), listed[1].denied, listed[1].error), ("z", 2, 1));
    assert!(Limiter::new(no_limits().build()).top_denied().is_empty(), "off by default");
}
