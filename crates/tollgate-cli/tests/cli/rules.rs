//! Tests rules that say what a layer says: pairs of fields, paths, methods, costs, and clients behind proxies.

use serde_json::{Value, json};

use crate::support::{Sandbox, log_line};

const PAIRS: &str = "\
PerClient: {burst: 1, count: 1, period: 1h, id: ipAddress}
PerBoth: {burst: 1, count: 1, period: 1h, id: \"ipAddress:string\"}
Bytes: {burst: 1000, count: 1, period: 1h, id: ipAddress}
";

fn sandbox(lines: &[(&str, &str, &str)]) -> Sandbox {
    let dir = Sandbox::new();
    dir.put("limits.yml", PAIRS);
    let lines = lines.iter().map(|(client, request, tail)| {
        log_line(client, "10:00:00", &format!("{request} HTTP/1.1"), tail)
    });
    dir.put("log", lines.collect::<String>());
    dir
}

fn replay(dir: &Sandbox, more: &str) -> Value {
    let ran = dir.run(&format!("replay --limits limits.yml --log log --json {more}"));
    assert_eq!(ran.status, Some(0), "{more}: {ran:?}");
    ran.json()
}

/// A line that no rule applies to is allowed, as a layer lets a request through.
#[test]
fn rules_are_for_paths_and_methods() {
    let dir = sandbox(&[
        ("1.1.1.1", "GET /login", " 200 1"),
        ("1.1.1.1", "POST /login", " 200 1"),
        ("1.1.1.1", "POST /login/?next=/", " 200 1"),
        ("1.1.1.1", "POST /login/reset", " 200 1"),
        ("1.1.1.1", "POST /logins", " 200 1"),
        ("1.1.1.1", "-", " 400 1"),
    ]);
    for (words, allowed, denied) in [
        ("", 1, 5),
        (",method=POST", 3, 3),
        (",path=/login", 3, 3),
        (",path=/login,method=POST", 4, 2),
        (",route=/login,method=POST", 5, 1),
        (",route=/login/{step},method=POST,method=PUT", 6, 0),
        (",path=/login,path=/logins", 2, 4),
    ] {
        let found = replay(&dir, &format!("--rule PerClient=client{words}"));
        let counts = [&found["allowed"], &found["denied"], &found["skipped"]];
        assert_eq!(counts, [&json!(allowed), &json!(denied), &json!(0)], "{words}: {found}");
    }
    let ran = dir.run("replay --limits limits.yml --log log --rule PerClient=client,path=/none --decisions - --json");
    let decision = "{\"allowed\":true,\"remaining\":null,\"retry_in_ns\":0,\"reset_in_ns\":0}\n";
    assert_eq!((ran.status, ran.stdout), (Some(0), decision.repeat(6)));
}

#[test]
fn the_summary_names_rules_for_no_line() {
    let dir = sandbox(&[("1.1.1.1", "GET /login", " 200 1"), ("1.1.1.2", "GET /", " 200 1")]);
    let rules = "--rule PerClient=client,route=/login --rule PerBoth=client+path,route=/users/:id --rule Bytes=client+user?";
    let unused = ["Bytes=client+user?", "PerBoth=client+path,route=/users/:id"];
    let ran = dir.run(&format!("replay --limits limits.yml --log log {rules} --report r.html"));
    let expected = "\
2 allowed, 0 denied
no line is one for --rule PerBoth=client+path,route=/users/:id
no line is one for --rule Bytes=client+user?
";
    assert!(ran.stdout.contains(expected), "{ran:?}");
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));
    for rule in unused {
        assert!(dir.get("r.html").contains(&format!("No line is one for <code>{rule}</code>.")));
    }
    let found = replay(&dir, rules);
    assert_eq!(found["unused_rules"], json!([unused[1], unused[0]]));
    // A rule is used if it is for a line that is skipped. Of a log without lines, no rule is named.
    let found = dir.run("replay --limits limits.yml --log log --json --rule PerClient=user").json();
    assert_eq!((&found["unused_rules"], &found["skipped"]), (&Value::Null, &json!(2)));
    let ran = dir.run(&format!("explain --limits limits.yml Bytes 1.1.1.1 --log log {rules}"));
    assert!(
        ran.stderr.contains("warning: no line is one for --rule Bytes=client+user?\n"),
        "{ran:?}"
    );
    dir.put("log", "");
    assert_eq!(replay(&dir, rules)["unused_rules"], Value::Null);
}

