//! Tests input that is empty, compressed under any name, or begins with a byte-order mark.

use std::io::Write;

use crate::support::{LIMITS, Ran, Sandbox, gzip, log_line, spend};

const BOM: &str = "\u{feff}";

fn trace() -> String {
    spend(1, r#"{"limit":"A","id":"x"}"#)
}

/// The arguments for a trace and for a log, with an input of one line.
fn both() -> [(&'static str, String); 2] {
    [
        ("--trace", trace()),
        (
            "--rule PerClient=client --log",
            log_line("1.1.1.1", "10:00:00", "GET / HTTP/1.1", " 200 1"),
        ),
    ]
}

#[test]
fn no_lines_are_a_result() {
    let dir = Sandbox::new();
    dir.put("empty", "");
    dir.put("empty.gz", "");
    dir.put("packed", gzip(""));
    let trace = "{\"lines\":0,\"parsed\":0,\"skipped\":0,\"late\":0,\"errors\":0,\"allowed\":0,\"denied\":0,\"limits\":{},\"top_denied\":[]}\n";
    let log = "{\"lines\":0,\"parsed\":0,\"skipped\":0,\"late\":0,\"allowed\":0,\"denied\":0,\"limits\":{\"PerClient\":{\"allowed\":0,\"denied\":0,\"keys\":0,\"keys_denied\":0}},\"top_denied\":[]}\n";
    for ((traffic, _), expected) in both().into_iter().zip([trace, log]) {
        for name in ["empty", "empty.gz", "packed", "-"] {
            let line = format!("replay --limits limits.yml --json {traffic} {name}");
            let expected = Ran { status: Some(0), stdout: expected.into(), stderr: "".into() };
            assert_eq!(dir.run(&line), expected, "{line}");
            let line = format!(
                "replay --limits limits.yml --against limits.yml --decisions d --report r.html {traffic} {name}"
            );
            let ran = dir.run(&line);
            assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{line}");
            assert!(ran.stdout.starts_with("0 lines: 0 parsed, 0 "), "{line}: {ran:?}");
            assert_eq!(dir.get("d"), "", "no decisions");
            assert!(dir.get("r.html").contains("No requests"), "{line}");
        }
        let ran = dir.run(&format!("explain --limits limits.yml A x {traffic} empty"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{traffic}: {ran:?}");
    }
}

#[test]
fn gzip_is_detected_by_its_first_bytes() {
    let dir = Sandbox::new();
    for (traffic, text) in both() {
        let line = |name: &str| format!("replay --limits limits.yml --json {traffic} {name}");
        dir.put("plain", &text);
        let expected = dir.run(&line("plain"));
        assert!(expected.stdout.contains("\"parsed\":1"), "{expected:?}");
        dir.put("packed", gzip(&text));
        dir.put("plain.gz", &text);
        for name in ["packed", "plain.gz"] {
            assert_eq!(dir.run(&line(name)), expected, "{name}");
        }
        assert_eq!(dir.run_with(&line("-"), gzip(&text)), expected, "standard input");
    }
}

/// A read of a pipe may return a single byte.
#[test]
fn gzip_may_arrive_byte_by_byte() {
    let dir = Sandbox::new();
    let mut child = dir.command("replay --limits limits.yml --json --trace -");
    let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for byte in gzip(trace()) {
        stdin.write_all(&[byte]).unwrap();
        std::thread::yield_now();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("{\"lines\":1,\"parsed\":1,"));
}

#[test]
fn input_shorter_than_a_mark_is_read() {
    let dir = Sandbox::new();
    for text in ["x", "xy", "\n", "\u{1f}", "\u{feff}"] {
        let ran = dir.run_with("replay --limits limits.yml --json --trace -", text);
        let lines = if text == BOM { 0 } else { 1 };
        let expected = format!("{{\"lines\":{lines},\"parsed\":0,");
        assert!(ran.stdout.starts_with(&expected), "{text:?}: {ran:?}");
    }
}

#[test]
fn byte_order_marks_in_traffic_are_skipped() {
    let dir = Sandbox::new();
    for (traffic, text) in both() {
        let marked = BOM.to_owned() + &text;
        dir.put("plain", &marked);
        dir.put("packed", gzip(&marked));
        for name in ["plain", "packed"] {
            let ran = dir.run(&format!("replay --limits limits.yml --json {traffic} {name}"));
            assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{traffic} {name}: {ran:?}");
            assert!(ran.stdout.contains("\"lines\":1,\"parsed\":1,"), "{traffic} {name}: {ran:?}");
        }
        // Only the first one is skipped.
        let twice = BOM.to_owned() + &marked;
        let ran = dir.run_with(&format!("replay --limits limits.yml --json {traffic} -"), twice);
        assert!(!ran.stderr.is_empty(), "{traffic}: {ran:?}");
    }
}

#[test]
fn byte_order_marks_in_limits_are_skipped() {
    let dir = Sandbox::new();
    dir.put("marked.yml", BOM.to_owned() + LIMITS);
    dir.put("o.yml", BOM.to_owned() + "A:x: {burst: 9, count: 9, period: 1s}\n");
    let ran = dir.run("validate --limits marked.yml --overrides o.yml");
    let stdout = "ok: 5 limits, 1 override\n";
    assert_eq!(ran, Ran { status: Some(0), stdout: stdout.into(), stderr: "".into() });
    dir.put("empty.yml", BOM);
    let ran = dir.run("validate --limits empty.yml");
    let stderr = "empty.yml: the file is empty: at least one limit is wanted\n";
    assert_eq!(ran, Ran { status: Some(1), stdout: "".into(), stderr: stderr.into() });
}

/// The overrides of an empty file add no faults.
#[test]
fn an_emptied_file_of_limits_is_one_fault() {
    let dir = Sandbox::new();
    dir.put("o.yml", "- A: {burst: 9, count: 9, period: 1s, ids: [x, y]}\n- B:z: {burst: 9, count: 9, period: 1s}\n");
    for (text, fault) in [
        ("", "l.yml: the file is empty: at least one limit is wanted\n"),
        ("# nothing\n", "l.yml: the file is empty: at least one limit is wanted\n"),
        ("null\n", "l.yml:1: the file is null: at least one limit is wanted\n"),
        ("{}\n", "l.yml:1: the file declares nothing: at least one limit is wanted\n"),
        ("hello\n", "l.yml:1: \"hello\": a map of limits, or a list of such maps, is allowed\n"),
    ] {
        dir.put("l.yml", text);
        let ran = dir.run("validate --limits l.yml --overrides o.yml");
        assert_eq!(
            ran,
            Ran { status: Some(1), stdout: "".into(), stderr: fault.into() },
            "{text:?}"
        );
    }
}

#[test]
fn emptied_file_of_overrides_is_a_fault() {
    let dir = Sandbox::new();
    dir.put("l.yml", LIMITS);
    for (text, fault) in [
        ("", "o.yml: the file is empty: overrides are wanted, or [] for none\n"),
        ("null\n", "o.yml:1: the file is null: overrides are wanted, or [] for none\n"),
    ] {
        dir.put("o.yml", text);
        let ran = dir.run("validate --limits l.yml --overrides o.yml");
        let wanted = Ran { status: Some(1), stdout: "".into(), stderr: fault.into() };
        assert_eq!(ran, wanted, "{text:?}");
    }
    dir.put("o.yml", "[]\n");
    let ran = dir.run("validate --limits l.yml --overrides o.yml");
    assert_eq!(ran.status, Some(0), "{ran:?}");
}
