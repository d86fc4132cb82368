//! Limiters of a file with a store, as programs use them.

use std::time::Duration;

use redis::{Commands, cmd};

use super::server::{Server, with_each};
use super::wait_until;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

const LIMITS: &str = "
Own: {burst: 9, count: 1, period: 1h, id: string}
PerUser: {burst: 5, count: 1, period: 1h, id: string, shared: exact}
PerUser:alice: {burst: 7, count: 1, period: 1h}
PerTeam: {algorithm: leaky_bucket, size: 5, drip_rate: 1h, drip_size: 1, id: string, shared: exact}
";

fn file(server: &Server, more: &str) -> String {
    format!("store: {{url: \"{}\", timeout: 2s{more}}}\n{LIMITS}", server.url(""))
}

fn node(file: &str) -> Limiter {
    let limiter = Limiter::new(Limits::from_yaml(file).unwrap());
    let users = limiter.shared("PerUser").unwrap();
    wait_until("connected", || {
        // A spend or a check has a decision without the store too.
        block_on(users.blocked_for("none")).is_ok()
    });
    limiter
}

#[test]
fn the_first_calls_wait_for_the_connection() {
    with_each(|binary| {
        let server = Server::start(binary);
        for left in (0..5).rev() {
            let node = Limiter::new(Limits::from_yaml(&file(&server, "")).unwrap());
            let users = node.shared("PerUser").unwrap();
            assert_eq!(block_on(users.spend("bob", 1)).unwrap().remaining(), Some(left));
        }
    });
}

