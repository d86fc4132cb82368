//! Tests `--against`: its counts equal those of two plain replays, joined line by line.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{EXAMPLE_LOG, Ran, Sandbox, operation, real_log, spend};

/// For a log of several days: the limits in force, and a candidate that is stricter by client and looser by
/// path, with its overrides.
const OF_DAYS: [&str; 3] = [
    "PerClient: {burst: 3, count: 1, period: 20s, id: ipAddress}\n\
     PerPath: {burst: 4, count: 7, period: 60s, id: string}\n",
    "PerClient: {algorithm: fixed_window, limit: 2, window: 60s, id: ipAddress}\n\
     PerPath: {burst: 8, count: 10, period: 60s, id: string}\n",
    "- PerClient: {limit: 1, window: 1h, ids: [66.249.73.135]}\n",
];
/// The same three files for a log of several seconds.
const OF_SECONDS: [&str; 3] = [
    "PerClient: {burst: 20, count: 10, period: 1s, id: ipAddress}\n\
     PerPath: {burst: 50, count: 30, period: 1s, id: string}\n",
    "PerClient: {algorithm: fixed_window, limit: 30, window: 5s, id: ipAddress}\n\
     PerPath: {burst: 90, count: 45, period: 1s, id: string}\n",
    "- PerClient: {limit: 5, window: 1h, ids: [127.0.0.9]}\n",
];

const RULES: &str = "--rule PerClient=client --rule PerPath=path";

/// The limit and the id that denied a line; `Some(None)` if it was allowed, `None` if it had an error.
type Decided = Option<Option<(String, String)>>;

fn decided(decisions: &str) -> Vec<Decided> {
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line.get("error").is_none().then(|| {
            let (limit, id) = line.get("denied_by")?.as_str().unwrap().split_once(':').unwrap();
            Some((limit.to_owned(), id.to_owned()))
        })
    };
    decisions.lines().map(read).collect()
}

/// Computes `top_newly_denied` or `top_newly_allowed`: the ten keys with the most changes.
fn top(
    changed: &BTreeMap<(String, String), (u64, u64)>,
    denied: [&BTreeMap<(String, String), u64>; 2],
) -> Value {
    let mut all: Vec<_> = changed.iter().collect();
    all.sort_by_key(|((limit, id), (lines, _))| (std::cmp::Reverse(*lines), id, limit));
    let row = |(key, (lines, first_at_ns)): (&(String, String), &(u64, u64))| {
        json!({"limit": key.0, "id": key.1, "lines": lines, "first_at_ns": first_at_ns,
            "denied_in_force": denied[0].get(key).unwrap_or(&0), "denied": denied[1].get(key).unwrap_or(&0)})
    };
    all.into_iter().take(10).map(row).collect()
}

/// Computes the comparison from the decisions of two runs and the times of their lines.
fn joined(old: &[Decided], new: &[Decided], times: &[u64]) -> Value {
    assert_eq!((old.len(), new.len()), (times.len(), times.len()));
    let mut changes = BTreeMap::from(
        ["newly_denied", "newly_allowed", "denied_by_both", "allowed_by_both"]
            .map(|name| (name, 0)),
    );
    let (mut newly_denied, mut newly_allowed) = (BTreeMap::new(), BTreeMap::new());
    let (mut denied_old, mut denied_new) = (BTreeMap::new(), BTreeMap::new());
    let mut not_compared = 0;
    for ((old, new), at_ns) in old.iter().zip(new).zip(times) {
        for (by, denied) in [(old, &mut denied_old), (new, &mut denied_new)] {
            if let Some(Some(key)) = by {
                *denied.entry(key.clone()).or_insert(0) += 1;
            }
        }
        let change = match (old, new) {
            (Some(None), Some(None)) => "allowed_by_both",
            (Some(Some(_)), Some(Some(_))) => "denied_by_both",
            (Some(None), Some(Some(key))) => {
                newly_denied.entry(key.clone()).or_insert((0, *at_ns)).0 += 1;
                "newly_denied"
            }
            (Some(Some(key)), Some(None)) => {
                newly_allowed.entry(key.clone()).or_insert((0, *at_ns)).0 += 1;
                "newly_allowed"
            }
            (None, None) => continue,
            _ => {
                not_compared += 1;
                continue;
            }
        };
        *changes.get_mut(change).unwrap() += 1;
    }
    let mut expected = json!({
        "not_compared": not_compared,
        "denied": denied_new.values().sum::<u64>(),
        "top_newly_denied": top(&newly_denied, [&denied_old, &denied_new]),
        "top_newly_allowed": top(&newly_allowed, [&denied_old, &denied_new]),
    });
    expected
        .as_object_mut()
        .unwrap()
        .extend(changes.into_iter().map(|(k, v)| (k.into(), v.into())));
    expected
}

