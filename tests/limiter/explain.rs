//! Explanations: the entry that applies to a call, and the entries that only look as if they did.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::limits::LimitMode;
use tollgate::limits::{Applies, Explanation, WhyNot};
use tollgate::{Clock, Limit, Limiter, LimiterOptions, Limits};

/// 2026-11-01T00:00:00Z: `date -u -d 2026-11-01 +%s`.
fn november() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_793_491_200)
}

fn explain(text: &str, name: &str, id: &str) -> Explanation {
    let limits = Limits::from_yaml(text).expect(text);
    limits.explain(name, id, november()).unwrap()
}

/// The entries that do not apply: id and reason; `-` is the default.
fn near(explanation: &Explanation) -> Vec<String> {
    let one = |near: &tollgate::limits::NearEntry| {
        format!("{}: {}", near.id.as_deref().unwrap_or("-"), near.why)
    };
    explanation.near.iter().map(one).collect()
}

/// The entry that applies, its location, and the entries that do not.
fn found(explanation: &Explanation) -> (Applies, String, Vec<String>) {
    let at = explanation.location.as_ref().map(ToString::to_string).unwrap_or_default();
    (explanation.applies, at, near(explanation))
}

const NUMBERS: &str = "burst: 2, count: 1, period: 1s";

fn own(format: &str, ids: &[&str]) -> String {
    let list = ids.iter().map(|id| format!("'Own:{id}': {{{NUMBERS}}}\n")).collect::<String>();
    format!("Own: {{{NUMBERS}, id: '{format}'}}\n{list}")
}

#[test]
fn applied_limit_has_place_numbers_and_comment() {
    let text = "Own: {burst: 20, count: 10, period: 1s, id: string, max_debt: 3, shadow: {burst: 1, count: 1, period: 1s}}\n\
        Own:a: {burst: 200, count: 100, period: 1s, owner: sales, comment: a trial, expires: 2026-11-01, max_debt: 9}\n";
    let of = explain(text, "Own", "a");
    assert_eq!(
        found(&of),
        (Applies::Override, "<text>:2".into(), vec!["-: a more specific entry applies".into()])
    );
    assert_eq!(of.limit, Limit::new(200, 100, Duration::from_secs(1)).ok());
    assert_eq!((of.name.as_str(), of.id.as_str(), of.max_debt), ("Own", "a", 9));
    let said = (of.owner.as_deref(), of.comment.as_deref(), of.last_day.as_deref());
    assert_eq!(said, (Some("sales"), Some("a trial"), Some("2026-11-01")));
    assert_eq!(of.near[0].limit, Limit::new(20, 10, Duration::from_secs(1)).ok());
    assert_eq!(of.near[0].location.as_ref().unwrap().to_string(), "<text>:1");

    let of = explain(text, "Own", "b");
    assert_eq!(found(&of), (Applies::Default, "<text>:1".into(), vec![]));
    assert_eq!((of.owner, of.max_debt, of.mode), (None, 3, LimitMode::Enforce));
    assert_eq!(of.shadow, Limit::new(1, 1, Duration::from_secs(1)).ok());
    assert!(of.call.is_none(), "the registry has no buckets");
}

#[test]
fn nothing_applies_if_undeclared_or_off() {
    let text = "NewOrdersPerAccount:12: {burst: 2, count: 1, period: 1s}\n\
                Off: {enabled: false, id: string}\nOff:x: {burst: 2, count: 1, period: 1s}\n\
                Free: {algorithm: leaky_bucket, min_interval: 0s, id: string}\n";
    let of = explain(text, "NewOrdersPerAccount", "7");
    assert_eq!(found(&of), (Applies::Nothing, String::new(), vec![]));
    let of = explain(text, "NewOrdersPerAccount", "12");
    assert_eq!(found(&of), (Applies::Override, "<text>:1".into(), vec![]));
    let of = explain(text, "Off", "x");
    assert_eq!(found(&of), (Applies::Disabled, "<text>:2".into(), vec![]));
    let of = explain(text, "Free", "x");
    assert_eq!((of.applies, of.limit), (Applies::Default, None));

    let limits = Limits::from_yaml(text).unwrap();
    assert!(limits.explain("Offf", "x", november()).unwrap_err().is_invalid_name());
    assert!(limits.explain("NewOrdersPerAccount", "x", november()).unwrap_err().is_invalid_id());
}

#[test]
fn the_most_specific_that_has_not_expired_applies() {
    let name = "CertificatesPerDomainPerAccount";
    let entry = |id: &str, rest: &str| format!("{name}{id}: {{{NUMBERS}{rest}}}\n");
    let default = entry("", "");
    let (gone, stays) = (", expires: 2026-10-31", ", expires: 2026-11-01");
    let specific = || "a more specific entry applies";
    for (whole, account, applies, wanted) in [
        (
            stays,
            stays,
            Applies::Override,
            vec![format!("12: {}", specific()), format!("-: {}", specific())],
        ),
        (
            gone,
            stays,
            Applies::Account,
            vec!["12:example.com: it expired on 2026-10-31".into(), format!("-: {}", specific())],
        ),
        (
            stays,
            gone,
            Applies::Override,
            vec!["12: it expired on 2026-10-31".into(), format!("-: {}", specific())],
        ),
        (
            gone,
            gone,
            Applies::Default,
            vec![
                "12:example.com: it expired on 2026-10-31".into(),
                "12: it expired on 2026-10-31".into(),
            ],
        ),
    ] {
        let text =
            [default.clone(), entry(":12:example.com", whole), entry(":12", account)].concat();
        let of = explain(&text, name, "12:www.example.com");
        assert_eq!((of.applies, near(&of)), (applies, wanted), "{whole} {account}");
        assert_eq!(of.id, "12:example.com");
    }
}

