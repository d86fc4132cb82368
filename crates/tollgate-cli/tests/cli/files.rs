//! Files that are not there or cannot be written, and where results go.

use std::fs;
use std::io::Read;

use crate::desk::{Desk, Ran, spend};

#[test]
fn decisions_on_stdout_move_summary_to_stderr() {
    let desk = Desk::new();
    let trace = spend(1, r#"{"limit":"A","id":"x"}"#);
    let ran = desk.run_with("replay --limits limits.yml --trace - --decisions -", &trace);
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
fn traffic_that_is_not_there_is_named() {
    let desk = Desk::new();
    fs::create_dir(desk.path("folder")).unwrap();
    for name in ["missing", "folder"] {
        for traffic in ["--trace", "--rule A=client --log"] {
            let ran = desk
                .run(&format!("replay --limits limits.yml {traffic} {name} --decisions d.jsonl"));
            assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
            assert!(ran.stderr.starts_with(&format!("{name}: cannot be read: ")), "{ran:?}");
        }
    }
    assert_eq!(desk.names(), ["folder", "limits.yml"], "nothing half done");
}

#[test]
fn unwritable_decisions_are_refused_before_any_work() {
    let desk = Desk::new();
    fs::create_dir(desk.path("folder")).unwrap();
    for name in ["folder", "no/such/folder/d.jsonl", "limits.yml/d.jsonl"] {
        let ran = desk.run(&format!("replay --limits limits.yml --trace - --decisions {name}"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{name}: cannot be written: ")), "{ran:?}");
    }
}

#[test]
fn decisions_replace_a_file_only_when_complete() {
    let desk = Desk::new();
    desk.put("d.jsonl", "from before\n");
    desk.put("cut.gz", [0x1f, 0x8b, 8, 0]);
    assert_eq!(
        desk.run("replay --limits limits.yml --trace cut.gz --decisions d.jsonl").status,
        Some(2)
    );
    assert_eq!(desk.get("d.jsonl"), "from before\n");
    // A line that fails is no reason to stop.
    desk.put("t.jsonl", "oops\n");
    assert_eq!(
        desk.run("replay --limits limits.yml --trace t.jsonl --decisions d.jsonl").status,
        Some(1)
    );
    assert_eq!(desk.get("d.jsonl"), "{\"error\":\"expected value at column 1\"}\n");
    assert_eq!(desk.names(), ["cut.gz", "d.jsonl", "limits.yml", "t.jsonl"]);
}

#[cfg(unix)]
#[test]
fn devices_are_written_and_links_stay_links() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let desk = Desk::new();
    let trace = spend(1, r#"{"limit":"A","id":"x"}"#);
    let ran = desk.run_with("replay --limits limits.yml --trace - --decisions /dev/null", &trace);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());

    desk.put("target.jsonl", "");
    symlink(desk.path("target.jsonl"), desk.path("link.jsonl")).unwrap();
    desk.run_with("replay --limits limits.yml --trace - --decisions link.jsonl", &trace);
    assert!(fs::symlink_metadata(desk.path("link.jsonl")).unwrap().is_symlink());
    assert!(desk.get("target.jsonl").starts_with("{\"allowed\":true"));
}

#[test]
fn a_reader_that_leaves_is_no_fault() {
    let desk = Desk::new();
    let trace: String = (0..50_000).map(|i| spend(i, r#"{"limit":"A","id":"x"}"#)).collect();
    desk.put("t.jsonl", trace);
    let mut child =
        desk.command("replay --limits limits.yml --trace t.jsonl --decisions -").spawn().unwrap();
    // Dropping the pipe here is what `head` does.
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[cfg(unix)]
#[test]
fn limits_come_from_standard_input_too() {
    let desk = Desk::new();
    let ran =
        desk.run_with("validate --limits -", "A: {burst: 1, count: 1, period: 1s, id: string}");
    assert_eq!((ran.status, &*ran.stdout), (Some(0), "ok: 1 limit, 0 overrides\n"), "{ran:?}");
    for twice in ["validate --limits - --overrides -", "replay --limits - --trace -"] {
        let ran = desk.run_with(twice, "");
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("given for two files: one is allowed"), "{}", ran.stderr);
    }
}
