//! Reads the same limits from each format, with the numbers, booleans and dates that the format has.

use figment::Figment;
use figment::providers::{Format as _, Json, Toml};
use serde::Deserialize;
use tollgate::limits::Overrides;
use tollgate::{Limiter, Limits};

use super::second_reader::equal::assert_equal;

#[derive(Deserialize)]
struct Config {
    limits: Limits,
    overrides: Option<Overrides>,
}

const FILE: &str = "
PerUser: {burst: 20, count: 10, period: 1s, id: string, max_debt: 5, shadow: {burst: 10, count: 10, period: 1s}}
PerKey: {algorithm: leaky_bucket, size: 2.5, drip_rate: 250ms, id: regId, mode: shadow}
PerClient: {enabled: false, id: ipAddress}
PerUser:alice: {burst: 200, count: 100, period: 1s, comment: a trial, owner: sales, expires: 2026-12-31}
PerKey:17: {size: 9, max_debt: 0}
";

const YAML: &str = "
limits:
  PerUser: {burst: 20, count: 10, period: 1s, id: string, max_debt: 5, shadow: {burst: 10, count: 10, period: 1s}}
  PerKey: {algorithm: leaky_bucket, size: 2.5, drip_rate: 250ms, id: regId, mode: shadow}
  PerClient: {enabled: false, id: ipAddress}
  PerUser:alice: {burst: 200, count: 100, period: 1s, comment: a trial, owner: sales, expires: 2026-12-31}
  PerKey:17: {size: 9, max_debt: 0}
";

/// The date is one of TOML, not a text.
const TOML: &str = r#"
[limits.PerUser]
burst = 20
count = 10
period = "1s"
id = "string"
max_debt = 5
shadow = { burst = 10, count = 10, period = "1s" }

[limits.PerKey]
algorithm = "leaky_bucket"
size = 2.5
drip_rate = "250ms"
id = "regId"
mode = "shadow"

[limits.PerClient]
enabled = false
id = "ipAddress"

[limits."PerUser:alice"]
burst = 200
count = 100
period = "1s"
comment = "a trial"
owner = "sales"
expires = 2026-12-31

[limits."PerKey:17"]
size = 9
max_debt = 0
"#;

/// The overrides come first: the order of a map does not matter.
const JSON: &str = r#"{"limits": {
    "PerUser:alice": {"burst": 200, "count": 100, "period": "1s", "comment": "a trial", "owner": "sales",
        "expires": "2026-12-31"},
    "PerKey:17": {"size": 9, "max_debt": 0},
    "PerUser": {"burst": 20, "count": 10, "period": "1s", "id": "string", "max_debt": 5,
        "shadow": {"burst": 10, "count": 10, "period": "1s"}},
    "PerKey": {"algorithm": "leaky_bucket", "size": 2.5, "drip_rate": "250ms", "id": "regId", "mode": "shadow"},
    "PerClient": {"enabled": false, "id": "ipAddress"}
}}"#;

fn file() -> Limits {
    Limits::from_yaml(FILE).unwrap()
}

#[test]
fn yaml_by_serde_yaml() {
    let config: Config = serde_yaml::from_str(YAML).unwrap();
    assert_equal(&config.limits, &file(), &"serde_yaml");
    // Also by way of its own tree.
    let value: serde_yaml::Value = serde_yaml::from_str(YAML).unwrap();
    assert_equal(&serde_yaml::from_value::<Config>(value).unwrap().limits, &file(), &"a Value");
}

#[test]
fn toml_has_dates() {
    let config: Config = toml::from_str(TOML).unwrap();
    assert_equal_in_any_order(&config.limits);
    let value: toml::Value = toml::from_str(TOML).unwrap();
    assert_equal_in_any_order(&value.try_into::<Config>().unwrap().limits);
}

#[test]
fn json_in_any_order() {
    let config: Config = serde_json::from_str(JSON).unwrap();
    assert_equal(&config.limits, &file(), &"serde_json");
    let value: serde_json::Value = serde_json::from_str(JSON).unwrap();
    assert_equal_in_any_order(&serde_json::from_value::<Config>(value).unwrap().limits);
}

#[test]
fn figment_merges_its_sources() {
    let config: Config = Figment::from(Toml::string(TOML)).extract().unwrap();
    assert_equal_in_any_order(&config.limits);
    let more = r#"{"limits": {"PerUser": {"burst": 30}}}"#;
    let merged = Figment::from(Toml::string(TOML)).merge(Json::string(more));
    let limits: Limits = merged.extract_inner("limits").unwrap();
    assert_eq!(limits.limit_for("PerUser", "bob").unwrap().unwrap().burst(), 30);
    assert_eq!(limits.limit_for("PerUser", "alice").unwrap().unwrap().burst(), 200);
}

/// Some formats sort the keys of a map.
#[track_caller]
fn assert_equal_in_any_order(limits: &Limits) {
    let sorted = |limits: &Limits| {
        let mut described = super::second_reader::equal::described(limits);
        described.sort();
        described
    };
    assert_eq!(sorted(limits), sorted(&file()));
}

