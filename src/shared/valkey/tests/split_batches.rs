//! Limiters on a cluster without a tag: batches over its slots, and a start.

use std::time::{Duration, Instant};

use super::server::with_each;
use super::shards::Shards;
use super::{charge, member, options_of, wait_until, wait_until_connected};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::MemberMode;
use crate::limits::Limits;
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::lease::LeaseRequest;
use crate::shared::valkey::ValkeyStore;
use crate::shared::{Store, block_on};
use crate::util::sync::{Ordering, Switch};

fn node(shards: &Shards) -> Limiter {
    let limits = "
Plain: {burst: 10, count: 1, period: 1h, id: string, shared: exact}
Tried: {burst: 10, count: 1, period: 1h, id: string, shared: exact, mode: shadow}
";
    let file = format!("store: {{url: \"{}\", timeout: 1s}}\n{limits}", shards.url());
    Limiter::new(Limits::from_yaml(&file).unwrap())
}

/// The slots were asked as if such a member could deny.
#[test]
fn members_that_only_look_deny_nothing() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let node = node(&shards);
        let (plain, tried) = (node.shared("Plain").unwrap(), node.shared("Tried").unwrap());
        block_on(node.store().unwrap().ready(Duration::from_secs(10))).unwrap();
        for id in ["a", "b", "c", "d", "e", "f"] {
            let _ = block_on(tried.spend(id, 10)).unwrap();
            let _ = block_on(plain.spend(id, 2)).unwrap();
            let other = format!("{id}-empty");
            let _ = block_on(plain.spend(&*other, 10)).unwrap();
            let spend_only = plain.member(&*other).mode(MemberMode::SpendOnly);
            let checked = tried.member(id).mode(MemberMode::CheckOnly);
            let members = [plain.member(id), tried.member(id)];
            assert!(block_on(node.shared_batch(&members).check()).unwrap().allowed());
            let members = [plain.member(id), spend_only];
            assert!(block_on(node.shared_batch(&members).check()).unwrap().allowed());
            let members = [plain.member(id), checked];
            assert!(block_on(node.shared_batch(&members).spend()).unwrap().allowed());
            // None of the members can deny, and one of them is not charged.
            let mut each = Vec::new();
            let members = [plain.member(id).mode(MemberMode::SpendOnly), checked];
            assert!(block_on(node.shared_batch(&members).spend_into(&mut each)).unwrap().allowed());
            assert_eq!([each[0].remaining(), each[1].remaining()], [Some(6), Some(0)], "{id}");
        }
    });
}

/// The last slot fails, and the server of the first stands still while its charge is returned.
#[test]
fn charges_of_a_failed_batch_come_back_late() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let limits = "Plain: {burst: 10, count: 1, period: 1h, id: string, shared: exact}";
        let file = format!("store: {{url: \"{}\", timeout: 200ms}}\n{limits}", shards.url());
        let node = Limiter::new(Limits::from_yaml(&file).unwrap());
        let plain = node.shared("Plain").unwrap();
        block_on(node.store().unwrap().ready(Duration::from_secs(10))).unwrap();
        let [first, _, last] = shards.keys("tollgate:Plain:");
        let members = [&first, &last].map(|key| {
            let id = key.strip_prefix("tollgate:Plain:").unwrap();
            plain.member(id).cost(4).mode(MemberMode::SpendOnly)
        });
        shards.servers[2].signal("-STOP");
        std::thread::scope(|scope| {
            let spend = || block_on(node.shared_batch(&members).spend());
            let spent = scope.spawn(spend);
            wait_until("the first slot is charged", || shards.text(&first).is_some());
            shards.servers[0].signal("-STOP");
            let _ = spent.join().unwrap().unwrap();
        });
        std::thread::sleep(Duration::from_millis(400));
        shards.servers[0].signal("-CONT");
        let id = first.strip_prefix("tollgate:Plain:").unwrap();
        let left = || block_on(plain.check(id, 0)).unwrap().remaining();
        wait_until("the charge is returned", || left() == Some(10));
        shards.servers[2].signal("-CONT");
    });
}

/// The last slot denies the charge that it has allowed in the check. The leases of the first one go back with the other charges there.
#[test]
fn batches_denied_late_have_no_leases() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let options = options_of(&shards.url()).answer_timeout(Duration::from_secs(2)).unwrap();
        let store = ValkeyStore::start(&options).unwrap();
        wait_until_connected(&store);
        let [first, _, last] = shards.keys("tollgate:Late:");
        let hourly = |burst| Limit::new(burst, 1, Duration::from_secs(3600)).unwrap();
        let lease = Some(LeaseRequest { want: 8, length_ms: 1_000, end: None });
        let first = StoreMember { lease, ..member(&first, &hourly(1_000_000), 1) };
        let members = [first, member(&last, &hourly(1), 1)];
        let scripts = || {
            let stats: String = shards.ask(0, redis::cmd("INFO").arg("commandstats"));
            let calls = stats.split_once("cmdstat_evalsha:calls=").unwrap().1;
            calls.split_once(',').unwrap().0.parse::<u64>().unwrap()
        };
        assert_eq!(charge(&store, &members).unwrap().leased[..], [8, 0]);
        let is_over = Switch::default();
        std::thread::scope(|scope| {
            // Another client whose spends and refunds alternate.
            scope.spawn(|| {
                let (empty, mut connection) = (shards.text(&last), shards.servers[2].connection());
                // Also ends if the test fails.
                let began = Instant::now();
                while !is_over.load(Ordering::Relaxed) && began.elapsed().as_secs() < 25 {
                    let () =
                        redis::cmd("SET").arg(&last).arg(&empty).query(&mut connection).unwrap();
                    let () = redis::cmd("DEL").arg(&last).query(&mut connection).unwrap();
                }
            });
            let late = std::cell::Cell::new(0);
            wait_until("denied late", || {
                let before = scripts();
                let found = charge(&store, &members).unwrap();
                // The check, the charge, and its return.
                let is_late = found.denied.is_some() && scripts() == before + 3;
                late.set(late.get() + u32::from(is_late));
                assert!(found.denied.is_none() || found.leased[..] == [0, 0]);
                late.get() >= 5
            });
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_start_needs_each_node() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        let of = |url: &str| Store::connect(&options_of(url)).unwrap();
        let ready = |store: &Store, ms| block_on(store.ready(Duration::from_millis(ms)));
        let store = of(&shards.url());
        ready(&store, 10_000).unwrap();
        assert!(store.is_connected());
        // The address of one node, in place of the cluster's.
        let one = of(&shards.servers[0].url(""));
        let error = ready(&one, 300).unwrap_err().to_string();
        assert!(error.contains("MOVED") || error.contains("cluster"), "{error}");
        assert!(one.last_error().is_some());
        shards.servers[1].kill();
        wait_until("lost", || !store.is_connected());
        assert!(ready(&store, 500).is_err() && ready(&of(&shards.url()), 500).is_err());
    });
}

#[test]
fn a_cluster_tells_its_last_error() {
    let store = Store::connect(&options_of("redis-cluster://127.0.0.1:1")).unwrap();
    wait_until("refused", || store.last_error().is_some_and(|text| text.contains("127.0.0.1:1")));
    assert!(!store.is_connected());
}
