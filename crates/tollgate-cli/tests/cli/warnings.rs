//! Tests the warnings of `validate`.

use crate::support::{Ran, Sandbox};

const OVERRIDES: &str = "\
- A:
    burst: 9
    count: 1
    period: 1s
    ids:
    - {id: gone, expires: 2026-10-31}
    - {id: ends, expires: 2026-11-14}
    - {id: stays, expires: 2026-11-15}
- A: {burst: 5, count: 2, period: 2s, ids: [rate]}
- A: {burst: 5, count: 1, period: 1s, ids: [same, {id: \"a\\e[2J\", expires: 2026-11-01}]}
- A:less: {burst: 4, count: 1, period: 2s, owner: me}
";

#[test]
fn warnings_have_places_and_status_zero() {
    let dir = Sandbox::new();
    dir.put("o.yml", OVERRIDES);
    let line = "validate --limits limits.yml --overrides o.yml --today 2026-11-01";
    let stderr = "\
warning: o.yml:6: [0].A.ids: the override of gone expired on 2026-10-31: the default, burst 5, count 1, period 1s, applies
warning: o.yml:7: [0].A.ids: the override of ends expires on 2026-11-14: then the default, burst 5, count 1, period 1s, applies
warning: o.yml:10: [2].A.ids: the override of a\\u{1b}[2J expires on 2026-11-01: then the default, burst 5, count 1, period 1s, applies
warning: o.yml:10: [2].A.ids: the override of a\\u{1b}[2J equals the default: burst 5, count 1, period 1s
warning: o.yml:10: [2].A.ids: the override of a\\u{1b}[2J has U+001B in its id, which is not seen, or looks like a blank: \"a\\u{1b}[2J\"
warning: o.yml:10: [2].A.ids: the override of same equals the default: burst 5, count 1, period 1s
warning: o.yml:11: [3].A:less: the override of less is stricter than the default: burst 4 is below 5; rate 1 every 2s is below 1 every 1s
";
    let stdout = "ok: 5 limits, 7 overrides\n";
    assert_eq!(
        dir.run(line),
        Ran { status: Some(0), stdout: stdout.into(), stderr: stderr.into() }
    );
    // An override applies through the end of its last day.
    let ran = dir.run(&line.replace("11-01", "11-15"));
    assert!(ran.stderr.contains("override of ends expired on 2026-11-14"), "{}", ran.stderr);
    assert!(ran.stderr.contains("override of stays expires on 2026-11-15"), "{}", ran.stderr);
}

#[test]
fn warnings_are_a_list_in_json() {
    let dir = Sandbox::new();
    dir.put("o.yml", "A:x: {burst: 4, count: 1, period: 1s}\nNewOrdersPerAccount:1: {burst: 20, count: 20, period: 1s}\n");
    let ran = dir.run("validate --limits limits.yml --overrides o.yml --json");
    let stdout = r#"{"valid":true,"limits":5,"overrides":2,"warnings":[{"kind":"stricter","file":"o.yml","line":1,"path":"A:x","limit":"A","id":"x","message":"the override of x is stricter than the default: burst 4 is below 5"},{"kind":"equal","file":"o.yml","line":2,"path":"NewOrdersPerAccount:1","limit":"NewOrdersPerAccount","id":"1","message":"the override of 1 equals the default: burst 20, count 20, period 1s"}]}"#;
    assert_eq!(ran, Ran { status: Some(0), stdout: format!("{stdout}\n"), stderr: "".into() });
}

#[test]
fn the_first_thousand_warnings_are_printed() {
    let dir = Sandbox::new();
    let line = |at: u32| format!("A:id{at}: {{burst: 5, count: 1, period: 1s}}\n");
    dir.put("o.yml", (0..3_500).map(line).collect::<String>());
    let ran = dir.run("validate --limits limits.yml --overrides o.yml");
    assert_eq!(ran.status, Some(0));
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!((lines.len(), lines[1_000]), (1_001, "warning: and 2,500 more"));
    assert!(lines[999].starts_with("warning: o.yml:1000: "), "{}", lines[999]);
    let ran = dir.run("validate --limits limits.yml --overrides o.yml --json");
    assert!(ran.stdout.ends_with("}],\"more_warnings\":2500}\n"), "{}", ran.stdout.len());
}

#[test]
fn lookalike_ids_are_escaped_in_warnings() {
    let dir = Sandbox::new();
    dir.put("o.yml", "- A: {burst: 9, count: 1, period: 1s, ids: [\"alice\\u200B\"]}\n");
    let ran = dir.run("validate --limits limits.yml --overrides o.yml");
    let wanted = "warning: o.yml:1: [0].A.ids: the override of alice\\u{200b} has U+200B in its id, which is not seen, or looks like a blank: \"alice\\u{200b}\"\n";
    assert_eq!((ran.status, &*ran.stderr), (Some(0), wanted));
}

#[test]
fn invalid_days_are_wrong_arguments() {
    let dir = Sandbox::new();
    let ran = dir.run("validate --limits limits.yml --today 2026-02-29");
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--today"), "{ran:?}");
}

#[test]
fn floors_above_an_overrides_burst_are_warned_of() {
    let dir = Sandbox::new();
    dir.put(
        "f.yml",
        "F: {burst: 10, count: 1, period: 1s, id: string, floors: {batch: 5, half: 50%}}\n\
         F:x: {burst: 5, count: 1, period: 1s}\n",
    );
    let ran = dir.run("validate f.yml --today 2026-11-01");
    let warning = "warning: f.yml:2: F:x: the override of x has no units for calls with these priorities, because their floors are not below its burst 5: batch: 5\n";
    assert!(ran.status == Some(0) && ran.stderr.ends_with(warning), "{ran:?}");
    let listed = dir.run("validate f.yml --today 2026-11-01 --json").json();
    assert_eq!(listed["warnings"][1]["kind"], "floor");
    dir.put("bad.yml", "F: {burst: 10, count: 1, period: 1s, id: string, floors: {batch: 11}}\n");
    let ran = dir.run("validate bad.yml");
    let fault = "bad.yml:1: F.floors.batch: invalid floor 11: at most 10, the burst, is allowed\n";
    assert_eq!((ran.status, &*ran.stderr), (Some(1), fault));
}

#[test]
fn more_keys_than_by_default_are_a_warning() {
    let dir = Sandbox::new();
    dir.put("many.yml", "A: {burst: 1, count: 1, period: 1s, id: string, max_keys: 16777216}\nB: {burst: 1, count: 1, period: 1s, id: string, max_keys: 1}\n");
    let text = "a limiter with default options refuses these limits, and Limiter::new panics: many.yml: max_keys of the limits (A 16777216, B 1) are 16777217 in all, shadows included: at most 16777216, the limiter's max_keys, is allowed";
    let stdout = "ok: 2 limits, 0 overrides\n";
    assert_eq!(
        dir.run("validate --limits many.yml"),
        Ran { status: Some(0), stdout: stdout.into(), stderr: format!("warning: {text}\n") }
    );
    let stdout = format!(
        r#"{{"valid":true,"limits":2,"overrides":0,"warnings":[{{"kind":"max-keys","file":null,"line":null,"path":"","message":"{text}"}}]}}"#
    );
    assert_eq!(
        dir.run("validate --limits many.yml --json"),
        Ran { status: Some(0), stdout: stdout + "\n", stderr: "".into() }
    );
    dir.put("most.yml", "A: {burst: 1, count: 1, period: 1s, id: string, max_keys: 16777216}\n");
    assert_eq!(dir.run("validate --limits most.yml").stderr, "");
}
