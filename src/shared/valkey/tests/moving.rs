//! Slots that are being moved, also to a node that had none, and what calls get meanwhile.

use std::time::Duration;

use redis::cmd;

use super::cluster::{connected, hourly, spend};
use super::server::with_each;
use super::shards::Shards;
use super::{charge, member, wait_until};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;
use crate::shared::valkey::ValkeyStore;
use crate::shared::valkey::script::Scripts;

/// Returns the connections of a server that have run a script last, by their numbers.
fn askers(shards: &Shards, at: usize) -> Vec<String> {
    let clients: String = shards.ask(at, cmd("CLIENT").arg("LIST"));
    let of_scripts = clients.lines().filter(|client| client.contains("cmd=eval"));
    of_scripts.map(|client| client.split_whitespace().next().unwrap().into()).collect()
}

/// Spends, and returns the number of nodes that were asked.
fn asked_by_spend(store: &ValkeyStore, key: &str) -> u64 {
    let calls = || store.servers.figures().calls();
    let before = calls();
    assert!(spend(store, key).unwrap());
    calls() - before
}

#[test]
fn a_node_gets_its_first_slot() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 500);
        let [.., key] = shards.keys("a");
        assert_eq!(asked_by_spend(&store, &key), 1);
        shards.add_node(binary);
        shards.begin_move(&key, 3);
        for _ in 0..20 {
            assert_eq!(asked_by_spend(&store, &key), 2, "the old node and the new one");
        }
        let during = askers(&shards, 3);
        assert_eq!(during.len(), 1, "one connection for all calls: {during:?}");
        shards.end_move(&key, 3);
        for _ in 0..20 {
            assert!(asked_by_spend(&store, &key) <= 2);
        }
        wait_until("in the map", || asked_by_spend(&store, &key) == 1);
        assert_eq!(askers(&shards, 3), during, "the connection goes on");
    });
}

#[test]
fn a_move_to_a_new_node_denies_none() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        shards.add_node(binary);
        let file = format!(
            "store: {{url: \"{}\", timeout: 200ms, tag: limits}}
All: {{burst: 1000, count: 1, period: 1h, id: string, shared: exact, on_error: deny}}",
            shards.url()
        );
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let all = limiter.shared("All").unwrap();
        wait_until("connected", || block_on(all.spend("a", 1)).unwrap().allowed());
        let allowed = || (0..20).filter(|_| block_on(all.spend("a", 1)).unwrap().allowed()).count();
        let key = "tollgate:{limits}:All:a";
        assert!(shards.text(key).is_some());
        shards.begin_move(key, 3);
        assert_eq!(allowed(), 20);
        shards.end_move(key, 3);
        assert_eq!(allowed(), 20);
    });
}

#[test]
fn a_new_node_that_is_lost_delays_none() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let [other, _, key] = shards.keys("a");
        assert!(spend(&store, &key).unwrap());
        shards.add_node(binary);
        shards.begin_move(&key, 3);
        shards.servers[3].kill();
        let began = std::time::Instant::now();
        for _ in 0..20 {
            let text = spend(&store, &key).unwrap_err().to_string();
            assert!(text.contains(&format!("127.0.0.1:{}", shards.servers[3].port())), "{text}");
            assert!(spend(&store, &other).unwrap(), "other slots go on");
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

#[test]
fn a_redirect_without_an_address_says_so() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let [key, ..] = shards.keys("a");
        assert!(spend(&store, &key).unwrap());
        shards.begin_move(&key, 1);
        // The nodes have no hostnames, so this one names them "?".
        let set = cmd("CONFIG").arg("SET").to_owned();
        let () = shards.ask(0, set.clone().arg("cluster-preferred-endpoint-type").arg("hostname"));
        let began = std::time::Instant::now();
        let error = spend(&store, &key).unwrap_err();
        let text = error.to_string();
        assert!(error.is_store_outage(), "{text}");
        assert!(text.contains("?:") && !text.contains("begin the URL"), "{text}");
        assert!(began.elapsed() < Duration::from_secs(1), "it waits for nothing");
    });
}

#[test]
fn batches_of_a_moving_slot_are_refused() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let keys = ["p{tag}:a", "p{tag}:b", "p{tag}:new"];
        let to = (shards.server_of(keys[0]) + 1) % 3;
        let batch = |keys: &[&str]| {
            let members: Vec<_> = keys.iter().map(|key| member(key, &hourly(1_000), 1)).collect();
            charge(&store, &members).map(|found| assert_eq!(found.denied, None))
        };
        let is_refused = |keys: &[&str]| {
            let error = batch(keys).unwrap_err();
            assert!(error.is_store_outage() && error.to_string().contains("TRYAGAIN"), "{error}");
        };
        let [a, b, new] = keys;
        batch(&[a, b]).unwrap();
        shards.open_move(a, to);
        batch(&[a, b]).unwrap();
        is_refused(&[a, new]);
        is_refused(&[new, "p{tag}:newer"]);
        shards.move_key(a, to);
        is_refused(&[a, b]);
        shards.move_key(b, to);
        batch(&[a, b]).unwrap();
        is_refused(&[a, new]);
        batch(&[new]).unwrap();
        batch(&[a, new]).unwrap();
        shards.end_move(a, to);
        batch(&[a, b, new]).unwrap();
        assert!(spend(&store, "p{tag}:newer").unwrap());
        batch(&[a, "p{tag}:newest"]).unwrap();
    });
}
