//! Parses an id in every format: as the id of a request, as the id of an override, and in its natural types.
//!
//! The first byte chooses the limit; the rest is the id.
#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::SystemTime;

use libfuzzer_sys::fuzz_target;
use tollgate::limits::{IdentifierSet, WarningKind};
use tollgate::{Clock, KeyedLimit, Limiter, Limits};

/// A limit of each format, and Boulder's limits, which refuse overrides for reserved addresses.
const NAMES: [(&str, &str); 26] = [
    ("String", "string"),
    ("IpAddress", "ipAddress"),
    ("RegId", "regId"),
    ("Ipv6RangeCidr", "ipv6RangeCIDR"),
    ("IdentValue", "identValue"),
    ("DomainOrCidr", "domainOrCIDR"),
    ("FqdnSet", "fqdnSet"),
    ("RegIdIdentValue", "regId:identValue"),
    ("RegIdDomainOrCidr", "regId:domainOrCIDR"),
    ("RegIdDomain", "regId:domain"),
    ("RegIdFqdnSet", "regId:fqdnSet"),
    ("NewRegistrationsPerIPAddress", "ipAddress"),
    ("NewRegistrationsPerIPv6Range", "ipv6RangeCIDR"),
    ("NewOrdersPerAccount", "regId"),
    ("FailedAuthorizationsPerDomainPerAccount", "regId:identValue"),
    ("CertificatesPerDomain", "domainOrCIDR"),
    ("CertificatesPerDomainPerAccount", "regId:domainOrCIDR"),
    ("CertificatesPerFQDNSet", "fqdnSet"),
    ("FailedAuthorizationsForPausingPerDomainPerAccount", "regId:identValue"),
    ("LimitOverrideRequestsPerIPAddress", "ipAddress"),
    ("CertificatesPerFQDNSetPerAccount", "regId:fqdnSet"),
    ("Integer", "integer"),
    ("Bytes", "bytes"),
    ("Uuid", "uuid"),
    ("StringAndInteger", "string:integer"),
    ("BytesUuidAndAddress", "bytes:uuid:ipAddress"),
];

static HANDLES: LazyLock<Vec<KeyedLimit>> = LazyLock::new(|| {
    let entries = NAMES.map(|(name, format)| {
        format!("{name}: {{burst: 20, count: 10, period: 1s, id: \"{format}\"}}\n")
    });
    let limits = Limits::from_yaml(&entries.concat()).expect("good limits");
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    NAMES.iter().map(|(name, _)| limiter.limit(name).expect("declared")).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let at = usize::from(first) % NAMES.len();
    let (handle, (name, format)) = (&HANDLES[at], NAMES[at]);
    let normal = as_request(handle, format, text);
    as_override(name, format, text, normal.as_deref());
    in_types(handle, format, text, normal.as_deref());
});

/// Returns the normal form of the text as a request's id, or `None` if it is invalid.
fn as_request(handle: &KeyedLimit, format: &str, text: &str) -> Option<String> {
    let normal = match handle.normalize(text) {
        Ok(normal) => normal,
        Err(error) => {
            assert!(error.is_invalid_id(), "{error:?}");
            // The error shows the id shortened and escaped, so that a client can neither flood nor forge a log.
            let message = error.to_string();
            assert!(message.len() < 2048 && !message.chars().any(char::is_control), "{message:?}");
            assert!(handle.check(text, 1).is_err(), "{text:?}");
            return None;
        }
    };
    assert!(handle.check(text, 1).is_ok(), "{text:?}");
    if !format.ends_with("fqdnSet") {
        let again = handle.normalize(&normal);
        assert_eq!(again.ok().as_ref(), Some(&normal), "{format} {text:?}: normal form twice");
    }
    Some(normal)
}

/// Checks that an id that a file accepts is in normal form, and applies to a request with the same text, or that a warning
/// says that it applies to no call.
fn as_override(name: &str, format: &str, text: &str, normal: Option<&str>) {
    let limits = format!("{name}: {{burst: 20, count: 10, period: 1s, id: \"{format}\"}}");
    let quoted: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    let overrides = format!("- {name}: {{burst: 7, count: 1, period: 1s, ids: [\"{quoted}\"]}}");
    match Limits::from_yaml_with_overrides(&limits, &overrides) {
        Ok(limits) => {
            let normal = normal.unwrap_or_else(|| panic!("{name}: {text:?} is an override only"));
            let found = limits.limit_for(name, text).expect("an id").expect("numbers");
            let warnings = limits.warnings(SystemTime::UNIX_EPOCH);
            if warnings.iter().any(|it| it.kind == WarningKind::BelowDomain) {
                assert_ne!(normal, text, "{name}: warned of a domain that is registered");
                assert_eq!(found.burst(), 20, "{name}: {text:?} applies, and a warning says not");
                return;
            }
            assert_eq!(found.burst(), 7, "{name}: {text:?} does not match itself");
            // Two formats write the normal form differently: a set as its hash, and under domainOrCIDR the lowest
            // address of a prefix as that prefix.
            let prefix = normal.strip_prefix(text).filter(|_| format.ends_with("domainOrCIDR"));
            let is_normal =
                normal == text || prefix.is_some_and(|bits| bits == "/32" || bits == "/64");
            assert!(format.ends_with("fqdnSet") || is_normal, "{name}: {text:?} is {normal}");
        }
        Err(error) => assert!(error.is_invalid_config() && error.faults().len() == 1, "{error:?}"),
    }
}

/// Parses an account's number: digits only, although Rust's parser also accepts a sign.
fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Checks that an id in its natural type has the same key as its text.
fn in_types(handle: &KeyedLimit, format: &str, text: &str, normal: Option<&str>) {
    if let Some((number, part)) = text.split_once(':')
        && let Some(number) = decimal(number)
        && format.starts_with("regId:")
    {
        let typed = handle.normalize((number, part)).ok();
        assert_eq!(typed.as_deref(), normal, "{format} ({number}, {part:?})");
        if let (Ok(address), "regId:identValue" | "regId:domainOrCIDR") =
            (part.parse::<IpAddr>(), format)
        {
            let typed = handle.normalize((number, address)).ok();
            assert_eq!(typed.as_deref(), normal, "{format} ({number}, {address})");
        }
    }
    if let (Ok(address), "ipAddress" | "identValue" | "domainOrCIDR") =
        (text.parse::<IpAddr>(), format)
    {
        assert_eq!(handle.normalize(address).ok().as_deref(), normal, "{format} {address}");
    }
    if let (Some(number), "regId" | "integer") = (decimal(text), format) {
        assert_eq!(handle.normalize(number).ok().as_deref(), normal, "{format} {number}");
    }
    match format {
        // The text as an id of its own type, whose normal form is its text again.
        "bytes" => {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                handle.normalize(text.as_bytes()).ok(),
                Some(hex).filter(|_| (1..=1024).contains(&text.len()))
            );
        }
        "string:integer" => {
            let number = text.len() as i64 - 8;
            let pair = handle.normalize((text, number)).ok();
            assert_eq!(pair.is_some(), (1..=1014).contains(&text.len()), "{text:?}");
            if let Some(pair) = pair {
                assert_eq!(handle.normalize(&pair).ok(), Some(pair), "{text:?}");
            }
        }
        _ => {}
    }
    if format == "fqdnSet" {
        let set = IdentifierSet::new(text.split(','));
        assert_eq!(set.is_ok(), normal.is_some(), "{text:?}");
        if let Ok(set) = set {
            assert_eq!(handle.normalize(&set).ok().as_deref(), normal, "{text:?}");
        }
    }
}
