//! Tests traces: the forms of a decision, batches, and lines with errors.

use crate::support::{Ran, Sandbox, operation, spend};

#[test]
fn the_four_forms_of_a_decision() {
    let account = r#"{"limit":"NewOrdersPerAccount","id":"12345"}"#;
    let mut trace = spend(1_700_000_000_000_000_000, account);
    trace += &spend(
        1_700_000_000_000_000_000,
        r#"{"limit":"NewOrdersPerAccount","id":"12345","cost":19}"#,
    );
    trace += &spend(1_700_000_000_025_000_000, account);
    trace += &spend(
        1_700_000_000_025_000_000,
        r#"{"limit":"CertificatesPerDomain","id":"example.com"}"#,
    );
    trace += &spend(
        1_700_000_000_025_000_000,
        r#"{"limit":"NewOrdersPerAccount","id":"12345","cost":21}"#,
    );
    let (decisions, ran) = Sandbox::new().decide(&trace);
    assert_eq!(
        decisions,
        "\
{\"allowed\":true,\"remaining\":19,\"retry_in_ns\":0,\"reset_in_ns\":50000000}
{\"allowed\":true,\"remaining\":0,\"retry_in_ns\":950000000,\"reset_in_ns\":1000000000}
{\"allowed\":false,\"remaining\":0,\"retry_in_ns\":25000000,\"reset_in_ns\":975000000,\"denied_by\":\"NewOrdersPerAccount:12345\"}
{\"allowed\":true,\"remaining\":null,\"retry_in_ns\":0,\"reset_in_ns\":0}
{\"error\":\"cost 21 is above the burst 20 of NewOrdersPerAccount\"}
"
    );
    let stdout = concat!(
        r#"{"lines":5,"parsed":4,"skipped":0,"late":0,"errors":1,"allowed":3,"denied":1,"#,
        r#""limits":{"NewOrdersPerAccount":{"allowed":2,"denied":1,"keys":1,"keys_denied":1}},"#,
        r#""top_denied":[{"limit":"NewOrdersPerAccount","id":"12345","denied":1}]}"#,
        "\n"
    );
    let stderr = "standard input:5: cost 21 is above the burst 20 of NewOrdersPerAccount\n";
    assert_eq!(ran, Ran { status: Some(1), stdout: stdout.into(), stderr: stderr.into() });
}

#[test]
fn the_walk_through_of_the_seeds() {
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "NewFoosPerIPAddress: {burst: 20, count: 20, period: 1s, id: ipAddress}\n",
    );
    let txn = r#"{"limit":"NewFoosPerIPAddress","id":"172.23.45.22"}"#;
    let at = |ms: u64| spend(1_700_000_000_000_000_000 + ms * 1_000_000, txn);
    // 18 requests in the 44 ms after the second one, and one more.
    let trace: String = [0, 5].into_iter().chain(32..=49).chain([49]).map(at).collect();
    let (decisions, ran) = dir.decide(&trace);
    let decisions: Vec<&str> = decisions.lines().collect();
    assert_eq!((ran.status, decisions.len()), (Some(0), 21));
    let first = r#"{"allowed":true,"remaining":19,"retry_in_ns":0,"reset_in_ns":50000000}"#;
    assert_eq!(decisions[0], first);
    assert!(decisions[..20].iter().all(|decision| decision.starts_with(r#"{"allowed":true"#)));
    let last = r#"{"allowed":false,"remaining":0,"retry_in_ns":1000000,"reset_in_ns":951000000,"denied_by":"NewFoosPerIPAddress:172.23.45.22"}"#;
    assert_eq!(decisions[20], last);
}

#[test]
fn a_batch_is_all_or_nothing() {
    let (a, b) = (r#"{"limit":"A","id":"x"}"#, r#"{"limit":"B","id":"y"}"#);
    let with =
        |limit: &str, id: &str, rest: &str| format!(r#"{{"limit":"{limit}","id":"{id}",{rest}}}"#);
    let at = 5_000_000_000;
    let trace = [
        spend(at, &format!("{a},{}", with("B", "y", r#""cost":2"#))),
        spend(at, &format!("{a},{b}")),
        operation(at, "check", &with("A", "x", r#""cost":4"#)),
        spend(at, &format!("{a},{}", with("B", "y", r#""mode":"spend_only""#))),
        operation(at, "check", b),
        spend(at, &with("A", "x", r#""cost":3,"mode":"check_only""#)),
        operation(at, "check", &with("A", "x", r#""cost":3"#)),
        spend(at, &with("B", "y", r#""mode":"spend_only""#)),
    ];
    let (decisions, ran) = Sandbox::new().decide(&trace.concat());
    let denied = r#"{"allowed":false,"remaining":0,"retry_in_ns":1000000000,"reset_in_ns":2000000000,"denied_by":"B:y"}"#;
    let three =
        r#"{"allowed":true,"remaining":0,"retry_in_ns":3000000000,"reset_in_ns":5000000000}"#;
    let expected = [
        r#"{"allowed":true,"remaining":0,"retry_in_ns":2000000000,"reset_in_ns":2000000000}"#,
        denied,
        // A was charged once: the denied batch did not charge it.
        r#"{"allowed":true,"remaining":0,"retry_in_ns":4000000000,"reset_in_ns":5000000000}"#,
        r#"{"allowed":true,"remaining":3,"retry_in_ns":0,"reset_in_ns":2000000000}"#,
        denied,
        three,
        three,
        r#"{"allowed":true,"remaining":null,"retry_in_ns":0,"reset_in_ns":0}"#,
    ];
    assert_eq!(decisions.lines().collect::<Vec<_>>(), expected);
    let limits = r#""limits":{"A":{"allowed":2,"denied":0,"keys":1,"keys_denied":0},"B":{"allowed":1,"denied":1,"keys":1,"keys_denied":1}}"#;
    assert!(
        ran.stdout.contains(r#""allowed":4,"denied":1"#) && ran.stdout.contains(limits),
        "{ran:?}"
    );
    assert_eq!(ran.status, Some(0));
}

#[test]
fn refund_and_reset_are_not_counted() {
    let b = r#"{"limit":"B","id":"y"}"#;
    let trace = [
        operation(1, "refund", b),
        spend(1, r#"{"limit":"B","id":"y","cost":2}"#),
        operation(1, "refund", b),
        operation(1, "reset", b),
        operation(1, "check", b),
    ];
    let (decisions, ran) = Sandbox::new().decide(&trace.concat());
    let expected = [
        r#"{"allowed":false,"remaining":2,"retry_in_ns":0,"reset_in_ns":0}"#,
        r#"{"allowed":true,"remaining":0,"retry_in_ns":2000000000,"reset_in_ns":2000000000}"#,
        r#"{"allowed":true,"remaining":1,"retry_in_ns":0,"reset_in_ns":1000000000}"#,
        r#"{"allowed":true,"remaining":2,"retry_in_ns":0,"reset_in_ns":0}"#,
        r#"{"allowed":true,"remaining":1,"retry_in_ns":0,"reset_in_ns":1000000000}"#,
    ];
    assert_eq!(decisions.lines().collect::<Vec<_>>(), expected);
    assert!(ran.stdout.contains(r#""allowed":1,"denied":0"#), "only spends are counted: {ran:?}");
}

#[test]
fn lines_with_errors_change_nothing() {
    let dir = Sandbox::new();
    let good = spend(1_000, r#"{"limit":"A","id":"x"}"#);
    let mut trace = good.clone().into_bytes();
    let too_long = "x".repeat((1 << 20) + 1);
    for line in [
        &good.as_bytes()[..30],
        b"",
        b"{\"at_ns\":\xff}",
        too_long.as_bytes(),
        spend(999, r#"{"limit":"A","id":"x"}"#).trim_end().as_bytes(),
        spend(1_001 + (1 << 62), r#"{"limit":"A","id":"x"}"#).trim_end().as_bytes(),
        spend(1_000, "").trim_end().as_bytes(),
        spend(1_000, r#"{"limit":"NewOrderPerAccount","id":"1"}"#).trim_end().as_bytes(),
        spend(1_000, r#"{"limit":"PerClient","id":"nobody"}"#).trim_end().as_bytes(),
        spend(1_000, r#"{"limit":"A","id":"x","cost":-1}"#).trim_end().as_bytes(),
        spend(1_000, r#"{"limit":"A","id":"x"},{"limit":"A","id":"x"}"#).trim_end().as_bytes(),
        spend(1_000, r#"{"limit":"A","id":"x","factor":-2}"#).trim_end().as_bytes(),
    ] {
        trace.extend_from_slice(line);
        trace.push(b'\n');
    }
    trace.extend_from_slice(good.trim_end().as_bytes());
    dir.put("t.jsonl", trace);
    let ran = dir.run("replay --limits limits.yml --trace t.jsonl --decisions d.jsonl --json");
    assert_eq!(ran.status, Some(1));
    assert!(
        ran.stdout
            .starts_with(r#"{"lines":14,"parsed":2,"skipped":0,"late":0,"errors":12,"allowed":2,"#)
    );
    let faults = [
        "the line is cut off: EOF while parsing a string at column 30",
        "the line is empty: one JSON object is needed",
        "invalid UTF-8 at column 10",
        "the line is too long: at most 1048576 bytes are allowed",
        "at_ns 999 is before the line above: at least 1000 is allowed",
        "at_ns 4611686018427388905 is too long after the first: at most 4611686018427388902 is allowed",
        "txns is empty: at least one transaction",
        "unknown limit \"NewOrderPerAccount\"; did you mean NewOrdersPerAccount?",
    ];
    let decisions = dir.get("d.jsonl");
    let decisions: Vec<&str> = decisions.lines().collect();
    assert_eq!(
        decisions[0],
        r#"{"allowed":true,"remaining":4,"retry_in_ns":0,"reset_in_ns":1000000000}"#
    );
    assert_eq!(
        decisions[13],
        r#"{"allowed":true,"remaining":3,"retry_in_ns":0,"reset_in_ns":2000000000}"#
    );
    let messages: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(messages.len(), 6, "{messages:?}");
    for (i, (messages, text)) in messages.iter().zip(&faults[..5]).enumerate() {
        assert_eq!(*messages, format!("t.jsonl:{}: {text}", i + 2));
    }
    assert_eq!(messages[5], "t.jsonl: and 7 more lines with errors");
    for (text, decision) in faults.iter().zip(&decisions[1..]) {
        assert_eq!(*decision, format!("{{\"error\":{}}}", serde_json::to_string(text).unwrap()));
    }
    assert!(decisions[9].contains("nobody"), "{}", decisions[9]);
    let factor = "invalid factor \\\"-2\\\": negative; at least 0 is allowed";
    assert!(decisions[12].contains(factor), "{}", decisions[12]);
}

#[test]
fn the_first_five_errors_are_printed() {
    let dir = Sandbox::new();
    dir.put("o.yml", "A: {burst: 1, count: 1, period: 1s, id: string}\n");
    dir.put(
        "access.log",
        "127.0.0.1 - - [17/May/2015:10:00:05 +0000] \"GET / HTTP/1.1\" 200 1\n".repeat(2_000),
    );
    for (line, more) in [
        (
            "replay --limits limits.yml --trace access.log",
            "access.log: and 1,995 more lines with errors",
        ),
        // A line that cannot be parsed has one message, not one for each file.
        (
            "replay --limits limits.yml --trace access.log --against o.yml",
            "access.log: and 1,995 more lines with errors",
        ),
        (
            "explain --limits limits.yml A x --trace access.log",
            "access.log: and 1,995 more lines with errors",
        ),
    ] {
        let ran = dir.run(line);
        let messages: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!((ran.status, messages.len()), (Some(1), 6), "{line}: {messages:?}");
        assert!(messages[4].starts_with("access.log:5: "), "{}", messages[4]);
        assert_eq!(messages[5], more);
    }
    // Five errors under the candidate are printed in addition.
    let above = spend(1, r#"{"limit":"A","id":"x","cost":2}"#);
    dir.put("t.jsonl", above.repeat(6));
    let ran = dir.run("replay --limits limits.yml --trace t.jsonl --against o.yml");
    let messages: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(messages.len(), 6, "{messages:?}");
    assert!(messages[0].starts_with("t.jsonl:1: under o.yml: cost 2"), "{}", messages[0]);
    assert_eq!(messages[5], "t.jsonl: under o.yml: and 1 more line with errors");
}

#[test]
fn every_algorithm_and_factor_is_replayed() {
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "\
SearchPerUser: {algorithm: fixed_window, limit: 2, window: 60s, id: string}
ApiPerKey: {algorithm: token_bucket, limit: 15, window: 60s, burst: 3, id: string}
NotesPerUser: {algorithm: leaky_bucket, size: 2, drip_rate: 250ms, drip_size: 1, id: string}
LegacyPerUser: {algorithm: leaky_bucket, max: 10, duration: 5s, min_interval: 1s, id: string}
Off: {algorithm: fixed_window, limit: 1, window: 1s, id: string, enabled: false}
",
    );
    let of = |limit: &str, rest: &str| format!(r#"{{"limit":"{limit}","id":"x"{rest}}}"#);
    let trace: String = [
        (0, of("SearchPerUser", "")),
        (1, of("SearchPerUser", r#","cost":2"#)),
        (1, of("SearchPerUser", r#","cost":2,"factor":0.5"#)),
        (2, of("ApiPerKey", r#","cost":3"#)),
        (1002, of("ApiPerKey", "")),
        (1003, of("NotesPerUser", r#","cost":2"#)),
        (1153, of("NotesPerUser", "")),
        (1153, of("NotesPerUser", r#","factor":0"#)),
        (1153, of("LegacyPerUser", r#","cost":10"#)),
        (2000, of("LegacyPerUser", "")),
        (2000, of("Off", "")),
        (2000, format!("{},{}", of("NotesPerUser", ""), of("SearchPerUser", r#","factor":0.25"#))),
    ]
    .iter()
    .map(|(ms, txns)| spend(1_700_000_000_000_000_000 + ms * 1_000_000, txns))
    .collect();
    let (decisions, ran) = dir.decide(&trace);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(
        decisions,
        "\
{\"allowed\":true,\"remaining\":1,\"retry_in_ns\":0,\"reset_in_ns\":60000000000}
{\"allowed\":false,\"remaining\":1,\"retry_in_ns\":59999000000,\"reset_in_ns\":59999000000,\"denied_by\":\"SearchPerUser:x\"}
{\"allowed\":true,\"remaining\":1,\"retry_in_ns\":59999000000,\"reset_in_ns\":59999000000}
{\"allowed\":true,\"remaining\":12,\"retry_in_ns\":15000000000,\"reset_in_ns\":60000000000}
{\"allowed\":false,\"remaining\":12,\"retry_in_ns\":4000000000,\"reset_in_ns\":59000000000,\"denied_by\":\"ApiPerKey:x\"}
{\"allowed\":true,\"remaining\":0,\"retry_in_ns\":500000000,\"reset_in_ns\":500000000}
{\"allowed\":false,\"remaining\":0,\"retry_in_ns\":100000000,\"reset_in_ns\":350000000,\"denied_by\":\"NotesPerUser:x\"}
{\"allowed\":true,\"remaining\":null,\"retry_in_ns\":0,\"reset_in_ns\":0}
{\"allowed\":true,\"remaining\":0,\"retry_in_ns\":5000000000,\"reset_in_ns\":5000000000}
{\"allowed\":false,\"remaining\":0,\"retry_in_ns\":153000000,\"reset_in_ns\":4153000000,\"denied_by\":\"LegacyPerUser:x\"}
{\"allowed\":true,\"remaining\":null,\"retry_in_ns\":0,\"reset_in_ns\":0}
{\"allowed\":true,\"remaining\":1,\"retry_in_ns\":0,\"reset_in_ns\":250000000}
"
    );
}

/// The date of the traffic, 2023 here, does not matter. This applies to both files.
#[test]
fn today_decides_which_overrides_expired() {
    let dir = Sandbox::new();
    dir.put("o.yml", "A:x: {burst: 9, count: 1, period: 1s, expires: 2026-11-14}\n");
    dir.put("t.jsonl", spend(1_700_000_000_000_000_000, r#"{"limit":"A","id":"x"}"#));
    let files = "--limits limits.yml --overrides o.yml --trace t.jsonl";
    let candidate = "--against limits.yml --against-overrides o.yml --report r.html";
    for (day, remaining) in [("2026-11-14", 8), ("2026-11-15", 4), ("2023-11-14", 8)] {
        let ran = dir.run(&format!("replay {files} --decisions - --today {day}"));
        assert!(ran.stdout.contains(&format!("\"remaining\":{remaining},")), "{day}: {ran:?}");
        let ran = dir.run(&format!("replay {files} {candidate} --today {day}"));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let applied = dir.get("r.html").matches("1 of them applied").count();
        assert_eq!(applied, if remaining == 8 { 2 } else { 0 }, "{day}: under both files");
    }
}

#[test]
fn today_is_in_every_help() {
    let dir = Sandbox::new();
    for command in ["validate", "replay", "explain", "diff"] {
        let help = dir.run(&format!("{command} --help")).stdout;
        assert!(help.contains("--today <YYYY-MM-DD>"), "{command}: {help}");
    }
    let help = dir.run("replay --help").stdout;
    assert!(
        help.contains("--ipv6-prefix <BITS>") && help.contains("tower layer uses 64"),
        "{help}"
    );
}
