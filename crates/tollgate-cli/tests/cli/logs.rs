//! Tests access logs: the order of lines, their fields, gzip, IPv6 prefixes, and lines that do not parse.

use crate::support::{Sandbox, gzip, log_line};

/// Makes a log with lines out of order, lines of the same time, a line that is too late for the time window,
/// an IPv6 and an IPv4-mapped address, escaped quotes, and lines whose end is cut off.
fn small_log() -> String {
    [
        log_line("1.1.1.1", "10:00:05", "GET /a HTTP/1.1", " 200 1 \"-\" \"agent\""),
        log_line("2001:DB8::1", "10:00:05", "GET /a HTTP/1.1", " 200 1"),
        log_line("1.1.1.1", "10:00:00", "GET /b HTTP/1.1", " 200 1"),
        "garbage\n".to_owned(),
        log_line("somebody", "10:00:05", "GET /c HTTP/1.1", ""),
        log_line("1.1.1.1", "10:02:00", "GET /\\\"q\\\" HTTP/1.1", " 20"),
        log_line("::ffff:1.1.1.1", "10:00:01", "GET /d HTTP/1.1", " 200 1 \"-\" \"ag"),
    ]
    .concat()
}

const SMALL_SUMMARY: &str = concat!(
    r#"{"lines":7,"parsed":6,"skipped":2,"late":1,"allowed":3,"denied":2,"#,
    r#""limits":{"PerClient":{"allowed":3,"denied":2,"keys":2,"keys_denied":1},"#,
    r#""PerPath":{"allowed":3,"denied":0,"keys":4,"keys_denied":0}},"#,
    r#""top_denied":[{"limit":"PerClient","id":"1.1.1.1","denied":2}]}"#,
    "\n"
);

const TWO_RULES: &str = "replay --limits limits.yml --rule PerClient=client --rule PerPath=path";

#[test]
fn a_small_log_and_its_summary() {
    let dir = Sandbox::new();
    dir.put("access.log", small_log());
    let ran = dir.run(&format!("{TWO_RULES} --log access.log --json --decisions d.jsonl"));
    assert_eq!((ran.status, &*ran.stdout), (Some(0), SMALL_SUMMARY));
    let messages: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[0], "skipped line 4: no [time]: garbage");
    assert!(messages[1].starts_with("skipped line 5: client: "), "{}", messages[1]);
    let denied = r#"{"allowed":false,"remaining":0,"retry_in_ns":5000000000,"reset_in_ns":5000000000,"denied_by":"PerClient:1.1.1.1"}"#;
    let allowed =
        r#"{"allowed":true,"remaining":0,"retry_in_ns":10000000000,"reset_in_ns":10000000000}"#;
    let decisions = dir.get("d.jsonl");
    assert_eq!(decisions.lines().collect::<Vec<_>>(), [allowed, denied, allowed, denied, allowed]);
}

