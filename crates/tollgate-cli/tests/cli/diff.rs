//! Tests `diff`.

mod live_buckets;

use crate::support::{Ran, Sandbox};

const OLD: &str = "\
Raised: {burst: 50, count: 1, period: 1s, id: string}
Same: {burst: 5, count: 1, period: 1s, id: string}
Gone: {algorithm: fixed_window, limit: 10, window: 1m, id: string}
Moved: {burst: 5, count: 1, period: 1s, id: string}
Tried: {burst: 5, count: 1, period: 1s, id: string, mode: shadow, max_debt: 2}
Other: {burst: 10, count: 1, period: 1s, id: string}
";
const NEW: &str = "\
Raised: {burst: 5000, count: 100, period: 1s, id: string}
Same: {burst: 5, count: 1, period: 1s, id: string}
Moved: {burst: 5, count: 1, period: 1s, id: ipAddress}
Tried: {burst: 5, count: 1, period: 1s, id: string, shadow: {burst: 4, count: 1, period: 1s}}
Other: {algorithm: leaky_bucket, size: 5, id: string}
New: {burst: 1, count: 1, period: 1s, id: string}
";

fn sandbox() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("old.yml", OLD);
    dir.put("new.yml", NEW);
    dir
}

#[track_caller]
fn diff(dir: &Sandbox, line: &str) -> String {
    let Ran { status, stdout, stderr } = dir.run(&format!("diff --today 2026-11-01 {line}"));
    assert_eq!((status, &*stderr), (Some(0), ""), "{line}");
    stdout
}

#[test]
fn limits_are_compared_field_by_field() {
    let expected = "\
Raised: changed
  burst 50 -> 5,000
  count 1 -> 100
  for everyone without an override
  live buckets: a client that has used 40 of 50 will have used 4,000 of 5,000 (share)

Gone: removed
  id string, algorithm fixed_window, limit 10, window 1m, mode enforce, max_debt 0
  for everyone
  live buckets: not used any more: no limit applies

Moved: a reload refuses this, the format of its ids changes: give it another name
  id string -> ipAddress

Tried: changed
  mode shadow -> enforce
  max_debt 2 -> 0
  shadow none -> burst 4, count 1, period 1s
  for everyone without an override; mode and max_debt for everyone
  calls are denied from then on; what was used in shadow counts

Other: changed
  algorithm gcra -> leaky_bucket
  burst 10 -> none
  count 1 -> none
  period 1s -> none
  size none -> 5
  drip_rate none -> 1s
  drip_size none -> 1
  for everyone without an override
  live buckets: a client that has used 8 of 10 will have used 4 of 5 (share)

New: added
  id string, algorithm gcra, burst 1, count 1, period 1s, mode enforce, max_debt 0
  for everyone without an override
  live buckets: there are none yet: each starts full
";
    let dir = sandbox();
    assert_eq!(diff(&dir, "old.yml new.yml"), expected);
    let afresh = diff(&dir, "old.yml new.yml --debt afresh");
    assert!(afresh.contains("used 40 of 50 will have used 0 of 5,000 (afresh)"), "{afresh}");
    let time = diff(&dir, "old.yml new.yml --debt time");
    assert!(time.contains("will have used 4,000 of 5,000, and is full in 40s (time)"), "{time}");
    assert!(time.contains("4 of 5 (share, because the algorithm changes)"), "{time}");
    let back = diff(&dir, "new.yml old.yml --debt units");
    assert!(back.contains("used 4,000 of 5,000 will have used 50 of 50 (units)"), "{back}");
    assert!(back.contains("no call is denied any more; buckets keep what was used"), "{back}");
}

