//! The programs of docs/frameworks.md limit each client by its address; the recipes in them are short, and the page shows
//! the programs as they are.

#[path = "../../../tests/axum_example/server.rs"]
#[allow(dead_code, reason = "only `run` is needed here")]
mod server;

use std::process::Command;

use server::Server;

const PAGE: &str = include_str!("../../../docs/frameworks.md");

/// The name of a framework, its program, and the program's source.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("actix-web", env!("CARGO_BIN_EXE_actix_web"), include_str!("../src/bin/actix_web.rs")),
    ("poem", env!("CARGO_BIN_EXE_poem"), include_str!("../src/bin/poem.rs")),
    ("Rocket", env!("CARGO_BIN_EXE_rocket"), include_str!("../src/bin/rocket.rs")),
];

const BURST: usize = 5;

/// Starts a program on a free port, behind proxies in these networks.
fn start(program: &str, proxies: Option<&str>) -> Server {
    let mut command = Command::new(program);
    // Rocket would print its configuration before the address.
    command.arg("127.0.0.1:0").env("ROCKET_LOG_LEVEL", "off").env_remove("PROXIES");
    if let Some(proxies) = proxies {
        command.env("PROXIES", proxies);
    }
    Server::run(&mut command)
}

/// A response as curl prints it, its head in lower case.
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        let values = |line: &'_ str| line.starts_with(&format!("{name}: "));
        let line = self.head.lines().find(|line| values(line))?;
        Some(line[name.len() + 2..].trim())
    }

    /// Returns `r` of the field `RateLimit`.
    fn remaining(&self) -> usize {
        let field = self.field("ratelimit").unwrap_or_else(|| panic!("no field: {}", self.head));
        let (_, rest) = field.split_once(r#""perclient";r="#).expect("the limit's name");
        rest.split(';').next().unwrap().parse().unwrap()
    }
}

/// Asks from an address of this machine, with more header fields.
fn ask(server: &Server, from: &str, fields: &[&str]) -> Response {
    let mut curl = Command::new("curl");
    curl.args(["-si", "--max-time", "20", "--interface", from]);
    for field in fields {
        curl.args(["-H", field]);
    }
    let ran = curl.arg(format!("http://{}/", server.address)).output();
    let ran = ran.expect("this test needs curl: install Debian's package curl");
    assert!(ran.status.success(), "{ran:?}");
    let text = String::from_utf8(ran.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let head = head.to_lowercase();
    let status = head.split(' ').nth(1).expect("a status").parse().unwrap();
    Response { status, head, body: body.to_owned() }
}

fn assert_denied(denied: &Response) {
    assert_eq!((denied.status, denied.body.as_str()), (429, "too many requests\n"));
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    assert_eq!(denied.field("ratelimit-policy"), Some(r#""perclient";q=5;w=60"#));
    assert_eq!(denied.remaining(), 0);
    let wait: u64 = denied.field("retry-after").expect("a wait").parse().unwrap();
    assert!((1..=12).contains(&wait), "one comes back every 12 s: {wait}");
}

/// Asks until the client is denied. On a slow machine a unit may come back meanwhile.
fn spend_all(server: &Server, from: &str, fields: &[&str]) -> Response {
    let mut responses = (0..4 * BURST).map(|_| ask(server, from, fields));
    responses.find(|response| response.status != 200).expect("a denial")
}

#[test]
fn each_client_has_its_own_bucket() {
    for (name, program, _) in PROGRAMS {
        let server = start(program, None);
        let first = ask(&server, "127.0.0.1", &[]);
        assert_eq!((first.status, first.body.as_str()), (200, "hello\n"), "{name}");
        assert_eq!(first.remaining(), BURST - 1, "{name}: one request is one unit");
        assert_eq!(first.field("ratelimit-policy"), Some(r#""perclient";q=5;w=60"#), "{name}");
        assert_eq!((first.field("retry-after"), first.field("cache-control")), (None, None));
        assert_denied(&spend_all(&server, "127.0.0.1", &[]));
        // No proxy is trusted: these fields are text of the client.
        let forged = ["x-forwarded-for: 6.6.6.6", "x-real-ip: 6.6.6.6", "forwarded: for=6.6.6.6"];
        assert_denied(&ask(&server, "127.0.0.1", &forged));
        if cfg!(target_os = "linux") {
            let other = ask(&server, "127.0.0.2", &[]);
            assert_eq!((other.status, other.remaining()), (200, BURST - 1), "{name}");
        }
    }
}

#[test]
fn trusted_proxies_name_their_clients() {
    for (name, program, _) in PROGRAMS {
        let server = start(program, Some("127.0.0.1"));
        let alice = "x-forwarded-for: 192.0.2.7";
        assert_denied(&spend_all(&server, "127.0.0.1", &[alice]));
        // The client's own text is further left, also on a line of its own.
        assert_denied(&ask(&server, "127.0.0.1", &["x-forwarded-for: 6.6.6.6, 192.0.2.7"]));
        assert_denied(&ask(&server, "127.0.0.1", &["x-forwarded-for: 6.6.6.6", alice]));
        let bob = ask(&server, "127.0.0.1", &["x-forwarded-for: 192.0.2.7, 192.0.2.8"]);
        assert_eq!((bob.status, bob.remaining()), (200, BURST - 1), "{name}");
        for fields in [&[][..], &["x-forwarded-for: unknown"], &[alice, "x-forwarded-for: -"]] {
            let refused = ask(&server, "127.0.0.1", fields);
            assert_eq!(refused.status, 500, "{name}: {fields:?}");
            assert!(!refused.body.contains("127.0.0.1"), "{name}: {}", refused.body);
            assert!(!refused.body.contains("hello"), "{name}");
        }
        if cfg!(target_os = "linux") {
            let stranger = ask(&server, "127.0.0.2", &[alice]);
            assert_eq!((stranger.status, stranger.remaining()), (200, BURST - 1), "{name}");
        }
    }
}

#[test]
fn recipes_have_at_most_20_lines() {
    for (name, _, source) in PROGRAMS {
        let (_, rest) = source.split_once("// The recipe begins.\n").expect(name);
        let (recipe, _) = rest.split_once("// The recipe ends.\n").expect(name);
        let lines = recipe.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        println!("{name}: {lines} lines");
        assert!((10..=20).contains(&lines), "{name}: {lines} lines");
    }
}

#[test]
fn guide_shows_the_programs_and_their_versions() {
    let blocks: Vec<&str> = PAGE.split("```rust,ignore\n").skip(1).collect();
    assert_eq!(blocks.len(), PROGRAMS.len());
    for (block, (name, _, source)) in blocks.into_iter().zip(PROGRAMS) {
        let (shown, _) = block.split_once("```").expect("an end of the block");
        let (_, program) = source.split_once("\n\n").expect("a first comment");
        assert!(shown == program, "{name}: the page shows\n{shown}");
    }
    let lock = include_str!("../Cargo.lock");
    for name in ["actix-web", "poem", "rocket"] {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).expect(name);
        let version = rest.split('"').next().unwrap();
        assert!(PAGE.contains(&format!("{name} {version}")), "{name} {version}");
    }
}
