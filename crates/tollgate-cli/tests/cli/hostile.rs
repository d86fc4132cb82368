//! Tests that all output escapes text that comes from file contents, file names and standard input.

use serde_json::{Value, json};

use crate::support::{Ran, Sandbox};

/// Control characters of terminals (escape, bell, delete, and U+009B, the C1 form of escape and bracket), an
/// override of the text direction, and invisible characters.
const HOSTILE: &str = "\u{1b}[2J\u{7}\u{9b}31m\u{7f}\u{202e}\u{200b}\u{e0041}";

/// Asserts that `text`, an output, contains no hostile character. `line` is the command line or the output's name.
#[track_caller]
fn is_tame(line: &str, text: &str) {
    let wild: Vec<char> = text
        .chars()
        .filter(|c| (c.is_control() && *c != '\n') || HOSTILE[3..].contains(*c) && !c.is_ascii())
        .collect();
    assert!(wild.is_empty(), "{line}: {wild:?} in {text:?}");
}

/// Runs the command, and asserts that its output contains no hostile character.
#[track_caller]
fn run(dir: &Sandbox, line: &str, stdin: &str) -> Ran {
    let ran = dir.run_with(line, stdin);
    is_tame(line, &ran.stdout);
    is_tame(line, &ran.stderr);
    ran
}

fn hostile_name(stem: &str) -> String {
    format!("{stem}{HOSTILE}.yml")
}

#[test]
fn messages_about_traces_are_escaped() {
    let dir = Sandbox::new();
    let lines = [
        json!({"at_ns": 1, "op": HOSTILE, "txns": []}),
        json!({"at_ns": 1, "op": "spend", "txns": [], HOSTILE: 1}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": HOSTILE, "id": "x"}]}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": "x", "mode": HOSTILE}]}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": "x", "cost": HOSTILE}]}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": "x", "factor": HOSTILE}]}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": "x", HOSTILE: 1}]}),
        json!({"at_ns": HOSTILE, "op": "spend", "txns": []}),
        json!(HOSTILE),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "PerClient", "id": HOSTILE}]}),
        json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": HOSTILE, "cost": 9}]}),
    ];
    let trace: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let ran = run(&dir, "replay --limits limits.yml --trace - --decisions d.jsonl", &trace);
    assert_eq!((ran.status, dir.get("d.jsonl").lines().count()), (Some(1), lines.len()), "{ran:?}");
    assert!(
        ran.stderr.contains("standard input:1: unknown variant `\\u{1b}[2J\\u{7}\\u{9b}31m"),
        "{ran:?}"
    );
    is_tame("decisions", &dir.get("d.jsonl"));
    let ran = run(&dir, "replay --limits limits.yml --trace - --decisions -", &trace);
    assert_eq!(ran.stdout, dir.get("d.jsonl"));
    // Each line has a run of its own, because a run prints only its first messages.
    for line in &lines {
        let ran = run(&dir, "replay --limits limits.yml --trace -", &format!("{line}\n"));
        assert_eq!((ran.status, ran.stderr.lines().count()), (Some(1), 1), "{ran:?}");
    }
}

/// A message quotes only a part of a long line.
#[test]
fn errors_of_traces_are_cut() {
    let dir = Sandbox::new();
    let line = json!({"at_ns": 1, "op": "x".repeat(500_000), "txns": []}).to_string();
    let ran = run(&dir, "replay --limits limits.yml --trace -", &line);
    assert!(ran.stderr.len() < 2_000, "{} bytes", ran.stderr.len());
}

#[test]
fn json_escapes_hostile_ids() {
    let dir = Sandbox::new();
    let id = format!("\"\\\u{e9}{HOSTILE}\u{1f600}");
    let line = json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "B", "id": id, "cost": 2}]});
    let trace = format!("{line}\n{line}\n");
    let ran = run(&dir, "replay --limits limits.yml --trace - --json --decisions d.jsonl", &trace);
    let summary = ran.json();
    assert_eq!(summary["top_denied"][0]["id"], id);
    let decisions = dir.get("d.jsonl");
    is_tame("decisions", &decisions);
    let denied: Value = serde_json::from_str(decisions.lines().nth(1).unwrap()).unwrap();
    assert_eq!(denied["denied_by"], format!("B:{id}"));
}

