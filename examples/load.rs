//! Loads `examples/server.rs` with 41 clients for twelve seconds; seven of them exceed their limit.
//!
//!     cargo run --release --example load -- --port 8080
//!
//! Each client is a `curl` process with its own loopback address. Linux accepts all addresses of 127.0.0.0/8 without
//! configuration; the standard library cannot choose the source address of a connection. A client connects to 127.0.0.1
//! only, and requests a fixed number of pages.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::thread;

const SECONDS: usize = 12;

/// One client and its requests.
struct Client {
    address: Ipv4Addr,
    user_agent: &'static str,
    per_second: usize,
    requests: usize,
}

/// The number of answers by status.
type Answers = BTreeMap<String, usize>;

fn main() -> io::Result<()> {
    let port = port().map_err(io::Error::other)?;
    let clients = clients();
    let answers: Vec<io::Result<Answers>> = thread::scope(|scope| {
        let running: Vec<_> =
            clients.iter().map(|client| scope.spawn(move || client.run(port))).collect();
        let joined = running.into_iter().map(|client| client.join());
        joined.map(|answers| answers.expect("a client does not panic")).collect()
    });
    for (client, answers) in clients.iter().zip(answers) {
        let Client { address, user_agent, per_second, requests } = client;
        println!("{address:15} {requests:4} at {per_second:2}/s {:?} {user_agent}", answers?);
    }
    Ok(())
}

/// 34 clients that stay below ten requests a second, and 7 that do not.
fn clients() -> Vec<Client> {
    const AGENTS: [&str; 4] = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:140.0) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)",
        "feedreader/2.1",
    ];
    let client = |host, user_agent, per_second| Client {
        address: Ipv4Addr::new(127, 0, 0, host),
        user_agent,
        per_second,
        requests: per_second * SECONDS,
    };
    let mut clients: Vec<Client> =
        (0..33).map(|i| client(20 + i as u8, AGENTS[i % AGENTS.len()], 1 + i * 5 % 8)).collect();
    // The monitoring host, within its limit, and then the seven clients above theirs.
    clients.push(client(9, "monitor/1.0", 5));
    clients.push(client(66, "scraper/0.3", 25));
    clients.push(client(67, "scraper/0.3", 15));
    clients.extend((71..75).map(|host| client(host, "python-requests/2.32", 18)));
    clients.push(client(80, "loadtest/0.1", 50));
    clients
}

impl Client {
    /// Requests the pages one after the other on one connection, at this client's rate.
    fn run(&self, port: u16) -> io::Result<Answers> {
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "10", "--noproxy", "*"])
            .args(["--interface", &self.address.to_string(), "--user-agent", self.user_agent])
            .args(["--rate", &format!("{}/s", self.per_second)])
            .args(["--write-out", "%{http_code}\n", "--config", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pages: String = (0..self.requests)
            .map(|nth| {
                format!(
                    "url = \"http://127.0.0.1:{port}{}\"\noutput = \"/dev/null\"\n",
                    self.page(nth)
                )
            })
            .collect();
        // curl reads its configuration to the end first; dropping the pipe ends it.
        curl.stdin.take().expect("piped above").write_all(pages.as_bytes())?;
        let output = curl.wait_with_output()?;
        let mut answers = Answers::new();
        for status in String::from_utf8_lossy(&output.stdout).lines() {
            *answers.entry(status.into()).or_default() += 1;
        }
        Ok(answers)
    }

    /// The page of the client's `nth` request; the order differs from client to client.
    fn page(&self, nth: usize) -> &'static str {
        const PAGES: [&str; 8] = [
            "/",
            "/search?q=rate+limits",
            "/search?q=token+bucket",
            "/",
            "/search?q=everything",
            "/favicon.ico",
            "/",
            "/search?q=gcra&page=2",
        ];
        match self.user_agent {
            "monitor/1.0" => "/health",
            "scraper/0.3" => PAGES[1 + nth % 2 * 3],
            _ => PAGES[(nth * 5 + usize::from(self.address.octets()[3])) % PAGES.len()],
        }
    }
}

fn port() -> Result<u16, String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match given.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(8080),
        ["--port", port] => port.parse().map_err(|_| format!("{port} is no port")),
        _ => Err("wrong arguments: only --port PORT is known".into()),
    }
}