#[test]
fn nodes_of_a_file_share_its_limits() {
    with_each(|binary| {
        let server = Server::start(binary);
        let file = file(&server, "");
        let nodes = [node(&file), node(&file), node(&file)];
        let spent = |limit: &str, id: &str, most: usize| {
            let allowed = std::thread::scope(|scope| {
                let threads: Vec<_> = nodes
                    .iter()
                    .map(|node| {
                        let limit = node.shared(limit).unwrap();
                        scope.spawn(move || {
                            (0..20)
                                .filter(|_| block_on(limit.spend(id, 1)).unwrap().allowed())
                                .count()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            assert_eq!(allowed, most, "{limit}:{id}");
        };
        let long = "x".repeat(100);
        for (limit, id, most) in [
            ("PerUser", "bob", 5),
            ("PerUser", "alice", 7),
            ("PerUser", &long, 5),
            ("PerTeam", "red", 5),
            ("Own", "bob", 27),
        ] {
            spent(limit, id, most);
        }
        let mut keys: Vec<String> = server.connection().keys("*").unwrap();
        keys.sort();
        assert_eq!(keys.len(), 4, "{keys:?}");
        assert!(keys[0].starts_with("tollgate:PerTeam/leaky_bucket:red"), "{keys:?}");
        assert!(keys[1].starts_with("tollgate:PerUser#"), "{keys:?}");
        assert_eq!(keys[1].len(), "tollgate:PerUser#".len() + 32);
        assert_eq!(keys[2..], ["tollgate:PerUser:alice", "tollgate:PerUser:bob"]);
    });
}

#[test]
fn futures_of_any_runtime_ask_the_store() {
    with_each(|binary| {
        let server = Server::start(binary);
        let node = node(&file(&server, ", tag: limits"));
        let (own, users) = (node.limit("Own").unwrap(), node.shared("PerUser").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let task = tokio::spawn({
                let users = users.clone();
                async move { users.spend("carol", 2).await }
            });
            assert_eq!(task.await.unwrap().unwrap().remaining(), Some(3));
            let members = [own.member("carol").cost(9).into(), users.member("carol").cost(4)];
            let denied = node.shared_batch(&members).spend().await.unwrap();
            assert_eq!(denied.denied_by(), Some(1));
            assert_eq!(own.check("carol", 0).unwrap().remaining(), Some(9), "given back");
            assert!(users.refund("carol", 1).await.unwrap().allowed());
            let allowed = node.shared_batch(&members).spend().await.unwrap();
            assert_eq!(allowed.remaining(), Some(0));
            users.block("carol", Duration::from_secs(60)).await.unwrap();
            let blocked = users.check("carol", 0).await.unwrap();
            assert!(blocked.blocked() && blocked.retry_in() > Duration::from_secs(59));
            assert!(users.reset("carol").await.unwrap().allowed());
            assert!(users.unblock("carol").await.unwrap());
            assert!(!users.unblock("carol").await.unwrap());
            assert_eq!(users.spend("carol", 5).await.unwrap().remaining(), Some(0));
        });
        let keys: Vec<String> = server.connection().keys("*").unwrap();
        assert_eq!(keys, ["tollgate:{limits}:PerUser:carol"]);
    });
}

#[test]
fn a_text_by_hand_is_an_error() {
    with_each(|binary| {
        let server = Server::start(binary);
        let node = node(&file(&server, ""));
        let (own, users) = (node.limit("Own").unwrap(), node.shared("PerUser").unwrap());
        let () = server.connection().set("tollgate:PerUser:eve", "12 apples").unwrap();
        let members = [own.member("eve").into(), users.member("eve")];
        for error in [
            block_on(users.spend("eve", 1)).unwrap_err(),
            block_on(node.shared_batch(&members).spend()).unwrap_err(),
            block_on(users.refund("eve", 1)).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(error.is_store_failure(), "{text}");
            assert!(text.contains("tollgate:PerUser:eve") && text.contains("12 apples"), "{text}");
        }
        assert_eq!(own.check("eve", 0).unwrap().remaining(), Some(9));
        assert_eq!(node.counters().store().unwrap().errors.unknown_text, 3);
        assert_eq!(
            server.connection().get::<_, String>("tollgate:PerUser:eve").unwrap(),
            "12 apples"
        );
    });
}

#[test]
fn a_reload_keeps_the_store_or_fails() {
    with_each(|binary| {
        let server = Server::start(binary);
        let node = node(&file(&server, ""));
        let users = node.shared("PerUser").unwrap();
        assert!(block_on(users.spend("bob", 5)).unwrap().allowed());
        let other = Limits::from_yaml(&file(&server, ", prefix: 'other:'")).unwrap();
        let error = node.reload(other).unwrap_err();
        assert!(error.to_string().contains("cannot change"), "{error}");
        let more = file(&server, "").replace("PerUser: {burst: 5", "PerUser: {burst: 6");
        assert!(node.reload(Limits::from_yaml(&more).unwrap()).unwrap().changed);
        assert_eq!(block_on(users.spend("bob", 1)).unwrap().remaining(), Some(0));
        // The form of Boulder's times.
        let text: String =
            cmd("GET").arg("tollgate:PerUser:bob").query(&mut server.connection()).unwrap();
        assert_eq!(text.len(), 19, "{text}");
    });
}

#[test]
fn what_boulder_has_written_is_read() {
    with_each(|binary| {
        let server = Server::start(binary);
        let node = node(&file(&server, ""));
        let users = node.shared("PerUser").unwrap();
        let mut connection = server.connection();
        let (s, _): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
        // As Boulder stores it: the time at which a bucket is full that was charged two units of an hour two seconds from now.
        let tat_ns = (s + 7202) * 1_000_000_000 + 123_456_789;
        let () = connection.set("tollgate:PerUser:dora", tat_ns).unwrap();
        assert_eq!(block_on(users.spend("dora", 1)).unwrap().remaining(), Some(1));
        let text: u64 = connection.get("tollgate:PerUser:dora").unwrap();
        assert_eq!(text, tat_ns + 3_600_000_000_000);
    });
}

/// The server stands still, or ends, and comes back: each limit is decided by its own policy meanwhile, and by the store
/// from its first answer on.
#[test]
fn an_outage_is_decided_by_each_limit() {
    with_each(|binary| {
        let mut server = Server::start(binary);
        let limits = "
Denies: {burst: 1000, count: 1, period: 1h, id: string, shared: exact, on_error: deny}
Allows: {burst: 1000, count: 1, period: 1h, id: string, shared: exact, on_error: allow, for: 1h}
GivesAPart: {burst: 20000, count: 1000, period: 1s, id: string, shared: exact, fraction: 0.5}
";
        let store = format!("store: {{url: \"{}\", timeout: 200ms}}\n", server.url(""));
        let node = node(&(store + LIMITS + limits));
        let spend = |limit: &str, cost| {
            block_on(node.shared(limit).unwrap().spend("bob", cost)).unwrap().allowed()
        };
        let by_store = |limit: &str| {
            let limit = node.shared(limit).unwrap();
            block_on(limit.blocked_for("none")).is_ok()
        };
        for is_killed in [false, true] {
            wait_until("answers", || by_store("Denies"));
            assert!(spend("Denies", 1) && spend("Allows", 1) && spend("GivesAPart", 1));
            if is_killed {
                server.kill();
            } else {
                server.signal("-STOP");
            }
            // Late calls are denied for overload at first.
            wait_until("decided by the policy", || {
                let allows = node.shared("Allows").unwrap();
                block_on(allows.check("other", 1)).unwrap().allowed()
            });
            for _ in 0..7 {
                assert!(!spend("Denies", 1));
                assert!(spend("Allows", 5));
            }
            // 500 a second; the outage began more than 200 ms ago, and less than 20 s.
            assert!(!spend("GivesAPart", 10_001), "above the part");
            wait_until("a part has filled", || spend("GivesAPart", 100));
            if is_killed {
                server.restart();
            } else {
                server.signal("-CONT");
            }
            wait_until("answers", || by_store("Denies"));
            wait_until("decides", || spend("Denies", 1));
            // It may have charged the unanswered calls when it went on: at most all of them. One that was killed is empty.
            let denies = node.shared("Denies").unwrap();
            let left = block_on(denies.check("bob", 0)).unwrap();
            let expected = if is_killed { 999..=999 } else { 991..=998 };
            assert!(expected.contains(&left.remaining().unwrap()), "{left:?}");
            // The units that the node has admitted meanwhile are charged: 7 times 5.
            let allows = node.shared("Allows").unwrap();
            let left = || block_on(allows.check("bob", 0)).unwrap().remaining().unwrap();
            let expected = if is_killed { 965..=965 } else { 1_000 - 71..=964 };
            wait_until("charged", || expected.contains(&left()));
            std::thread::sleep(Duration::from_millis(50));
            assert!(expected.contains(&left()), "{}", left());
        }
    });
}

#[test]
fn many_waiters_of_one_id_find_places() {
    with_each(|binary| {
        let server = Server::start(binary);
        let nodes = [node(&file(&server, "")), node(&file(&server, ""))];
        let waits = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|at| {
                    let users = nodes[at % 2].shared("PerUser").unwrap();
                    let reserve = move || block_on(users.reserve("bob", 1, Duration::MAX)).unwrap();
                    scope.spawn(move || (0..20).map(|_| reserve().wait()).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut hours: Vec<_> = waits
            .iter()
            .map(|wait| wait.as_secs().div_ceil(3600))
            .filter(|&wait| wait > 0)
            .collect();
        hours.sort_unstable();
        assert_eq!(hours, (1..=315).collect::<Vec<_>>(), "one place an hour, after 5 at once");
    });
}
