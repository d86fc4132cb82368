//! A server with a replica and a sentinel: the replica takes the server's place, and nodes go on with it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use super::processes::{BURST, Nodes, for_each_way, pause, units_above_the_bound, unix_ns};
use super::server::{Server, free_port, with_each};
use super::{charge, member, options_of, secondly, wait_until};
use crate::error::Error;
use crate::shared::protocol::SharedStore;
use crate::shared::valkey::ValkeyStore;

const PASSWORD: &str = "p-secret";
const SENTINEL_PASSWORD: &str = "s-secret";

/// Both servers and their sentinel, which is ended with them.
struct Service {
    primary: Server,
    replica: Server,
    port: u16,
    sentinel: Child,
    _folder: tempfile::TempDir,
}

impl Service {
    fn start(binary: &Path) -> Service {
        let common = [
            "--repl-diskless-sync-delay",
            "0",
            "--requirepass",
            PASSWORD,
            "--masterauth",
            PASSWORD,
        ];
        let primary = Server::start_with(binary, &common);
        let to = primary.port().to_string();
        let replica =
            Server::start_with(binary, &[&common[..], &["--replicaof", "127.0.0.1", &to]].concat());
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nrequirepass {SENTINEL_PASSWORD}\n\
             sentinel monitor main 127.0.0.1 {to} 1\nsentinel auth-pass main {PASSWORD}\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
            folder.path().display()
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(binary);
        command.arg(&file).arg("--sentinel").stdin(Stdio::null());
        let sentinel = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let service = Service { primary, replica, port, sentinel, _folder: folder };
        let is_known = || {
            let Ok(mut sentinel) = service.sentinel() else { return false };
            let replicas = cmd("SENTINEL")
                .arg("REPLICAS")
                .arg("main")
                .query::<Vec<redis::Value>>(&mut sentinel);
            replicas.is_ok_and(|replicas| replicas.len() == 1)
        };
        wait_until("a sentinel that knows the replica", is_known);
        wait_until("a replica", || {
            let info: String = service.ask(&service.primary, cmd("INFO").arg("replication"));
            info.contains("state=online")
        });
        service
    }

    fn sentinel(&self) -> redis::RedisResult<Connection> {
        let url = format!("redis://:{SENTINEL_PASSWORD}@127.0.0.1:{}", self.port);
        redis::Client::open(url)?.get_connection()
    }

    fn ask<T: redis::FromRedisValue>(&self, server: &Server, question: &redis::Cmd) -> T {
        self.try_ask(server, question).unwrap()
    }

    /// Sentinels close the connections of a server that becomes a replica.
    fn try_ask<T: redis::FromRedisValue>(
        &self,
        server: &Server,
        question: &redis::Cmd,
    ) -> redis::RedisResult<T> {
        let url = server.url(&format!(":{PASSWORD}@"));
        question.query(&mut redis::Client::open(url)?.get_connection()?)
    }

    /// Returns the address: two sentinels, of which the first one does not run.
    fn url(&self, service: &str) -> String {
        let port = self.port;
        format!(
            "redis-sentinel://:{PASSWORD}@127.0.0.1:1,127.0.0.1:{port}/{service}?sentinel_pass={SENTINEL_PASSWORD}"
        )
    }

    fn store(&self) -> ValkeyStore {
        let options = options_of(&self.url("main"));
        let options = options.answer_timeout(Duration::from_millis(200)).unwrap();
        let store = ValkeyStore::start(&options).unwrap();
        wait_until("connected", || spend(&store).is_ok());
        store
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = (self.sentinel.kill(), self.sentinel.wait());
    }
}

fn spend(store: &ValkeyStore) -> Result<bool, Error> {
    charge(store, &[member("a", &secondly(1_000_000, 1), 1)]).map(|found| found.denied.is_none())
}

