//! Threads that spend from one bucket on the server's own clock.

use std::sync::Arc;

use super::server::{Server, with_each};
use super::{charge, options, secondly, wait_until_connected};
use crate::shared::valkey::ValkeyStore;

#[test]
fn threads_on_one_bucket_keep_its_bound() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = Arc::new(ValkeyStore::start(&options(&server)).unwrap());
        wait_until_connected(&store);
        // The clock of the server is this machine's.
        let (burst, interval_ns) = (50_u64, 1_000_000_000 / 200);
        let limit = secondly(burst, 200);
        let spent: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u64)
                .map(|at| {
                    let (store, limit) = (store.clone(), limit.clone());
                    scope.spawn(move || {
                        let mut spent = Vec::new();
                        for call in 0..300 {
                            let member = super::member("hot", &limit, (at + call) % 3);
                            let found = charge(&store, std::slice::from_ref(&member)).unwrap();
                            if found.denied.is_none() && member.cost > 0 {
                                spent.push((found.unix_ns, member.cost));
                            }
                        }
                        spent
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut spent = spent;
        spent.sort_unstable();
        assert!(spent.len() > 30, "{} spends", spent.len());
        for (first, &(from_ns, _)) in spent.iter().enumerate() {
            let mut units = 0;
            for &(to_ns, cost) in &spent[first..] {
                units += cost;
                assert!(
                    (units - burst.min(units)) * interval_ns <= to_ns - from_ns,
                    "over the bound"
                );
            }
        }
    });
}
