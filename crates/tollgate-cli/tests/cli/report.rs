//! Tests the report: its numbers equal those of the summary and of the decisions, and it escapes the text of
//! the log. `tests/page.rs` tests it in a browser.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::support::{EXAMPLE_LIMITS, EXAMPLE_LOG, Sandbox, operation, spend};

/// The rows of a table: the texts and the numbers of each.
pub(crate) type Rows = Vec<(Vec<String>, Vec<u64>)>;

/// Returns each part of a text between `from` and `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> Vec<&'t str> {
    text.split(from).skip(1).map(|rest| rest.split(to).next().unwrap()).collect()
}

/// Returns the table with a name, and with a limit if it has one.
pub(crate) fn rows(page: &str, name: &str, limit: Option<&str>) -> Rows {
    let limit = limit.map_or(String::new(), |limit| format!(" data-limit=\"{limit}\""));
    let tables = between(page, &format!("<table data-table=\"{name}\"{limit}>"), "</table>");
    assert_eq!(tables.len(), 1, "{name}{limit} in {page}");
    let body = between(tables[0], "<tbody>", "</tbody>")[0];
    let text = |cell: &str| {
        let end = cell.find("</t").unwrap();
        let parts = cell[..end].split('<').map(|part| part.split_once('>').map_or("", |p| p.1));
        parts.collect::<String>()
    };
    let row = |row: &str| {
        let cells = row.split("<t").skip(1).map(|cell| format!("<t{cell}"));
        let (numbers, texts): (Vec<_>, Vec<_>) =
            cells.partition(|cell| cell.contains(" data-value=\""));
        let number = |cell: &String| between(cell, "data-value=\"", "\"")[0].parse().unwrap();
        (texts.iter().map(|cell| text(cell)).collect(), numbers.iter().map(number).collect())
    };
    between(body, "<tr>", "</tr>").into_iter().map(row).collect()
}

pub(crate) fn fact(page: &str, name: &str) -> u64 {
    let found = between(page, &format!("data-fact=\"{name}\" data-value=\""), "\"");
    assert_eq!(found.len(), 1, "{name}");
    found[0].parse().unwrap()
}

/// Returns the numbers of a closeness table: keys by tenths, and denied keys. A missing row means 0.
fn closeness(page: &str, limit: &str, column: usize) -> Vec<u64> {
    let mut keys = vec![0; 11];
    for (texts, numbers) in rows(page, "closeness", Some(limit)) {
        let tenth = match &*texts[0] {
            "denied" => 10,
            share => share.split(' ').next().unwrap().parse::<usize>().unwrap() / 10,
        };
        keys[tenth] = numbers[column];
    }
    keys
}

fn example() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("limits.yml", EXAMPLE_LIMITS);
    dir.put("access.log", EXAMPLE_LOG);
    dir.put("new.yml", "RequestsPerClient: {burst: 15, count: 12, period: 1s, id: ipAddress}\n");
    dir
}

/// Returns the second and the client of each line, in the order of time.
fn requests() -> Vec<(String, &'static str)> {
    let read = |line: &'static str| {
        let time = line.split(['[', ']']).nth(1).unwrap();
        // All lines have the same day.
        let second = time.strip_prefix("20/Nov/2026:").unwrap().split(' ').next().unwrap();
        (format!("2026-11-20 {second}"), line.split(' ').next().unwrap())
    };
    let mut requests: Vec<_> = EXAMPLE_LOG.lines().map(read).collect();
    requests.sort_by(|a, b| a.0.cmp(&b.0));
    requests
}