/// Calls until calls succeed again. Each must end in time.
fn until_it_answers(store: &ValkeyStore) -> Vec<String> {
    let (began, mut texts) = (Instant::now(), Vec::new());
    loop {
        let call = Instant::now();
        let answer = spend(store);
        assert!(call.elapsed() < Duration::from_secs(2), "{:?}", call.elapsed());
        match answer {
            Ok(_) => return texts,
            Err(error) => {
                assert!(error.is_undecided() && !error.to_string().contains("secret"), "{error}");
                texts.push(error.to_string());
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{texts:?}");
        pause(2);
    }
}

#[test]
fn replica_takes_the_place_of_a_killed_server() {
    with_each(|binary| {
        let mut service = Service::start(binary);
        let store = service.store();
        service.primary.kill();
        let failed = until_it_answers(&store);
        assert!(failed.len() > 20, "calls fail at once meanwhile: {failed:?}");
        assert!(service.ask::<bool>(&service.replica, cmd("EXISTS").arg("a")));
    });
}

#[test]
fn replica_takes_the_place_of_a_stopped_server() {
    with_each(|binary| {
        let service = Service::start(binary);
        let store = service.store();
        service.primary.signal("-STOP");
        // At first the server may still answer commands that it has read.
        wait_until("failed", || spend(&store).is_err());
        until_it_answers(&store);
        // The old one is told that it is a replica before it can take a call.
        service.primary.signal("-CONT");
        assert!(spend(&store).unwrap());
    });
}

#[test]
fn a_server_that_became_a_replica_is_left() {
    with_each(|binary| {
        let service = Service::start(binary);
        let store = service.store();
        // The sentinel first has to learn that the replica is good.
        wait_until("a failover", || {
            let mut sentinel = service.sentinel().unwrap();
            cmd("SENTINEL").arg("FAILOVER").arg("main").exec(&mut sentinel).is_ok()
        });
        wait_until("a replica", || {
            let role = service.try_ask::<Vec<redis::Value>>(&service.primary, &cmd("ROLE"));
            role.is_ok_and(|role| role[0] == redis::Value::BulkString("slave".into()))
        });
        until_it_answers(&store);
        let text = |server| service.try_ask::<Option<String>>(server, cmd("GET").arg("a")).ok()?;
        wait_until("replicated", || {
            let written = text(&service.replica);
            written.is_some() && written == text(&service.primary)
        });
    });
}

#[test]
fn an_answer_of_a_replica_ends_the_connection() {
    with_each(|binary| {
        let (server, to) = (Server::start(binary), Server::start(binary));
        let store = ValkeyStore::start(&options_of(&server.url(""))).unwrap();
        wait_until("connected", || spend(&store).is_ok());
        let mut control = server.connection();
        let mut connections = || Server::connections_made(&mut control);
        let before = connections();
        assert!(spend(&store).unwrap());
        assert_eq!(connections(), before);
        let mut other = server.connection();
        let () = cmd("REPLICAOF").arg("127.0.0.1").arg(to.port()).query(&mut other).unwrap();
        wait_until("refused", || {
            spend(&store).is_err_and(|error| error.to_string().contains("replica"))
        });
        let began = Instant::now();
        // One is `other`.
        while connections() < before + 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "no new connection");
            pause(5);
        }
        let () = cmd("REPLICAOF").arg("NO").arg("ONE").query(&mut other).unwrap();
        until_it_answers(&store);
    });
}

#[test]
fn sentinels_that_do_not_know_are_errors() {
    with_each(|binary| {
        let service = Service::start(binary);
        for (url, wanted) in [
            (service.url("other"), "does not know other"),
            (service.url("main").replace(SENTINEL_PASSWORD, "x-secret"), "password"),
            (service.url("main").replace(PASSWORD, "x-secret"), "password"),
        ] {
            let store = ValkeyStore::start(&options_of(&url)).unwrap();
            let why = || spend(&store).unwrap_err().to_string();
            wait_until("refused", || !why().contains("being made"));
            let text = why();
            assert!(text.contains(wanted) && !text.contains("secret"), "{text}");
        }
    });
}

#[test]
fn processes_go_on_after_a_failover() {
    with_each(|binary| {
        for_each_way(|shared| {
            let mut service = Service::start(binary);
            let nodes = Nodes::start_with(shared, &service.url("main"));
            pause(1200);
            service.primary.kill();
            wait_until("a replica that has become the primary", || {
                let info =
                    service.try_ask::<String>(&service.replica, cmd("INFO").arg("replication"));
                info.is_ok_and(|info| info.contains("role:master"))
            });
            let promoted_ns = unix_ns();
            pause(5000);
            let (uses, from_leases) = nodes.end();
            let last_ns = uses.iter().map(|(_, after_ns, _)| *after_ns).max().unwrap();
            let above = units_above_the_bound(&uses);
            println!(
                "{shared}: {} spends, {from_leases} units from leases, {above} above",
                uses.len()
            );
            assert!(last_ns > promoted_ns + 500_000_000, "nodes go on with the replica");
            // The lost writes have admitted at most a burst, and the units of the replica's lag, here 200 ms.
            assert!(above <= BURST + 200, "{above}");
        });
    });
}

/// A refusal by a replica was a failure like others, and began a pause of one to two seconds.
#[test]
fn replica_that_is_promoted_is_asked_soon() {
    with_each(|binary| {
        let primary = Server::start(binary);
        let to = primary.port().to_string();
        let replica = Server::start_with(binary, &["--replicaof", "127.0.0.1", &to]);
        let quick =
            options_of(&replica.url("")).answer_timeout(Duration::from_millis(100)).unwrap();
        let store = ValkeyStore::start(&quick).unwrap();
        let spend = || charge(&store, &[member("a", &secondly(1_000_000, 1), 1)]);
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until {
            assert!(spend().is_err(), "a replica decides no call");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!store.figures().unwrap().is_paused());
        let refused = store.figures().unwrap().errors().refused;
        assert!((3..=20).contains(&refused), "asked {refused} times, once with each connection");
        let promoted = Instant::now();
        let () = cmd("REPLICAOF").arg("NO").arg("ONE").query(&mut replica.connection()).unwrap();
        wait_until("promoted", || spend().is_ok());
        println!("asked again after {:?}", promoted.elapsed());
        assert!(promoted.elapsed() < Duration::from_secs(1), "{:?}", promoted.elapsed());
    });
}
