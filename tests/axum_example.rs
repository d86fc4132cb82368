//! Runs the program `examples/axum.rs`: its address, its files and its end.
#![cfg(all(feature = "tower", feature = "yaml"))]

#[path = "axum_example/server.rs"]
mod server;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use server::Server;

/// Sends a request on a new connection. Returns the complete answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

fn remaining(address: &str) -> Vec<u64> {
    let limits: serde_json::Value = serde_json::from_str(body(&get(address, "/limits"))).unwrap();
    let limits = limits.as_array().unwrap();
    limits.iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect()
}

#[test]
fn limited_routes_have_fields_others_are_unlimited() {
    let server = Server::start(&[]);
    let address = &server.address;
    for _ in 0..30 {
        assert!(get(address, "/health").starts_with("HTTP/1.1 200 OK\r\n"));
    }
    assert!(body(&get(address, "/")).starts_with("<!doctype html>"));
    assert_eq!(remaining(address), [5, 13, 4, 5], "nothing was charged");
    for (path, field) in [
        ("/api/search", "x-ratelimit-limit: 5\r\n"),
        ("/api/orders", "x-ratelimit-limit: 13 13;w=30;burst=3;policy=token_bucket\r\n"),
        ("/api/notes", "x-ratelimit-clear: 2.000\r\n"),
        ("/api/calls", "ratelimit-policy: \"calls\";q=5;w=10\r\n"),
        ("/together", "ratelimit: \"search\";r=3;"),
    ] {
        let answer = get(address, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(field), "{answer}");
    }
    assert_eq!(remaining(address)[..2], [3, 11]);
    assert!(get(address, "/api/nothing").starts_with("HTTP/1.1 404 "));
}

#[cfg(unix)]
#[test]
fn it_ends_when_it_is_interrupted() {
    let server = Server::start(&[]);
    let address = server.address.clone();
    assert_eq!(body(&get(&address, "/health")), "ok\n");
    // An idle connection delays no other.
    let _idle = TcpStream::connect(&address).unwrap();
    let (status, printed) = server.interrupt();
    assert!(status.success(), "{status}");
    assert_eq!(printed, "stopped\n");
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn other_limits_load_and_unknown_arguments_fail() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let good = "mine: {burst: 2, count: 1, period: 1h, id: ipAddress}\n\
                off: {enabled: false, id: ipAddress}\n";
    let server = Server::start(&[&file("good.yml", good)]);
    let limits: serde_json::Value =
        serde_json::from_str(body(&get(&server.address, "/limits"))).unwrap();
    assert_eq!(limits[0]["numbers"], "2 at once, then 1 every 3600s");
    assert_eq!(limits[1]["numbers"], "no limit");
    let statuses = [(); 3].map(|()| get(&server.address, "/api/mine")[9..12].to_owned());
    assert_eq!(statuses, ["200", "200", "429"]);
    assert!(get(&server.address, "/api/off").starts_with("HTTP/1.1 200 "));

    let by_account = file("account.yml", "mine: {burst: 2, count: 1, period: 1h, id: regId}\n");
    for (args, expected) in [
        (vec!["--listen"], "--listen needs an address and a port"),
        (vec!["--listen", "here"], "here is no address and port"),
        (vec!["--port", "1"], "unexpected --port"),
        (vec!["a.yml", "b.yml"], "unexpected b.yml"),
        (vec!["/nowhere/limits.yml"], "limits.yml"),
        (vec!["--listen", "127.0.0.1:0", &by_account], "mine limits no addresses: "),
    ] {
        let ran = server::command().args(&args).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(!ran.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}