#[test]
fn a_log_that_is_skipped_has_a_reason() {
    let dir = sandbox(&[("1.1.1.1", "GET /", " 200 1"); 7]);
    for (rule, reason) in [
        ("Bytes=client,cost=1001", "cost 1001 is above the burst 1000 of Bytes"),
        ("Bytes=user", "no user"),
    ] {
        let ran = dir.run(&format!("replay --limits limits.yml --log log --rule {rule}"));
        let last = format!(
            "log: all lines were skipped; the most frequent reason (7 of 7 lines, first line 1) is: {reason}"
        );
        assert_eq!((ran.status, ran.stderr.lines().last()), (Some(1), Some(&*last)), "{ran:?}");
    }
    for command in ["", "replay", "explain"] {
        let help = dir.run(&format!("{command} --help")).stdout;
        assert!(help.contains("or all of it was skipped"), "{help}");
    }
}

#[test]
fn an_id_can_be_several_fields() {
    let dir = sandbox(&[
        ("1.1.1.1", "GET /a", " 200 1"),
        ("1.1.1.1", "GET /b", " 200 1"),
        ("2001:db8::1", "GET /a:b", " 200 1"),
        ("2001:DB8::1", "GET /a:b", " 200 1"),
    ]);
    let found = replay(&dir, "--rule PerBoth=client+path");
    let id = "2001\\:db8\\:\\:1:/a:b";
    assert_eq!(found["top_denied"], json!([{"limit": "PerBoth", "id": id, "denied": 1}]));
    assert_eq!(found["limits"]["PerBoth"]["keys"], 3);
    // The id of the summary is one that `explain` accepts.
    let ran = dir.run(&format!(
        "explain --limits limits.yml PerBoth {id} --log log --rule PerBoth=client+path"
    ));
    assert!(ran.stdout.contains("a spend of 1: denied"), "{ran:?}");
}

#[test]
fn a_line_can_cost_its_bytes() {
    let dir = sandbox(&[
        ("1.1.1.1", "GET /a", " 200 600"),
        ("1.1.1.1", "GET /b", " 200 600"),
        ("1.1.1.1", "GET /c", " 304 -"),
        ("1.1.1.1", "GET /d", " 200 400"),
        ("1.1.1.1", "GET /e", " 200 1001"),
        ("1.1.1.1", "GET /f", " 200"),
    ]);
    let ran = dir
        .run("replay --limits limits.yml --log log --rule Bytes=client,cost=bytes --decisions -");
    let allowed: Vec<bool> =
        ran.stdout.lines().map(|line| line.starts_with("{\"allowed\":true")).collect();
    assert_eq!(allowed, [true, false, true, true]);
    for part in
        ["skipped line 5: cost 1001 is above the burst 1000 of Bytes", "skipped line 6: no bytes"]
    {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    let found = replay(&dir, "--rule Bytes=client,cost=500");
    assert_eq!((&found["allowed"], &found["denied"]), (&json!(2), &json!(4)));
}

/// Clients can have written what is left of the addresses that proxies have appended.
#[test]
fn clients_behind_proxies_are_found() {
    let forwarded = |field: &str| format!(" 200 1 \"-\" \"agent\" \"{field}\"");
    let tails = ["6.6.6.6, 192.0.2.7, 10.0.0.2", "7.7.7.7,192.0.2.7:80 , 10.0.0.2", "10.0.0.2"]
        .map(forwarded);
    let dir = sandbox(&tails.each_ref().map(|tail| ("10.0.0.1", "GET /", &**tail)));
    for (hops, keys, skipped) in [(0, 1, 0), (1, 1, 0), (2, 1, 1), (3, 2, 1)] {
        let found = replay(&dir, &format!("--rule PerClient=client --trusted-hops {hops}"));
        let counts = [&found["limits"]["PerClient"]["keys"], &found["skipped"], &found["parsed"]];
        assert_eq!(counts, [&json!(keys), &json!(skipped), &json!(3)], "{hops}: {found}");
        let id = ["10.0.0.1", "10.0.0.2", "192.0.2.7"].get(hops);
        assert_eq!(found["top_denied"][0]["id"].as_str(), id.copied(), "{hops}");
    }
    // The report, and nodes by client, count the same clients.
    let ran = dir.run("replay --limits limits.yml --log log --rule PerClient=client --trusted-hops 3 --report r.html");
    assert!(
        ran.stderr.starts_with("skipped line 3: forwarded_for has fewer addresses than"),
        "{ran:?}"
    );
    assert!(dir.get("r.html").contains("of 2 clients"));
}

#[cfg(feature = "valkey")]
#[test]
fn nodes_charge_the_costs() {
    let dir = sandbox(&[("1.1.1.1", "GET /a", " 200 600"); 4]);
    let found = replay(&dir, "--rule Bytes=client,cost=bytes --nodes 2 --shared local");
    let way = &found["nodes"]["ways"][0];
    assert_eq!((&way["allowed"], &way["over_admission"]), (&json!(2), &json!(200)), "{found}");
}