#[test]
fn exit_code_reports_differences_only_on_request() {
    let dir = sandbox();
    assert_eq!(diff(&dir, "old.yml old.yml"), "no differences\n");
    for (line, status) in [
        ("diff old.yml old.yml --exit-code", 0),
        ("diff old.yml new.yml --exit-code", 1),
        ("diff old.yml missing.yml", 2),
        ("diff old.yml", 2),
        ("diff - -", 2),
        ("diff - new.yml --new-overrides -", 2),
        ("diff old.yml new.yml --debt none", 2),
    ] {
        assert_eq!(dir.run(line).status, Some(status), "{line}");
    }
    let ran = dir.run("diff old.yml missing.yml");
    assert!(ran.stdout.is_empty() && ran.stderr.contains("missing.yml"), "{ran:?}");
}

/// An override that has expired counts as missing.
#[test]
fn overrides_are_compared_by_their_ids() {
    let dir = sandbox();
    dir.put(
        "old-o.yml",
        "- Same: {burst: 50, count: 1, period: 1s, ids: [less, stays, {id: over, expires: 2026-10-31}]}\n\
         - Same:gone: {burst: 10, count: 1, period: 1s, owner: me}\n\
         - Same: {burst: 10, count: 1, period: 1s, ids: [{id: renewed, expires: 2026-10-01}, {id: ended}, {id: said}, {id: owes}, {id: later, expires: 2027-01-01}]}\n",
    );
    dir.put(
        "new-o.yml",
        "Same:stays: {burst: 50, count: 1, period: 1s}\n\
         Same:less: {burst: 25, count: 1, period: 1s}\n\
         Same:renewed: {burst: 10, count: 1, period: 1s, expires: 2027-01-01}\n\
         Same:ended: {burst: 10, count: 1, period: 1s, expires: 2026-10-31}\n\
         Same:said: {burst: 10, count: 1, period: 1s, comment: why}\n\
         Same:owes: {burst: 10, count: 1, period: 1s, max_debt: 3}\n\
         Same:later: {burst: 10, count: 1, period: 1s, expires: 2027-02-01}\n\
         Same:come: {burst: 100, count: 1, period: 1s}\n",
    );
    let expected = "\
Same: changed
  overrides: 2 added, 2 removed, 4 changed
    + come: burst 100, count 1, period 1s
      live buckets: a client that has used 4 of 5 will have used 80 of 100 (share)
    - ended: burst 10, count 1, period 1s
      live buckets: a client that has used 8 of 10 will have used 4 of 5 (share)
    - gone: burst 10, count 1, period 1s, owner me
      live buckets: a client that has used 8 of 10 will have used 4 of 5 (share)
    ~ later: expires 2027-01-01 -> 2027-02-01
    ~ less: burst 50 -> 25
      live buckets: a client that has used 40 of 50 will have used 20 of 25 (share)
    ~ owes: max_debt none -> 3
    + renewed: burst 10, count 1, period 1s, expires 2027-01-01
      live buckets: a client that has used 4 of 5 will have used 8 of 10 (share)
    ~ said: comment none -> why
";
    let line = "old.yml old.yml --old-overrides old-o.yml --new-overrides new-o.yml";
    assert_eq!(diff(&dir, line), expected);
}

#[test]
fn twenty_overrides_are_listed_without_all() {
    let dir = sandbox();
    let ids: Vec<String> = (100..145).rev().map(|id| format!("u{id}")).collect();
    dir.put("o.yml", format!("- Same: {{burst: 9, count: 1, period: 1s, ids: {ids:?}}}\n"));
    let line = "old.yml old.yml --new-overrides o.yml";
    let text = diff(&dir, line);
    assert!(text.contains("  overrides: 45 added\n    + u100: "), "{text}");
    assert_eq!(text.matches("    + u").count(), 20);
    assert!(text.ends_with("    and 25 more, which --all shows\n"), "{text}");
    let text = diff(&dir, &format!("{line} --all"));
    assert_eq!((text.matches("    + u").count(), text.contains("more")), (45, false));
}

