//! Tests files that load with warnings.

use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::Limit;
use tollgate::limits::{OverrideOptions, WarningKind};

use super::*;

/// 2026-11-01T00:00:00Z: `date -u -d 2026-11-01 +%s`.
fn november() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_793_491_200)
}

fn messages(text: &str) -> Vec<String> {
    let limits = read(text).expect(text);
    let name = |message: String| message.split_once(" of x ").expect("of x").1.to_owned();
    limits.warnings(november()).listed.into_iter().map(|warning| name(warning.message)).collect()
}

#[test]
fn stricter_means_smaller_burst_or_lower_rate() {
    for (default, own, wanted) in [
        ("burst: 20, count: 10, period: 1s", "burst: 20, count: 20, period: 2s", ""),
        ("burst: 20, count: 10, period: 1s", "burst: 21, count: 11, period: 1s", ""),
        (
            "burst: 20, count: 10, period: 1s",
            "burst: 19, count: 11, period: 1s",
            "burst 19 is below 20",
        ),
        (
            "burst: 20, count: 10, period: 1s",
            "burst: 200, count: 599, period: 1m",
            "rate 599 every 1m is below 10 every 1s",
        ),
        (
            "algorithm: fixed_window, limit: 10, window: 1m",
            "limit: 10, window: 1m1s",
            "rate 10 every 1m1s is below 10 every 1m",
        ),
        (
            "algorithm: token_bucket, limit: 10, window: 1m, burst: 3",
            "limit: 10, window: 1m, burst: 2",
            "burst 2 is below 3",
        ),
        (
            "algorithm: token_bucket, limit: 10, window: 1m, burst: 3",
            "limit: 10, window: 1m, burst: 4",
            "",
        ),
        (
            "algorithm: leaky_bucket, size: 10, drip_rate: 250ms",
            "size: 9, drip_rate: 500ms, drip_size: 2",
            "size 9 is below 10",
        ),
        // A limit is not compared with no limit.
        ("algorithm: leaky_bucket, size: 10", "min_interval: 0s", ""),
        ("algorithm: leaky_bucket, min_interval: 0s", "size: 1", ""),
    ] {
        let text = format!("A: {{id: string, {default}}}\nA:x: {{{own}}}\n");
        let wanted = match wanted {
            "" => vec![],
            part => vec![format!("is stricter than the default: {part}")],
        };
        assert_eq!(messages(&text), wanted, "{text}");
    }
}

#[test]
fn equal_numbers_with_another_debt_are_not_equal() {
    let default = "A: {burst: 2, count: 1, period: 1s, id: string, max_debt: 3}\n";
    let equal = ["equals the default: burst 2, count 1, period 1s"];
    assert_eq!(messages(&format!("{default}A:x: {{burst: 2, count: 1, period: 1s}}")), equal);
    assert_eq!(messages(&format!("{default}A:x: {{burst: 2, count: 2, period: 2s}}")), [""; 0]);
    let other = format!("{default}A:x: {{burst: 2, count: 1, period: 1s, max_debt: 4}}");
    assert_eq!(messages(&other), [""; 0]);
}

#[test]
fn the_limit_after_an_end_is_named() {
    let name = "CertificatesPerDomainPerAccount";
    let numbers = "burst: 7, count: 1, period: 1s";
    let whole = format!("{name}:12:example.com: {{{numbers}, expires: 2026-10-31}}\n");
    let account = format!("{name}:12: {{burst: 9, count: 1, period: 1s}}\n");
    let of = |text: &str| {
        let limits = read(text).expect(text);
        let warnings = limits.warnings(november());
        assert!(
            warnings.iter().all(|warning| warning.kind == WarningKind::Expired),
            "{warnings:?}"
        );
        warnings.iter().map(|warning| warning.to_string()).collect::<Vec<_>>().join("\n")
    };
    let begin = format!(
        "<text>:1: {name}:12:example.com: the override of 12:example.com expired on 2026-10-31:"
    );
    assert_eq!(of(&whole), format!("{begin} no limit applies"));
    assert_eq!(
        of(&format!("{whole}{account}")),
        format!("{begin} the account's override, burst 9, count 1, period 1s, applies")
    );
    let ended = account.replace("}", ", expires: 2020-01-01}");
    assert_eq!(
        of(&format!("{whole}{ended}")),
        format!(
            "{begin} no limit applies\n<text>:2: {name}:12: the override of 12 expired on 2020-01-01: no limit applies"
        )
    );
}

