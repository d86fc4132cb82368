//! Tests what the messages of the command tell an operator.

use serde_json::json;

use crate::support::{Sandbox, log_line, spend};

/// Makes a line of a JSON log.
fn object(client: &str, time: &str) -> String {
    let line = json!({"ts": time, "remote_addr": client, "request": "GET / HTTP/1.1"});
    format!("{line}\n")
}

const RULE: &str = "replay --limits limits.yml --rule PerClient=client --log";

#[test]
fn a_bad_time_names_all_forms() {
    let dir = Sandbox::new();
    let log = ["yesterday", "2015-05-17", "17/5/2015"].map(|time| object("1.1.1.1", time));
    dir.put("log", log.concat() + "{}\n{\"a\":\n");
    let ran = dir.run(&format!("{RULE} log"));
    let bad = "the time is neither RFC 3339, nor like 17/May/2015:10:05:03 +0000, nor a number since 1970 in seconds, ms, us or ns, up to 2115";
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let first = format!("skipped line 1: {bad}: \"yesterday\": {{");
    assert!(lines[0].starts_with(&first), "{ran:?}");
    // A key is not at fault, so the hint does not name `--field`.
    let last = format!(
        "log: less than half of the lines are JSON objects with a client, a time and a request, 0 of 5: the most frequent reason (3 of 5 lines, first line 1) is: {bad}: \"yesterday\""
    );
    assert_eq!((ran.status, lines.last()), (Some(1), Some(&&*last)));
    let log = ["a", "b"].map(|time| log_line("1.1.1.1", time, "GET / HTTP/1.1", " 200 1"));
    dir.put("log", log.concat());
    let ran = dir.run(&format!("{RULE} log"));
    let last = "common or combined format, 0 of 2: the most frequent reason (2 of 2 lines, first line 1) is: the time is not like [17/May/2015:10:05:03 +0000], from 1970 to 2115\n";
    assert!(ran.stderr.ends_with(last), "{ran:?}");
}

#[test]
fn the_most_frequent_reason_is_named() {
    let dir = Sandbox::new();
    let line = |client: &str| log_line(client, "10:00:00", "GET / HTTP/1.1", " 200 1");
    let ids = ["host-1", "host-22", "a\"b", "d\\"].map(line).concat();
    let log = "garbage\n".to_owned() + "\n" + &ids + "more garbage\n";
    dir.put("log", log);
    let ran = dir.run(&format!("{RULE} log"));
    let last = "log: all lines were skipped; the most frequent reason (4 of 7 lines, first line 3) is: client: invalid ipAddress \"host-1\": must be an IP address\n";
    assert!(ran.status == Some(1) && ran.stderr.ends_with(last), "{ran:?}");
}

#[test]
fn a_wrong_cost_names_what_is_allowed() {
    let dir = Sandbox::new();
    dir.put("log", log_line("1.1.1.1", "10:00:00", "GET / HTTP/1.1", " 200 1"));
    for cost in ["-1", "many", "1.5", "99999999999999999999999"] {
        let ran = dir.run(&format!("{RULE} log --rule A=client,cost={cost}"));
        let part = format!(
            "unknown cost \"{cost}\": a whole number from 0 to 18446744073709551615, one of client, user, method, "
        );
        assert_eq!(ran.status, Some(2));
        assert!(ran.stderr.contains(&part), "{ran:?}");
        assert!(
            ran.stderr.contains("bytes, forwarded_for, or .KEY of a JSON log, is allowed"),
            "{ran:?}"
        );
    }
}

#[test]
fn an_unknown_limit_names_the_known_ones() {
    let dir = Sandbox::new();
    dir.put("log", log_line("1.1.1.1", "10:00:00", "GET / HTTP/1.1", " 200 1"));
    let names =
        "unknown limit \"Foo\"; the limits are NewOrdersPerAccount, PerClient, PerPath, A, B\n";
    for (line, at) in [
        ("replay --limits limits.yml --log log --rule Foo=client", "--rule Foo=client: "),
        ("explain --limits limits.yml Foo x", ""),
    ] {
        let ran = dir.run(line);
        assert_eq!((ran.status, &*ran.stderr), (Some(2), &*format!("{at}{names}")));
    }
    let (_, ran) = dir.decide(&spend(1, r#"{"limit":"Foo","id":"x"}"#));
    assert_eq!((ran.status, &*ran.stderr), (Some(1), &*format!("standard input:1: {names}")));
    let many = |count: u32| {
        (0..count).map(|at| format!("L{at}: {{burst: 1, count: 1, period: 1s, id: string}}\n"))
    };
    for (count, rest) in [(10, ""), (11, ", and 1 more"), (1_234, ", and 1224 more")] {
        dir.put("many.yml", many(count).collect::<String>());
        let ran = dir.run("explain --limits many.yml Foo x");
        let names = "unknown limit \"Foo\"; the limits are L0, L1, L2, L3, L4, L5, L6, L7, L8, L9";
        assert_eq!(ran.stderr, format!("{names}{rest}\n"));
    }
    dir.put("one.yml", many(1).collect::<String>());
    let ran = dir.run("explain --limits one.yml Foo x");
    assert_eq!(ran.stderr, "unknown limit \"Foo\"; the limits are L0\n");
}

#[test]
fn unreadable_files_have_one_wording() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    std::fs::create_dir(dir.path("folder")).unwrap();
    for (name, why) in
        [("missing", "no such file or directory (os error 2)"), ("folder", "it is a directory")]
    {
        let stderr = format!("{name}: cannot be read: {why}\n");
        for line in [
            format!("validate --limits {name}"),
            format!("replay --limits limits.yml --trace {name}"),
            format!("replay --limits {name} --trace t.jsonl"),
            format!("{RULE} {name}"),
            format!("explain --limits limits.yml A x --trace {name}"),
        ] {
            let ran = dir.run(&line);
            assert_eq!((ran.status, &*ran.stderr), (Some(2), &*stderr), "{line}");
        }
    }
    for (name, why) in
        [("missing/d", "no such file or directory (os error 2)"), ("folder", "it is a directory")]
    {
        let ran =
            dir.run(&format!("replay --limits limits.yml --trace t.jsonl --decisions {name}"));
        assert_eq!(ran.stderr, format!("{name}: cannot be written: {why}\n"));
    }
}
