//! Tests the command end to end: its results byte for byte, its messages and its exit statuses.

mod about;
mod against;
mod closed_pipes;
mod diff;
mod explain;
mod files;
mod guide;
mod hostile;
mod json_logs;
mod late;
mod logs;
mod messages;
#[cfg(feature = "valkey")]
mod nodes;
mod odd_input;
mod oracle;
mod report;
mod report_parts;
mod reserved;
mod rules;
mod statuses;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod warnings;

use std::fs;

use support::{LIMITS, Ran, Sandbox, spend};

#[test]
fn validate_counts_limits_and_overrides() {
    let dir = Sandbox::new();
    dir.put("overrides.yml", "- A: {burst: 9, count: 9, period: 1s, ids: [x, y]}\n");
    let ran = dir.run("validate --limits limits.yml --overrides overrides.yml");
    assert_eq!(
        ran,
        Ran { status: Some(0), stdout: "ok: 5 limits, 2 overrides\n".into(), stderr: "".into() }
    );
    let ran = dir.run("validate --limits limits.yml --json");
    assert_eq!(ran.stdout, "{\"valid\":true,\"limits\":5,\"overrides\":0,\"warnings\":[]}\n");
}

#[test]
fn bad_limits_are_named_with_every_fault() {
    let dir = Sandbox::new();
    dir.put("empty.yml", "");
    dir.put("binary.yml", [0, 159, 146, 150, 255]);
    dir.put("faults.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\nB: {bursts: 1}\n");
    fs::create_dir(dir.path("folder.yml")).unwrap();
    for (name, status) in [
        ("missing.yml", 2),
        ("empty.yml", 1),
        ("binary.yml", 1),
        ("faults.yml", 1),
        ("folder.yml", 2),
    ] {
        for (command, status) in [("validate", status), ("replay --trace - --decisions d.jsonl", 2)]
        {
            let ran = dir.run(&format!("{command} --limits {name}"));
            assert_eq!((ran.status, &*ran.stdout), (Some(status), ""), "{name}: {ran:?}");
            assert!(ran.stderr.contains(name), "{ran:?}");
        }
        let ran = dir.run(&format!("validate --limits limits.yml --overrides {name}"));
        assert_eq!((ran.status, ran.stderr.contains(name)), (Some(status), true), "{ran:?}");
    }
    let ran = dir.run("validate --limits faults.yml");
    assert!(
        ran.stderr.contains("faults.yml:1: ") && ran.stderr.contains("faults.yml:2: "),
        "{ran:?}"
    );
    assert!(
        !dir.names().contains(&"d.jsonl".to_owned()),
        "a failed run writes no file: {:?}",
        dir.names()
    );
}

/// With `--json`, standard error still has the faults as text.
#[test]
fn validate_prints_faults_as_one_json_object() {
    let dir = Sandbox::new();
    dir.put("faults.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\nB: {bursts: 1}\n");
    dir.put("o.yml", "- A: {burst: 1, count: 1, period: 1s, ids: [\"a\\e\"]}\n- C: {burst: 1}\n");
    let plain = dir.run("validate --limits faults.yml --overrides o.yml");
    let ran = dir.run("validate --limits faults.yml --overrides o.yml --json");
    assert_eq!((ran.status, &ran.stderr), (Some(1), &plain.stderr));
    assert!(plain.stdout.is_empty() && !ran.stdout.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.stdout.matches('\n').count(), 1, "{ran:?}");
    let found = ran.json();
    assert_eq!(found["valid"], false);
    let faults = found["faults"].as_array().unwrap();
    assert_eq!(faults.len(), plain.stderr.lines().count());
    for (fault, line) in faults.iter().zip(plain.stderr.lines()) {
        let text = |name: &str| fault[name].as_str().unwrap();
        let place = format!("{}:{}: {}: ", text("file"), fault["line"], text("path"));
        assert!(line.starts_with(&place), "{fault} {line}");
        assert!(line.ends_with(text("message")), "{fault} {line}");
    }
    assert_eq!((&faults[0]["file"], &faults[0]["line"]), (&"faults.yml".into(), &1.into()));
    assert!(faults.iter().any(|fault| fault["file"] == "o.yml" && fault["path"] == "[1].C"));
    // A fault of the whole file has neither a line nor a path.
    dir.put("empty.yml", "");
    let ran = dir.run("validate --limits empty.yml --json");
    let found = ran.json();
    assert_eq!((ran.status, &found["faults"][0]["file"]), (Some(1), &"empty.yml".into()));
    // A file that cannot be read gives no result.
    let ran = dir.run("validate --limits missing.yml --json");
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""));
}

#[test]
fn wrong_arguments_exit_with_two() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    dir.put("o.yml", LIMITS);
    let replay = "replay --limits limits.yml";
    for (line, part) in [
        ("".to_owned(), "Usage"),
        ("repaly".into(), "replay"),
        ("validate".into(), "--limits"),
        (replay.into(), "--trace"),
        (format!("{replay} --trace t.jsonl --log t.jsonl --rule A=client"), "--log"),
        (format!("{replay} --trace t.jsonl --rule A=client"), "--rule"),
        (format!("{replay} --trace t.jsonl --reorder 1s"), "--reorder"),
        (format!("{replay} --log t.jsonl"), "--rule"),
        (format!("{replay} --log t.jsonl --rule A"), "LIMIT=FIELD"),
        (format!("{replay} --log t.jsonl --rule A=ip"), "one of client, user, method, path"),
        (format!("{replay} --log t.jsonl --rule A=client --reorder 60"), "90s, 1m30s"),
        (
            format!("{replay} --log t.jsonl --rule A=client --rule A=path"),
            "two rules charge A: a limit may have one rule, because one line must not charge a bucket twice",
        ),
        (format!("{replay} --log t.jsonl --rule A=client --ipv6-prefix 0"), "1..=128"),
        (format!("{replay} --log t.jsonl --rule A=client --ipv6-prefix 129"), "1..=128"),
        (format!("{replay} --trace t.jsonl --ipv6-prefix 64"), "--ipv6-prefix"),
        (format!("{replay} --trace t.jsonl --decisions ./t.jsonl"), "would replace an input file"),
        (format!("{replay} --trace t.jsonl --decisions limits.yml"), "would replace an input file"),
        (
            format!("{replay} --trace t.jsonl --against o.yml --decisions o.yml"),
            "would replace an input file",
        ),
        (format!("{replay} --trace t.jsonl --against-overrides o.yml"), "--against <FILE>"),
        (format!("{replay} --trace - --against -"), "given for two files"),
        (
            format!("{replay} --trace t.jsonl --report o.yml --against o.yml"),
            "would replace an input",
        ),
        (
            format!("{replay} --trace t.jsonl --report - --decisions -"),
            "--decisions and --report are both standard output: one of them is allowed",
        ),
        (format!("{replay} --trace t.jsonl --report r --decisions r"), "one of them is allowed"),
        (
            format!("{replay} --trace t.jsonl --against - --against-overrides -"),
            "given for two files",
        ),
    ] {
        let ran = dir.run(&line);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{line}: {ran:?}");
        assert!(ran.stderr.contains(part), "{line}: {}", ran.stderr);
    }
    assert_eq!(dir.get("limits.yml"), LIMITS);
}