#[test]
fn overrides_of_their_own_section() {
    let text = r#"
        limits.PerUser = { burst = 20, count = 10, period = "1s", id = "string" }
        limits.PerKey = { algorithm = "fixed_window", limit = 5, window = "1m", id = "regId" }
        [[overrides]]
        PerUser = { burst = 200, count = 100, period = "1s", ids = ["alice", { id = "bob", expires = 2026-12-31 }] }
        PerKey = { limit = 7, window = "1s", ids = [17, 18] }
    "#;
    let config: Config = toml::from_str(text).unwrap();
    let overrides = config.overrides.unwrap();
    let limits = config.limits.clone().with_overrides(&overrides).unwrap();
    let file = Limits::from_yaml_with_overrides(
        "PerKey: {algorithm: fixed_window, limit: 5, window: 1m, id: regId}\n\
         PerUser: {burst: 20, count: 10, period: 1s, id: string}",
        "- PerUser: {burst: 200, count: 100, period: 1s, ids: [alice, {id: bob, expires: 2026-12-31}]}\n  \
           PerKey: {limit: 7, window: 1s, ids: [17, 18]}",
    );
    assert_equal(&limits, &file.unwrap(), &"overrides");
    // The section is written as it was read, and its ids cannot be given a second time.
    let json = serde_json::to_string(&overrides).unwrap();
    assert_eq!(serde_json::from_str::<Overrides>(&json).unwrap(), overrides);
    let error = limits.with_overrides(&overrides).unwrap_err();
    let faults: Vec<String> = error.faults().iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "[0].PerKey.ids[0]: the id \"17\" was given before",
            "[0].PerKey.ids[1]: the id \"18\" was given before",
            "[0].PerUser.ids[0]: the id \"alice\" was given before",
            "[0].PerUser.ids[1].id: the id \"bob\" was given before",
        ]
    );
}

#[test]
fn sections_add_overrides_to_a_file() {
    let shadow = "shadow: {burst: 1, count: 1, period: 1h}";
    let file = format!("Own: {{burst: 5, count: 1, period: 1h, id: string, {shadow}}}");
    let limits = Limits::from_yaml(&file).unwrap();
    let overrides: Overrides =
        serde_yaml::from_str("Own:a: {burst: 2, count: 1, period: 1s}").unwrap();
    let limits = limits.with_overrides(&overrides).unwrap();
    let own = limits.limit("Own").unwrap();
    assert_eq!(own.location().map(|location| location.to_string()).as_deref(), Some("<text>:1"));
    assert_eq!(own.override_of("a").unwrap().unwrap().location(), None);
    assert_eq!(limits.limit_for("Own", "a").unwrap().unwrap().burst(), 2);
    // The shadow is built once more, and counts as before.
    let limiter = Limiter::new(limits);
    let own = limiter.limit("Own").unwrap();
    assert!((0..3).all(|_| own.spend("b", 1).unwrap().allowed()));
    let counters = limiter.counters();
    let counters: Vec<_> = counters.limits.iter().map(|limit| limit.shadow_denied).collect();
    assert_eq!(counters, [2]);
}

/// A loader reads sections with the rules of its options, and adds what code has.
#[test]
fn a_loader_reads_a_section_with_options() {
    use std::sync::Arc;
    use tollgate::Limit;
    use tollgate::limits::{Loader, Overrides};

    use super::named::Named;

    let loader = Loader::new().allow_reserved(true).algorithm("named", |fields| {
        let (size, gap) = (fields.whole_number("size")?, fields.duration("gap")?);
        Ok(Arc::new(Named(Limit::new(size, 1, gap)?, "named")))
    });
    let loader = loader.unwrap().after(|limits| limits.override_id("Sized", "probe", None));
    let read = |text: &str| loader.deserialize(&mut serde_json::Deserializer::from_str(text));
    let text = r#"{
        "Sized": {"size": 3, "gap": "1s", "id": "string", "algorithm": "named"},
        "NewRegistrationsPerIPAddress": {"burst": 20, "count": 20, "period": "1s"},
        "NewRegistrationsPerIPAddress:10.0.0.2": {"burst": 40, "count": 20, "period": "1s"}
    }"#;
    let limits = read(text).unwrap();
    assert_eq!(limits.limit("Sized").unwrap().algorithm(), Some("named"));
    assert_eq!(limits.overrides(), 2);
    let overrides: Overrides = serde_json::from_str(
        r#"[{"Sized": {"size": 5, "gap": "1s", "ids": ["alice"]}},
            {"NewRegistrationsPerIPAddress": {"burst": 2, "count": 1, "period": "1s", "ids": ["10.0.0.3"]}}]"#,
    )
    .unwrap();
    let refused = limits.clone().with_overrides(&overrides).unwrap_err();
    assert_eq!(refused.faults().len(), 2, "without options: {refused}");
    // The code's override is among these limits already.
    let loader = loader.before(limits).after(Ok);
    let limits = loader.overrides(&overrides).unwrap();
    assert_eq!(limits.overrides(), 4);
    let alice = limits.limit_for("Sized", "alice").unwrap();
    assert_eq!(alice.map(|limit| limit.burst()), Some(5));

    let faulty = r#"{"Sized": {"size": "3", "id": "string", "algorithm": "named"}}"#;
    let error = loader.deserialize(&mut serde_json::Deserializer::from_str(faulty)).unwrap_err();
    let error = error.to_string();
    let wanted =
        "Sized.size: invalid size \"3\": a whole number from 0, without quotes, is allowed";
    assert_eq!(error, wanted);
}

/// A reader that has integers of 128 bits loses no digit of an id.
#[test]
fn large_integers_are_exact_ids() {
    let id = u128::MAX;
    let text = "{A: {burst: 1, count: 1, period: 1s, id: integer}}";
    let limits: Limits = serde_yaml::from_str(text).unwrap();
    let overrides =
        format!("[{{A: {{burst: 2, count: 1, period: 1s, ids: [{id}, {}]}}}}]", i128::MIN);
    let limits = limits.with_overrides(&serde_yaml::from_str(&overrides).unwrap());
    let limits = limits.unwrap();
    let burst = |id: tollgate::Id<'_>| limits.limit_for("A", id).unwrap().unwrap().burst();
    assert_eq!([burst(id.into()), burst(i128::MIN.into()), burst((id - 1).into())], [2, 2, 1]);
}