/// If the override of an id is removed, the override of the id's account applies.
#[test]
fn an_accounts_override_stands_for_its_ids() {
    let dir = Sandbox::new();
    let name = "CertificatesPerDomainPerAccount";
    let entry = |id: &str, burst| format!("{name}{id}: {{burst: {burst}, count: 1, period: 1s}}\n");
    dir.put("old.yml", [entry("", 5), entry(":12", 50), entry(":12:example.com", 10)].concat());
    dir.put("new.yml", [entry("", 5), entry(":12", 100)].concat());
    let expected = format!(
        "\
{name}: changed
  overrides: 1 removed, 1 changed
    ~ 12: burst 50 -> 100
      for the account's ids without an override
      live buckets: a client that has used 40 of 50 will have used 80 of 100 (share)
    - 12:example.com: burst 10, count 1, period 1s
      live buckets: a client that has used 8 of 10 will have used 80 of 100 (share)
"
    );
    assert_eq!(diff(&dir, "old.yml new.yml"), expected);
}

#[test]
fn disabled_limits_are_no_limit() {
    let dir = Sandbox::new();
    dir.put(
        "on.yml",
        "A: {burst: 5, count: 1, period: 1s, id: string}\nA:x: {burst: 9, count: 1, period: 1s}\n",
    );
    dir.put("off.yml", "A: {enabled: false, id: string}\n");
    let expected = "\
A: changed
  algorithm gcra -> none
  burst 5 -> none
  count 1 -> none
  period 1s -> none
  enabled none -> false
  for everyone
  live buckets: not used any more: no limit applies
";
    assert_eq!(diff(&dir, "on.yml off.yml"), expected);
}

#[test]
fn as_json_it_is_one_object() {
    let dir = Sandbox::new();
    let entry = |burst| format!("A: {{burst: {burst}, count: 1, period: 1s, id: string}}\n");
    dir.put("old.yml", entry(50));
    dir.put("new.yml", entry(25) + "A:x: {burst: 9, count: 1, period: 1s}\n");
    let found: serde_json::Value =
        serde_json::from_str(&diff(&dir, "old.yml new.yml --json")).unwrap();
    let expected = serde_json::json!({"limits": [{
        "limit": "A", "change": "changed",
        "fields": [{"field": "burst", "old": 50, "new": 25}],
        "for": "everyone without an override",
        "live_buckets": "a client that has used 40 of 50 will have used 20 of 25 (share)",
        "overrides": {"added": 1, "removed": 0, "changed": 0, "shown": [{
            "id": "x", "change": "added", "for": "the id",
            "fields": [
                {"field": "burst", "old": null, "new": 9},
                {"field": "count", "old": null, "new": 1},
                {"field": "period_ns", "old": null, "new": 1_000_000_000},
            ],
            "live_buckets": "a client that has used 40 of 50 will have used 8 of 9 (share)",
        }]},
    }]});
    assert_eq!(found, expected);
    let none = diff(&dir, "old.yml old.yml --json");
    assert_eq!(none, "{\"limits\":[]}\n");
}

/// Times are whole nanoseconds, in fields whose names end in `_ns`.
#[test]
fn json_values_keep_their_types() {
    let dir = sandbox();
    dir.put("off.yml", "Raised: {enabled: false, id: string}\n");
    let fields = |line: &str, limit: &str| {
        let text = diff(&dir, line);
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let limits = found["limits"].as_array().unwrap();
        let change = limits.iter().find(|change| change["limit"] == limit).unwrap();
        change["fields"].clone()
    };
    let line = "old.yml new.yml --json";
    assert_eq!(
        fields(line, "Raised"),
        serde_json::json!([
            {"field": "burst", "old": 50, "new": 5_000},
            {"field": "count", "old": 1, "new": 100},
        ])
    );
    let minute = 60_000_000_000_u64;
    assert_eq!(
        fields(line, "Gone"),
        serde_json::json!([
            {"field": "id", "old": "string", "new": null},
            {"field": "algorithm", "old": "fixed_window", "new": null},
            {"field": "limit", "old": 10, "new": null},
            {"field": "window_ns", "old": minute, "new": null},
            {"field": "mode", "old": "enforce", "new": null},
            {"field": "max_debt", "old": 0, "new": null},
        ])
    );
    let shadow = serde_json::json!(
        {"algorithm": "gcra", "burst": 4, "count": 1, "period_ns": 1_000_000_000}
    );
    assert_eq!(
        fields(line, "Tried"),
        serde_json::json!([
            {"field": "mode", "old": "shadow", "new": "enforce"},
            {"field": "max_debt", "old": 2, "new": 0},
            {"field": "shadow", "old": null, "new": shadow},
        ])
    );
    let off = fields("old.yml off.yml --json", "Raised");
    let enabled = serde_json::json!({"field": "enabled", "old": null, "new": false});
    assert!(off.as_array().unwrap().contains(&enabled), "{off}");
}

