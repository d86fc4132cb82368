//! The program of `docs/in-flight.md`: a gateway with requests, tokens and streams in flight.
#![cfg(feature = "tower")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::guide::server::{Server, program};

/// Sends a request for so many tokens. Returns the answer's head and body.
fn curl(server: &Server, key: &str, user: &str, tokens: u64) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-si", "--max-time", "20", "-X", "POST"])
        .args(["-H", &format!("authorization: Bearer {key}"), "-H", "x-tenant: acme"])
        .args(["-H", &format!("x-user: {user}"), "-H", &format!("x-max-tokens: {tokens}")])
        .arg(format!("http://{}/v1/answers", server.address));
    curl
}

fn answer(server: &Server, key: &str, user: &str, tokens: u64) -> String {
    let ran = curl(server, key, user, tokens).output().expect("this test needs curl");
    String::from_utf8(ran.stdout).unwrap()
}

/// The tokens that a user has left, as the fields say.
fn left(answer: &str) -> u64 {
    let field = answer.split_once("\"TokensPerUser\";r=").expect("fields").1;
    field.split(';').next().unwrap().parse().unwrap()
}

#[test]
fn gateway_charges_what_was_sent() {
    let server = Server::run(program("gateway").arg("127.0.0.1:0"));
    let first = answer(&server, "k", "alice", 3);
    assert!(first.starts_with("HTTP/1.1 200 OK"), "{first}");
    assert!(first.contains("token 0\n") && first.contains("token 2\n"), "{first}");
    assert_eq!(left(&first), 4_997, "the estimate at the head");
    // An estimate of 4,000, of which 200 are sent.
    let second = answer(&server, "k", "alice", 4_000);
    // Some tokens have come back meanwhile: 83 a second.
    assert!((997..=1_100).contains(&left(&second)), "{}", left(&second));
    let third = answer(&server, "k", "alice", 1);
    assert!((4_790..=4_999).contains(&left(&third)), "{}: the rest went back", left(&third));
    // The user's tokens deny, and the tenant keeps its stream.
    let denied = answer(&server, "k", "bob", 4_000);
    assert!(denied.starts_with("HTTP/1.1 200 OK"), "another user: {denied}");
}

#[test]
fn gateway_frees_streams_of_clients_that_go() {
    let server = Server::run(program("gateway").arg("127.0.0.1:0"));
    // Answers of 200 tokens, a ms each. The controller allows at most 16 streams.
    let stream = |nth: usize| -> Child {
        let mut curl = curl(&server, &format!("k{nth}"), &format!("u{nth}"), 200);
        curl.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut streams: Vec<Child> = (0..40).map(stream).collect();
    std::thread::sleep(Duration::from_millis(60));
    streams.iter_mut().take(20).for_each(|stream| stream.kill().unwrap());
    let heads: Vec<String> = streams
        .into_iter()
        .map(|stream| String::from_utf8_lossy(&stream.wait_with_output().unwrap().stdout).into())
        .collect();
    assert!(heads.iter().any(|head| head.contains(" 429 ")), "no more than 16 at once");
    let began = Instant::now();
    while !answer(&server, "k", "late", 2).starts_with("HTTP/1.1 200 OK") {
        assert!(began.elapsed() < Duration::from_secs(20), "a stream was never given back");
    }
}
