//! Tests files that the command cannot read or write, and the places to which it writes results.

use std::fs;

use crate::support::{Ran, Sandbox, spend};

#[test]
fn decisions_on_stdout_move_the_summary_to_stderr() {
    let dir = Sandbox::new();
    let trace = spend(1, r#"{"limit":"A","id":"x"}"#);
    let ran = dir.run_with("replay --limits limits.yml --trace - --decisions -", &trace);
    let decision =
        "{\"allowed\":true,\"remaining\":4,\"retry_in_ns\":0,\"reset_in_ns\":1000000000}\n";
    let table = "\
1 line: 1 parsed, 0 errors
1 allowed, 0 denied

| limit | allowed | denied | keys | keys denied |
|-------|---------|--------|------|-------------|
| A     |       1 |      0 |    1 |           0 |
";
    assert_eq!(ran, Ran { status: Some(0), stdout: decision.into(), stderr: table.into() });
}

#[test]
fn missing_traffic_is_reported() {
    let dir = Sandbox::new();
    fs::create_dir(dir.path("folder")).unwrap();
    for name in ["missing", "folder"] {
        for traffic in ["--trace", "--rule A=client --log"] {
            let ran = dir
                .run(&format!("replay --limits limits.yml {traffic} {name} --decisions d.jsonl"));
            assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
            assert!(ran.stderr.starts_with(&format!("{name}: cannot be read: ")), "{ran:?}");
        }
    }
    assert_eq!(dir.names(), ["folder", "limits.yml"], "a failed run writes no file");
}

#[test]
fn unwritable_decisions_are_reported_first() {
    let dir = Sandbox::new();
    fs::create_dir(dir.path("folder")).unwrap();
    for name in ["folder", "no/such/folder/d.jsonl", "limits.yml/d.jsonl"] {
        let ran = dir.run(&format!("replay --limits limits.yml --trace - --decisions {name}"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{name}: cannot be written: ")), "{ran:?}");
        assert!(!ran.stderr.contains(".tmp"), "the message names the temporary file: {ran:?}");
    }
}

#[test]
fn failed_runs_keep_the_old_decisions() {
    let dir = Sandbox::new();
    dir.put("d.jsonl", "from before\n");
    dir.put("cut.gz", [0x1f, 0x8b, 8, 0]);
    assert_eq!(
        dir.run("replay --limits limits.yml --trace cut.gz --decisions d.jsonl").status,
        Some(2)
    );
    assert_eq!(dir.get("d.jsonl"), "from before\n");
    // A line with an error does not stop the run.
    dir.put("t.jsonl", "oops\n");
    assert_eq!(
        dir.run("replay --limits limits.yml --trace t.jsonl --decisions d.jsonl").status,
        Some(1)
    );
    assert_eq!(dir.get("d.jsonl"), "{\"error\":\"expected value at column 1\"}\n");
    assert_eq!(dir.names(), ["cut.gz", "d.jsonl", "limits.yml", "t.jsonl"]);
}

#[cfg(unix)]
#[test]
fn devices_and_links_are_not_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let dir = Sandbox::new();
    let trace = spend(1, r#"{"limit":"A","id":"x"}"#);
    let ran = dir.run_with("replay --limits limits.yml --trace - --decisions /dev/null", &trace);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());

    dir.put("target.jsonl", "");
    symlink(dir.path("target.jsonl"), dir.path("link.jsonl")).unwrap();
    dir.run_with("replay --limits limits.yml --trace - --decisions link.jsonl", &trace);
    assert!(fs::symlink_metadata(dir.path("link.jsonl")).unwrap().is_symlink());
    assert!(dir.get("target.jsonl").starts_with("{\"allowed\":true"));
}

#[cfg(unix)]
#[test]
fn limits_may_come_from_standard_input() {
    let dir = Sandbox::new();
    let ran =
        dir.run_with("validate --limits -", "A: {burst: 1, count: 1, period: 1s, id: string}");
    assert_eq!((ran.status, &*ran.stdout), (Some(0), "ok: 1 limit, 0 overrides\n"), "{ran:?}");
    for twice in ["validate --limits - --overrides -", "replay --limits - --trace -"] {
        let ran = dir.run_with(twice, "");
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("given for two files: one is allowed"), "{}", ran.stderr);
    }
}

#[test]
fn more_keys_than_a_table_has() {
    let dir = Sandbox::new();
    dir.put("big.yml", "A: {burst: 1, count: 1, period: 1s, id: string, max_keys: 5000000000}");
    dir.put("calls.jsonl", "");
    for call in [
        "replay --limits big.yml --trace calls.jsonl",
        "explain --limits big.yml A a --trace calls.jsonl",
    ] {
        let ran = dir.run(call);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("at most 4000000000"), "{ran:?}");
    }
}

/// Neither of the two files exists before. `-` is standard output, and `./-` a file.
#[test]
fn one_new_file_has_one_result() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    fs::create_dir(dir.path("sub")).unwrap();
    let replay = "replay --limits limits.yml --trace t.jsonl";
    let whole = dir.path("x").display().to_string();
    for (decisions, report) in
        [("./x", "x"), ("x", "sub/../x"), ("sub/y", "./sub/y"), ("x", &whole)]
    {
        let ran = dir.run(&format!("{replay} --decisions {decisions} --report {report}"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{decisions}: {ran:?}");
        let text = format!("--decisions and --report are both {report}: one of them is allowed");
        assert!(ran.stderr.contains(&text), "{ran:?}");
    }
    assert_eq!(dir.names(), ["limits.yml", "sub", "t.jsonl"]);
    for _ in ["the file ./- is new", "it exists"] {
        for outputs in ["--decisions - --report ./-", "--decisions x --report sub/x"] {
            let ran = dir.run(&format!("{replay} {outputs}"));
            assert_eq!(ran.status, Some(0), "{outputs}: {ran:?}");
        }
    }
    assert!(dir.get("-").starts_with("<!DOCTYPE html>"), "{}", dir.get("-"));
    let ran = dir.run_with("replay --limits limits.yml --trace - --report ./-", "");
    assert_eq!(ran.status, Some(0), "{ran:?}");
}
