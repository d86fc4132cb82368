//! The text for Prometheus, checked by a strict parser.

use super::*;
use std::collections::{BTreeMap, HashMap};

/// A sample's name and labels.
type Series = (String, BTreeMap<String, String>);

/// Parses the text format 0.0.4 strictly by its specification: the types of the families, and the samples.
fn parse(text: &str) -> (HashMap<String, String>, HashMap<Series, u64>) {
    let (mut types, mut samples) = (HashMap::new(), HashMap::new());
    let mut family = String::new();
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a help text").0.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(name, family, "the type follows its help");
            assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "one of each");
        } else {
            let (series, value) = sample(line);
            assert_eq!(series.0, family, "samples follow their family: {line}");
            let before = samples.insert(series, value);
            assert_eq!(before, None, "each series once: {line}");
        }
    }
    (types, samples)
}

fn sample(line: &str) -> (Series, u64) {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    assert!(name.chars().all(legal), "{name}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label");
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().expect("a closing quote") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                        'n' => '\n',
                        c => c,
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert_eq!(labels.insert(label.to_owned(), value), None);
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
    ((name.to_owned(), labels), value)
}

fn series(name: &str, labels: &[(&str, &str)]) -> Series {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    (name.to_owned(), labels)
}

#[test]
#[cfg(feature = "exact")]
fn prometheus_text_has_the_counters() {
    let limits = add(no_limits(), "A", 4, shadow_beside(1));
    let (limiter, _hand) = limiter(add(limits, "B.b-b", 2, shadow_mode()), Engine::Exact);
    for name in ["A", "B.b-b"] {
        for _ in 0..5 {
            let _ = limiter.limit(name).unwrap().spend("a key", 1).unwrap();
        }
        assert!(limiter.limit(name).unwrap().spend("", 1).is_err());
    }
    limiter.reload(add(no_limits(), "A", 3, shadow_beside(1)).build()).unwrap();
    let limits = add(no_limits(), "A", 4, shadow_beside(1));
    limiter.reload(add(limits, "B.b-b", 2, shadow_mode()).build()).unwrap();
    let text = limiter.prometheus();
    let (types, samples) = parse(&text);
    let counters = limiter.counters();
    assert_eq!(counters.limits.len(), 2);
    for of in &counters.limits {
        let name = [("limit", of.name.as_str())];
        let with = |outcome| [name[0], ("outcome", outcome)];
        let burst = of.limit.as_ref().unwrap().burst();
        for (series, value) in [
            (series("tollgate_decisions_total", &with("allowed")), of.allowed),
            (series("tollgate_decisions_total", &with("denied")), of.denied),
            (series("tollgate_near_total", &name), of.near),
            (series("tollgate_cost_total", &name), of.cost),
            (series("tollgate_shadow_denied_total", &name), of.shadow_denied),
            (series("tollgate_errors_total", &name), of.errors),
            (series("tollgate_limit_burst", &name), burst),
            (series("tollgate_limit_enforced", &name), u64::from(of.name == "A")),
        ] {
            assert_eq!(samples.get(&series), Some(&value), "{series:?}");
        }
    }
    assert_eq!(samples[&series("tollgate_limit_shadow_burst", &[("limit", "A")])], 1);
    assert_eq!(samples[&series("tollgate_keys", &[])], counters.stats.cells as u64);
    assert_eq!(samples[&series("tollgate_limits_generation", &[])], 2);
    assert_eq!(samples[&series("tollgate_limits_removed_total", &[])], counters.limits_removed);
    assert!(samples[&series("tollgate_last_reload_timestamp_seconds", &[])] > 1_700_000_000);
    assert!(types.values().all(|kind| kind == "counter" || kind == "gauge"));
    for (name, kind) in &types {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    }
    assert!(samples.len() > 20 && !text.contains("a key"), "no sample has a key");
}

#[test]
fn without_counting_families_are_left_out() {
    let limiter = Limiter::new(add(no_limits(), "A", 4, LimitOptions::default()).build());
    let (types, samples) = parse(&limiter.prometheus());
    let families =
        ["decisions", "near", "cost", "errors"].map(|name| format!("tollgate_{name}_total"));
    for counted in &families {
        assert!(!types.contains_key(counted), "{counted}");
    }
    assert_eq!(samples[&series("tollgate_shadow_denied_total", &[("limit", "A")])], 0);
}