#[test]
fn gzip_logs_equal_plain_ones() {
    let dir = Sandbox::new();
    let log = small_log();
    // A gzip file may be a concatenation of gzip files.
    let packed: Vec<u8> = log.as_bytes().chunks(100).flat_map(gzip).collect();
    dir.put("access.log.gz", &packed);
    let ran = dir.run(&format!("{TWO_RULES} --log access.log.gz --json"));
    assert_eq!((ran.status, &*ran.stdout), (Some(0), SMALL_SUMMARY));

    dir.put("cut.gz", &packed[..packed.len() - 5]);
    dir.put("cut", &packed[..packed.len() - 5]);
    for name in ["cut.gz", "cut"] {
        let ran = dir.run(&format!("{TWO_RULES} --log {name} --decisions d.jsonl"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{name}: cannot be read after line ")), "{ran:?}");
    }
    assert_eq!(dir.names(), ["access.log.gz", "cut", "cut.gz", "limits.yml"]);
}

#[test]
fn an_unreadable_log_is_status_one() {
    let dir = Sandbox::new();
    let binary: Vec<u8> =
        (0..4000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    dir.put("binary.log", &binary);
    let ran = dir.run(&format!("{TWO_RULES} --log binary.log --json"));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains(r#""parsed":0,"#) && ran.stdout.contains(r#""allowed":0,"denied":0"#)
    );
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 6, "only the first 5 messages, and one about all: {ran:?}");
    let all =
        "binary.log: less than half of the lines have the common or combined format, 0 of 17: ";
    assert!(lines[5].starts_with(all), "{ran:?}");
    assert!(!ran.stderr.contains('\u{1b}'), "standard error has an escape character");
}

#[test]
fn rules_need_known_limits() {
    let dir = Sandbox::new();
    dir.put("access.log", small_log());
    let ran = dir
        .run("replay --limits limits.yml --log access.log --rule PerCleint=client --rule X=path");
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""));
    let expected = "--rule PerCleint=client: unknown limit \"PerCleint\"; did you mean PerClient?\n--rule X=path: unknown limit \"X\"";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);

    let line = "replay --limits limits.yml --log access.log --json --rule NewOrdersPerAccount=status --decisions -";
    let ran = dir.run(line);
    assert!(
        ran.stderr.contains(r#""NewOrdersPerAccount":{"allowed":"#),
        "a status is a valid regId: {ran:?}"
    );
    let ran = dir.run(
        "replay --limits limits.yml --log access.log --json --rule CertificatesPerDomain=client",
    );
    assert!(
        ran.stdout.contains(r#""limits":{},"top_denied":[]"#),
        "a limit without a default limits nothing: {ran:?}"
    );
}

/// Makes a log with three addresses of one /64, one address of the next /64, and three lines of IPv4: one
/// address in two spellings, and another address.
fn ipv6_log() -> String {
    let clients = [
        "2001:db8:1:2::1",
        "2001:DB8:1:2::2",
        "2001:db8:1:2:ffff::3",
        "2001:db8:1:3::1",
        "1.1.1.1",
        "::ffff:1.1.1.1",
        "1.1.1.2",
    ];
    clients.map(|client| log_line(client, "10:00:05", "GET /a HTTP/1.1", " 200 1")).concat()
}

#[test]
fn ipv6_clients_count_by_their_prefix() {
    let dir = Sandbox::new();
    dir.put("strings.yml", "PerClient: {burst: 1, count: 1, period: 10s, id: string}\n");
    dir.put("access.log", ipv6_log());
    let replay = |limits: &str, prefix: &str| {
        let line = format!("replay --limits {limits} --log access.log --rule PerClient=client");
        let ran = dir.run(&format!("{line} --json {prefix}"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{prefix}");
        let summary = ran.json();
        let of_limit = &summary["limits"]["PerClient"];
        let top = summary["top_denied"].as_array().unwrap();
        let ids: Vec<String> = top.iter().map(|top| top["id"].as_str().unwrap().into()).collect();
        (of_limit["keys"].as_u64().unwrap(), of_limit["denied"].as_u64().unwrap(), ids)
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(replay("limits.yml", ""), (6, 1, ids(&["1.1.1.1"])));
    assert_eq!(replay("limits.yml", "--ipv6-prefix 128"), (6, 1, ids(&["1.1.1.1"])));
    // The id does not depend on the format of the limit.
    let of_64 = ids(&["2001:db8:1:2::", "1.1.1.1"]);
    assert_eq!(replay("limits.yml", "--ipv6-prefix 64"), (4, 3, of_64.clone()));
    assert_eq!(replay("strings.yml", "--ipv6-prefix 64"), (4, 3, of_64));
    assert_eq!(replay("strings.yml", ""), (7, 0, ids(&[])));
    let of_48 = ids(&["2001:db8:1::", "1.1.1.1"]);
    assert_eq!(replay("limits.yml", "--ipv6-prefix 48"), (3, 4, of_48));
    // The report counts clients in the same way.
    dir.run("replay --limits limits.yml --log access.log --rule PerClient=client --ipv6-prefix 64 --report r.html");
    let denied = r#"data-fact="clients denied" data-value="2">2<small>of 4 clients"#;
    assert!(dir.get("r.html").contains(denied), "the report has another number of clients");
    let line = "explain --limits limits.yml PerClient 2001:db8:1:2:: --log access.log --rule PerClient=client";
    let ran = dir.run(&format!("{line} --ipv6-prefix 64"));
    assert!(ran.stdout.contains("a spend of 1: denied"), "{ran:?}");
}

#[test]
fn a_prefix_of_64_gives_layer_ids() {
    use std::net::IpAddr;
    let clients = tollgate::http::ClientAddress::new();
    let dir = Sandbox::new();
    for client in [
        "2002:c000:201:2::1",
        "2001:db8:1:2:3:4:5:6",
        "64:ff9b::192.0.2.9",
        "::ffff:192.0.2.9",
        "192.0.2.9",
    ] {
        let line = log_line(client, "10:00:05", "GET /a HTTP/1.1", " 200 1");
        dir.put("access.log", line.repeat(2));
        let line = "replay --limits limits.yml --log access.log --rule PerClient=client --json --ipv6-prefix 64";
        let summary: serde_json::Value = serde_json::from_str(&dir.run(line).stdout).unwrap();
        let peer: IpAddr = client.parse().unwrap();
        let of_layer = clients.find(Some(peer), &http::HeaderMap::new()).unwrap().to_string();
        assert_eq!(summary["top_denied"][0]["id"], of_layer, "{client}");
    }
}
