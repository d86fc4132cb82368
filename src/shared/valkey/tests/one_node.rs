//! A cluster of which one node stands still or is gone: the others are asked as before.

use std::time::{Duration, Instant};

use super::cluster::node_with;
use super::server::with_each;
use super::shards::Shards;
use crate::shared::block_on;

/// Returns ids whose buckets are on the first two nodes, and ids of the third.
fn ids(shards: &Shards, limit: &str, count: usize) -> [Vec<String>; 2] {
    let is_third = |id: &String| shards.server_of(&format!("tollgate:{limit}:{id}")) == 2;
    let (third, others): (Vec<_>, _) = (0..count).map(|id| id.to_string()).partition(is_third);
    assert!(third.len() > count / 5 && others.len() > count / 3);
    [others, third]
}

/// The first failure ended the return of all leases that were not yet given back.
#[test]
fn a_lost_node_loses_no_leases_of_others() {
    with_each(|binary| {
        for is_killed in [true, false] {
            let mut shards = Shards::start(binary);
            let limiter = node_with(&shards, ", timeout: 2s");
            let leased = limiter.shared("Leased").unwrap();
            let [others, lost] = ids(&shards, "Leased", 150);
            for id in [&others, &lost, &others, &lost].into_iter().flatten() {
                assert!(block_on(leased.spend(&**id, 1)).unwrap().allowed());
            }
            match is_killed {
                true => shards.servers[2].kill(),
                false => shards.servers[2].signal("-STOP"),
            }
            assert!(block_on(limiter.give_leases_back()).unwrap_err().is_store_failure());
            for id in &others {
                let left = block_on(leased.check(&**id, 0)).unwrap().remaining();
                assert_eq!(left, Some(998), "{id}, killed: {is_killed}");
            }
        }
    });
}

/// They held all places, and those for the other nodes were not sent within 5 s.
#[test]
fn returns_to_a_stopped_node_delay_no_others() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let limiter = node_with(&shards, "");
        let users = limiter.shared("PerUser").unwrap();
        let [others, stopped] = ids(&shards, "PerUser", 2_000);
        shards.servers[2].signal("-STOP");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let refund = |id: &String| {
            let (users, id) = (users.clone(), id.clone());
            runtime.spawn(async move { users.refund(&id, 1).await })
        };
        let began = Instant::now();
        let late: Vec<_> = stopped.iter().map(refund).collect();
        let all: Vec<_> = others.iter().map(refund).collect();
        assert!(all.into_iter().all(|one| runtime.block_on(one).unwrap().is_ok()));
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        drop(late);
    });
}

/// Late calls for one node made the calls for all nodes fewer: those for the others were denied for overload.
#[test]
fn late_calls_for_a_node_deny_no_others() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let limiter = node_with(&shards, ", timeout: 200ms");
        let users = limiter.shared("PerUser").unwrap();
        let [others, stopped] = ids(&shards, "PerUser", 150);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let overloaded_of = |ids: &[String]| {
            let spend = |id: &String| {
                let (users, id) = (users.clone(), id.clone());
                runtime.spawn(async move { users.spend(&id, 1).await.unwrap() })
            };
            let all: Vec<_> = ids.iter().map(spend).collect();
            let all = all.into_iter().map(|one| runtime.block_on(one).unwrap());
            all.filter(|decision| decision.overloaded()).count()
        };
        assert_eq!(overloaded_of(&others), 0);
        shards.servers[2].signal("-STOP");
        for _ in 0..3 {
            assert!(overloaded_of(&stopped) > 0);
            assert_eq!(overloaded_of(&others), 0);
        }
    });
}