#[test]
fn file_names_and_contents_are_escaped() {
    let dir = Sandbox::new();
    let [old, new, overrides, bad] = ["old", "new", "overrides", "bad"].map(hostile_name);
    let id = HOSTILE.replace('\u{1b}', "\\e").replace('\u{7}', "\\a").replace('\u{9b}', "\\x9b");
    let id = id.replace('\u{7f}', "\\x7f");
    dir.put(&old, "A: {burst: 2, count: 1, period: 1s, id: string}\nGone: {burst: 1, count: 1, period: 1s, id: string}\n");
    dir.put(&new, "A: {burst: 1, count: 1, period: 1s, id: string}\n");
    dir.put(
        &overrides,
        format!("- A: {{burst: 1, count: 1, period: 1s, comment: \"{id}\", owner: \"{id}\", ids: [\"{id}\", y]}}\n"),
    );
    dir.put(&bad, format!("\"A{id}\": {{\"b{id}\": 1}}\nA: {{burst: \"{id}\"}}\n\"B:{id}\": 1\n"));
    let spend = |id: &str| json!({"at_ns": 1, "op": "spend", "txns": [{"limit": "A", "id": id}]});
    let trace = format!("{0}\n{0}\n{0}\n{1}\n", spend(HOSTILE), json!({"op": HOSTILE}));
    let in_force = format!("--limits {old} --overrides {overrides}");
    for (line, status) in [
        (format!("validate {in_force}"), 0),
        (format!("validate {in_force} --json"), 0),
        (format!("validate --limits {bad}"), 1),
        (format!("validate --limits {old} --overrides {bad}"), 1),
        (format!("validate --limits {}", hostile_name("missing")), 2),
        (format!("replay {in_force} --trace - --against {new}"), 1),
        (
            format!(
                "replay {in_force} --trace - --against {new} --against-overrides {overrides} --json"
            ),
            1,
        ),
        (format!("replay {in_force} --trace - --against {new} --report -"), 1),
        (format!("replay {in_force} --trace - --report {}", hostile_name("no/such")), 2),
        (format!("replay {in_force} --trace {}", hostile_name("missing")), 2),
        (format!("replay {in_force} --trace {old}"), 1),
        (format!("replay {in_force} --log {old} --rule A=client"), 1),
        (format!("replay {in_force} --log {old} --rule A{HOSTILE}=client"), 2),
        (format!("replay {in_force} --against {new} --log - --rule Gone=client"), 1),
        (format!("replay {in_force} --log - --rule A=.txns --field time=.at_ns"), 1),
        (format!("replay {in_force} --log - --rule A=client --field {HOSTILE}=.x"), 2),
        (format!("replay {in_force} --log - --rule A=client,path={HOSTILE}"), 2),
        (format!("replay {in_force} --log - --rule A=client,{HOSTILE}"), 2),
        (format!("replay {in_force} --trace {old} --decisions {old}"), 2),
        (format!("replay {in_force} --trace {old} --decisions d --report d"), 2),
        (format!("explain {in_force} A {HOSTILE}"), 0),
        (format!("explain {in_force} A z{HOSTILE} --trace -"), 1),
        (format!("explain {in_force} A {HOSTILE} --json"), 0),
        (format!("explain {in_force} A{HOSTILE} x"), 2),
        (format!("diff {old} {new} --old-overrides {overrides}"), 0),
        (format!("diff {old} {new} --old-overrides {overrides} --json"), 0),
        (format!("diff {old} {bad}"), 2),
        (format!("diff {old} {new} {bad}"), 2),
        (format!("diff {old} {new} --debt {HOSTILE}"), 2),
        (format!("replay {in_force} --log {old} --rule A={HOSTILE}"), 2),
    ] {
        let ran = run(&dir, &line, &trace);
        assert_eq!(ran.status, Some(status), "{line}: {ran:?}");
    }
}
