//! Keys and values that Boulder has written: a node goes on with them.

use std::time::Duration;

use redis::{Commands, cmd};

use super::server::{Server, with_all};
use super::wait_until;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

/// Boulder's limits by number, each with an id and the key under which Boulder keeps its bucket.
const KEYS: [(&str, &str, &str); 14] = [
    ("NewRegistrationsPerIPAddress", "1.2.3.4", "1:1.2.3.4"),
    ("NewRegistrationsPerIPAddress", "2001:db8::1", "1:2001:db8::1"),
    ("NewRegistrationsPerIPv6Range", "2001:db8:abcd:12::1", "2:2001:db8:abcd::/48"),
    ("NewOrdersPerAccount", "1337", "3:1337"),
    ("FailedAuthorizationsPerDomainPerAccount", "1337:example.com", "4:1337:example.com"),
    ("CertificatesPerDomain", "www.example.com", "5:example.com"),
    ("CertificatesPerDomain", "5.6.7.8", "5:5.6.7.8/32"),
    ("CertificatesPerDomain", "2001:db8::1", "5:2001:db8::/64"),
    ("CertificatesPerDomainPerAccount", "1337:example.com", "6:1337:example.com"),
    (
        "CertificatesPerFQDNSet",
        "example.com,example.org",
        "7:36b9d2294255745d0f491b3f04f6490de45cc7241f650ba58c3e4e61a2344efc",
    ),
    (
        "CertificatesPerFQDNSet",
        "example.net,5.6.7.8,2001:db8::1",
        "7:dd178f66c6de501bbcdbe78182c078011623e62b1474d6812bae6e39140ab284",
    ),
    ("FailedAuthorizationsForPausingPerDomainPerAccount", "1337:example.com", "8:1337:example.com"),
    ("LimitOverrideRequestsPerIPAddress", "64.112.117.1", "9:64.112.117.1"),
    (
        "FailedAuthorizationsPerDomainPerAccount",
        "9223372036854775807:a-name-of-more-than-sixty-four-bytes-is-not-hashed-by-boulder.example.com",
        "4:9223372036854775807:a-name-of-more-than-sixty-four-bytes-is-not-hashed-by-boulder.example.com",
    ),
];

const BURST: u64 = 20;
const INTERVAL_NS: u64 = 3_600_000_000_000;

/// A node with all limits of `KEYS`, and one that is not Boulder's.
fn node(server: &Server, format: &str) -> Limiter {
    let url = server.url("");
    let mut file = format!("store: {{url: \"{url}\", timeout: 2s, format: {format}}}\n");
    file.push_str("Own: {burst: 20, count: 1, period: 1h, id: string, shared: exact}\n");
    let mut names: Vec<_> = KEYS.iter().map(|(name, _, _)| name).collect();
    names.dedup();
    names.sort();
    names.dedup();
    for name in names {
        file.push_str(&format!(
            "{name}: {{burst: {BURST}, count: 1, period: 1h, shared: exact}}\n"
        ));
    }
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let own = limiter.shared("Own").unwrap();
    wait_until("connected", || block_on(own.blocked_for("none")).is_ok());
    limiter
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.connection().keys("*").unwrap();
    keys.sort();
    keys
}

#[test]
fn a_node_goes_on_with_boulders_buckets() {
    with_all(|binary| {
        let server = Server::start(binary);
        let mut connection = server.connection();
        let (s, us): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
        let now_ns = s * 1_000_000_000 + us * 1_000;
        // Each bucket has been charged another number of units, and drips for half an hour more.
        let tat_ns = |at: usize| now_ns + (at as u64 + 1) * INTERVAL_NS - INTERVAL_NS / 2;
        for (at, (_, _, key)) in KEYS.iter().enumerate() {
            let () = connection.set_ex(*key, tat_ns(at), 100_000).unwrap();
        }
        let before = keys(&server);
        let node = node(&server, "boulder");
        for (at, (name, id, key)) in KEYS.iter().enumerate() {
            let limit = node.shared(name).unwrap();
            assert_eq!(limit.boulder_key(*id).unwrap().as_deref(), Some(*key));
            let left = BURST - (at as u64 + 1);
            assert_eq!(block_on(limit.check(*id, 0)).unwrap().remaining(), Some(left), "{key}");
            assert_eq!(block_on(limit.spend(*id, 1)).unwrap().remaining(), Some(left - 1), "{key}");
            let text: u64 = connection.get(*key).unwrap();
            assert_eq!(text, tat_ns(at) + INTERVAL_NS, "{key}: a number that Boulder reads");
        }
        assert_eq!(keys(&server), before, "no other keys");
        assert!(block_on(node.shared("Own").unwrap().spend("a", 1)).unwrap().allowed());
        assert!(keys(&server).contains(&"tollgate:Own:a".into()));
    });
}

#[test]
fn values_of_boulder_are_read() {
    with_all(|binary| {
        let server = Server::start(binary);
        let mut connection = server.connection();
        let node = node(&server, "boulder");
        let orders = node.shared("NewOrdersPerAccount").unwrap();
        // A time that is over; and the value of an expired key after an increment.
        for full in ["1690000000000000000", "3600000000000"] {
            let () = connection.set("3:7", full).unwrap();
            assert_eq!(block_on(orders.check(7, 0)).unwrap().remaining(), Some(BURST), "{full}");
        }
        // Boulder's increments can go beyond empty.
        let (s, _): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
        let () = connection.set("3:7", (s + 3_600 * 25) * 1_000_000_000).unwrap();
        let denied = block_on(orders.spend(7, 1)).unwrap();
        let wait_h = denied.retry_in().as_secs_f64() / 3_600.0;
        assert!(!denied.allowed() && (5.9..6.1).contains(&wait_h), "{denied:?}");
        let () = connection.set("3:8", "-3600000000000").unwrap();
        assert!(block_on(orders.spend(8, 1)).unwrap_err().is_store_failure());
    });
}

#[test]
fn other_formats_leave_boulders_keys_alone() {
    with_all(|binary| {
        let server = Server::start(binary);
        let node = node(&server, "tollgate");
        assert!(
            block_on(node.shared("NewOrdersPerAccount").unwrap().spend(7, 1)).unwrap().allowed()
        );
        assert_eq!(keys(&server), ["tollgate:NewOrdersPerAccount:7"]);
    });
}

#[test]
fn refunds_leave_numbers_that_boulder_reads() {
    with_all(|binary| {
        let server = Server::start(binary);
        let mut connection = server.connection();
        let node = node(&server, "boulder");
        let orders = node.shared("NewOrdersPerAccount").unwrap();
        assert!(block_on(orders.spend(7, 4)).unwrap().allowed());
        let (_, receipt) = block_on(orders.spend_estimate(7, 4)).unwrap();
        assert_eq!(block_on(orders.refund(7, 1)).unwrap().remaining(), Some(13));
        let place = block_on(orders.reserve(7, 20, Duration::MAX)).unwrap();
        place.cancel();
        let settled = block_on(receipt.unwrap().settle(0)).unwrap();
        assert_eq!(settled.remaining(), Some(17));
        let _: u64 = connection.get("3:7").unwrap();
    });
}

#[test]
fn estimates_of_boulders_buckets_are_settled() {
    with_all(|binary| {
        let server = Server::start(binary);
        let node = node(&server, "boulder");
        let orders = node.shared("NewOrdersPerAccount").unwrap();
        let (_, receipt) = block_on(orders.spend_estimate(7, 4)).unwrap();
        let settled = block_on(receipt.unwrap().settle(0)).unwrap();
        assert_eq!(settled.remaining(), Some(BURST));
    });
}
