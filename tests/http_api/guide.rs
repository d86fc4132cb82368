//! The programs in `docs/http.md` are the examples that cargo has built, and they work as the page shows.
#![cfg(feature = "tower")]

#[path = "../axum_example/server.rs"]
pub(crate) mod server;

use std::process::Command;

use server::{Server, program};

const GUIDE: &str = include_str!("../../docs/http.md");
const PROGRAMS: [(&str, &str); 4] = [
    ("http_axum", include_str!("../../examples/http_axum.rs")),
    ("http_tonic", include_str!("../../examples/http_tonic.rs")),
    ("http_hyper", include_str!("../../examples/http_hyper.rs")),
    ("http_nginx", include_str!("../../examples/http_nginx.rs")),
];

/// Returns the code blocks of a page with this word after their fence.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Returns a program without its first comment.
fn code(source: &str) -> &str {
    source.split_once("\n\n").unwrap().1
}

#[test]
fn the_guide_shows_the_programs_that_are_built() {
    let shown = blocks(GUIDE, "rust,no_run");
    let built: Vec<&str> = PROGRAMS.iter().map(|(_, source)| code(source)).collect();
    assert_eq!(shown, built);
    for (program, source) in PROGRAMS {
        let features = if program == "http_nginx" { "snapshot,tower,watch" } else { "tower" };
        let command = format!("`cargo run --example {program} --features {features}`");
        assert!(GUIDE.contains(&command), "{command}");
        assert!(source.contains("async fn main()"));
    }
    let limits = include_str!("../../examples/http_nginx.yml");
    assert_eq!(blocks(GUIDE, "yaml"), [limits]);
}

/// Returns curl's output with the response's head.
fn curl(args: &[&str], url: &str) -> String {
    let ran = Command::new("curl").args(["-si", "--max-time", "20"]).args(args).arg(url).output();
    let ran = ran.expect("this test needs curl: install Debian's package curl");
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// Repeats a request until its answer contains the text, many more times than the burst allows.
fn ask_until(args: &[&str], url: &str, expected: &str) -> String {
    let mut answers = (0..1000).map(|_| curl(args, url));
    answers.find(|answer| answer.contains(expected)).unwrap_or_else(|| panic!("no {expected}"))
}

fn start(name: &str) -> Server {
    Server::run(program(name).arg("127.0.0.1:0"))
}

#[test]
fn axum_and_hyper_answer_as_the_guide() {
    let shown = blocks(GUIDE, "console");
    let (_, shown) = shown[0].split_once("http://127.0.0.1:3000/\n").unwrap();
    for name in ["http_axum", "http_hyper"] {
        let server = start(name);
        let url = format!("http://{}/", server.address);
        let first = curl(&[], &url);
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.ends_with("hello\n"), "{first}");
        assert!(first.contains("ratelimit: \"PerClient\";r=19;t=1\r\n"), "{first}");
        let denied = ask_until(&[], &url, " 429 ");
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("date: "));
            lines.map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(lines(&denied), lines(shown), "{name}");
    }
    let server = start("http_axum");
    for _ in 0..50 {
        let health = curl(&[], &format!("http://{}/health", server.address));
        assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    }
}

#[test]
fn tonic_answers_in_grpcs_terms() {
    let server = start("http_tonic");
    let url = format!("http://{}/hello.Greeter/SayHello", server.address);
    let grpc = ["--http2-prior-knowledge", "-X", "POST", "-H", "content-type: application/grpc"];
    let first = curl(&grpc, &url);
    assert!(first.starts_with("HTTP/2 200") && first.contains("grpc-status: 12\r\n"), "{first}");
    let denied = ask_until(&grpc, &url, "grpc-status: 8\r\n");
    assert!(denied.starts_with("HTTP/2 200"), "{denied}");
    for field in
        ["content-type: application/grpc\r\n", "cache-control: no-store\r\n", "retry-after: 1\r\n"]
    {
        assert!(denied.contains(field), "{denied}");
    }
    let pushback = denied.lines().find_map(|line| line.strip_prefix("grpc-retry-pushback-ms: "));
    let pushback: u64 = pushback.unwrap().trim_end().parse().unwrap();
    assert!((1..=100).contains(&pushback), "one comes back every 100 ms: {pushback}");
    // A request that only resembles gRPC gets an HTTP error status.
    let mut plain = grpc;
    plain[2] = "GET";
    let denied = ask_until(&plain, &url, "cache-control: no-store\r\n");
    assert!(denied.starts_with("HTTP/2 429"), "{denied}");
}