#[test]
fn an_end_is_near_for_14_days() {
    let day = Duration::from_secs(24 * 60 * 60);
    let limit = || Limit::new(2, 1, SECOND).unwrap();
    let kinds = |left: Duration| -> Vec<WarningKind> {
        let options = OverrideOptions::default().expires(november() + left);
        let limits = Limits::builder().limit("A", tollgate::IdFormat::String, None).unwrap();
        let limits = limits.override_with("A", "x", limit(), options).unwrap().build();
        limits.warnings(november()).iter().map(|warning| warning.kind).collect()
    };
    assert_eq!(kinds(Duration::ZERO), [WarningKind::Expired]);
    assert_eq!(kinds(SECOND), [WarningKind::Expiring]);
    assert_eq!(kinds(14 * day), [WarningKind::Expiring]);
    assert_eq!(kinds(14 * day + SECOND), []);
}

/// All overrides equal the default.
#[test]
fn a_thousand_are_listed_and_the_rest_counted() {
    let mut text = "A: {burst: 5, count: 1, period: 1s, id: string}\n".to_owned();
    for at in 0..5_000 {
        text += &format!("A:id{}: {{burst: 5, count: 1, period: 1s}}\n", 4_999 - at);
    }
    let limits = read(&text).unwrap();
    let warnings = limits.warnings(november());
    assert_eq!((warnings.len(), warnings.more), (1_000, 4_000));
    // They are in the order of the file.
    for (warning, line) in warnings.iter().zip(2..) {
        assert_eq!(warning.location.as_ref().map(|at| at.line), Some(line));
    }
    let took = allocation_counter::measure(|| drop(limits.warnings(november())));
    assert!(took.bytes_max < 2 << 20, "{took:?}");
    // One override may have more than one warning.
    let few = read(
        "A: {burst: 5, count: 1, period: 1s, id: string}\n\
         \"A:a\\tb\": {burst: 4, count: 1, period: 1s, expires: 2026-11-01}\n",
    );
    let kinds: Vec<String> =
        few.unwrap().warnings(november()).iter().map(|it| it.kind.to_string()).collect();
    assert_eq!(kinds, ["expiring", "stricter", "invisible"]);
}

/// The HTTP layer counts IPv6 clients by their networks, and looks for the overrides of these.
#[test]
fn override_for_one_ipv6_address_warns() {
    let file = "A: {burst: 20, count: 10, period: 1s, id: ipAddress}
A:2001:db8:1:2::7: {burst: 40, count: 10, period: 1s}
A:2001:db8:1:2::: {burst: 40, count: 10, period: 1s}
A:192.0.2.7: {burst: 40, count: 10, period: 1s}
A:2002:c000:221:5::: {burst: 40, count: 10, period: 1s}
A:64:ff9b::c000:221: {burst: 40, count: 10, period: 1s}
B: {burst: 20, count: 10, period: 1s, id: string}
B:2001:db8:1:2::7: {burst: 40, count: 10, period: 1s}
";
    let limits = read(file).expect(file);
    let found: Vec<_> = limits
        .warnings(november())
        .listed
        .into_iter()
        .map(|warning| {
            assert_eq!(warning.kind, WarningKind::OneAddress);
            assert_eq!(warning.kind.to_string(), "one-address");
            warning.to_string()
        })
        .collect();
    let of = |line: u32, id: &str, by: &str, write: &str| {
        format!(
            "<text>:{line}: A:{id}: the override of {id} applies to no client of the HTTP layer, which counts this one by its {by}: write {write}"
        )
    };
    assert_eq!(
        found,
        [
            of(2, "2001:db8:1:2::7", "/64", "2001:db8:1:2::"),
            of(5, "2002:c000:221:5::", "/48", "2002:c000:221::"),
            of(6, "64:ff9b::c000:221", "IPv4 address", "192.0.2.33"),
        ]
    );
}

