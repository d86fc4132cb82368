//! A cluster of three servers.

use std::path::Path;

use redis::{Cmd, FromRedisValue, cmd};

use super::server::{Server, free_port};
use super::wait_until;
use crate::shared::valkey::slots::{SLOTS, slot_of};

/// Three servers, each with a third of the slots.
pub(super) struct Shards {
    pub(super) servers: Vec<Server>,
}

impl Shards {
    pub(super) fn start(binary: &Path) -> Shards {
        Shards::start_with(binary, |_| Vec::new())
    }

    /// Starts the servers with more arguments, by position.
    pub(super) fn start_with(binary: &Path, more: impl Fn(usize) -> Vec<String>) -> Shards {
        let buses: Vec<_> = (0..3).map(|_| free_port().to_string()).collect();
        let servers = buses.iter().enumerate().map(|(at, bus)| start(binary, bus, &more(at)));
        let shards = Shards { servers: servers.collect() };
        for (at, bus) in buses.iter().enumerate() {
            let (first, last) = shards.range(at);
            let () = shards.ask(at, cluster("ADDSLOTSRANGE").arg(first).arg(last));
            let () = shards.ask(at, cluster("SET-CONFIG-EPOCH").arg(at + 1));
            shards.meet(at, bus);
        }
        wait_until("a cluster", || (0..3).all(|at| shards.is_complete(at)));
        shards
    }

    fn meet(&self, at: usize, bus: &str) {
        let port = self.servers[at].port();
        let () = self.ask(0, cluster("MEET").arg("127.0.0.1").arg(port).arg(bus));
    }

    /// Starts a fourth server, which has no slots.
    pub(super) fn add_node(&mut self, binary: &Path) {
        let bus = free_port().to_string();
        self.servers.push(start(binary, &bus, &[]));
        self.meet(3, &bus);
        let knows_all = |at| {
            let nodes: String = self.ask(at, &cluster("NODES"));
            nodes.lines().count() == 4 && !nodes.contains("handshake")
        };
        wait_until("known", || (0..4).all(knows_all) && self.is_complete(3));
    }

    /// Starts a fourth server, a replica of the last of the three.
    pub(super) fn add_replica(&mut self, binary: &Path) {
        let of = self.id(2);
        self.add_node(binary);
        wait_until("a replica", || {
            let mut connection = self.servers[3].connection();
            cluster("REPLICATE").arg(&of).query::<()>(&mut connection).is_ok()
        });
        wait_until("replicated", || {
            let info: String = self.ask(3, cmd("INFO").arg("replication"));
            info.contains("master_link_status:up")
        });
    }

    fn is_complete(&self, at: usize) -> bool {
        let info: String = self.ask(at, &cluster("INFO"));
        let slots: Vec<redis::Value> = self.ask(at, &cluster("SLOTS"));
        info.contains("cluster_state:ok") && slots.len() == 3
    }

    fn range(&self, at: usize) -> (u16, u16) {
        let third = SLOTS / 3;
        let first = third * at as u16;
        (first, if at == 2 { SLOTS - 1 } else { first + third - 1 })
    }

    pub(super) fn ask<T: FromRedisValue>(&self, at: usize, question: &Cmd) -> T {
        question.query(&mut self.servers[at].connection()).unwrap()
    }

    /// Returns the address of one of them: it names the others.
    pub(super) fn url(&self) -> String {
        format!("redis-cluster://127.0.0.1:1,127.0.0.1:{}", self.servers[1].port())
    }

    /// Returns the server that has a key's slot at first.
    pub(super) fn server_of(&self, key: &str) -> usize {
        let slot = slot_of(key);
        (0..3).find(|&at| (self.range(at).0..=self.range(at).1).contains(&slot)).unwrap()
    }

    /// Returns three keys, one of each server, in the order of their slots.
    pub(super) fn keys(&self, name: &str) -> [String; 3] {
        [0, 1, 2].map(|at| {
            let mut names = (0..).map(|number| format!("{name}{number}"));
            names.find(|key| self.server_of(key) == at).unwrap()
        })
    }

    /// Returns the text of a bucket.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.ask(self.server_of(key), cmd("GET").arg(key))
    }

    /// Returns the text that the replica has of a bucket.
    pub(super) fn text_of_replica(&self, key: &str) -> Option<String> {
        let mut connection = self.servers[3].connection();
        let () = cmd("READONLY").query(&mut connection).unwrap();
        cmd("GET").arg(key).query(&mut connection).unwrap()
    }

    fn id(&self, at: usize) -> String {
        self.ask(at, &cluster("MYID"))
    }

    /// Begins to move the slot of a key, and moves the key.
    pub(super) fn begin_move(&self, key: &str, to: usize) {
        self.open_move(key, to);
        self.move_key(key, to);
    }

    /// Begins to move the slot of a key.
    pub(super) fn open_move(&self, key: &str, to: usize) {
        let (from, slot) = (self.server_of(key), slot_of(key));
        let () = self.ask(to, cluster("SETSLOT").arg(slot).arg("IMPORTING").arg(self.id(from)));
        let () = self.ask(from, cluster("SETSLOT").arg(slot).arg("MIGRATING").arg(self.id(to)));
    }

    /// Moves one key of a slot that is being moved.
    pub(super) fn move_key(&self, key: &str, to: usize) {
        let port = self.servers[to].port();
        let moved: String = self.ask(
            self.server_of(key),
            cmd("MIGRATE").arg("127.0.0.1").arg(port).arg(key).arg(0).arg(5000),
        );
        assert_eq!(moved, "OK");
    }

    /// Ends the move of a key's slot.
    pub(super) fn end_move(&self, key: &str, to: usize) {
        let first = [to, self.server_of(key)];
        let others = (0..self.servers.len()).filter(|at| !first.contains(at));
        for at in first.into_iter().chain(others) {
            let () =
                self.ask(at, cluster("SETSLOT").arg(slot_of(key)).arg("NODE").arg(self.id(to)));
        }
    }
}

fn start(binary: &Path, bus: &str, more: &[String]) -> Server {
    let mut arguments = [
        ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"],
        ["--cluster-node-timeout", "1000", "--cluster-port", bus],
        ["--cluster-require-full-coverage", "no", "--loglevel", "warning"],
    ]
    .concat();
    arguments.extend(more.iter().map(String::as_str));
    Server::start_with(binary, &arguments)
}

pub(super) fn cluster(what: &str) -> Cmd {
    let mut command = cmd("CLUSTER");
    command.arg(what);
    command
}
