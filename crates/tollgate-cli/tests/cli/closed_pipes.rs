//! Tests outputs whose reader has closed them, as `head` does: results that were found must still set the exit status.

use std::io::{Read, pipe};
use std::process::{Output, Stdio};

use crate::support::{Sandbox, log_line, spend};

/// A trace of which each second line has an error. Its decisions do not fit into the buffers of the command.
fn bad_trace() -> String {
    (0..3_000).map(|i| spend(i, r#"{"limit":"A","id":"x"}"#) + "oops\n").collect()
}

fn sandbox() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("faults.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\n");
    dir.put("other.yml", "A: {burst: 6, count: 1, period: 1s, id: string}\n");
    dir.put("bad.jsonl", bad_trace());
    dir.put("good.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#).repeat(3_000));
    let line = log_line("1.1.1.1", "10:00:00", "GET / HTTP/1.1", " 200 1");
    dir.put("bad.log", format!("{line}garbage\ngarbage\n"));
    dir
}

/// Returns a pipe that no process reads.
fn closed() -> Stdio {
    pipe().unwrap().1.into()
}

/// Runs the command twice: with a closed standard output and a closed standard error.
#[track_caller]
fn run_closed(dir: &Sandbox, line: &str) -> [Output; 2] {
    let stdout = dir.command(line).stdout(closed()).output().unwrap();
    let stderr = dir.command(line).stderr(closed()).output().unwrap();
    [stdout, stderr]
}

#[test]
fn a_closed_output_keeps_the_status() {
    let dir = sandbox();
    for (line, status) in [
        ("validate limits.yml", 0),
        ("validate faults.yml", 1),
        ("validate faults.yml --json", 1),
        ("validate missing.yml", 2),
        ("diff limits.yml other.yml", 0),
        ("diff limits.yml other.yml --exit-code", 1),
        ("diff limits.yml faults.yml --exit-code", 2),
        ("replay --limits limits.yml --trace good.jsonl", 0),
        ("replay --limits limits.yml --trace bad.jsonl", 1),
        ("replay --limits limits.yml --trace bad.jsonl --decisions -", 1),
        ("replay --limits limits.yml --trace bad.jsonl --report -", 1),
        ("replay --limits limits.yml --log bad.log --rule A=client", 1),
        ("explain --limits limits.yml A x", 0),
        ("explain --limits limits.yml A x --trace bad.jsonl", 1),
        ("explain --limits limits.yml A x --log bad.log --rule A=client", 1),
        ("man", 0),
        ("completions bash", 0),
    ] {
        for output in run_closed(&dir, line) {
            assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
        }
    }
}

#[test]
fn closed_decisions_leave_the_other_files() {
    let dir = sandbox();
    let line = "replay --limits limits.yml --trace bad.jsonl";
    dir.run(&format!("{line} --decisions d.jsonl --report whole.html"));
    for (taken, left, file, whole) in [
        ("--decisions -", "--report", "r.html", "whole.html"),
        ("--report -", "--decisions", "e.jsonl", "d.jsonl"),
    ] {
        let [output, _] = run_closed(&dir, &format!("{line} {taken} {left} {file}"));
        assert_eq!(output.status.code(), Some(1), "{taken}: {output:?}");
        assert!(dir.names().contains(&file.to_owned()), "{taken}: {:?}", dir.names());
        assert_eq!(dir.get(file), dir.get(whole), "{taken}");
    }
}

/// The reader closes the pipe after 10 bytes. The rest of the run is that of a run whose output is read.
#[test]
fn a_run_goes_on_without_reader() {
    let dir = Sandbox::new();
    let trace: String = (0..50_000).map(|i| spend(i, r#"{"limit":"A","id":"x"}"#)).collect();
    dir.put("t.jsonl", trace);
    let line = "replay --limits limits.yml --trace t.jsonl --decisions -";
    let mut child = dir.command(line).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    let whole = dir.run(line);
    let messages = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), messages), (Some(0), whole.stderr));
}
