//! Compares the messages of a section's faults with those of a file.

#[cfg(feature = "valkey")]
use tollgate::limits::LimitOptions;
use tollgate::{Limit, Limits};

/// Texts that are JSON and YAML, without what only a file shows: its lines and its quotes.
const FAULTY: &[&str] = &[
    "{}",
    "null",
    "17",
    "[{}]",
    r#"{"Own": {"burst": 0, "count": 7.5, "period": 60, "id": "strng", "brust": 1}}"#,
    r#"{"Own": {"burst": "20", "count": 10, "period": "1s", "id": "string"}}"#,
    r#"{"Own": {"limit": 20, "window": "1s", "id": "string"}}"#,
    r#"{"Own": {"burst": 1, "count": 1, "period": "1s"}, "Own:a": {"burst": 0}}"#,
    r#"{"Nope:a": {"burst": 1, "count": 1, "period": "1s"}}"#,
    r#"{"A": {"algorithm": "fixed_window", "limit": 16777216, "window": "1.5ms", "burst": 1, "id": "string"}}"#,
    r#"{"A": {"algorithm": "leaky_bucket", "size": 0.5, "max": 1, "drip_rate": "0.5ms", "id": "string"}}"#,
    r#"{"A": {"enabled": "no", "mode": "shadwo", "max_debt": -1, "id": "string"}}"#,
    r#"{"A": {"burst": 1, "count": 1, "period": "1s", "id": "string", "shadow": {"burst": 0, "shadow": {}}}}"#,
    r#"{"A": {"burst": 1, "count": 1, "period": "1s", "id": "string", "expires": "2026-12-31"}}"#,
    r#"{"A": 1, "A": null, "B": [], "A:x": true}"#,
    r#"{"NewOrdersPerAccount": {"ids": [], "burst": 1, "count": 1, "period": "1s"}}"#,
    r#"[{"NewOrdersPerAccount": {"ids": ["007", 1, 1, [2], {"id": 4, "idd": 5}], "burst": 1, "count": 1, "period": "1s"}}]"#,
    r#"{"NewOrdersPerAccount:1": {"burst": 1, "count": 1, "period": "1s", "expires": "2026-02-29"}}"#,
    r#"{"NewRegistrationsPerIPAddress:10.0.0.2": {"burst": 20, "count": 40, "period": "1s"}}"#,
];