#[test]
fn similar_ids_are_shown_with_the_reason() {
    let case = "another id: it differs in the case of its letters";
    let place = "another id: it differs in one place";
    let other = "another id of the same account";
    let of_domain = "another id, in the same domain example.com";
    for (format, ids, id, wanted) in [
        (
            "string",
            &["Alice", "alicf", "bob", "alic", "ALICE"][..],
            "alice",
            vec![
                format!("ALICE: {case}"),
                format!("Alice: {case}"),
                format!("alic: {place}"),
                format!("alicf: {place}"),
            ],
        ),
        ("string", &["b", "ab"], "a", vec![]),
        (
            "regId",
            &["12354", "1234", "54321"],
            "12345",
            vec![format!("1234: {place}"), format!("12354: {place}")],
        ),
        (
            "ipAddress",
            &["2001:db8:1:2::9", "2001:db8:1:3::1", "2001:db9::", "192.0.2.1"],
            "2001:db8:1:2::1",
            vec![
                "2001:db8:1:2::9: another id, in the same /64".into(),
                "2001:db8:1:3::1: another id, in the same /48".into(),
            ],
        ),
        (
            "ipAddress",
            &["192.0.2.9", "192.0.3.7", "193.0.2.7", "198.51.100.7", "::c000:207"],
            "192.0.2.7",
            vec![
                "192.0.2.9: another id, in the same /24".into(),
                format!("192.0.3.7: {place}"),
                format!("193.0.2.7: {place}"),
            ],
        ),
        (
            "identValue",
            &["example.com", "mail.example.com", "example.org", "example.co"],
            "www.example.com",
            vec![format!("example.com: {of_domain}"), format!("mail.example.com: {of_domain}")],
        ),
        (
            "domainOrCIDR",
            &["example.org", "exmaple.com", "2001:db8:1:3::"],
            "www.example.com",
            vec![format!("exmaple.com: {place}")],
        ),
        (
            "domainOrCIDR",
            &["2001:db8:1:3::"],
            "2001:db8:1:2::1",
            vec!["2001:db8:1:3::/64: another id, in the same /48".into()],
        ),
        (
            "regId:identValue",
            &[
                "123:example.org",
                "123:www.example.com",
                "132",
                "132:example.net",
                "124:example.com",
            ],
            "123:example.com",
            vec![
                format!("123:www.example.com: {of_domain}"),
                format!("124:example.com: {place}"),
                format!("132: {place}"),
                format!("123:example.org: {other}"),
            ],
        ),
        ("fqdnSet", &["example.com,example.org"], "example.com", vec![]),
        (
            "regId:fqdnSet",
            &["124:example.com", "123:example.org", "124:example.org"],
            "123:example.com",
            vec![
                format!(
                    "124:a379a6f6eeafb9a55e378c118034e2751e682fab9f2d30ab13d2125586ce1947: {place}"
                ),
                format!(
                    "123:bfabc37432958b063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b5: {other}"
                ),
            ],
        ),
    ] {
        let of = explain(&own(format, ids), "Own", id);
        assert_eq!((of.applies, near(&of)), (Applies::Default, wanted), "{format} {id}");
    }
}

#[test]
fn eight_are_shown_at_most_the_nearest_first() {
    let ids: Vec<String> = (0..500).map(|i| format!("user-{i:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).chain(["USER-100"]).collect();
    let of = explain(&own("string", &ids), "Own", "user-100");
    let shown: Vec<&str> = of.near.iter().map(|near| near.id.as_deref().unwrap_or("-")).collect();
    assert_eq!(
        shown,
        ["-", "USER-100", "user-000", "user-010", "user-101", "user-102", "user-103", "user-104"]
    );
    assert_eq!(of.near[1].why, WhyNot::Case);
}

#[test]
fn explaining_reads_but_does_not_change_the_bucket() {
    let (clock, hand) = Clock::manual();
    let limits = Limits::from_yaml("Own: {burst: 3, count: 1, period: 1s, id: string}").unwrap();
    let options = LimiterOptions::default().clock(clock).counting(true);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let handle = limiter.limit("Own").unwrap();
    assert_eq!(handle.explain("a", 1).unwrap().call.unwrap().state.remaining(), Some(3));
    assert_eq!(limiter.stats().cells, 0, "an explanation makes no bucket");
    assert!(handle.spend("a", 2).unwrap().allowed());
    hand.advance(Duration::from_millis(250));
    for _ in 0..2 {
        let call = handle.explain("a", 2).unwrap().call.unwrap();
        assert_eq!((call.cost, call.state.remaining(), call.is_enabled), (2, Some(1), true));
        assert_eq!(call.state.reset_in(), Duration::from_millis(1750));
        let decision = call.decision.unwrap();
        assert_eq!((decision.allowed(), decision.retry_in()), (false, Duration::from_millis(750)));
    }
    assert!(
        handle.explain("a", 4).unwrap().call.unwrap().decision.is_none(),
        "4 is above the burst"
    );
    assert_eq!(limiter.counters().limits[0].errors, 0, "nothing failed");
    assert_eq!(limiter.counters().limits[0].errors, 0, "nothing failed");
    handle.block("a", Duration::from_secs(60)).unwrap();
    let call = handle.explain("a", 1).unwrap().call.unwrap();
    assert_eq!(call.blocked, Some(Duration::from_secs(60)));
    assert!(!call.decision.unwrap().allowed() && handle.unblock("a").unwrap());
    limiter.set_enabled(false);
    let call = handle.explain("a", 2).unwrap().call.unwrap();
    assert!(!call.is_enabled && call.decision.unwrap().allowed());
}
