//! Tests what `diff` says of buckets in use when a limit is shared, and when a reload refuses the change.

use super::diff;
use crate::support::Sandbox;

/// Permits are no units: `Limiter::reload` refuses these changes too.
#[test]
fn permits_and_units_cannot_replace_each_other() {
    let dir = Sandbox::new();
    let units = "burst: 2, count: 1, period: 1s";
    let of_one = format!("NewOrdersPerAccount:7: {{{units}}}\n");
    dir.put("units.yml", format!("NewOrdersPerAccount: {{{units}}}\n{of_one}"));
    dir.put("override.yml", of_one);
    dir.put("permits.yml", "NewOrdersPerAccount: {algorithm: concurrency, max: 2}\n");
    dir.put("more.yml", "NewOrdersPerAccount: {algorithm: concurrency, max: 3}\n");
    dir.put("off.yml", "NewOrdersPerAccount: {enabled: false}\n");
    let refused =
        "NewOrdersPerAccount: a reload refuses this, permits are no units: give it another name\n";
    let fields = "  algorithm gcra -> concurrency
  burst 2 -> none
  count 1 -> none
  period 1s -> none
  max none -> 2
  retry_after none -> 1s
";
    assert_eq!(diff(&dir, "units.yml permits.yml"), format!("{refused}{fields}"));
    for line in ["permits.yml units.yml", "override.yml permits.yml", "permits.yml override.yml"] {
        let text = diff(&dir, line);
        assert!(text.starts_with(refused) && !text.contains("live buckets"), "{line}: {text}");
        let json = diff(&dir, &format!("{line} --json"));
        assert!(json.contains(r#""change":"refused""#), "{line}: {json}");
    }
    for (line, effect) in [
        ("units.yml off.yml", "not used any more: no limit applies"),
        ("off.yml permits.yml", "there are none yet: each starts full"),
        ("permits.yml more.yml", "permits that are out stay out"),
    ] {
        let text = diff(&dir, line);
        assert!(text.ends_with(&format!("  live buckets: {effect}\n")), "{line}: {text}");
    }
}

#[cfg(feature = "valkey")]
#[test]
fn words_of_shared_limits_are_compared() {
    let dir = Sandbox::new();
    let own = |words: &str| format!("Own: {{burst: 5, count: 1, period: 1s, id: string{words}}}\n");
    dir.put("local.yml", own(""));
    dir.put("leased.yml", own(", shared: leased, lease: 2s"));
    dir.put("exact.yml", own(", shared: exact, on_error: deny, max_debt: 1").replace("5", "6"));
    let leased = "\
Own: changed
  shared local -> leased
  on_error none -> local
  fraction none -> 0.1
  lease none -> 2s
  for everyone
  live buckets: the limit gets other buckets: each starts full and without a block, or as it was when the limit last had it
";
    assert_eq!(diff(&dir, "local.yml leased.yml"), leased);
    let exact = diff(&dir, "leased.yml exact.yml");
    let part = "\
  shared leased -> exact
  on_error local -> deny
  fraction 0.1 -> none
  lease 2s -> none
  for everyone without an override; mode, max_debt and the words of sharing for everyone
";
    assert!(exact.contains(part), "{exact}");
}

/// `CarryOver` has an effect on buckets in the limiter only.
#[cfg(feature = "valkey")]
#[test]
fn buckets_in_the_store_are_not_converted() {
    let dir = Sandbox::new();
    let (small, large) = ("burst: 50, count: 1, period: 1s", "burst: 5000, count: 100, period: 1s");
    for (name, shared, numbers) in [
        ("local", "local", small),
        ("large", "local", large),
        ("exact", "exact", small),
        ("exact-large", "exact", large),
        ("leased", "leased", small),
        ("window", "exact", "algorithm: fixed_window, limit: 10, window: 1m"),
    ] {
        let own = format!("Own: {{{numbers}, id: string, shared: {shared}}}\n");
        let of_one = match name {
            "window" => String::new(),
            _ => format!("Own:x: {{{}}}\n", numbers.replace("50", "60")),
        };
        dir.put(&format!("{name}.yml"), own + &of_one);
    }
    let kept = "the store keeps them as they are, whatever --debt says";
    let other = "the limit gets other buckets: each starts full and without a block, or as it was when the limit last had it";
    for (line, of_limit, of_override) in [
        ("exact.yml exact-large.yml", Some(kept), Some(kept)),
        ("leased.yml exact-large.yml", Some(kept), Some(kept)),
        ("exact.yml leased.yml", None, None),
        ("local.yml leased.yml", Some(other), None),
        ("exact.yml local.yml", Some(other), None),
        ("exact.yml large.yml", Some(other), Some(other)),
        ("local.yml exact-large.yml", Some(other), Some(other)),
        ("exact.yml window.yml", Some(other), Some(other)),
    ] {
        for debt in ["share", "units", "time", "afresh"] {
            let text = diff(&dir, &format!("{line} --debt {debt}"));
            let effects = text.lines().filter_map(|line| line.split_once("  live buckets: "));
            let effects: Vec<&str> = effects.map(|(_, effect)| effect).collect();
            let expected: Vec<&str> = of_limit.into_iter().chain(of_override).collect();
            assert_eq!(effects, expected, "{line} --debt {debt}: {text}");
        }
    }
    let text = diff(&dir, "local.yml large.yml");
    assert!(text.contains("will have used 4,000 of 5,000 (share)"), "{text}");
}

/// The store keeps the bucket of an id while no limit applies to it, and has those that other nodes have made.
#[cfg(feature = "valkey")]
#[test]
fn buckets_in_the_store_may_be_there() {
    let dir = Sandbox::new();
    let own = |shared: &str, of_one: &str| {
        format!("Own: {{burst: 5, count: 1, period: 1s, id: string{shared}}}\n{of_one}")
    };
    dir.put("none.yml", "Other: {burst: 5, count: 1, period: 1s, id: string}\n");
    dir.put("local.yml", own("", ""));
    dir.put("exact.yml", own(", shared: exact", ""));
    dir.put("lifted.yml", own(", shared: exact", "Own:x: {unlimited: true}\n"));
    dir.put("off.yml", "Own: {enabled: false, id: string}\n");
    let there = "each starts full, or as the store has it";
    let other = "the limit gets other buckets: each starts full and without a block, or as it was when the limit last had it";
    for (line, effect) in [
        ("none.yml exact.yml", there),
        ("none.yml local.yml", "there are none yet: each starts full"),
        ("lifted.yml exact.yml", there),
        ("exact.yml lifted.yml", "not used any more: no limit applies"),
        ("off.yml exact.yml", other),
        ("lifted.yml local.yml", other),
    ] {
        let text = diff(&dir, line);
        assert!(text.ends_with(&format!("  live buckets: {effect}\n")), "{line}: {text}");
    }
}