#[test]
fn floors_are_compared() {
    let dir = Sandbox::new();
    let own = |burst: u64, floors: &str| {
        format!("Own: {{burst: {burst}, count: 1, period: 1s, id: string{floors}}}\n")
    };
    dir.put("none.yml", own(5, ""));
    dir.put("old.yml", own(5, ", floors: {batch: 50%, reports: 2}"));
    dir.put("new.yml", own(5, ", floors: {batch: 30%, reports: 2}"));
    dir.put("large.yml", own(6, ", floors: {batch: 30%}"));
    let changed = "\
Own: changed
  floors batch 50%, reports 2 -> batch 30%, reports 2
  for everyone
";
    assert_eq!(diff(&dir, "old.yml new.yml"), changed);
    assert!(diff(&dir, "none.yml old.yml").contains("  floors none -> batch 50%, reports 2\n"));
    let large = diff(&dir, "new.yml large.yml");
    let part = "\
  floors batch 30%, reports 2 -> batch 30%
  for everyone without an override; mode, max_debt, floors and the words of sharing for everyone
";
    assert!(large.contains(part), "{large}");
    assert_eq!(diff(&dir, "old.yml old.yml"), "no differences\n");
}

/// If the override of an address is removed, that of the smallest network around it applies, with other buckets.
#[test]
fn a_networks_override_stands_for_its_addresses() {
    let dir = Sandbox::new();
    let entry = |id: &str, burst| format!("A{id}: {{burst: {burst}, count: 1, period: 1s}}\n");
    let default = "A: {burst: 5, count: 1, period: 1s, id: ipAddress}\n".to_owned();
    let lifted = |id: &str| format!("A{id}: {{unlimited: true}}\n");
    let old =
        [default.clone(), entry(":10.0.0.0/8", 50), entry(":10.1.2.3", 10), lifted(":12.0.0.0/8")];
    dir.put("old.yml", old.concat());
    let new =
        [default, entry(":10.0.0.0/8", 100), entry(":11.0.0.0/8", 20), entry(":12.0.0.0/8", 9)];
    dir.put("new.yml", new.concat());
    let expected = "\
A: changed
  overrides: 1 added, 1 removed, 2 changed
    ~ 10.0.0.0/8: burst 50 -> 100
      for the network's addresses without an override of a smaller one
      live buckets: a client that has used 40 of 50 will have used 80 of 100 (share)
    - 10.1.2.3: burst 10, count 1, period 1s
      live buckets: an address has another bucket: it starts full, or as it was when it last had it
    + 11.0.0.0/8: burst 20, count 1, period 1s
      for the network's addresses without an override of a smaller one
      live buckets: an address has another bucket: it starts full, or as it was when it last had it
    ~ 12.0.0.0/8: numbers no limit -> none, burst none -> 9, count none -> 1, period none -> 1s
      for the network's addresses without an override of a smaller one
      live buckets: there are none yet: each starts full
";
    assert_eq!(diff(&dir, "old.yml new.yml"), expected);
}
