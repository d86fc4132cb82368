//! Writes random limits in each format, and reads them again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::limits::{Floor, LimitMode, LimitOptions, LimitsBuilder, OverrideOptions};
use tollgate::{IdFormat, Limit, Limits};

use super::second_reader::equal::assert_equal;

const SECOND: Duration = Duration::from_secs(1);

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..100u64, 1 => 1..=16_777_215u64]
}

/// The numbers of [`any_limit`].
const ALGORITHMS: usize = 6;
const PERMITS: usize = 4;

/// Limits of one algorithm: its number.
fn any_limit(algorithm: usize) -> impl Strategy<Value = Limit> {
    let times = prop_oneof![1..100_000u64, 1..1u64 << 35];
    (any_count(), any_count(), times, any::<u64>()).prop_filter_map(
        "a limit that is not out of range",
        move |(one, other, ms, part)| {
            let time = Duration::from_millis(ms);
            match algorithm {
                // A period of whole nanoseconds.
                0 => Limit::new(one, other, time + Duration::from_nanos(part % 1_000_000)),
                1 => Limit::fixed_window(one, time),
                2 => Limit::token_bucket(1 + part % one, one, time),
                3 => Limit::leaky_bucket(one, other, time),
                PERMITS => Limit::concurrency(one).and_then(|limit| limit.retry_after(time)),
                _ => Limit::at_most(one, time, 1 + part % one),
            }
            .ok()
        },
    )
}

fn any_text() -> impl Strategy<Value = String> {
    // Also text that a reader of YAML could take for something else.
    prop_oneof![
        "\\PC{1,12}",
        prop::sample::select(vec![
            "null",
            "~",
            "true",
            "1.50",
            "0x10",
            "",
            "- a",
            "a: b",
            "2026-01-01"
        ])
        .prop_map(String::from),
    ]
}

/// An id that the reader accepts.
fn any_id() -> impl Strategy<Value = String> {
    any_text().prop_filter_map("no blanks at the ends, no line breaks", |text| {
        let text = text
            .trim()
            .replace(|c| "\u{85}\u{2028}\u{2029}".contains(c) || ('\n'..='\r').contains(&c), "");
        (!text.is_empty()).then_some(text)
    })
}

prop_compose! {
    fn any_override(debts: Range<u64>)(
        comment in prop::option::of(any_text()),
        owner in prop::option::of(any_text()),
        day in prop::option::of(1..2_932_897u64),
        max_debt in prop::option::of(debts),
    ) -> OverrideOptions {
        let mut options = OverrideOptions::default();
        if let Some(comment) = comment {
            options = options.comment(comment);
        }
        if let Some(owner) = owner {
            options = options.owner(owner);
        }
        if let Some(day) = day {
            options = options.expires(UNIX_EPOCH + Duration::from_secs(day * 86_400));
        }
        if let Some(max_debt) = max_debt {
            options = options.max_debt(max_debt);
        }
        options
    }
}

fn any_floors() -> impl Strategy<Value = Vec<Floor>> {
    let floor =
        prop_oneof![(0..=1u64).prop_map(Floor::Units), (0..=100u8).prop_map(Floor::Percent)];
    prop::collection::vec(floor, 0..3)
}

/// What happens to the default of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Enforced,
    WithShadow,
    InShadowMode,
    NoDefault,
    Disabled,
}

#[derive(Clone, Debug)]
struct Named {
    kind: Kind,
    default: Limit,
    shadow: Limit,
    max_debt: u64,
    floors: Vec<Floor>,
    overrides: BTreeMap<String, (Limit, OverrideOptions)>,
}

fn any_named() -> impl Strategy<Value = Named> {
    let kinds =
        [Kind::Enforced, Kind::WithShadow, Kind::InShadowMode, Kind::NoDefault, Kind::Disabled];
    (0..ALGORITHMS).prop_flat_map(move |algorithm| {
        let limit = || any_limit(algorithm);
        // Permits have no debt, no floors, and no shadow limit beside them.
        let has_units = algorithm != PERMITS;
        let kinds = kinds.iter().copied().filter(|kind| has_units || *kind != Kind::WithShadow);
        let options = any_override(if has_units { 0..100 } else { 0..1 });
        let overrides = prop::collection::btree_map(any_id(), (limit(), options), 0..4);
        let debts = if has_units { 0..100u64 } else { 0..1 };
        let floors = any_floors().prop_map(move |mut floors| {
            floors.retain(|_| has_units);
            floors
        });
        let kinds = prop::sample::select(kinds.collect::<Vec<_>>());
        (kinds, limit(), limit(), debts, floors, overrides).prop_map(
            |(kind, default, shadow, max_debt, floors, overrides)| Named {
                kind,
                default,
                shadow,
                max_debt,
                floors,
                overrides,
            },
        )
    })
}