/// Runs with `--against` and returns the comparison. Checks that the decisions and the rest of the summary
/// equal those of a plain run.
fn against(dir: &Sandbox, traffic: &str) -> (Value, Ran) {
    let plain = |files: &str, decisions: &str| {
        dir.run(&format!("replay {files} {traffic} --json --decisions {decisions}"))
    };
    let old = plain("--limits old.yml", "old.jsonl");
    plain("--limits new.yml --overrides overrides.yml", "new.jsonl");
    let ran =
        plain("--limits old.yml --against new.yml --against-overrides overrides.yml", "both.jsonl");
    assert_eq!(dir.get("both.jsonl"), dir.get("old.jsonl"), "decisions are those of --limits");
    let mut summary = ran.json();
    let against = summary.as_object_mut().unwrap().remove("against").unwrap();
    assert_eq!(summary, old.json());
    let spec = ran.stdout.split(",\"against\":").next().unwrap();
    assert_eq!(format!("{spec}}}\n"), old.stdout, "byte for byte");
    (against, ran)
}

/// Asserts that `found` has all fields of `expected`.
fn assert_has(found: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name}");
    }
}

fn a_log_agrees(log: &str, limits: [&str; 3]) {
    let dir = Sandbox::new();
    dir.put("access.log", log);
    for (name, content) in ["old.yml", "new.yml", "overrides.yml"].iter().zip(limits) {
        dir.put(name, content);
    }
    let (found, ran) = against(&dir, &format!("{RULES} --log access.log"));
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));

    let time = |line: &str| {
        let time = line.split(['[', ']']).nth(1).unwrap();
        let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).unwrap();
        time.to_timestamp().unwrap().as_second() as u64 * 1_000_000_000
    };
    let mut times: Vec<u64> = log.lines().map(time).collect();
    times.sort_unstable();
    let (old, new) = (decided(&dir.get("old.jsonl")), decided(&dir.get("new.jsonl")));
    let expected = joined(&old, &new, &times);
    assert_has(&found, &expected);
    for change in ["newly_denied", "newly_allowed", "denied_by_both", "allowed_by_both"] {
        assert!(expected[change].as_u64() > Some(20), "{change}: {expected}");
    }
    assert_eq!(found["file"], "new.yml");
    assert_eq!((found.get("errors"), &found["newly_skipped"]), (None, &json!(0)), "of a log");

    // A denial counts at one of the two limits, an admission at both.
    let by_limit = |limit: &str, name: &str| found["limits"][limit][name].as_u64().unwrap();
    for name in ["newly_denied", "newly_allowed", "denied_by_both", "denied"] {
        let sum = by_limit("PerClient", name) + by_limit("PerPath", name);
        assert_eq!(Some(sum), found[name].as_u64(), "{name}");
    }
    let denied_by = |decided: &[Decided], limit: &str| {
        let denials = decided.iter().flatten().flatten();
        denials.filter(|(by, _)| by == limit).count() as u64
    };
    let newly = |from: &[Decided], to: &[Decided], limit: &str| {
        let lines = from.iter().zip(to).filter(|(from, _)| **from == Some(None));
        lines.filter(|(_, to)| to.iter().flatten().any(|(by, _)| by == limit)).count() as u64
    };
    for limit in ["PerClient", "PerPath"] {
        for name in ["allowed_by_both", "allowed"] {
            assert_eq!(Some(by_limit(limit, name)), found[name].as_u64(), "{limit} {name}");
        }
        assert_eq!(by_limit(limit, "newly_denied"), newly(&old, &new, limit), "{limit}");
        assert_eq!(by_limit(limit, "newly_allowed"), newly(&new, &old, limit), "{limit}");
        assert_eq!(by_limit(limit, "denied"), denied_by(&new, limit), "{limit}");
        assert_eq!(by_limit(limit, "denied_in_force"), denied_by(&old, limit), "{limit}");
        assert!(by_limit(limit, "keys") > 4, "{limit}");
    }
}

