//! Leased units of clients that pause: they go back before their leases end.

use std::path::Path;
use std::time::Duration;

use redis::Commands;

use super::server::{Server, with_each};
use super::wait_until;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

const ROUNDS: u64 = 8;
const PAUSE: Duration = Duration::from_millis(450);

fn node(server: &Server) -> Limiter {
    let file = format!(
        "store: {{url: \"{}\", timeout: 100ms}}\n\
         PerClient: {{burst: 300, count: 1, period: 1h, id: string, shared: leased, lease: 200ms}}\n",
        server.url("")
    );
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let clients = limiter.shared("PerClient").unwrap();
    wait_until("connected", || block_on(clients.blocked_for("none")).is_ok());
    limiter
}

/// Each pause lost eight units. A node that stands still for an eighth of a lease may lose it, so that one run in five suffices.
#[test]
fn clients_that_pause_lose_no_units() {
    with_each(|binary| {
        let lost: Vec<u64> = (0..5).map(|_| lost_units(binary)).take_while(|it| *it > 3).collect();
        assert!(lost.len() < 5, "{lost:?} of 300 units are lost");
    });
}

/// Makes two calls in each round; the second takes a lease, of which nothing is spent.
fn lost_units(binary: &Path) -> u64 {
    let server = Server::start(binary);
    let limiter = node(&server);
    let clients = limiter.shared("PerClient").unwrap();
    for _ in 0..ROUNDS {
        for _ in 0..2 {
            assert!(block_on(clients.spend("alice", 1)).unwrap().allowed());
        }
        std::thread::sleep(PAUSE);
    }
    let store = limiter.counters().store().unwrap();
    assert!(store.leases >= ROUNDS - 1, "{} leases", store.leases);
    assert_eq!(store.held_units, 0);
    let left = block_on(node(&server).shared("PerClient").unwrap().check("alice", 0)).unwrap();
    300 - 2 * ROUNDS - left.remaining().unwrap()
}

/// The server stood still for longer than a call may take: all leases were lost.
#[test]
fn a_stall_while_leases_go_back_loses_none() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node(&server);
        let clients = limiter.shared("PerClient").unwrap();
        let ids: Vec<String> = (0..150).map(|id| id.to_string()).collect();
        for id in ids.iter().chain(&ids) {
            assert!(block_on(clients.spend(&**id, 1)).unwrap().allowed());
        }
        server.signal("-STOP");
        std::thread::scope(|scope| {
            let given = scope.spawn(|| block_on(limiter.give_leases_back()));
            std::thread::sleep(Duration::from_millis(150));
            server.signal("-CONT");
            assert!(given.join().unwrap().is_ok());
        });
    });
}

/// The task that returns leases keeps neither the limiter nor its store's thread.
#[test]
fn watched_leases_end_with_their_limiter() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node(&server);
        let clients = limiter.shared("PerClient").unwrap();
        for _ in 0..2 {
            assert!(block_on(clients.spend("alice", 1)).unwrap().allowed());
        }
        let inner = std::sync::Arc::downgrade(&limiter.inner);
        drop((limiter, clients));
        wait_until("gone", || inner.upgrade().is_none());
    });
}

/// Nothing is written then: each lease goes back by itself.
#[test]
fn a_text_that_is_none_leaves_other_leases() {
    with_each(|binary| {
        let server = Server::start(binary);
        let file = format!(
            "store: {{url: \"{}\", timeout: 1s}}\n\
             PerUser: {{burst: 20, count: 1, period: 1h, id: string, shared: leased, lease: 10s}}\n",
            server.url("")
        );
        let node = || Limiter::new(Limits::from_yaml(&file).unwrap());
        let (limiter, other) = (node(), node());
        let of = |limiter: &Limiter| limiter.shared("PerUser").unwrap();
        let (users, others) = (of(&limiter), of(&other));
        wait_until("connected", || block_on(others.blocked_for("none")).is_ok());
        wait_until("connected", || block_on(users.blocked_for("none")).is_ok());
        for id in ["a", "b"] {
            let held = || limiter.counters().store().unwrap().held_units;
            let before = held();
            wait_until("leased", || {
                assert!(block_on(users.spend(id, 1)).unwrap().allowed());
                held() > before
            });
            let left = block_on(others.check(id, 0)).unwrap().remaining();
            assert!(left.is_some_and(|left| left < 18), "{left:?} of {id}");
        }
        let () = server.connection().set("tollgate:PerUser:a", "12 apples").unwrap();
        assert!(block_on(limiter.give_leases_back()).is_err());
        let left = block_on(others.check("b", 0)).unwrap().remaining();
        assert!(left >= Some(15), "{left:?}");
    });
}