/// Adds a limit, unless its debt has no room in its bucket.
fn add(builder: LimitsBuilder, name: &str, named: &Named) -> Option<LimitsBuilder> {
    let floors = named.floors.iter().enumerate();
    let options = floors.fold(LimitOptions::default(), |options, (at, floor)| {
        options.floor(&format!("floor{at}"), *floor)
    });
    let options = options.max_debt(named.max_debt);
    let (default, options) = match named.kind {
        Kind::WithShadow => (Some(named.default.clone()), options.shadow(named.shadow.clone())),
        Kind::InShadowMode => (Some(named.default.clone()), options.mode(LimitMode::Shadow)),
        Kind::NoDefault => (None, options),
        Kind::Enforced | Kind::Disabled => (Some(named.default.clone()), options),
    };
    let mut builder = builder.limit_with(name, IdFormat::String, default, options).ok()?;
    for (id, (limit, options)) in &named.overrides {
        builder = builder.override_with(name, id, limit.clone(), options.clone()).ok()?;
    }
    match named.kind {
        Kind::Disabled => builder.disable(name).ok(),
        _ => Some(builder),
    }
}

#[derive(Serialize, Deserialize)]
struct Config {
    limits: Limits,
}

proptest! {
#[test]
    fn limits_come_back(named in prop::collection::vec(any_named(), 1..4)) {
        let mut builder = Some(Limits::builder());
        for (i, named) in named.iter().enumerate() {
            builder = builder.and_then(|builder| add(builder, &format!("L{i}"), named));
        }
        prop_assume!(builder.is_some());
        let limits = builder.unwrap().build();
        let json = serde_json::to_string(&limits).unwrap();
        assert_equal(&serde_json::from_str(&json).unwrap(), &limits, &json);
        let yaml = serde_yaml::to_string(&limits).unwrap();
        assert_equal(&serde_yaml::from_str(&yaml).unwrap(), &limits, &yaml);
        let toml = toml::to_string(&Config { limits: limits.clone() }).unwrap();
        assert_equal(&toml::from_str::<Config>(&toml).unwrap().limits, &limits, &toml);
        // JSON is YAML, and a section that was written is a file. Line ends that readers of YAML take differently are escaped.
        let json = ['\u{85}', '\u{2028}', '\u{2029}']
            .iter()
            .fold(json, |json, end| json.replace(*end, &format!("\\u{:04x}", u32::from(*end))));
        assert_equal(&Limits::from_yaml(&json).unwrap(), &limits, &json);
    }

    #[test]
    fn one_limit_comes_back(limit in (0..ALGORITHMS).prop_flat_map(any_limit)) {
        let json = serde_json::to_string(&limit).unwrap();
        prop_assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit.clone());
        let toml = toml::to_string(&limit).unwrap();
        prop_assert_eq!(toml::from_str::<Limit>(&toml).unwrap(), limit);
    }

    #[test]
    fn options_come_back(
        given in any_override(0..100),
        shadow in prop::option::of((0..ALGORITHMS).prop_flat_map(any_limit)),
        is_tried in any::<bool>(),
        max_debt in 0..100u64,
    ) {
        let json = serde_json::to_string(&given).unwrap();
        prop_assert_eq!(serde_json::from_str::<OverrideOptions>(&json).unwrap(), given);
        let mode = if is_tried { LimitMode::Shadow } else { LimitMode::Enforce };
        let mut options = LimitOptions::default().mode(mode).max_debt(max_debt);
        if let Some(shadow) = shadow {
            options = options.shadow(shadow);
        }
        let json = serde_json::to_string(&options).unwrap();
        prop_assert_eq!(serde_json::from_str::<LimitOptions>(&json).unwrap(), options);
    }
}

