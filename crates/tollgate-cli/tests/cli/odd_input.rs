//! Input that is empty, packed under any name, or begins with a byte-order mark.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::desk::{Desk, LIMITS, Ran, spend};

const BOM: &str = "\u{feff}";

const LINE: &str = "1.1.1.1 - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n";

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn trace() -> String {
    spend(1, r#"{"limit":"A","id":"x"}"#)
}

/// The arguments for a trace and for a log, and the same input for each.
fn both() -> [(&'static str, String); 2] {
    [("--trace", trace()), ("--rule PerClient=client --log", LINE.to_owned())]
}

#[test]
fn no_lines_are_a_result() {
    let desk = Desk::new();
    desk.put("empty", "");
    desk.put("empty.gz", "");
    desk.put("packed", packed(""));
    let trace = "{\"lines\":0,\"parsed\":0,\"skipped\":0,\"late\":0,\"errors\":0,\"allowed\":0,\"denied\":0,\"limits\":{},\"top_denied\":[]}\n";
    let log = "{\"lines\":0,\"parsed\":0,\"skipped\":0,\"late\":0,\"allowed\":0,\"denied\":0,\"limits\":{\"PerClient\":{\"allowed\":0,\"denied\":0,\"keys\":0,\"keys_denied\":0}},\"top_denied\":[]}\n";
    for ((traffic, _), expected) in both().into_iter().zip([trace, log]) {
        for name in ["empty", "empty.gz", "packed", "-"] {
            let line = format!("replay --limits limits.yml --json {traffic} {name}");
            let expected = Ran { status: Some(0), stdout: expected.into(), stderr: "".into() };
            assert_eq!(desk.run(&line), expected, "{line}");
            let line = format!(
                "replay --limits limits.yml --against limits.yml --decisions d --report r.html {traffic} {name}"
            );
            let ran = desk.run(&line);
            assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{line}");
            assert!(ran.stdout.starts_with("0 lines: 0 parsed, 0 "), "{line}: {ran:?}");
            assert_eq!(desk.get("d"), "", "no decisions");
            assert!(desk.get("r.html").contains("No requests"), "{line}");
        }
        let ran = desk.run(&format!("explain --limits limits.yml A x {traffic} empty"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{traffic}: {ran:?}");
    }
}

#[test]
fn packed_input_is_told_by_its_first_bytes() {
    let desk = Desk::new();
    for (traffic, text) in both() {
        let line = |name: &str| format!("replay --limits limits.yml --json {traffic} {name}");
        desk.put("plain", &text);
        let expected = desk.run(&line("plain"));
        assert!(expected.stdout.contains("\"parsed\":1"), "{expected:?}");
        desk.put("packed", packed(&text));
        desk.put("plain.gz", &text);
        for name in ["packed", "plain.gz"] {
            assert_eq!(desk.run(&line(name)), expected, "{name}");
        }
        assert_eq!(desk.run_with(&line("-"), packed(&text)), expected, "standard input");
    }
}

/// A pipe gives as many bytes as were written to it at once.
#[test]
fn packed_input_may_come_byte_by_byte() {
    let desk = Desk::new();
    let mut child = desk.command("replay --limits limits.yml --json --trace -");
    let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for byte in packed(&trace()) {
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
    let desk = Desk::new();
    for text in ["x", "xy", "\n", "\u{1f}", "\u{feff}"] {
        let ran = desk.run_with("replay --limits limits.yml --json --trace -", text);
        let lines = if text == BOM { 0 } else { 1 };
        let expected = format!("{{\"lines\":{lines},\"parsed\":0,");
        assert!(ran.stdout.starts_with(&expected), "{text:?}: {ran:?}");
    }
}

#[test]
fn a_byte_order_mark_costs_no_line() {
    let desk = Desk::new();
    for (traffic, text) in both() {
        let marked = BOM.to_owned() + &text;
        desk.put("plain", &marked);
        desk.put("packed", packed(&marked));
        for name in ["plain", "packed"] {
            let ran = desk.run(&format!("replay --limits limits.yml --json {traffic} {name}"));
            assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{traffic} {name}: {ran:?}");
            assert!(ran.stdout.contains("\"lines\":1,\"parsed\":1,"), "{traffic} {name}: {ran:?}");
        }
        // Only the first is a mark.
        let twice = BOM.to_owned() + &marked;
        let ran = desk.run_with(&format!("replay --limits limits.yml --json {traffic} -"), twice);
        assert!(!ran.stderr.is_empty(), "{traffic}: {ran:?}");
    }
}

#[test]
fn byte_order_mark_in_limits_is_skipped() {
    let desk = Desk::new();
    desk.put("marked.yml", BOM.to_owned() + LIMITS);
    desk.put("o.yml", BOM.to_owned() + "A:x: {burst: 9, count: 9, period: 1s}\n");
    let ran = desk.run("validate --limits marked.yml --overrides o.yml");
    let stdout = "ok: 5 limits, 1 override\n";
    assert_eq!(ran, Ran { status: Some(0), stdout: stdout.into(), stderr: "".into() });
    desk.put("empty.yml", BOM);
    let ran = desk.run("validate --limits empty.yml");
    let stderr = "empty.yml: the file is empty: at least one limit is wanted\n";
    assert_eq!(ran, Ran { status: Some(1), stdout: "".into(), stderr: stderr.into() });
}

/// An emptied file is one fault, and no override is unknown for it.
#[test]
fn an_emptied_file_of_limits_is_one_fault() {
    let desk = Desk::new();
    desk.put("o.yml", "- A: {burst: 9, count: 9, period: 1s, ids: [x, y]}\n- B:z: {burst: 9, count: 9, period: 1s}\n");
    for (text, fault) in [
        ("", "l.yml: the file is empty: at least one limit is wanted\n"),
        ("# nothing\n", "l.yml: the file is empty: at least one limit is wanted\n"),
        ("null\n", "l.yml:1: the file is null: at least one limit is wanted\n"),
        ("{}\n", "l.yml:1: the file declares nothing: at least one limit is wanted\n"),
        ("hello\n", "l.yml:1: \"hello\": a map of limits, or a list of such maps, is allowed\n"),
    ] {
        desk.put("l.yml", text);
        let ran = desk.run("validate --limits l.yml --overrides o.yml");
        assert_eq!(
            ran,
            Ran { status: Some(1), stdout: "".into(), stderr: fault.into() },
            "{text:?}"
        );
    }
}