#[test]
fn the_example_log_agrees_with_two_plain_replays() {
    a_log_agrees(EXAMPLE_LOG, OF_SECONDS);
}

#[test]
fn a_real_log_agrees_with_two_plain_replays() {
    if let Some(log) = real_log() {
        a_log_agrees(&log, OF_DAYS);
    }
}

/// A trace with costs that only one file allows, batches, modes, all operations, and lines with errors.
fn trace() -> (String, Vec<u64>) {
    let (mut trace, mut times) = (String::new(), Vec::new());
    let mut at_ns = 1_700_000_000_000_000_000;
    for i in 0_u64..3000 {
        at_ns += i * 37 % 11 * 4_000_000;
        let id = i * 7 % 5;
        let cost = 1 + i % 3 * (i % 2);
        let single = format!(r#"{{"limit":"A","id":"{id}","cost":{cost}}}"#);
        let more = format!(r#"{single},{{"limit":"B","id":"b:{id}","mode":"spend_only"}}"#);
        match i % 13 {
            0 => trace += &operation(at_ns, "check", &single),
            1 => trace += &operation(at_ns, "refund", &single),
            2 => trace += &operation(at_ns, "reset", &single),
            3 => trace += "no line\n",
            4 => trace += &spend(at_ns, r#"{"limit":"C","id":"only in the new file"}"#),
            5 => trace += &spend(at_ns, &format!(r#"{{"limit":"B","id":"b:{id}"}}"#)),
            6 | 7 => trace += &spend(at_ns, &more),
            _ => trace += &spend(at_ns, &single),
        }
        times.push(at_ns);
    }
    (trace, times)
}

#[test]
fn a_trace_agrees_with_two_plain_replays() {
    let dir = Sandbox::new();
    let (trace, times) = trace();
    dir.put("t.jsonl", &trace);
    dir.put(
        "old.yml",
        "A: {burst: 3, count: 4, period: 1s, id: string}\nB: {burst: 4, count: 1, period: 1s, id: string}\n",
    );
    dir.put(
        "new.yml",
        "A: {burst: 2, count: 5, period: 1s, id: string}\nB: {burst: 5, count: 2, period: 1s, id: string}\nC: {burst: 5, count: 1, period: 1s, id: string}\n",
    );
    dir.put("overrides.yml", "- A: {burst: 5, count: 5, period: 1s, ids: ['3']}\n");
    let (found, ran) = against(&dir, "--trace t.jsonl");
    assert_eq!(ran.status, Some(1), "lines failed");

    // Only spends are counted. The other operations affect later decisions.
    let is_spend: Vec<bool> = trace.lines().map(|line| line.contains("\"spend\"")).collect();
    let spends = |name: &str| -> Vec<Decided> {
        let all = decided(&dir.get(name)).into_iter().zip(&is_spend);
        all.filter(|(_, is_spend)| **is_spend).map(|(decided, _)| decided).collect()
    };
    let times: Vec<u64> =
        times.iter().zip(&is_spend).filter(|(_, is)| **is).map(|(at_ns, _)| *at_ns).collect();
    let expected = joined(&spends("old.jsonl"), &spends("new.jsonl"), &times);
    assert_has(&found, &expected);
    for name in
        ["newly_denied", "newly_allowed", "denied_by_both", "allowed_by_both", "not_compared"]
    {
        assert!(expected[name].as_u64() > Some(20), "{name}: {expected}");
    }
    let failed = dir.get("new.jsonl").lines().filter(|line| line.contains("error")).count();
    assert_eq!(found["errors"], failed);
    // The counts of the candidate equal those of a plain replay.
    let alone = "replay --limits new.yml --overrides overrides.yml --trace t.jsonl --json";
    let alone: Value = serde_json::from_str(&dir.run(alone).stdout).unwrap();
    assert_eq!((&found["allowed"], &found["denied"]), (&alone["allowed"], &alone["denied"]));
    for limit in ["A", "B", "C"] {
        for name in ["allowed", "denied", "keys", "keys_denied"] {
            let of = |summary: &Value| summary["limits"][limit][name].clone();
            assert_eq!(of(&found), of(&alone), "{limit} {name}");
        }
    }
}

#[test]
fn errors_under_the_candidate_are_reported() {
    let dir = Sandbox::new();
    dir.put("new.yml", "A: {burst: 2, count: 1, period: 1s, id: string}\n");
    let trace = spend(1, r#"{"limit":"A","id":"x","cost":3}"#)
        + &spend(2, r#"{"limit":"A","id":"x","cost":9}"#)
        + &spend(1, r#"{"limit":"A","id":"x"}"#);
    let ran = dir.run_with("replay --limits limits.yml --against new.yml --trace -", &trace);
    assert_eq!(ran.status, Some(1));
    let expected = "\
standard input:1: under new.yml: cost 3 is above the burst 2 of A
standard input:2: cost 9 is above the burst 5 of A
standard input:2: under new.yml: cost 9 is above the burst 2 of A
standard input:3: at_ns 1 is before the line above: at least 2 is allowed
";
    assert_eq!(ran.stderr, expected);
    let compared = "\
if new.yml took the place of limits.yml:
0 lines newly denied, 0 newly let through, 0 denied by both, 0 allowed by both
1 line not compared: only one of the files has an answer
3 errors under new.yml
";
    assert!(ran.stdout.contains(compared), "{}", ran.stdout);

    let only_there = spend(1, r#"{"limit":"A","id":"x","cost":3}"#);
    let ran = dir.run_with("replay --limits limits.yml --against new.yml --trace -", &only_there);
    assert_eq!(ran.status, Some(1), "{ran:?}");
}

#[test]
fn one_file_may_lack_a_limit() {
    let dir = Sandbox::new();
    let line = "1.1.1.1 - - [17/May/2015:10:00:00 +0000] \"GET /a HTTP/1.1\" 200 1\n";
    dir.put("access.log", line.repeat(3));
    dir.put("old.yml", "PerClient: {burst: 1, count: 1, period: 1h, id: ipAddress}\n");
    dir.put("new.yml", "PerPath: {burst: 2, count: 1, period: 1h, id: string}\n");
    let replay = "replay --log access.log --limits old.yml --against new.yml --json";
    let ran = dir.run(&format!("{replay} --rule PerClient=client --rule PerPath=path"));
    let notes = "\
--rule PerClient=client: new.yml: unknown limit \"PerClient\"; the limits are PerPath; no limit there
--rule PerPath=path: old.yml: unknown limit \"PerPath\"; the limits are PerClient; no limit there
";
    assert_eq!((ran.status, &*ran.stderr), (Some(0), notes));
    let summary = ran.json();
    assert_eq!((&summary["allowed"], &summary["denied"]), (&json!(1), &json!(2)));
    let against = json!({"file": "new.yml", "newly_skipped": 0, "not_compared": 0, "allowed": 2, "denied": 1,
        "newly_denied": 0, "newly_allowed": 1, "denied_by_both": 1, "allowed_by_both": 1,
        "limits": {
            "PerClient": {"newly_denied": 0, "newly_allowed": 1, "denied_by_both": 0,
                "allowed_by_both": 0, "denied_in_force": 2,
                "allowed": 0, "denied": 0, "keys": 0, "keys_denied": 0},
            "PerPath": {"newly_denied": 0, "newly_allowed": 0, "denied_by_both": 1,
                "allowed_by_both": 1, "denied_in_force": 0,
                "allowed": 2, "denied": 1, "keys": 1, "keys_denied": 1}},
        "top_newly_denied": [],
        "top_newly_allowed": [{"limit": "PerClient", "id": "1.1.1.1", "lines": 1,
            "denied_in_force": 2, "denied": 0, "first_at_ns": 1_431_856_800_000_000_000_u64}]});
    assert_eq!(summary["against"], against);

    let ran = dir.run(&format!("{replay} --rule PerClient=client --rule PerPaht=path"));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""));
    assert_eq!(
        ran.stderr,
        "--rule PerPaht=path: unknown limit \"PerPaht\"; the limits are PerClient\n"
    );
}

/// A layer would answer these requests with a 400: such a candidate is not harmless.
#[test]
fn lines_that_only_the_candidate_skips_are_reported() {
    let dir = Sandbox::new();
    dir.put(
        "log",
        "1.1.1.1 - - [17/May/2015:10:00:00 +0000] \"GET /a HTTP/1.1\" 200 1\n".repeat(7),
    );
    let limit =
        |burst: u64, id: &str| format!("A: {{burst: {burst}, count: 1, period: 1h, id: {id}}}\n");
    dir.put("old.yml", limit(100, "ipAddress"));
    let replay = "replay --log log --limits old.yml --against new.yml --rule A=client,cost=3";
    let reasons = [
        (limit(2, "ipAddress"), "cost 3 is above the burst 2 of A"),
        (limit(100, "regId"), "client: "),
    ];
    for (candidate, reason) in reasons {
        dir.put("new.yml", candidate);
        let ran = dir.run(&format!("{replay} --report r.html"));
        assert_eq!(ran.status, Some(1), "{ran:?}");
        let compared = "\
0 lines newly denied, 0 newly let through, 0 denied by both, 0 allowed by both
7 lines not compared: only one of the files has an answer
7 lines skipped under new.yml alone: a layer answers such requests with a 400
";
        assert!(ran.stdout.contains(compared), "{}", ran.stdout);
        let messages: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(messages.len(), 5, "{ran:?}");
        let start = format!("skipped line 1 under new.yml: {reason}");
        assert!(messages[0].starts_with(&start), "{ran:?}");
        let page = dir.get("r.html");
        for part in [
            "<dd data-fact=\"newly skipped\" data-value=\"7\">",
            "<dd data-fact=\"clients affected\" data-value=\"1\">",
            "7 lines were skipped under new.yml alone",
        ] {
            assert!(page.replace("<bdi>", "").replace("</bdi>", "").contains(part), "{part}");
        }
        let found = dir.run(&format!("{replay} --json")).json();
        assert_eq!(found["skipped"], 0);
        let against = &found["against"];
        assert_eq!((&against["newly_skipped"], &against["not_compared"]), (&json!(7), &json!(7)));
    }

    // The other way round the candidate decides lines that the limits in force skip.
    let ran = dir
        .run("replay --log log --limits new.yml --against old.yml --rule A=client,cost=101 --json");
    assert_eq!((ran.status, &ran.json()["against"]["newly_skipped"]), (Some(1), &json!(0)));
    dir.put("new.yml", limit(2, "ipAddress"));
    let ran = dir
        .run("replay --log log --limits new.yml --against old.yml --rule A=client,cost=50 --json");
    let against = &ran.json()["against"];
    let counts = ["newly_skipped", "not_compared", "allowed", "denied"].map(|name| &against[name]);
    assert_eq!(counts, [&json!(0), &json!(7), &json!(2), &json!(5)], "{ran:?}");
    assert!(
        ran.stderr
            .ends_with("log: all lines were skipped; the most frequent reason (7 of 7 lines, first line 1) is: cost 50 is above the burst 2 of A\n"),
        "{ran:?}"
    );
}

#[test]
fn faults_of_both_files_are_reported() {
    let dir = Sandbox::new();
    dir.put("bad.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\n");
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    let ran = dir.run("replay --limits bad.yml --against missing.yml --trace t.jsonl");
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""));
    assert!(ran.stderr.starts_with("bad.yml:1: "), "{ran:?}");
    assert!(ran.stderr.lines().last().unwrap().starts_with("missing.yml"), "{ran:?}");
    let ran = dir.run("replay --limits limits.yml --against bad.yml --trace t.jsonl");
    assert_eq!((ran.status, ran.stderr.starts_with("bad.yml:1: ")), (Some(2), true), "{ran:?}");
}
