//! Tests logs of JSON objects: they get the same answers as the log in the combined format that they are converted from.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Sandbox, log_line, real_log};

/// A line of the combined format, split into its fields.
struct Line<'a> {
    client: &'a str,
    time: &'a str,
    request: &'a str,
    status: &'a str,
    bytes: &'a str,
    agent: &'a str,
}

impl<'a> Line<'a> {
    /// Splits a line whose fields have no escaped quotes.
    fn split(line: &'a str) -> Line<'a> {
        let (client, rest) = line.split_once(' ').unwrap();
        let (_, rest) = rest.split_once('[').unwrap();
        let (time, rest) = rest.split_once("] \"").unwrap();
        let (request, rest) = rest.split_once("\" ").unwrap();
        let mut tail = rest.split(' ');
        let [status, bytes] = [(); 2].map(|()| tail.next().unwrap());
        Line { client, time, request, status, bytes, agent: line.split('"').nth(5).unwrap_or("-") }
    }

    /// Formats the line as nginx's common `log_format` of JSON does: all values are text.
    fn nginx(&self) -> Value {
        let bytes = if self.bytes == "-" { "0" } else { self.bytes };
        json!({
            "time_local": self.time, "remote_addr": self.client, "remote_user": "-",
            "request": self.request, "status": self.status, "body_bytes_sent": bytes,
            "http_referer": "-", "http_user_agent": self.agent, "http_x_forwarded_for": "-",
        })
    }

    /// Formats the line as Caddy does.
    fn caddy(&self) -> Value {
        let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", self.time).unwrap();
        let seconds = time.to_timestamp().unwrap().as_second();
        let mut request = self.request.split(' ');
        let [method, uri] = [(); 2].map(|()| request.next().unwrap());
        json!({
            "level": "info", "ts": seconds as f64, "logger": "http.log.access.log0",
            "msg": "handled request",
            "request": {
                "remote_ip": self.client, "remote_port": "41342", "client_ip": self.client,
                "proto": "HTTP/1.1", "method": method, "host": "localhost", "uri": uri,
                "headers": {"User-Agent": [self.agent], "Accept": ["*/*"]},
            },
            "bytes_read": 0, "user_id": "", "duration": 0.000_929_675,
            "size": self.bytes.parse::<u64>().unwrap_or(0),
            "status": self.status.parse::<u64>().unwrap(),
            "resp_headers": {"Server": ["Caddy"], "Content-Type": []},
        })
    }
}

const LIMITS: &str = "\
PerClient: {burst: 2, count: 1, period: 1m, id: ipAddress}
PerPath: {burst: 5, count: 1, period: 10s, id: string}
PerBoth: {burst: 2, count: 1, period: 1m, id: \"ipAddress:string\"}
Bytes: {burst: 100000, count: 1000, period: 1s, id: ipAddress}
";

/// The rules that the real log is replayed by.
const RULES: [&str; 3] = [
    "--rule PerClient=client --rule PerPath=path,method=GET",
    "--rule PerBoth=client+path,path=/presentations,status=200",
    "--rule Bytes=client,cost=bytes --reorder 10m",
];

/// Replays a log in each format, and asserts that all answers are the same.
fn compare(dir: &Sandbox, log: &str, rules: &str) {
    dir.put("limits.yml", LIMITS);
    let objects = |convert: fn(&Line<'_>) -> Value| {
        log.lines().map(|line| format!("{}\n", convert(&Line::split(line)))).collect::<String>()
    };
    let replay = |log: String| {
        dir.put("log", log);
        let command =
            "replay --limits limits.yml --log log --json --decisions d.jsonl --report r.html";
        let ran = dir.run(&format!("{command} {rules}"));
        (ran.status, ran.json(), dir.get("d.jsonl"), dir.get("r.html"))
    };
    let text = replay(log.to_owned());
    assert_eq!(text.1["parsed"], text.1["lines"], "{rules}");
    assert_eq!(replay(objects(|line| line.nginx())), text, "{rules}");
    assert_eq!(replay(objects(|line| line.caddy())), text, "{rules}");
}

/// A few lines of the kinds that a real log has.
fn few_lines() -> String {
    [
        log_line(
            "83.149.9.216",
            "10:05:03",
            "GET /presentations/a.png HTTP/1.1",
            " 200 203023 \"-\" \"Mozilla/5.0 (X11)\"",
        ),
        log_line(
            "83.149.9.216",
            "10:05:43",
            "GET /presentations/a.png HTTP/1.1",
            " 200 - \"-\" \"curl/7\"",
        ),
        log_line("2001:db8::1", "10:05:12", "POST /?flav=rss20 HTTP/1.1", " 404 12 \"-\" \"-\""),
        log_line(
            "83.149.9.216",
            "10:05:07",
            "GET /presentations/a.png HTTP/1.1",
            " 304 0 \"-\" \"curl/7\"",
        ),
        log_line(
            "::ffff:83.149.9.216",
            "10:05:08",
            "HEAD /presentations HTTP/1.0",
            " 200 99999 \"-\" \"curl/7\"",
        ),
    ]
    .concat()
}

#[test]
fn conversions_of_a_log_get_its_answers() {
    let dir = Sandbox::new();
    for rules in RULES {
        compare(&dir, &few_lines(), rules);
    }
    let Some(log) = real_log() else { return };
    // The function that splits lines does not read escapes.
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains('\\')).take(3000).collect();
    assert_eq!(lines.len(), 3000);
    for rules in RULES {
        compare(&dir, &(lines.join("\n") + "\n"), rules);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn conversions_of_any_log_get_its_answers(
        lines in proptest::collection::vec(
            ("[12]", 0..4_u8, 0..60_u8, "GET|POST", "/[a-c]{0,2}(\\?x)?", "200|404", "[0-9]{1,6}|-"),
            1..40,
        ),
        rules in proptest::sample::select(&RULES[..]),
    ) {
        let lines = lines.into_iter().map(|(client, minute, second, method, path, status, bytes)| {
            let time = format!("10:{minute:02}:{second:02}");
            let tail = format!(" {status} {bytes} \"-\" \"agent\"");
            log_line(&format!("1.1.1.{client}"), &time, &format!("{method} {path} HTTP/1.1"), &tail)
        });
        compare(&Sandbox::new(), &lines.collect::<String>(), rules);
    }
}

#[test]
fn the_format_is_that_of_the_first_line() {
    let dir = Sandbox::new();
    let text = log_line("1.1.1.1", "10:05:03", "GET / HTTP/1.1", " 200 1");
    let json = Line::split(text.trim_end()).nginx();
    let replay = |log: &str, more: &str| {
        dir.put("log", log);
        let ran = dir.run(&format!(
            "replay --limits limits.yml --log log --rule PerClient=client --json {more}"
        ));
        (ran.status.unwrap(), ran.json()["parsed"].as_u64().unwrap())
    };
    assert_eq!(replay(&format!("\n{json}\n{json}\n{text}"), ""), (0, 2));
    assert_eq!(replay(&format!("\n{text}{text}{json}\n"), ""), (0, 2));
    assert_eq!(replay(&format!("{text}{json}\n{json}\n"), "--log-format json"), (0, 2));
    assert_eq!(replay(&format!("{json}\n"), "--log-format text"), (1, 0));
}

#[test]
fn keys_need_a_log_of_json() {
    let dir = Sandbox::new();
    dir.put("log", log_line("1.1.1.1", "10:05:03", "GET / HTTP/1.1", " 200 1"));
    for (option, arguments) in [
        ("--field", "--rule A=client --field user=.sub"),
        ("--rule A=.tenant?", "--rule A=.tenant?"),
        ("--rule A=client+.tenant", "--rule A=client+.tenant --rule B=path"),
        ("--rule A=client,.tenant=x", "--rule A=client,.tenant=x"),
        ("--rule A=client,cost=.units", "--rule A=client,cost=.units --log-format text"),
    ] {
        for command in ["replay", "explain A x"] {
            let ran = dir.run(&format!("{command} --limits limits.yml --log log {arguments}"));
            assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{arguments}: {ran:?}");
            let expected = format!(
                "{option} is for JSON, and log is read as text: --log-format json reads JSON objects\n"
            );
            assert_eq!(ran.stderr, expected, "{arguments}");
        }
    }
    dir.put("log", "\n");
    let ran = dir.run("replay --limits limits.yml --log log --rule A=.tenant?");
    assert_eq!(ran.status, Some(1), "an empty line: {ran:?}");
}

/// JSON has numbers of any size. Those that no machine number holds are different ids as well.
#[test]
fn long_numbers_are_ids_as_written() {
    let dir = Sandbox::new();
    let ids: Vec<String> = (1..=4)
        .map(|last| format!("1844674407370955161{}", 6 + last))
        .chain((1..=4).map(|last| format!("0.123456789012345678{last}")))
        .collect();
    let line = |id: &String| {
        format!(
            "{{\"ts\":1,\"remote_addr\":\"1.1.1.1\",\"request\":\"-\",\"app\":{{\"tenant\":{id}}}}}\n"
        )
    };
    dir.put("log", ids.iter().map(line).collect::<String>().repeat(3));
    dir.put("limits.yml", LIMITS);
    let ran = dir.run("replay --limits limits.yml --log log --json --rule PerPath=.app.tenant");
    let found = ran.json();
    assert_eq!((&found["limits"]["PerPath"]["keys"], &found["denied"]), (&json!(8), &json!(0)));
    let ran = dir.run(&format!(
        "replay --limits limits.yml --log log --json --rule PerPath=client,.app.tenant={}",
        ids[1]
    ));
    assert_eq!(ran.json()["limits"]["PerPath"]["allowed"], 3);
}

/// Names other than Caddy's and nginx's.
#[test]
fn fields_of_a_log_can_be_named() {
    let dir = Sandbox::new();
    let line = json!({"when": 1_431_857_103, "source.ip": "1.1.1.1", "http": {"target": "/a"}, "app": {"tenant": 7}, "units": 2});
    dir.put("log", format!("{line}\n").repeat(3));
    let replay = |more: &str| {
        dir.run(&format!(
            "replay --limits limits.yml --log log --json {more} --rule A=.app.tenant,cost=.units"
        ))
    };
    let ran = replay("--field client=.source.ip --field path=.http.target --field time=.when");
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));
    assert_eq!(ran.json()["top_denied"], json!([{"limit": "A", "id": "7", "denied": 1}]));
    let ran = replay("--field path=.http.target --field time=.when");
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let messages: Vec<&str> = ran.stderr.lines().collect();
    assert!(
        messages[0].starts_with("skipped line 1: no client: --field client=.KEY names it: {"),
        "{ran:?}"
    );
    let all = "log: less than half of the lines are JSON objects with a client, a time and a request, 0 of 3: --field names the keys of other members";
    assert_eq!(messages.last(), Some(&all));
    for (field, part) in [
        ("ip=.a", "unknown field \"ip\""),
        ("client=a", "a key begins with a dot"),
        ("client", "FIELD=.KEY is allowed"),
    ] {
        let ran = replay(&format!("--field {field}"));
        assert_eq!(ran.status, Some(2));
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
}