#[test]
fn numbers_agree_with_summary_and_decisions() {
    let dir = example();
    let ran = dir.run(
        "replay --limits limits.yml --log access.log --rule RequestsPerClient=client \
         --decisions d.jsonl --report r.html --json",
    );
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));
    let (page, summary) = (dir.get("r.html"), ran.json());
    for name in ["lines", "allowed", "denied"] {
        assert_eq!(fact(&page, name), summary[name], "{name}");
    }
    let top: Rows = summary["top_denied"]
        .as_array()
        .unwrap()
        .iter()
        .map(|top| {
            let text = |name: &str| top[name].as_str().unwrap().to_owned();
            (vec![text("limit"), text("id")], vec![top["denied"].as_u64().unwrap()])
        })
        .collect();
    assert_eq!(rows(&page, "denied", None), top);

    // The counts over time and the closeness, from the decisions.
    let capacity = |client: &str| match client {
        "127.0.0.9" => 60,
        "127.0.0.66" | "127.0.0.67" => 10,
        _ => 20,
    };
    let mut seconds: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut tenths: BTreeMap<&str, u64> = BTreeMap::new();
    let decisions = dir.get("d.jsonl");
    let requests = requests();
    assert_eq!(decisions.lines().count(), requests.len());
    for ((second, client), decision) in requests.iter().zip(decisions.lines()) {
        let decision: Value = serde_json::from_str(decision).unwrap();
        let is_allowed = decision["allowed"] == true;
        seconds.entry(second.clone()).or_default()[usize::from(is_allowed)] += 1;
        let used = capacity(client) - decision["remaining"].as_u64().unwrap();
        let reached = if is_allowed { (used * 10 / capacity(client)).min(9) } else { 10 };
        let most = tenths.entry(client).or_default();
        *most = reached.max(*most);
    }
    let expected: Rows =
        seconds.into_iter().map(|(second, counts)| (vec![second], counts.to_vec())).collect();
    assert_eq!(rows(&page, "time", Some("RequestsPerClient")), expected);
    let mut keys = vec![0; 11];
    tenths.values().for_each(|reached| keys[*reached as usize] += 1);
    assert_eq!(closeness(&page, "RequestsPerClient", 0), keys);
    assert_eq!(keys.iter().sum::<u64>(), summary["limits"]["RequestsPerClient"]["keys"]);
    assert!(!page.contains("id=\"what-if\"") && !page.contains("changes"), "nothing was compared");

    let numbers = rows(&page, "limits", None);
    let numbers: Vec<&str> = numbers.iter().flat_map(|(texts, _)| texts).map(|t| &**t).collect();
    let expected = ["in force", "limits.yml", "RequestsPerClient", "burst 20, count 10, period 1s"];
    assert_eq!(numbers, expected);
}

#[test]
fn changes_agree_with_summary_and_plain_replays() {
    let dir = example();
    let rule = "--log access.log --rule RequestsPerClient=client";
    let ran = dir.run(&format!(
        "replay --limits limits.yml --against new.yml {rule} --decisions old.jsonl --report r.html --json"
    ));
    dir.run(&format!("replay --limits new.yml {rule} --decisions new.jsonl --report new.html"));
    let (page, summary) = (dir.get("r.html"), ran.json());
    let against = &summary["against"];
    assert_eq!(fact(&page, "newly denied"), against["newly_denied"]);
    assert_eq!(fact(&page, "newly let through"), against["newly_allowed"]);
    let limit = &against["limits"]["RequestsPerClient"];
    let of_limit: Vec<u64> = [
        "newly_denied",
        "newly_allowed",
        "denied_by_both",
        "allowed_by_both",
        "denied_in_force",
        "denied",
    ]
    .map(|name| limit[name].as_u64().unwrap())
    .into();
    assert_eq!(rows(&page, "changes", None), [(vec!["RequestsPerClient".to_owned()], of_limit)]);
    for (table, name) in
        [("newly-denied", "top_newly_denied"), ("newly-allowed", "top_newly_allowed")]
    {
        let numbers = |of: &Value| {
            ["lines", "denied_in_force", "denied"].map(|name| of[name].as_u64().unwrap()).to_vec()
        };
        let expected: Vec<_> = against[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| (of["id"].as_str().unwrap().to_owned(), numbers(of)))
            .collect();
        assert!(!expected.is_empty(), "{name}");
        let found: Vec<_> = rows(&page, table, None)
            .into_iter()
            .map(|(texts, numbers)| {
                assert!(texts[4].starts_with("2026-11-20 11:53:"), "{texts:?}");
                (texts[1].clone(), numbers)
            })
            .collect();
        assert_eq!(found, expected);
    }

    let mut seconds: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let (old, new) = (dir.get("old.jsonl"), dir.get("new.jsonl"));
    let is_allowed = |line: &str| line.starts_with("{\"allowed\":true");
    for ((second, _), (old, new)) in requests().iter().zip(old.lines().zip(new.lines())) {
        match (is_allowed(old), is_allowed(new)) {
            (true, false) => seconds.entry(second.clone()).or_default()[0] += 1,
            (false, true) => seconds.entry(second.clone()).or_default()[1] += 1,
            _ => {}
        }
    }
    let expected: Rows =
        seconds.into_iter().map(|(second, counts)| (vec![second], counts.to_vec())).collect();
    assert!(expected.len() > 5, "{expected:?}");
    assert_eq!(rows(&page, "changes-time", None), expected);
    assert_eq!(
        closeness(&page, "RequestsPerClient", 1),
        closeness(&dir.get("new.html"), "RequestsPerClient", 0)
    );
}

