//! Tests parts of the report against the decisions: affected clients, denied fields and applied overrides.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::report::{fact, rows};
use crate::support::{EXAMPLE_LIMITS, EXAMPLE_LOG, Sandbox, spend};

const CANDIDATE: &str = include_str!("../../../../examples/candidate.yml");

/// A page, its summary, and the lines of the log in the order of time, with whether each of the two files
/// allows them.
struct Run {
    page: String,
    summary: Value,
    lines: Vec<(&'static str, bool, bool)>,
}

fn run(more: &str) -> Run {
    let dir = Sandbox::new();
    dir.put("limits.yml", EXAMPLE_LIMITS);
    dir.put("new.yml", CANDIDATE);
    dir.put("access.log", EXAMPLE_LOG);
    let rule = "--log access.log --rule RequestsPerClient=client";
    let decided = |limits: &str, more: &str| {
        let ran = dir.run(&format!(
            "replay --limits {limits} {rule} --decisions d.jsonl --report r.html --json {more}"
        ));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));
        let allowed = dir.get("d.jsonl");
        let allowed: Vec<bool> =
            allowed.lines().map(|line| line.starts_with("{\"allowed\":true")).collect();
        (allowed, ran.stdout)
    };
    let (new, _) = decided("new.yml", "");
    let (old, summary) = decided("limits.yml", more);
    let mut lines: Vec<&str> = EXAMPLE_LOG.lines().collect();
    // All lines have the same day. Ties stay in the order of the file.
    lines.sort_by_key(|line| line.split(['[', ']']).nth(1).unwrap());
    let lines = lines.into_iter().zip(old).zip(new).map(|((line, old), new)| (line, old, new));
    Run {
        page: dir.get("r.html"),
        summary: serde_json::from_str(&summary).unwrap(),
        lines: lines.collect(),
    }
}

impl Run {
    fn clients(&self, is_counted: impl Fn(bool, bool) -> bool) -> u64 {
        let counted = self.lines.iter().filter(|(_, old, new)| is_counted(*old, *new));
        let clients: BTreeSet<&str> =
            counted.map(|(line, ..)| line.split(' ').next().unwrap()).collect();
        clients.len() as u64
    }

    /// Counts the lines denied now and then by a part of the line.
    fn denied(&self, part: impl Fn(&str) -> &str) -> BTreeMap<String, [u64; 2]> {
        let mut counts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (line, old, new) in &self.lines {
            let of = counts.entry(part(line).to_owned()).or_default();
            of[0] += u64::from(!old);
            of[1] += u64::from(!new);
        }
        counts.retain(|_, of| *of != [0, 0]);
        counts
    }
}

fn quoted(line: &str, nth: usize) -> &str {
    line.split('"').nth(nth).unwrap()
}

#[test]
fn clients_affected_are_counted() {
    let Run { page, summary, .. } = &run("");
    assert_eq!(fact(page, "clients denied"), summary["limits"]["RequestsPerClient"]["keys_denied"]);
    assert!(page.contains("of 41 clients"), "{page}");
    let run = run("--against new.yml");
    let affected = run.clients(|old, new| old != new);
    assert!(affected > 0 && affected < 41, "{affected}");
    assert_eq!(fact(&run.page, "clients affected"), affected);
    assert_eq!(run.clients(|_, _| true), 41);
    assert!(run.page.contains("of 41 clients"));
}

