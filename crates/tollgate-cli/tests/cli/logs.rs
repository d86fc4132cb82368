//! Access logs: their order, their fields, packed ones, and lines that do not parse.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::desk::Desk;

fn log_line(client: &str, time: &str, request: &str, tail: &str) -> String {
    format!("{client} - - [17/May/2015:{time} +0000] \"{request}\"{tail}\n")
}

/// Out of order, a tie, a late line, IPv6, an IPv4-mapped address, escaped quotes, a cut-off tail.
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
    let desk = Desk::new();
    desk.put("access.log", small_log());
    let ran = desk.run(&format!("{TWO_RULES} --log access.log --json --decisions d.jsonl"));
    assert_eq!((ran.status, &*ran.stdout), (Some(0), SMALL_SUMMARY));
    let said: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], "skipped line 4: no [time]: garbage");
    assert!(said[1].starts_with("skipped line 5: client: "), "{}", said[1]);
    let denied = r#"{"allowed":false,"remaining":0,"retry_in_ns":5000000000,"reset_in_ns":5000000000,"denied_by":"PerClient:1.1.1.1"}"#;
    let allowed =
        r#"{"allowed":true,"remaining":0,"retry_in_ns":10000000000,"reset_in_ns":10000000000}"#;
    let decisions = desk.get("d.jsonl");
    assert_eq!(decisions.lines().collect::<Vec<_>>(), [allowed, denied, allowed, denied, allowed]);
}

#[test]
fn a_packed_log_reads_like_a_plain_one() {
    let desk = Desk::new();
    let log = small_log();
    let packed: Vec<Vec<u8>> = log
        .as_bytes()
        .chunks(100)
        .map(|part| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        })
        .collect();
    let packed = packed.concat();
    desk.put("access.log.gz", &packed);
    let ran = desk.run(&format!("{TWO_RULES} --log access.log.gz --json"));
    assert_eq!((ran.status, &*ran.stdout), (Some(0), SMALL_SUMMARY));

    desk.put("cut.gz", &packed[..packed.len() - 5]);
    desk.put("cut", &packed[..packed.len() - 5]);
    for name in ["cut.gz", "cut"] {
        let ran = desk.run(&format!("{TWO_RULES} --log {name} --decisions d.jsonl"));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{name}: cannot be read after line ")), "{ran:?}");
    }
    assert_eq!(desk.names(), ["access.log.gz", "cut", "cut.gz", "limits.yml"]);
}

#[test]
fn log_with_unparsable_lines_still_succeeds() {
    let desk = Desk::new();
    let binary: Vec<u8> =
        (0..4000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    desk.put("binary.log", &binary);
    let ran = desk.run(&format!("{TWO_RULES} --log binary.log --json"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains(r#""parsed":0,"#) && ran.stdout.contains(r#""allowed":0,"denied":0"#)
    );
    assert_eq!(ran.stderr.lines().count(), 5, "the first few are shown: {ran:?}");
    assert!(!ran.stderr.contains('\u{1b}'), "a terminal obeys nothing of it");
}

#[test]
fn a_rule_needs_a_limit_that_is_known() {
    let desk = Desk::new();
    desk.put("access.log", small_log());
    let ran = desk
        .run("replay --limits limits.yml --log access.log --rule PerCleint=client --rule X=path");
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""));
    let expected = "--rule PerCleint=client: unknown limit \"PerCleint\"; did you mean PerClient?\n--rule X=path: unknown limit \"X\"";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);

    let line = "replay --limits limits.yml --log access.log --json --rule NewOrdersPerAccount=status --decisions -";
    let ran = desk.run(line);
    assert!(
        ran.stderr.contains(r#""NewOrdersPerAccount":{"allowed":"#),
        "a number is an account: {ran:?}"
    );
    let ran = desk.run(
        "replay --limits limits.yml --log access.log --json --rule CertificatesPerDomain=client",
    );
    assert!(ran.stdout.contains(r#""limits":{},"top_denied":[]"#), "no numbers, no limit: {ran:?}");
}

/// Three addresses of one /64, one of its neighbour, and IPv4 in three forms.
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
fn ipv6_clients_are_counted_by_chosen_prefix() {
    let desk = Desk::new();
    desk.put("strings.yml", "PerClient: {burst: 1, count: 1, period: 10s, id: string}\n");
    desk.put("access.log", ipv6_log());
    let replay = |limits: &str, prefix: &str| {
        let line = format!("replay --limits {limits} --log access.log --rule PerClient=client");
        let ran = desk.run(&format!("{line} --json {prefix}"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{prefix}");
        let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let of_limit = &summary["limits"]["PerClient"];
        let top = summary["top_denied"].as_array().unwrap();
        let ids: Vec<String> = top.iter().map(|top| top["id"].as_str().unwrap().into()).collect();
        (of_limit["keys"].as_u64().unwrap(), of_limit["denied"].as_u64().unwrap(), ids)
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(replay("limits.yml", ""), (6, 1, ids(&["1.1.1.1"])));
    assert_eq!(replay("limits.yml", "--ipv6-prefix 128"), (6, 1, ids(&["1.1.1.1"])));
    // The layer's id, whatever the limit's format is.
    let of_64 = ids(&["2001:db8:1:2::", "1.1.1.1"]);
    assert_eq!(replay("limits.yml", "--ipv6-prefix 64"), (4, 3, of_64.clone()));
    assert_eq!(replay("strings.yml", "--ipv6-prefix 64"), (4, 3, of_64));
    assert_eq!(replay("strings.yml", ""), (7, 0, ids(&[])));
    let of_48 = ids(&["2001:db8:1::", "1.1.1.1"]);
    assert_eq!(replay("limits.yml", "--ipv6-prefix 48"), (3, 4, of_48));
    // The page counts clients alike.
    desk.run("replay --limits limits.yml --log access.log --rule PerClient=client --ipv6-prefix 64 --report r.html");
    let denied = r#"data-fact="clients denied" data-value="2">2<small>of 4 clients"#;
    assert!(desk.get("r.html").contains(denied), "of the page");
    let line = "explain --limits limits.yml PerClient 2001:db8:1:2:: --log access.log --rule PerClient=client";
    let ran = desk.run(&format!("{line} --ipv6-prefix 64"));
    assert!(ran.stdout.contains("a spend of 1: denied"), "{ran:?}");
}

/// As of the tower layer.
#[test]
fn a_prefix_of_64_finds_the_layers_ids() {
    use std::net::IpAddr;
    let clients = tollgate::http::ClientAddress::new();
    let desk = Desk::new();
    for client in ["2001:db8:1:2:3:4:5:6", "64:ff9b::192.0.2.9", "::ffff:192.0.2.9", "192.0.2.9"] {
        let line = log_line(client, "10:00:05", "GET /a HTTP/1.1", " 200 1");
        desk.put("access.log", line.repeat(2));
        let line = "replay --limits limits.yml --log access.log --rule PerClient=client --json --ipv6-prefix 64";
        let summary: serde_json::Value = serde_json::from_str(&desk.run(line).stdout).unwrap();
        let peer: IpAddr = client.parse().unwrap();
        let of_layer = clients.find(Some(peer), &http::HeaderMap::new()).unwrap().to_string();
        assert_eq!(summary["top_denied"][0]["id"], of_layer, "{client}");
    }
}
