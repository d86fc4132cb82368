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
