//! A limit that writes its fields without tower: those of the limit that applies to the id.
#![cfg(feature = "http")]

use std::time::Duration;

use tollgate::http::{Fields, HttpDecision, HttpLimit, Reset, Style};
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

const HOUR: Duration = Duration::from_secs(3600);

fn of(burst: u64) -> Limit {
    Limit::new(burst, burst, HOUR).unwrap()
}

fn limiter(limits: Limits) -> Limiter {
    Limiter::with_options(limits, Clock::manual().0).unwrap()
}

fn per_user(limiter: &Limiter, styles: impl IntoIterator<Item = Style>) -> HttpLimit {
    HttpLimit::new(limiter.limit("PerUser").unwrap(), Fields::new(styles).unwrap())
}

fn sorted(decision: &HttpDecision) -> Vec<(&str, &str)> {
    let mut fields: Vec<_> = decision.fields().collect();
    fields.sort_unstable();
    assert_eq!(fields.len(), decision.headers().len());
    fields
}

#[test]
fn fields_are_those_of_the_override() {
    let limits = Limits::builder().limit("PerUser", IdFormat::String, of(2)).unwrap();
    let limiter = limiter(limits.override_id("PerUser", "alice", of(9)).unwrap().build());
    let limit = per_user(&limiter, [Style::Ietf]);
    for (user, burst) in [("alice", 9), ("bob", 2), ("alice", 9)] {
        let decision = limit.spend(user, 1).unwrap();
        let shown = decision.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(shown, format!(r#""PerUser";q={burst};w=3600"#), "{user}");
    }
}

#[test]
fn fields_follow_a_reload() {
    let limits =
        |burst| Limits::builder().limit("PerUser", IdFormat::String, of(burst)).unwrap().build();
    let limiter = limiter(limits(2));
    let limit = per_user(&limiter, [Style::XRateLimit(Reset::Delta)]);
    assert_eq!(limit.spend("a", 1).unwrap().headers()["x-ratelimit-limit"], "2");
    let _ = limiter.reload_with(limits(40), CarryOver::Units).unwrap();
    assert_eq!(limit.spend("a", 1).unwrap().headers()["x-ratelimit-limit"], "40");
}

#[test]
fn denials_wait_and_are_never_stored() {
    let limits = Limits::builder().limit("PerUser", IdFormat::String, of(1)).unwrap().build();
    let limiter = limiter(limits);
    let limit = per_user(&limiter, []);
    let allowed = limit.spend("a", 1).unwrap();
    assert!(allowed.allowed() && sorted(&allowed).is_empty());
    let denied = limit.spend("a", 1).unwrap();
    assert!(!denied.allowed() && !denied.decision().allowed());
    assert_eq!(sorted(&denied), [("cache-control", "no-store"), ("retry-after", "3600")]);

    let _ = limiter.limit("PerUser").unwrap().block("b", HOUR * 2).unwrap();
    let denied = per_user(&limiter, [Style::Ietf]).spend("b", 1).unwrap();
    assert_eq!(
        sorted(&denied),
        [
            ("cache-control", "no-store"),
            ("ratelimit", r#""PerUser";r=0;t=7200"#),
            ("ratelimit-policy", r#""PerUser";q=1;w=3600"#),
            ("retry-after", "7200"),
        ]
    );
}

#[test]
fn clients_see_no_limit_in_shadow_mode() {
    let shadow = LimitOptions::default().mode(LimitMode::Shadow);
    let limits = Limits::builder().limit_with("PerUser", IdFormat::String, of(1), shadow).unwrap();
    let limiter = limiter(limits.build());
    let limit = per_user(&limiter, [Style::Ietf]);
    for _ in 0..3 {
        let decision = limit.spend("a", 1).unwrap();
        assert!(decision.allowed() && sorted(&decision).is_empty(), "{decision:?}");
    }
}

#[test]
fn invalid_ids_and_costs_charge_nothing() {
    let limits = Limits::builder().limit("PerUser", IdFormat::String, of(2)).unwrap().build();
    let limiter = limiter(limits);
    let limit = per_user(&limiter, [Style::Ietf]);
    assert!(limit.spend("", 1).is_err());
    assert!(limit.spend("a", 3).is_err());
    assert_eq!(limiter.stats().cells, 0);
}

#[test]
fn clients_see_a_valid_name_only() {
    let limits = Limits::builder().limit("PerUser", IdFormat::String, of(2)).unwrap().build();
    let limiter = limiter(limits);
    for name in ["", "für alle", "a\n", &"a".repeat(129)] {
        let error = per_user(&limiter, []).shown_as(name).unwrap_err().to_string();
        assert!(error.contains("printable characters of ASCII"), "{error}");
    }
    let limit = per_user(&limiter, [Style::Ietf]).shown_as("a \"b\"").unwrap();
    let decision = limit.spend("a", 1).unwrap();
    assert_eq!(decision.headers()["ratelimit"], r#""a \"b\"";r=1;t=1800"#);
    // A limit's own name is always valid, also the longest.
    let longest = "a".repeat(128);
    let limits = Limits::builder().limit(&longest, IdFormat::String, of(2)).unwrap().build();
    let limit = Limiter::new(limits).limit(&longest).unwrap();
    let limit = HttpLimit::new(limit, Fields::new([Style::Ietf]).unwrap());
    assert!(
        limit.spend("a", 1).unwrap().headers()["ratelimit"].to_str().unwrap().contains(&longest)
    );
}