#[test]
fn ids_of_a_trace_stand_for_clients() {
    let dir = Sandbox::new();
    let a = |id: &str| spend(1, &format!(r#"{{"limit":"B","id":"{id}"}}"#));
    let trace = [a("x"), a("x"), a("x"), a("y"), a("y"), a("z")].concat();
    dir.put("t.jsonl", trace);
    dir.put("new.yml", "B: {burst: 1, count: 1, period: 1s, id: string}\n");
    dir.run("replay --limits limits.yml --trace t.jsonl --report r.html");
    let page = dir.get("r.html");
    assert_eq!(fact(&page, "ids denied"), 1);
    assert!(page.contains("of 3 ids"));
    assert!(!page.contains("data-table=\"denied-path\""), "a trace has no paths");
    dir.run("replay --limits limits.yml --against new.yml --trace t.jsonl --report r.html");
    let page = dir.get("r.html");
    assert_eq!(fact(&page, "ids affected"), 2, "x had been denied, and is denied once more");
    assert!(page.contains("of 3 ids"));
}

#[test]
fn denied_fields_agree_with_the_log() {
    for (more, against) in [("", false), ("--against new.yml", true)] {
        let run = run(more);
        for (table, part) in [
            (
                "denied-path",
                (|line| quoted(line, 1).split(' ').nth(1).unwrap().split('?').next().unwrap())
                    as fn(&str) -> &str,
            ),
            ("denied-method", |line| quoted(line, 1).split(' ').next().unwrap()),
            ("denied-user-agent", |line| quoted(line, 5)),
            ("denied-status", |line| quoted(line, 2).split(' ').nth(1).unwrap()),
        ] {
            let mut expected: Vec<(String, Vec<u64>)> = run
                .denied(part)
                .into_iter()
                .map(|(value, of)| (value, if against { of.to_vec() } else { vec![of[0]] }))
                .filter(|(_, of)| of.iter().any(|count| *count > 0))
                .collect();
            let sum = |of: &[u64]| of.iter().sum::<u64>();
            expected.sort_by(|a, b| sum(&b.1).cmp(&sum(&a.1)).then_with(|| a.0.cmp(&b.0)));
            expected.truncate(10);
            assert!(!expected.is_empty(), "{table}");
            let found: Vec<_> = rows(&run.page, table, None)
                .into_iter()
                .map(|(mut texts, numbers)| (texts.remove(0), numbers))
                .collect();
            assert_eq!(found, expected, "{table} {more}");
        }
    }
}

#[test]
fn missing_fields_have_no_table() {
    let dir = Sandbox::new();
    let line = "1.1.1.1 - - [17/May/2015:10:00:00 +0000] \"GET /a?b HTTP/1.1\"";
    dir.put("common.log", format!("{line} 200 1\n").repeat(3));
    dir.put("cut.log", format!("{line}\n").repeat(3));
    for (log, tables) in
        [("common.log", [true, true, false, true]), ("cut.log", [true, true, false, false])]
    {
        dir.run(&format!(
            "replay --limits limits.yml --log {log} --rule PerClient=client --report r.html"
        ));
        let page = dir.get("r.html");
        let names = ["denied-path", "denied-method", "denied-user-agent", "denied-status"];
        let found = names.map(|name| page.contains(&format!("data-table=\"{name}\"")));
        assert_eq!(found, tables, "{log}");
        assert_eq!(rows(&page, "denied-path", None), [(vec!["/a".to_owned()], vec![2])]);
    }
}

#[test]
fn applied_overrides_are_listed_for_both_files() {
    let run = run("--against new.yml");
    let of = |client: &str, counted: fn(bool, bool) -> bool| {
        let is_of = |line: &str| line.split(' ').next() == Some(client);
        run.lines.iter().filter(|(line, old, new)| is_of(line) && counted(*old, *new)).count()
            as u64
    };
    let half = "burst 10, count 5, period 1s";
    let own = "burst 60, count 60, period 1s";
    let expected: Vec<(Vec<String>, Vec<u64>)> = [
        ("127.0.0.66", half, "the default"),
        ("127.0.0.9", own, own),
        ("127.0.0.67", half, "the default"),
    ]
    .into_iter()
    .map(|(id, now, then)| {
        let counts = vec![1, of(id, |old, _| old), of(id, |old, _| !old), of(id, |_, new| !new)];
        let line = |text: &str| {
            let is_of = |line: &str| line.contains(&format!("PerClient:{id}"));
            1 + text.lines().position(is_of).unwrap()
        };
        let now = format!("{now}, at limits.yml:{}", line(EXAMPLE_LIMITS));
        let then = match then {
            "the default" => then.to_owned(),
            then => format!("{then}, at new.yml:{}", line(CANDIDATE)),
        };
        (vec![id.to_owned(), now, then], counts)
    })
    .collect();
    let mut found = rows(&run.page, "overrides", Some("RequestsPerClient"));
    let lines = |(_, counts): &(Vec<String>, Vec<u64>)| counts[1] + counts[2];
    assert!(found.is_sorted_by_key(|row| std::cmp::Reverse(lines(row))), "{found:?}");
    found.sort();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(found, sorted);

    // The table and the chart name ids that are newly let through because an override was removed.
    let through = rows(&run.page, "newly-allowed", None);
    assert_eq!(through[0].0[1], "127.0.0.66");
    assert_eq!(
        through[0].0[2..4],
        [
            "override: burst 10, count 5, period 1s, at limits.yml:14",
            "default: burst 40, count 8, period 1s, at new.yml:7"
        ]
    );
    assert_eq!(
        through[2].0[2..4],
        [
            "default: burst 20, count 10, period 1s, at limits.yml:8",
            "default: burst 40, count 8, period 1s, at new.yml:7"
        ]
    );
    assert!(run.page.contains("127.0.0.66, override now, default then"), "above its bar");
    assert!(run.page.contains("3 overrides, 3 of them applied"), "{}", run.page);
}

#[test]
fn an_override_of_an_account_counts_its_ids() {
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "CertificatesPerDomainPerAccount: {burst: 1, count: 1, period: 1h}\n\
         CertificatesPerDomainPerAccount:7: {burst: 2, count: 1, period: 1h}\n\
         CertificatesPerDomainPerAccount:7:a.com: {burst: 5, count: 1, period: 1h}\n\
         CertificatesPerDomainPerAccount:9: {burst: 2, count: 1, period: 1h}\n",
    );
    let line = |id: &str| {
        spend(1, &format!(r#"{{"limit":"CertificatesPerDomainPerAccount","id":"{id}"}}"#))
    };
    let ids = ["7:b.com", "7:b.com", "7:b.com", "7:c.com", "7:a.com", "8:a.com", "8:a.com"];
    dir.put("t.jsonl", ids.map(line).concat());
    dir.run("replay --limits limits.yml --trace t.jsonl --report r.html");
    let page = dir.get("r.html");
    let found = rows(&page, "overrides", Some("CertificatesPerDomainPerAccount"));
    let row = |id: &str, limit: &str, counts: [u64; 3]| {
        (
            vec![id.to_owned(), limit.replace(':', ", count 1, period 1h, at limits.yml:")],
            counts.to_vec(),
        )
    };
    assert_eq!(found, [row("7", "burst 2:2", [2, 3, 1]), row("7:a.com", "burst 5:3", [1, 1, 0])]);
    assert!(page.contains("3 overrides, 2 of them applied"), "{page}");
}

/// The page says which file each limit is of.
#[test]
fn limits_of_both_files_have_their_place() {
    let dir = Sandbox::new();
    dir.put(
        "base.yml",
        "B: {burst: 2, count: 1, period: 1s, id: string}\nB:y: {burst: 3, count: 1, period: 1s}\n",
    );
    dir.put("over.yml", "- B: {burst: 9, count: 1, period: 1s, ids: [x]}\n");
    let line = |id: &str| spend(1, &format!(r#"{{"limit":"B","id":"{id}"}}"#));
    dir.put("t.jsonl", line("x") + &line("y") + &line("z"));
    dir.run("replay --limits base.yml --overrides over.yml --trace t.jsonl --report r.html");
    let page = dir.get("r.html");
    let found: Vec<_> =
        rows(&page, "overrides", Some("B")).into_iter().map(|(texts, _)| texts).collect();
    let row = |id: &str, limit: &str| vec![id.to_owned(), limit.to_owned()];
    assert_eq!(
        found,
        [
            row("x", "burst 9, count 1, period 1s, at over.yml:1"),
            row("y", "burst 3, count 1, period 1s, at base.yml:2"),
        ]
    );
    let text = "default burst 2, count 1, period 1s; 2 overrides, 2 of them applied, in base.yml and over.yml";
    assert!(page.contains(text), "{page}");
}

#[test]
fn one_line_is_not_1_lines() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    dir.put("new.yml", "A: {burst: 6, count: 1, period: 1s, id: string}\n");
    dir.run("replay --limits limits.yml --against new.yml --trace t.jsonl --report r.html");
    let page = dir.get("r.html");
    for text in [
        "1 line would be allowed as before and 0 denied as before.",
        "1 line allowed, 0 denied; 1 id, 0 of them denied.",
        ": 1 line, 1 parsed, 0 failed.",
        "of 1 id<",
        ": 0 ids denied, 0 used 90 % or more of it",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    dir.run("replay --limits limits.yml --trace t.jsonl --report r.html");
    assert!(!dir.get("r.html").contains(">1 lines"), "{page}");
}

#[test]
fn skipped_lines_of_a_log_have_a_tile() {
    let dir = Sandbox::new();
    let line = "1.1.1.1 - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n";
    for (log, skipped) in [(line.repeat(3), 0), (format!("{line}x\n{line}"), 1)] {
        dir.put("log", log);
        dir.run("replay --limits limits.yml --log log --rule PerClient=client --report r.html");
        assert_eq!(fact(&dir.get("r.html"), "skipped"), skipped);
    }
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    dir.run("replay --limits limits.yml --trace t.jsonl --report r.html");
    assert!(!dir.get("r.html").contains("data-fact=\"skipped\""), "a trace has none");
}

/// With one limit, its changes over time are those of all lines.
#[test]
fn no_chart_is_shown_twice() {
    let run = run("--against new.yml");
    let charts = |page: &str| page.matches("data-chart=\"changes-time\"").count();
    assert_eq!(charts(&run.page), 1);
    let dir = Sandbox::new();
    dir.put("new.yml", "PerClient: {burst: 2, count: 1, period: 10s, id: ipAddress}\nPerPath: {burst: 1, count: 1, period: 10s, id: string}\n");
    let line = |client: u8, path: u8| {
        format!("1.1.1.{client} - - [17/May/2015:10:00:00 +0000] \"GET /{path} HTTP/1.1\" 200 1\n")
    };
    dir.put("l", [line(1, 1), line(1, 2), line(2, 3), line(3, 3)].concat());
    dir.run("replay --limits limits.yml --against new.yml --log l --rule PerClient=client --rule PerPath=path --report r.html");
    assert_eq!(charts(&dir.get("r.html")), 3, "two limits have changes, and all lines have both");
    let figures = dir.get("r.html");
    assert!(!figures.contains(">None.<"), "no chart of nothing");
    let mut drawings: Vec<&str> =
        figures.split("<svg").skip(1).map(|svg| svg.split("</svg>").next().unwrap()).collect();
    let count = drawings.len();
    drawings.sort_unstable();
    drawings.dedup();
    assert_eq!(drawings.len(), count, "two drawings are the same");
}

#[test]
fn empty_rows_are_left_out() {
    let run = run("--against new.yml");
    let closeness = rows(&run.page, "closeness", Some("RequestsPerClient"));
    assert!(
        closeness.len() < 11
            && closeness.iter().all(|(_, counts)| counts.iter().any(|count| *count > 0)),
        "{closeness:?}"
    );
    assert!(!run.page.contains(">50 to 60 %<"), "neither in the chart");
}