#[test]
fn messages_are_those_of_files() {
    for text in FAULTY {
        let error = Limits::from_yaml(text).expect_err(text);
        let of_file = error.faults().iter().map(|fault| {
            let message = fault.message.replace("the file", "the section");
            // What was given before has a line in a file.
            let message = message.replace(", on line 1 of the same map", " in the same map");
            let message = message.replace(", on line 1", "");
            if fault.path.is_empty() { message } else { format!("{}: {message}", fault.path) }
        });
        let error = serde_json::from_str::<Limits>(text).expect_err(text).to_string();
        // The format may add its own place to the end.
        let error = error.split(" at line ").next().unwrap();
        assert_eq!(error.lines().collect::<Vec<_>>(), of_file.collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn twenty_faults_are_listed() {
    let entries: Vec<String> = (0..25).map(|i| format!(r#""A{i}": {{"burst": 1}}"#)).collect();
    let text = format!("{{{}}}", entries.join(","));
    let error = serde_json::from_str::<Limits>(&text).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 21);
    assert!(error.contains("\nand 55 more faults"), "{error}");
}

#[test]
fn texts_that_were_lost_are_no_ids() {
    // A reader gives 1.5 for 1.50, and true for True.
    for id in ["1.5", "1.50", "true", "True"] {
        let text = format!(
            "Own: {{burst: 1, count: 1, period: 1s, id: string}}\n\
             Own:{id}x: {{burst: 1, count: 1, period: 1s}}\n"
        );
        assert_eq!(serde_yaml::from_str::<Limits>(&text).unwrap().overrides(), 1);
        let overrides = format!("- Own: {{burst: 1, count: 1, period: 1s, ids: [{id}]}}");
        let limits: Limits = serde_yaml::from_str(&text).unwrap();
        let overrides = serde_yaml::from_str(&overrides).unwrap();
        let error = limits.with_overrides(&overrides).unwrap_err().to_string();
        let end = "a boolean or a number with a fraction, of which the text as written is not known: an id in quotes is allowed";
        assert!(error.starts_with("[0].Own.ids[0]: \"") && error.ends_with(end), "{error}");
    }
    // A whole number has one text.
    let text = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    let limits: Limits = serde_yaml::from_str(text).unwrap();
    let overrides = "- Own: {burst: 2, count: 1, period: 1s, ids: [17]}";
    let limits = limits.with_overrides(&serde_yaml::from_str(overrides).unwrap()).unwrap();
    assert!(limits.limit("Own").unwrap().override_of("17").unwrap().is_some());
}

#[test]
fn numbers_of_any_size_and_kind() {
    let burst = |burst: &str| {
        let text = format!(r#"{{"burst": {burst}, "count": 1, "period": "1s"}}"#);
        (serde_json::from_str::<Limit>(&text), serde_yaml::from_str::<Limit>(&text))
    };
    // As serde_json gives numbers with its feature `arbitrary_precision`.
    let (by_json, by_yaml) = burst(r#"{"$serde_json::private::Number": "20"}"#);
    assert_eq!((by_json.unwrap().burst(), by_yaml.unwrap().burst()), (20, 20));
    let most = "340282366920938463463374607431768211455";
    for number in ["-1", "1e3", "20.0", "18446744073709551616", most] {
        let (by_json, by_yaml) = burst(number);
        let (by_json, by_yaml) =
            (by_json.unwrap_err().to_string(), by_yaml.unwrap_err().to_string());
        assert!(by_json.starts_with("burst: invalid burst \""), "{by_json}");
        assert!(by_yaml.starts_with("burst: invalid burst \""), "{by_yaml}");
    }
}

#[test]
fn tags_and_depth_are_bounded() {
    let error = serde_yaml::from_str::<Limits>("Own: !x {burst: 1}").unwrap_err().to_string();
    assert!(error.contains("a tag or a variant of an enum: a value alone is allowed"), "{error}");
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let error = serde_json::from_str::<Limits>(&deep).unwrap_err().to_string();
    assert!(error.starts_with("nested too deep: at most 64 levels are allowed"), "{error}");
    let deep = format!("{}1{}", "[".repeat(64), "]".repeat(64));
    let error = serde_json::from_str::<Limits>(&deep).unwrap_err().to_string();
    assert!(error.starts_with("[0]: a list: a map from a limit's name"), "{error}");
}

#[test]
fn one_limit_says_what_is_wrong() {
    for (text, wanted) in [
        (
            r#"{"burst": 0, "count": 1, "period": "1s"}"#,
            "burst: invalid burst 0: at least 1 is allowed",
        ),
        (r#"{"burst": 1, "period": "1s"}"#, "no count: a whole number from 1 is wanted"),
        (
            r#"{"limit": 1, "window": "1s"}"#,
            "limit: unknown field: burst, count, period and algorithm are allowed; did you mean algorithm: fixed_window?",
        ),
        (
            r#"{"burst": 1, "count": 1, "period": "1s", "ids": []}"#,
            "ids: unknown field: burst, count, period and algorithm are allowed",
        ),
        (
            r#"{"algorithm": "leaky_bucket", "max": 1, "duration": "0s"}"#,
            "no limit: numbers that limit are wanted",
        ),
        ("[]", "a list: a map of a limit's parameters is allowed"),
    ] {
        let error = serde_json::from_str::<Limit>(text).unwrap_err().to_string();
        let first = error.lines().next().unwrap().split(" at line ").next().unwrap();
        assert_eq!(first, wanted, "{text}");
    }
}

#[cfg(feature = "valkey")]
#[test]
fn words_of_sharing_have_the_faults_of_files() {
    let section = r#"{"A": {"burst": 1, "count": 1, "period": "1s", "id": "string", "shared": "exact", "lease": "1s"},
        "store": {"url": "http://:secret@h", "redis://:secret@h": 1, "timeout": "2m"}}"#;
    let error = serde_json::from_str::<Limits>(section).unwrap_err().to_string();
    let lines: Vec<&str> = error.split(" at line ").next().unwrap().lines().collect();
    let allowed = "redis://, rediss://, valkey://, valkeys://, unix://, redis+unix:// or valkey+unix:// at its start is allowed; the first four also with -cluster or -sentinel, as redis-cluster://";
    assert_eq!(
        lines,
        [
            "A.lease: lease beside shared: exact, under which a node takes no leases",
            &format!("store.url: invalid url with the scheme \"http\": {allowed}"),
            "store: a URL in place of a field: url: is wanted before it",
            "store.timeout: invalid timeout 2m: from 1ms to 1m is allowed",
        ]
    );
    assert!(!error.contains("secret"), "{error}");
    // As docs/serde.md says: toml shows the line.
    let toml = "limits.store = {url = 'redis://:secret@h', connect = '2m'}";
    let error = toml::from_str::<std::collections::BTreeMap<String, Limits>>(toml).unwrap_err();
    assert!(error.to_string().contains("secret"), "{error}");
    assert!(!error.message().contains("secret"), "{error}");

    let options = r#"{"shared": "leased", "lease": "1ms", "on_error": "no"}"#;
    let error = serde_json::from_str::<LimitOptions>(options).unwrap_err().to_string();
    assert!(
        error.starts_with("on_error: invalid on_error \"no\": deny, allow and local are allowed")
    );
    let options = r#"{"shared": "leased", "lease": "1ms"}"#;
    let error = serde_json::from_str::<LimitOptions>(options).unwrap_err().to_string();
    assert!(error.starts_with("lease: invalid lease 1ms: from 200ms to 10s is allowed"), "{error}");
}