#[test]
fn ids_of_all_formats_come_back() {
    let limits = Limits::from_yaml(
        "\
NewRegistrationsPerIPAddress:64.112.117.1: {burst: 1, count: 1, period: 1s}
NewRegistrationsPerIPAddress:2602:80a:6000::42:8329: {burst: 2, count: 1, period: 1s}
NewRegistrationsPerIPv6Range:2602:80a:6000::/48: {burst: 3, count: 1, period: 1s}
NewOrdersPerAccount:12345678: {burst: 4, count: 1, period: 1s}
CertificatesPerDomain:example.com: {burst: 5, count: 1, period: 1s}
CertificatesPerDomain:64.112.117.0: {burst: 6, count: 1, period: 1s}
'CertificatesPerDomain:2602:80a:6000:666::': {burst: 7, count: 1, period: 1s}
CertificatesPerDomainPerAccount:12345678:example.com: {burst: 8, count: 1, period: 1s}
CertificatesPerDomainPerAccount:12345678: {burst: 9, count: 1, period: 1s}
Own: {burst: 1, count: 1, period: 1s, id: ipAddress}
Own:10.0.0.2: {burst: 1, count: 1, period: 1s}
Own:10.0.0.0/8: {burst: 2, count: 1, period: 1s}
'Own:2001:db8::/32': {unlimited: true}
",
    );
    let limits = limits.unwrap();
    let json = serde_json::to_string(&limits).unwrap();
    assert_equal(&serde_json::from_str(&json).unwrap(), &limits, &json);
    // Overrides that lift the limit, of each algorithm.
    let window = Limit::fixed_window(1, SECOND).unwrap();
    for default in [None, Some(Limit::new(1, 1, SECOND).unwrap()), Some(window)] {
        let lifted = Limits::builder().limit("Own", IdFormat::String, default).unwrap();
        let probe = OverrideOptions::default().comment("probe").max_debt(9);
        let lifted = lifted.override_with("Own", "a", None, probe).unwrap().build();
        let json = serde_json::to_string(&lifted).unwrap();
        assert!(json.contains(r#""Own:a":{"unlimited":true,"comment":"probe"}"#), "{json}");
        let read: Limits = serde_json::from_str(&json).unwrap();
        let given = read.limit("Own").unwrap().override_of("a").unwrap().expect("it was given");
        assert!(given.limit().is_none() && given.comment() == Some("probe"), "{json}");
        assert_eq!(
            read.limit("Own").unwrap().default_limit(),
            lifted.limit("Own").unwrap().default_limit()
        );
    }
}

/// The reader took `max` for a leaky bucket's, since the limit itself has no algorithm.
#[test]
fn permits_of_an_override_alone_come_back() {
    let limits = Limits::builder().limit("Own", IdFormat::String, None).unwrap();
    let limits = limits.override_id("Own", "a", Limit::concurrency(3).unwrap()).unwrap().build();
    let json = serde_json::to_string(&limits).unwrap();
    assert_equal(&serde_json::from_str(&json).unwrap(), &limits, &json);
    assert_equal(&Limits::from_yaml(&json).unwrap(), &limits, &json);
}

#[test]
fn unwritable_text_in_a_tuple_is_refused() {
    for (format, id) in [
        ("integer:string", "7: alice "),
        ("integer:string", "7:a\nb"),
        ("string:integer", " a:7"),
        ("string:string", "a:b\u{2028}c"),
    ] {
        let limit = |burst| Limit::new(burst, 1, SECOND).unwrap();
        let builder = Limits::builder().limit("Own", format.parse().unwrap(), limit(1)).unwrap();
        let limits = builder.override_id("Own", id, limit(2)).unwrap().build();
        let error = serde_json::to_string(&limits).unwrap_err().to_string();
        assert!(error.contains("is allowed"), "{error}");
    }
}

#[test]
fn integers_bytes_uuids_and_tuples_come_back() {
    for (format, id) in [
        ("integer", "-5"),
        ("integer", "340282366920938463463374607431768211455"),
        ("regId", "7"),
        ("bytes", "00ff"),
        ("bytes", "1234"),
        ("uuid", "67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ("integer:string", "7:alice"),
        ("string:integer", r"a\:b\\:-7"),
        ("string:string:ipAddress", "1:2:2001:db8::1"),
        ("domainOrCIDR:integer", "5.6.7.8:7"),
        ("domainOrCIDR:string", "5.6.7.8:a/b"),
        ("domainOrCIDR:integer", r"2602\:80a\:6000\:666\:\::7"),
    ] {
        let limit = |burst| Limit::new(burst, 1, SECOND).unwrap();
        let builder = Limits::builder().limit("Own", format.parse().unwrap(), limit(1)).unwrap();
        let limits = builder.override_id("Own", id, limit(2)).unwrap().build();
        assert_eq!(limits.limit_for("Own", id).unwrap().unwrap().burst(), 2);
        let json = serde_json::to_string(&limits).unwrap();
        assert_equal(&serde_json::from_str(&json).unwrap(), &limits, &json);
        let yaml = serde_yaml::to_string(&limits).unwrap();
        assert_equal(&serde_yaml::from_str(&yaml).unwrap(), &limits, &yaml);
        assert_equal(&Limits::from_yaml(&yaml).unwrap(), &limits, &yaml);
        let toml = toml::to_string(&Config { limits: limits.clone() }).unwrap();
        assert_equal(&toml::from_str::<Config>(&toml).unwrap().limits, &limits, &toml);
    }
}

#[derive(Debug)]
struct One;

impl Algorithm for One {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        Limit::new(1, 1, SECOND).unwrap().spend(word, now_ns, cost)
    }
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        Limit::new(1, 1, SECOND).unwrap().refund(word, now_ns, cost)
    }
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        word <= now_ns
    }
    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }
    fn max_cost(&self) -> u64 {
        1
    }
    fn name(&self) -> &'static str {
        "one"
    }
}