#[test]
fn closeness_in_batches_equals_closeness_alone() {
    let dir = example();
    // No line is denied, so that the limits do not affect each other.
    dir.put(
        "limits.yml",
        "A: {burst: 5000, count: 1, period: 1h, id: ipAddress}\nB: {burst: 2000, count: 1, period: 1s, id: string}\n",
    );
    let replay = "replay --limits limits.yml --log access.log";
    for rules in ["--rule A=client", "--rule B=path", "--rule A=client --rule B=path"] {
        let ran = dir.run(&format!("{replay} {rules} --report {}.html --json", rules.len()));
        assert!(ran.stdout.contains("\"denied\":0,\"limits\""), "{ran:?}");
    }
    let [a, b, both] = ["15.html", "13.html", "29.html"].map(|name| dir.get(name));
    assert_eq!(closeness(&both, "A", 0), closeness(&a, "A", 0));
    assert_eq!(closeness(&both, "B", 0), closeness(&b, "B", 0));
    let used: Vec<bool> = closeness(&both, "B", 0).iter().map(|keys| *keys > 0).collect();
    assert!(used[1..10].contains(&true), "{used:?}");
}

#[test]
fn closeness_counts_what_was_charged() {
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "A: {burst: 10, count: 1, period: 1h, id: string}\n\
         B: {algorithm: token_bucket, limit: 20, window: 1h, burst: 4, id: string}\n",
    );
    let a = |id: &str, more: &str| format!(r#"{{"limit":"A","id":"{id}"{more}}}"#);
    let b = |id: &str, more: &str| format!(r#"{{"limit":"B","id":"{id}"{more}}}"#);
    let trace = [
        spend(1, &a("30 %", r#","cost":3"#)),
        spend(2, &a("50 % of 20", r#","cost":10,"factor":0.5"#)),
        spend(3, &a("all", r#","cost":10"#)),
        spend(4, &a("denied", r#","cost":9"#)),
        spend(5, &a("denied", r#","cost":2"#)),
        // These are checked, not charged, and use nothing.
        spend(6, &format!("{},{}", a("looked at", r#","mode":"check_only","cost":9"#), b("x", ""))),
        spend(6, &a("looked at alone", r#","mode":"check_only","cost":9"#)),
        operation(7, "check", &a("not seen", r#","cost":9"#)),
        spend(8, &a("free", r#","cost":9,"factor":0"#)),
        // This uses 4 of the window's 20, and the whole burst.
        spend(9, &b("burst", r#","cost":4"#)),
        // The largest share counts, not the last one.
        spend(10, &a("given back", r#","cost":7"#)),
        operation(11, "reset", &a("given back", "")),
        spend(12, &a("given back", "")),
    ];
    dir.put("t.jsonl", trace.concat());
    let ran = dir.run("replay --limits limits.yml --trace t.jsonl --report r.html --json");
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let page = dir.get("r.html");
    // The checked ids and "free" used nothing.
    assert_eq!(closeness(&page, "A", 0), [3, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1]);
    assert_eq!(closeness(&page, "B", 0), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    // All lines are in the first microsecond of 1970.
    let time = rows(&page, "time", Some("A"));
    assert_eq!(time, [(vec!["1970-01-01 00:00:00.000000".to_owned()], vec![1, 7])]);
}

#[test]
fn hostile_ids_are_escaped() {
    let dir = Sandbox::new();
    let hostile =
        "/<script>alert('1')</script>\"--></style><img/src=x>&amp;\u{202e}\u{2066}\u{1}\u{1b}[2J";
    let escaped = "/&lt;script&gt;alert('1')&lt;/script&gt;&quot;--&gt;&lt;/style&gt;&lt;img/src=x&gt;&amp;amp;\\u{202e}\\u{2066}\\u{1}\\u{1b}[2J";
    let txn = serde_json::json!({"limit": "PerPath", "id": hostile}).to_string();
    dir.put("<b>.jsonl", (0..5).map(|at_ns| spend(at_ns, &txn)).collect::<String>());
    dir.put("<i>.yml", "PerPath: {burst: 3, count: 1, period: 1s, id: string}\n");
    dir.run("replay --limits limits.yml --against <i>.yml --trace <b>.jsonl --report r.html");
    let page = dir.get("r.html");
    // It is in two tables and above two bars.
    assert_eq!(page.matches(escaped).count(), 2, "{page}");
    assert_eq!(page.matches("alert(").count(), 4, "{page}");
    for bad in ["<script", "<img", "<b>", "<i>", "\u{202e}", "\u{2066}", "\u{1}", "\u{1b}"] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    assert_eq!(page.matches("</style>").count(), 1);
    assert_eq!(rows(&page, "newly-allowed", None)[0].1, [1, 3, 2]);
}

#[test]
fn the_page_is_one_file_that_loads_nothing() {
    let dir = example();
    dir.run("replay --limits limits.yml --against new.yml --log access.log --rule RequestsPerClient=client --report r.html");
    let page = dir.get("r.html");
    let without_names = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for loads in ["http:", "https:", "//", "src=", "href", "url(", "@import", "<script", "<link"] {
        assert!(!without_names.contains(loads), "{loads}");
    }
    assert!(page.contains("content=\"default-src 'none'; "), "and says so to the browser");
    // The same run gives the same page.
    dir.run("replay --limits limits.yml --against new.yml --log access.log --rule RequestsPerClient=client --report again.html");
    assert_eq!(dir.get("again.html"), page);
}

#[test]
fn reports_go_to_files_or_standard_output() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", spend(1, r#"{"limit":"A","id":"x"}"#));
    let ran = dir.run("replay --limits limits.yml --trace t.jsonl --report - --json");
    assert_eq!(ran.status, Some(0));
    assert!(
        ran.stdout.starts_with("<!DOCTYPE html>") && ran.stdout.ends_with("</html>"),
        "{ran:?}"
    );
    assert!(ran.stderr.starts_with("{\"lines\":1,"), "{ran:?}");
    let to_file = dir.run("replay --limits limits.yml --trace t.jsonl --report r.html --json");
    assert_eq!((dir.get("r.html"), to_file.stdout), (ran.stdout, ran.stderr));

    fs::create_dir(dir.path("folder")).unwrap();
    for name in ["folder", "no/such/folder/r.html"] {
        let ran = dir.run(&format!("replay --limits limits.yml --trace - --report {name}"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{name}: cannot be written: ")), "{ran:?}");
    }
    dir.put("cut.gz", [0x1f, 0x8b, 8, 0]);
    dir.put("r.html", "from before");
    let ran = dir.run("replay --limits limits.yml --trace cut.gz --report r.html");
    assert_eq!((ran.status, &*dir.get("r.html")), (Some(2), "from before"));
    assert_eq!(dir.names(), ["cut.gz", "folder", "limits.yml", "r.html", "t.jsonl"]);
}

#[test]
fn traces_without_spends_have_a_page() {
    let dir = Sandbox::new();
    dir.put("t.jsonl", operation(1, "check", r#"{"limit":"A","id":"x"}"#) + "oops\n");
    let ran =
        dir.run("replay --limits limits.yml --against limits.yml --trace t.jsonl --report r.html");
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let page = dir.get("r.html");
    assert_eq!((fact(&page, "lines"), fact(&page, "allowed"), fact(&page, "errors")), (2, 0, 1));
    assert!(page.contains("No line was denied."), "{page}");
}
