//! TLS to a server and to a cluster. A node is a program of its own, because the certificates that it trusts are named by a
//! variable of its environment.
//!
//! `tls/` has a certificate of `127.0.0.1` with its key, and that of the authority that has signed it, all made for these
//! tests by openssl and valid until 2126.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::server::{Server, free_port, left_out, with_all};
use super::shards::Shards;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

/// Ids whose keys are in the slots of all servers of a cluster.
const IDS: [&str; 6] = ["alice", "bob", "carol", "dan", "eve", "frank"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shared/valkey/tests/tls").join(name)
}

/// The arguments of a server that has TLS at a port.
pub(super) fn arguments(port: u16) -> Vec<String> {
    let text = |name| file(name).to_str().unwrap().to_owned();
    let with = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", text("server.pem")),
        ("--tls-key-file", text("server.key")),
        ("--tls-ca-cert-file", text("ca.pem")),
        ("--tls-auth-clients", "no".into()),
        ("--tls-cluster", "yes".into()),
    ];
    with.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Whether a server program was built with TLS.
fn has_tls(binary: &Path) -> bool {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut command = Command::new(binary);
    command.args(["--port", "0", "--save", "", "--dir"]).arg(folder.path()).args(arguments(port));
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    loop {
        let is_up = TcpStream::connect(("127.0.0.1", port)).is_ok();
        if is_up || child.try_wait().unwrap().is_some() {
            let _ = (child.kill(), child.wait());
            return is_up;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn with_each_of_tls(test: impl Fn(&Path)) {
    with_all(|binary| match has_tls(binary) {
        true => test(binary),
        false => left_out(&format!("TLS on {}, which was built without it", binary.display())),
    });
}

/// A node: spends two of five units of each id, and prints the rest, or why it has no store.
#[test]
#[ignore = "the program of the tests below"]
fn tls_program() {
    let Ok(url) = std::env::var("TOLLGATE_TEST_TLS") else { return };
    let limits = format!(
        "store: {{url: \"{url}\", timeout: 2s, connect: 2s}}\n\
         PerUser: {{burst: 5, count: 1, period: 1h, id: string, shared: exact, on_error: deny}}\n"
    );
    let limiter = Limiter::new(Limits::from_yaml(&limits).unwrap());
    let users = limiter.shared("PerUser").unwrap();
    for id in IDS {
        match block_on(users.blocked_for(id)) {
            Ok(_) => println!("left: {:?}", block_on(users.spend(id, 2)).unwrap().remaining()),
            Err(error) => println!("error: {error}"),
        }
    }
}

/// Runs a node that trusts the authorities in a file, and returns its lines.
fn run_node(url: &str, trusted: &Path) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["shared::valkey::tests::tls::tls_program", "--ignored", "--exact", "--nocapture"])
        .env("TOLLGATE_TEST_TLS", url)
        .env("SSL_CERT_FILE", trusted)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let is_told = |line: &&str| line.contains("left: ") || line.contains("error: ");
    text.lines().filter(is_told).map(str::to_owned).collect()
}

/// Runs nodes that trust the servers' authority, and nodes that do not.
fn assert_trusts_certificates(url: &str) {
    for left in [3, 1] {
        let lines = run_node(url, &file("ca.pem"));
        assert_eq!(lines.len(), IDS.len(), "{lines:?}");
        assert!(
            lines.iter().all(|line| line.contains(&format!("left: Some({left})"))),
            "{lines:?}"
        );
    }
    // The certificate of the server has signed nothing.
    let lines = run_node(url, &file("server.pem"));
    assert_eq!(lines.len(), IDS.len(), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("error: ")), "{lines:?}");
}

#[test]
fn servers_are_asked_by_tls() {
    with_each_of_tls(|binary| {
        let port = free_port();
        let arguments = arguments(port);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let _server = Server::start_with(binary, &arguments);
        assert_trusts_certificates(&format!("rediss://127.0.0.1:{port}"));
    });
}

#[test]
fn clusters_are_asked_by_tls() {
    with_each_of_tls(|binary| {
        let ports = [free_port(), free_port(), free_port()];
        let _shards = Shards::start_with(binary, |at| arguments(ports[at]));
        assert_trusts_certificates(&format!("rediss-cluster://127.0.0.1:{}", ports[0]));
    });
}