#[test]
fn what_no_file_has_is_refused() {
    let limit = || Limit::new(5, 1, SECOND).unwrap();
    let custom = Limit::custom(Arc::new(One)).unwrap();
    let own = |limit: Limit| Limits::builder().limit("Own", IdFormat::String, limit).unwrap();
    let given =
        |id: &str, options| own(limit()).override_with("Own", id, limit(), options).unwrap();
    let never = OverrideOptions::default;
    let noon = never().expires(UNIX_EPOCH + Duration::from_secs(43_200));
    let long = Limit::new(1, 10, Duration::from_nanos(1 << 63)).unwrap();
    let set =
        Limits::from_yaml("CertificatesPerFQDNSet:example.com: {burst: 1, count: 1, period: 1s}");
    let reserved =
        Limits::builder().override_id("NewRegistrationsPerIPAddress", "10.0.0.2", limit()).unwrap();
    for (limits, wanted) in [
        (own(custom).build(), "Own: the custom algorithm one cannot be written"),
        (given("a", noon).build(), "Own:a: expires 1970-01-01T12:00:00Z: only the end of a day"),
        (
            given(" a", never()).build(),
            "Own: a: \" a\": an id without blanks at its ends is allowed",
        ),
        (own(long).build(), "Own: period 2562047h47m16s854ms775us808ns: more than 2^63 - 1 ns"),
        (set.unwrap(), "CertificatesPerFQDNSet:"),
        (reserved.build(), "NewRegistrationsPerIPAddress:10.0.0.2: "),
    ] {
        let error = serde_json::to_string(&limits).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[cfg(feature = "valkey")]
#[test]
fn words_of_sharing_and_the_store_come_back() {
    use tollgate::limits::{OnError, Shared, StoreOptions};
    let (limit, ms) = (Limit::new(20, 10, SECOND).unwrap(), Duration::from_millis(1));
    let store = StoreOptions::new("redis://u:p%40%23@h:1/2").unwrap();
    let full = store.clone().prefix("").unwrap().tag("a: b").unwrap().boulder_keys();
    let full = full.connect_timeout(ms).unwrap().answer_timeout(60 * SECOND).unwrap();
    let mut all = Vec::new();
    for shared in [Shared::Local, Shared::Leased, Shared::Exact] {
        for on_error in [None, Some(OnError::Deny), Some(OnError::Allow), Some(OnError::Local)] {
            for part in [None, Some("1"), Some("0.000001"), Some("0.3")] {
                for time in [None, Some(1234 * ms)] {
                    let mut options = LimitOptions::default().shared(shared);
                    options = on_error.map_or(options.clone(), |word| options.on_error(word));
                    options = part
                        .map_or(options.clone(), |part| options.fraction(part.parse().unwrap()));
                    options = time.map_or(options.clone(), |time| match shared {
                        Shared::Leased => options.lease(time),
                        _ => options.allow_for(time),
                    });
                    all.push(options);
                }
            }
        }
    }
    let (mut builder, mut count) = (Limits::builder().store(full).unwrap(), 0);
    for options in all {
        let name = format!("L{count:02}");
        let with =
            builder.clone().limit_with(&name, IdFormat::String, limit.clone(), options.clone());
        let Ok(with) = with else { continue };
        (builder, count) = (with, count + 1);
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LimitOptions>(&json).unwrap(), options);
    }
    assert_eq!(count, 44, "the others do not fit each other");
    let plain = Limits::builder().store(store).unwrap();
    let plain = plain.limit("A", IdFormat::String, limit).unwrap();
    for limits in [builder.build(), plain.build()] {
        let json = serde_json::to_string(&limits).unwrap();
        assert!(json.starts_with(r#"{"store":{"url":"redis://u:p"#), "{json}");
        assert_equal(&serde_json::from_str(&json).unwrap(), &limits, &json);
        assert_equal(&Limits::from_yaml(&json).unwrap(), &limits, &json);
        let yaml = serde_yaml::to_string(&limits).unwrap();
        assert_equal(&serde_yaml::from_str(&yaml).unwrap(), &limits, &yaml);
        let toml = toml::to_string(&Config { limits: limits.clone() }).unwrap();
        assert_equal(&toml::from_str::<Config>(&toml).unwrap().limits, &limits, &toml);
    }
}
