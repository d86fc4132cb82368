//! Sentinels that name a server that is no primary, and sentinels of which one does not know the server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;

use super::server::{Server, with_each};
use super::{charge, member, options_of, secondly, wait_until};
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::ValkeyStore;
use crate::util::lock::Mutex;

/// A sentinel of the test's own, which names the server at a port.
struct Sentinel {
    port: u16,
    names: Arc<Mutex<Option<u16>>>,
    questions: Arc<Mutex<usize>>,
}

impl Sentinel {
    fn start(names: Option<u16>) -> Sentinel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let sentinel =
            Sentinel { port, names: Arc::new(Mutex::new(names)), questions: Arc::default() };
        let (names, questions) = (sentinel.names.clone(), sentinel.questions.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (names, questions) = (names.clone(), questions.clone());
                std::thread::spawn(move || {
                    let mut bytes = [0; 1 << 12];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        let text = String::from_utf8_lossy(&bytes[..count]);
                        let mut answer = "+OK\r\n".repeat(text.matches("SETINFO").count());
                        for _ in text.matches("GET-MASTER-ADDR") {
                            *questions.lock() += 1;
                            answer.push_str(&match *names.lock() {
                                None => "*-1\r\n".into(),
                                Some(port) => format!(
                                    "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n",
                                    port.to_string().len()
                                ),
                            });
                        }
                        let _ = stream.write_all(answer.as_bytes());
                    }
                });
            }
        });
        sentinel
    }

    fn questions(&self) -> usize {
        *self.questions.lock()
    }
}

fn store_of(sentinels: [&Sentinel; 2]) -> ValkeyStore {
    let [one, other] = sentinels.map(|sentinel| sentinel.port);
    let url = format!("redis-sentinel://127.0.0.1:{one},127.0.0.1:{other}/main");
    // No call is late because other tests use the processor.
    let options = options_of(&url).answer_timeout(Duration::from_secs(2)).unwrap();
    ValkeyStore::start(&options).unwrap()
}

/// Checks a bucket, which writes nothing; returns the error.
fn check(store: &ValkeyStore) -> Option<String> {
    let checked = StoreMember { mode: SharedMode::CheckOnly, ..member("a", &secondly(5, 1), 1) };
    charge(store, &[checked]).err().map(|error| error.to_string())
}

#[test]
fn a_replica_that_sentinels_name_decides_nothing() {
    with_each(|binary| {
        let (primary, replica) = (Server::start(binary), Server::start(binary));
        let () = cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut replica.connection()).unwrap();
        let sentinel = Sentinel::start(Some(replica.port()));
        let store = store_of([&sentinel; 2]);
        wait_until("refused", || {
            let error = check(&store).expect("only a replica is named");
            error.contains("it is a replica")
        });
        *sentinel.names.lock() = Some(primary.port());
        wait_until("connected", || check(&store).is_none());
    });
}

#[test]
fn the_sentinel_that_answered_is_asked_first() {
    with_each(|binary| {
        let server = Server::start(binary);
        let (one, other) = (Sentinel::start(None), Sentinel::start(Some(server.port())));
        let store = store_of([&one, &other]);
        wait_until("connected", || check(&store).is_none());
        let before = (one.questions(), other.questions());
        let kill = cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").to_owned();
        let _ = kill.exec(&mut server.connection());
        wait_until("asked again", || {
            let _ = check(&store);
            other.questions() > before.1
        });
        wait_until("connected", || check(&store).is_none());
        assert_eq!(one.questions(), before.0);
    });
}

#[test]
fn sentinels_are_asked_between_calls() {
    with_each(|binary| {
        let (mut first, second) = (Server::start(binary), Server::start(binary));
        let sentinel = Sentinel::start(Some(first.port()));
        let store = store_of([&sentinel; 2]);
        wait_until("connected", || check(&store).is_none());
        *sentinel.names.lock() = Some(second.port());
        first.kill();
        wait_until("noticed", || sentinel.questions() > 1);
        wait_until("connected again", || store.is_ready("a"));
        assert_eq!(check(&store), None);
    });
}
