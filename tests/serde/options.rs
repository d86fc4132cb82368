//! Reads and writes options and factors.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate::limit::Factor;
use tollgate::options::{AtCap, Engine};
use tollgate::sweep::SweepOptions;
use tollgate::{Clock, LimiterOptions};

/// Writes a value as JSON, and reads it again.
#[track_caller]
fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[track_caller]
fn assert_same(one: impl Debug, other: impl Debug) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

fn error<T: DeserializeOwned + Debug>(text: &str) -> String {
    serde_json::from_str::<T>(text).unwrap_err().to_string()
}

#[test]
fn limiter_options_come_back_without_the_clock() {
    let options = LimiterOptions::default()
        .engine(Engine::Exact)
        .max_keys(7)
        .reserve(5)
        .max_blocks(3)
        .at_cap(AtCap::Allow)
        .counting(true)
        .top_denied(9);
    #[cfg(feature = "tracing")]
    let options = options.log_denials(11);
    assert_same(again(&options), &options);
    assert_same(again(&options.clone().clock(Clock::system())), &options);
    assert_same(again(&LimiterOptions::default()), LimiterOptions::default());
    for at_cap in [AtCap::Share, AtCap::Deny, AtCap::Allow] {
        let options = LimiterOptions::default().at_cap(at_cap);
        assert_same(again(&options), &options);
    }
    let read: LimiterOptions = serde_yaml::from_str("{max_keys: 10, top_denied: 1024}").unwrap();
    assert_same(read, LimiterOptions::default().max_keys(10).top_denied(1024));
    assert_eq!(
        error::<LimiterOptions>(r#"{"top_denied": 1025}"#),
        "top_denied: invalid top_denied 1025: at most 1024 is allowed"
    );
}

#[test]
fn limiter_options_list_their_faults() {
    let text = r#"{"clock": 1, "max_keys": -1, "at_cap": "shar", "counting": "yes", "max_keys": 2, "reserve": []}"#;
    let error = error::<LimiterOptions>(text);
    let lines: Vec<&str> = error.split(" at line ").next().unwrap().lines().collect();
    assert!(lines[0].starts_with("clock: unknown field: engine, max_keys, reserve, "), "{error}");
    assert_eq!(
        lines[1..],
        [
            "max_keys: invalid max_keys \"-1\": a whole number from 0, in plain digits, is allowed",
            "at_cap: invalid at_cap \"shar\": share, deny and allow are allowed; did you mean share?",
            "counting: invalid counting \"yes\": true or false is allowed",
            "max_keys: the field was given before",
            "reserve: invalid reserve a list: a value is allowed",
        ]
    );
}

#[test]
fn sweep_options_have_a_duration() {
    let options: SweepOptions = toml::from_str("interval = \"1m30s\"\nstep = 9").unwrap();
    assert_same(options, SweepOptions::default().interval(Duration::from_secs(90)).step(9));
    assert_same(again(&options), options);
    let error = error::<SweepOptions>(r#"{"interval": 1}"#);
    assert!(error.starts_with("interval: invalid interval \"1\": missing unit; "), "{error}");
    let error = serde_json::from_str::<SweepOptions>("1").unwrap_err().to_string();
    assert!(error.starts_with("\"1\": a map of options is allowed"), "{error}");
}

#[test]
fn factors_are_numbers_or_texts() {
    for (text, millionths) in
        [("0", 0), ("2", 2_000_000), ("0.5", 500_000), ("\"0.5\"", 500_000), ("1.0", 1_000_000)]
    {
        let factor: Factor = serde_json::from_str(text).unwrap();
        assert_eq!(factor, Factor::from_millionths(millionths), "{text}");
    }
    for (text, wanted) in [
        ("-1", "invalid factor \"-1\": negative; at least 0 is allowed"),
        ("0.1234567", "invalid factor 0.1234567: a decimal with at most six digits"),
        ("\"x\"", "invalid factor \"x\": a decimal with at most six digits"),
        ("null", "invalid factor null: a number from 0 is allowed"),
        ("true", "invalid factor \"true\": a number from 0 is allowed"),
        ("[1]", "invalid factor a list: a number from 0 is allowed"),
    ] {
        let error = serde_json::from_str::<Factor>(text).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}

/// serde_json reads this one as a number that is one step away.
#[test]
fn factor_of_many_digits_comes_back_as_text() {
    let factor = Factor::from_millionths(116_227_480_987_586_290);
    assert_eq!(again(&factor), factor);
    assert_eq!(serde_json::to_string(&factor).unwrap(), "\"116227480987.58629\"");
}

proptest! {
    #[test]
    fn factors_come_back(millionths in prop_oneof![any::<u64>(), 0..10_000_000u64]) {
        let factor = Factor::from_millionths(millionths);
        prop_assert_eq!(again(&factor), factor);
        let yaml = serde_yaml::to_string(&factor).unwrap();
        prop_assert_eq!(serde_yaml::from_str::<Factor>(&yaml).unwrap(), factor);
    }
}
