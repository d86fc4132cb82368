//! Connections that are lost while a node asks nothing: the next call finds another one.

use std::time::Duration;

use redis::cmd;

use super::mute::{Mute, Seen};
use super::server::{Server, with_each};
use super::shards::Shards;
use super::{charge, member, options_of, secondly, wait_until, wait_until_connected};
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::observe::store_counters::StoreErrors;
use crate::shared::block_on;
use crate::shared::protocol::SharedStore;
use crate::shared::valkey::ValkeyStore;

fn store_of(url: &str) -> ValkeyStore {
    let options = options_of(url).answer_timeout(Duration::from_millis(500)).unwrap();
    ValkeyStore::start(&options).unwrap()
}

fn connected(server: &Server) -> ValkeyStore {
    let store = store_of(&server.url(""));
    wait_until_connected(&store);
    store
}

fn spend(store: &ValkeyStore, key: &str) -> Result<bool, Error> {
    charge(store, &[member(key, &secondly(1_000, 1), 1)]).map(|found| found.denied.is_none())
}

fn errors(store: &ValkeyStore) -> StoreErrors {
    store.figures().unwrap().errors()
}

#[test]
fn idle_connections_outlast_a_servers_timeout() {
    with_each(|binary| {
        let server = Server::start_with(binary, &["--timeout", "1"]);
        let store = connected(&server);
        let before = errors(&store);
        for _ in 0..2 {
            assert!(spend(&store, "a").unwrap());
            // It closes them after two seconds at the latest.
            std::thread::sleep(Duration::from_millis(3_200));
        }
        assert!(spend(&store, "a").unwrap());
        assert_eq!(errors(&store), before);
        assert!(!store.figures().unwrap().is_paused());
    });
}

#[test]
fn a_restart_between_calls_costs_none() {
    with_each(|binary| {
        let mut server = Server::start(binary);
        let store = connected(&server);
        assert!(spend(&store, "a").unwrap());
        let before = errors(&store);
        server.kill();
        wait_until("noticed", || !store.is_ready("a"));
        server.restart();
        wait_until("connected again", || store.is_ready("a"));
        assert!(spend(&store, "a").unwrap());
        assert_eq!(errors(&store), before);
    });
}

/// The old connection stays while a new one is attempted in vain: it may answer first.
#[test]
fn a_stall_between_calls_costs_none() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = connected(&server);
        assert!(spend(&store, "a").unwrap());
        let before = errors(&store);
        server.signal("-STOP");
        std::thread::sleep(Duration::from_secs(4));
        assert!(!store.is_connected());
        server.signal("-CONT");
        for _ in 0..200 {
            assert!(spend(&store, "a").unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(errors(&store), before);
        wait_until("connected again", || store.is_connected());
    });
}

#[test]
fn each_node_of_a_cluster_connects_anew() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = store_of(&shards.url());
        let keys = shards.keys("a");
        wait_until("connected", || keys.iter().all(|key| spend(&store, key).is_ok()));
        let before = errors(&store);
        for at in 0..3 {
            let () = shards.ask(at, cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal"));
        }
        std::thread::sleep(Duration::from_millis(1_500));
        for key in &keys {
            assert!(spend(&store, key).unwrap());
        }
        assert_eq!(errors(&store), before);
    });
}

#[test]
fn busy_connections_are_asked_nothing() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(500));
    mute.seen.lock().pings = 0;
    for _ in 0..30 {
        assert!(mute.is_answered());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(mute.seen.lock().pings, 0);
    wait_until("asked", || mute.seen.lock().pings > 0);
}

/// The server stands still while nothing is asked, and then takes no new connection. The old one goes on.
#[test]
fn an_outage_ends_on_the_old_connection() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limit = "{burst: 1000, count: 1000, period: 1s, id: string, shared: exact}";
        let file = format!("store: {{url: \"{}\", timeout: 200ms}}\nA: {limit}", server.url(""));
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let all = limiter.shared("A").unwrap();
        let is_outage = || limiter.counters().store().unwrap().is_outage;
        wait_until("connected", || block_on(all.blocked_for("none")).is_ok());
        let mut control = server.connection();
        let mut set = |name: &str, value: &str| {
            let () = cmd("CONFIG").arg("SET").arg(name).arg(value).query(&mut control).unwrap();
        };
        set("maxmemory", "1");
        let _ = block_on(all.spend("x", 1));
        assert!(is_outage(), "the server refuses calls");
        set("maxmemory", "0");
        set("maxclients", "1");
        server.signal("-STOP");
        std::thread::sleep(Duration::from_secs(4));
        server.signal("-CONT");
        wait_until("the end", || block_on(all.spend("x", 1)).is_ok() && !is_outage());
        assert!(!limiter.store().unwrap().is_connected(), "an attempt to connect failed");
    });
}
