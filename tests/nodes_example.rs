//! Runs the program `examples/http_nodes.rs`: two servers that share a limit in a real store.
#![cfg(all(feature = "tower", feature = "valkey", feature = "yaml"))]

#[path = "support/full_size.rs"]
mod full_size;
#[path = "axum_example/server.rs"]
mod program;
#[path = "../src/shared/valkey/tests/server.rs"]
#[allow(dead_code, reason = "the tests of the store use all of it")]
mod server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn status(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().into()
}

#[test]
fn two_servers_share_one_limit() {
    server::with_each(|binary| {
        let store = server::Server::start(binary);
        let mut command = program::program("http_nodes");
        command.args([&store.url(""), "127.0.0.1:0", "127.0.0.1:0"]);
        let (nodes, other) = program::Server::run_two(&mut command);
        // The first calls wait for the connection; a node that has no answer in time decides by itself.
        let both = [&nodes.address, &other];
        let statuses: Vec<String> = (0..40).map(|at| status(both[at % 2])).collect();
        let count = |wanted: &str| statuses.iter().filter(|status| *status == wanted).count();
        assert_eq!(count("200") + count("429"), 40, "{statuses:?}");
        // 10 more come each second, and a slow machine may take some.
        assert!((20..38).contains(&count("200")), "{statuses:?}");
    });
}
