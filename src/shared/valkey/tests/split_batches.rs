//! Limiters on a cluster without a tag: batches over its slots, and a start.

use std::time::Duration;

use super::server::with_each;
use super::shards::Shards;
use super::wait_until;
use crate::limiter::Limiter;
use crate::limiter::batch::MemberMode;
use crate::limits::Limits;
use crate::shared::{Store, block_on};

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

#[test]
fn a_start_needs_each_node() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        let of = |url: &str| Store::connect(&super::options_of(url)).unwrap();
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
    let store = Store::connect(&super::options_of("redis-cluster://127.0.0.1:1")).unwrap();
    wait_until("refused", || store.last_error().is_some_and(|text| text.contains("127.0.0.1:1")));
    assert!(!store.is_connected());
}