#[cfg(target_os = "linux")]
#[test]
fn each_peer_has_its_own_bucket() {
    let grpc = ["--http2-prior-knowledge", "-X", "POST", "-H", "content-type: application/grpc"];
    for (name, args, denial) in [
        ("http_axum", &[][..], " 429 "),
        ("http_hyper", &[], " 429 "),
        ("http_tonic", &grpc, "grpc-status: 8\r\n"),
    ] {
        let server = start(name);
        let url = format!("http://{}/", server.address);
        ask_until(args, &url, denial);
        // Linux has all of 127.0.0.0/8 on the loopback device.
        let other = curl(&[args, &["--interface", "127.0.0.2"]].concat(), &url);
        assert!(other.contains("ratelimit: \"PerClient\";r=19;t=1\r\n"), "{name}: {other}");
    }
}

/// Sends requests as nginx does, which adds its client to the field: at each address, by each key, and for the route.
#[cfg(all(unix, feature = "snapshot", feature = "watch"))]
#[test]
fn service_behind_nginx_limits_as_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (limits, buckets) = (path("limits.yml"), path("buckets"));
    // The numbers of the guide come back within a test.
    let slow = |burst: &str| format!("{{burst: {burst}, count: 1, period: 1h");
    let file = |keys: &str| {
        let (client, key, login) = (slow("20"), slow(keys), slow("5"));
        format!(
            "PerClient: {client}, id: ipAddress}}\nPerKey: {key}, id: string}}\nLogin: {login}, id: ipAddress}}\n"
        )
    };
    std::fs::write(&limits, file("10")).unwrap();
    let start = || Server::run(program("http_nginx").args(["127.0.0.1:0", &limits, &buckets]));
    let server = start();
    let ask = |server: &Server, args: &[&str], forwarded: &str, path: &str| {
        let field = format!("x-forwarded-for: {forwarded}");
        let args = [&["-H", &field], args].concat();
        curl(&args, &format!("http://{}{path}", server.address))
    };
    let allowed = |server: &Server, args: &[&str], client: &str, path: &str| {
        let answers = (0..25).map(|n| {
            // Each time the client invents another entry to the left of its own.
            ask(server, args, &format!("203.0.113.{n}, {client}"), path)
        });
        let allowed = |answer: &String| {
            assert!([" 200 ", " 404 ", " 429 "].iter().any(|it| answer.contains(it)), "{answer}");
            answer.contains(" 200 ")
        };
        answers.filter(allowed).count()
    };
    // 127.0.0.1 is the proxy's own address, and a client as well.
    assert_eq!(allowed(&server, &[], "127.0.0.1", "/api/search"), 20);
    assert_eq!(allowed(&server, &["-X", "POST"], "192.0.2.1", "/api/login"), 5);
    assert_eq!(allowed(&server, &["-X", "POST"], "192.0.2.2", "/api/%6cogin?a=b"), 0, "no route");
    assert_eq!(allowed(&server, &[], "192.0.2.1", "/api/search"), 15, "denied logins cost nothing");
    assert_eq!(allowed(&server, &["-H", "x-api-key: k1"], "192.0.2.3", "/api/search"), 10);
    assert_eq!(allowed(&server, &["-H", "x-api-key: k1"], "192.0.2.4", "/api/search"), 0);
    for path in ["/health", "/metrics"] {
        assert_eq!(allowed(&server, &[], "192.0.2.1", path), 25, "{path}");
    }
    assert!(ask(&server, &[], "192.0.2.1", "/none").contains(" 404 "));
    let metrics = ask(&server, &[], "192.0.2.1", "/metrics");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let logins = "tollgate_decisions_total{limit=\"Login\",outcome=\"allowed\"} 5\n";
    assert!(metrics.contains(logins), "{metrics}");
    // The file changes, with a rename.
    std::fs::write(path("new.yml"), file("100")).unwrap();
    std::fs::rename(path("new.yml"), &limits).unwrap();
    let args = ["-H", "x-api-key: k2"];
    let mut answers = (5..250_u32).map(|n| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ask(&server, &args, &format!("192.0.2.{n}"), "/api/search")
    });
    let reloaded = |answer: &String| answer.contains("\"PerKey\";q=100;");
    assert!(answers.any(|answer| reloaded(&answer)), "the new limits are loaded");
    // The buckets outlive the program.
    let (status, _) = server.interrupt();
    assert!(status.success(), "{status}");
    let server = start();
    assert_eq!(allowed(&server, &["-X", "POST"], "192.0.2.1", "/api/login"), 0);
    assert!(ask(&server, &[], "192.0.2.1", "/api/search").contains(" 429 "));
}
