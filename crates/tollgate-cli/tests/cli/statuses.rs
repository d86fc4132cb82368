//! Tests the exit statuses of every subcommand: 0 nothing found, 1 something found, 2 not done.

use std::fs;

use crate::support::{Sandbox, log_line, spend};

/// Limits, traffic and files with each kind of fault.
fn sandbox() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("faults.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\n");
    dir.put("other.yml", "A: {burst: 6, count: 1, period: 1s, id: string}\n");
    dir.put("overrides.yml", "A:x: {burst: 9, count: 9, period: 1s, expires: 2020-01-01}\n");
    dir.put("good.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    dir.put("bad.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#) + "oops\n");
    dir.put("above.jsonl", spend(1, r#"{"limit":"A","id":"x","cost":6}"#));
    let line = log_line("1.1.1.1", "10:00:00", "GET / HTTP/1.1", " 200 1");
    dir.put("half.log", format!("{line}garbage\n"));
    dir.put("bad.log", format!("{line}garbage\ngarbage\n"));
    dir.put("cut.gz", [0x1f, 0x8b, 8, 0]);
    fs::create_dir(dir.path("folder")).unwrap();
    dir
}

const STATUSES: [(&str, i32); 57] = [
    ("validate --limits limits.yml", 0),
    // Warnings do not change the status.
    ("validate --limits limits.yml --overrides overrides.yml", 0),
    ("validate --limits faults.yml", 1),
    ("validate --limits faults.yml --json", 1),
    ("validate --limits limits.yml --overrides faults.yml", 1),
    ("validate limits.yml", 0),
    ("validate faults.yml --json", 1),
    ("validate missing.yml", 2),
    ("validate limits.yml --limits limits.yml", 2),
    ("validate limits.yml overrides.yml", 2),
    ("validate --limits missing.yml", 2),
    ("validate --limits folder", 2),
    ("validate --limits faults.yml --overrides missing.yml", 2),
    ("validate --limits limits.yml --overrides folder", 2),
    ("validate --limits limits.yml --limit", 2),
    ("validate", 2),
    ("replay --limits limits.yml --trace good.jsonl", 0),
    ("replay --limits limits.yml --log half.log --rule A=client", 0),
    ("replay --limits limits.yml --log bad.log --rule A=client", 1),
    ("replay --limits limits.yml --log half.log --rule NewOrdersPerAccount=client", 1),
    ("replay --limits limits.yml --trace bad.jsonl", 1),
    ("replay --limits other.yml --trace above.jsonl", 0),
    ("replay --limits limits.yml --trace above.jsonl", 1),
    ("replay --limits other.yml --against limits.yml --trace above.jsonl", 1),
    ("replay --limits faults.yml --trace good.jsonl", 2),
    ("replay --limits missing.yml --trace good.jsonl", 2),
    ("replay --limits limits.yml --trace good.jsonl --against faults.yml", 2),
    ("replay --limits limits.yml --trace missing.jsonl", 2),
    ("replay --limits limits.yml --trace folder", 2),
    ("replay --limits limits.yml --trace cut.gz", 2),
    ("replay --limits limits.yml --trace good.jsonl --decisions folder", 2),
    ("replay --limits limits.yml --trace good.jsonl --report no/such/folder.html", 2),
    ("replay --limits limits.yml --log bad.log --rule X=client", 2),
    ("replay --limits limits.yml", 2),
    ("replay --limits limits.yml --trace good.jsonl --today yesterday", 2),
    ("explain --limits limits.yml A x", 0),
    ("explain --limits limits.yml A x --trace good.jsonl", 0),
    ("explain --limits limits.yml A x --trace bad.jsonl", 1),
    ("explain --limits limits.yml A x --log bad.log --rule A=client", 1),
    ("explain --limits limits.yml X x", 2),
    ("explain --limits limits.yml PerClient x", 2),
    ("explain --limits faults.yml A x", 2),
    ("explain --limits limits.yml A x --trace missing.jsonl", 2),
    ("explain --limits limits.yml A", 2),
    ("diff limits.yml other.yml", 0),
    ("diff limits.yml limits.yml --exit-code", 0),
    ("diff limits.yml other.yml --exit-code", 1),
    ("diff limits.yml faults.yml --exit-code", 2),
    ("diff missing.yml limits.yml --exit-code", 2),
    ("diff limits.yml limits.yml --old-overrides folder --exit-code", 2),
    ("diff limits.yml --exit-code", 2),
    ("completions bash", 0),
    ("completions", 2),
    ("completions sh", 2),
    ("man", 0),
    ("man replay", 0),
    ("man fly", 2),
];

#[test]
fn statuses_are_as_documented() {
    let dir = sandbox();
    for (line, status) in STATUSES {
        let ran = dir.run(line);
        assert_eq!(ran.status, Some(status), "{line}: {ran:?}");
        // With status 2, there is no result, and the reason is on standard error.
        assert!(
            status != 2 || (ran.stdout.is_empty() && !ran.stderr.is_empty()),
            "{line}: {ran:?}"
        );
    }
}

#[test]
fn missing_and_faulty_files_are_reported_together() {
    let ran = sandbox().run("validate --limits faults.yml --overrides missing.yml");
    let messages: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(messages.len(), 2, "{ran:?}");
    assert!(messages[0].starts_with("faults.yml:1: A.burst: "), "{ran:?}");
    assert!(messages[1].starts_with("missing.yml: cannot be read: "), "{ran:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_standard_output_is_status_two() {
    for line in ["validate --limits limits.yml", "diff limits.yml other.yml"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = sandbox().command(line).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(messages.starts_with("standard output: cannot be written: "), "{line}: {messages}");
    }
}

#[test]
fn statuses_are_in_every_help() {
    let dir = Sandbox::new();
    for subcommand in ["", "validate", "replay", "explain", "diff", "completions", "man"] {
        for help in ["--help", "-h"] {
            let ran = dir.run(&format!("{subcommand} {help}"));
            assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{subcommand}");
            let statuses = ran.stdout.split_once("Exit status:\n").map(|(_, rest)| rest);
            let statuses =
                statuses.unwrap_or_else(|| panic!("{subcommand} {help}: {}", ran.stdout));
            for (status, line) in (0..).zip(statuses.lines()) {
                assert!(line.starts_with(&format!("  {status}  ")), "{subcommand}: {line:?}");
            }
            assert_eq!(statuses.lines().count(), 3, "{subcommand}: {statuses}");
        }
    }
}