/// Boulder's own limits are not those of the HTTP layer.
#[cfg(feature = "boulder")]
#[test]
fn boulders_override_for_one_address_does_not_warn() {
    let file = "NewRegistrationsPerIPAddress: {burst: 20, count: 10, period: 1s}
NewRegistrationsPerIPAddress:2606:4700::7: {burst: 40, count: 10, period: 1s}
";
    let warnings = read(file).expect(file).warnings(november());
    assert!(warnings.listed.is_empty(), "{warnings:?}");
}

/// Boulder takes such an entry, and it matches no call there either: Boulder's own test file has two.
#[test]
#[cfg(feature = "boulder")]
fn override_below_a_registered_domain_warns() {
    let file = "CertificatesPerDomain: {burst: 2, count: 2, period: 1h}
CertificatesPerDomain:www.example.com: {burst: 4, count: 4, period: 1h}
CertificatesPerDomain:example.org: {burst: 4, count: 4, period: 1h}
CertificatesPerDomain:github.io: {burst: 4, count: 4, period: 1h}
CertificatesPerDomain:8.8.8.8: {burst: 4, count: 4, period: 1h}
CertificatesPerDomainPerAccount:12:a.example.co.uk: {burst: 4, count: 4, period: 1h}
CertificatesPerDomainPerAccount:12: {burst: 4, count: 4, period: 1h}
\"CertificatesPerDomain:*.github.io\": {burst: 4, count: 4, period: 1h}
T: {burst: 2, count: 2, period: 1h, id: \"integer:domainOrCIDR\"}
T:7:example.net: {burst: 4, count: 4, period: 1h}
T:7:a.example.net: {burst: 4, count: 4, period: 1h}
";
    let limits = read(file).expect(file);
    let warnings = limits.warnings(november());
    let of = |at: usize| (warnings[at].kind, warnings[at].to_string());
    assert_eq!(
        of(0),
        (
            WarningKind::BelowDomain,
            "<text>:2: CertificatesPerDomain:www.example.com: the override of www.example.com applies to no call, because www.example.com counts as example.com: write example.com".into()
        )
    );
    for (at, line, ending) in [
        (1, 6, "12:a.example.co.uk counts as 12:example.co.uk: write 12:example.co.uk"),
        (2, 8, "*.github.io counts as github.io: write github.io"),
        (3, 11, "7:a.example.net counts as 7:example.net: write 7:example.net"),
    ] {
        assert!(of(at).1.contains(&format!("<text>:{line}: ")), "{:?}", of(at));
        assert!(of(at).1.ends_with(ending), "{:?}", of(at));
    }
    assert_eq!(warnings.len(), 4);
    let limiter = tollgate::Limiter::new(limits);
    let certificates = limiter.limit("CertificatesPerDomain").unwrap();
    let burst = |id: &str| certificates.limit_for(id).unwrap().unwrap().burst();
    assert_eq!((burst("www.example.com"), burst("example.com"), burst("a.example.org")), (2, 2, 4));
}

#[test]
fn bursts_that_are_not_above_floors_are_named() {
    let text = |burst: u64| {
        format!(
            "A: {{burst: 20, count: 1, period: 1s, id: string, floors: {{a: 10, b: 50%, c: 12, d: 20}}}}\n\
             A:x: {{burst: {burst}, count: 1, period: 1s}}\n"
        )
    };
    let floor = |burst| {
        let limits = read(&text(burst)).unwrap();
        let all = limits.warnings(november()).listed.into_iter();
        let mut of_floors = all.filter(|warning| warning.kind == WarningKind::Floor);
        let first = of_floors.next().map(|warning| warning.message);
        assert!(of_floors.next().is_none());
        first
    };
    assert_eq!(floor(13), None);
    assert_eq!(
        floor(12).as_deref(),
        Some(
            "the override of x has no units for calls with these priorities, because their floors are not below its burst 12: c: 12"
        )
    );
    assert!(floor(10).unwrap().ends_with(" 10: a: 10, c: 12"));
    assert!(floor(1).unwrap().ends_with(" 1: a: 10, c: 12"));
    assert_eq!(floor(100), None);
}
