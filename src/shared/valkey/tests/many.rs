//! Many callers of one bucket at once: each step is one answer of the store, so none overtakes another.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Server, with_each};
use super::wait_until;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

const WAITERS: u64 = 256;
const TASKS: u64 = 16;
const REFUNDS: u64 = 100;

fn nodes(server: &Server) -> [Limiter; 2] {
    let file = format!(
        "store: {{url: \"{}\", timeout: 2s}}\n\
         Queue: {{burst: 1, count: 1, period: 1h, id: string, shared: exact}}\n\
         PerUser: {{burst: 10000, count: 1, period: 1h, id: string, shared: exact}}\n\
         PerTeam: {{algorithm: leaky_bucket, size: 10000, drip_rate: 1h, drip_size: 1, id: string, shared: exact}}\n",
        server.url("")
    );
    [(); 2].map(|()| {
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let users = limiter.shared("PerUser").unwrap();
        wait_until("connected", || block_on(users.blocked_for("none")).is_ok());
        limiter
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

#[test]
fn many_waiters_of_one_id_all_have_places() {
    with_each(|binary| {
        let server = Server::start(binary);
        let nodes = nodes(&server).map(|node| node.shared("Queue").unwrap());
        let runtime = runtime();
        let tasks: Vec<_> = (0..WAITERS)
            .map(|number| {
                let queue = nodes[number as usize % 2].clone();
                runtime.spawn(async move { queue.reserve("hot", 1, Duration::MAX).await })
            })
            .collect();
        let mut hours: Vec<u64> = tasks
            .into_iter()
            .map(|task| runtime.block_on(task).unwrap().expect("a place"))
            .map(|place| (place.wait().as_secs() + 60) / 3600)
            .collect();
        hours.sort_unstable();
        assert_eq!(hours, (0..WAITERS).collect::<Vec<_>>(), "each has its own hour");
    });
}

#[test]
fn many_refunds_of_one_bucket_lose_none() {
    with_each(|binary| {
        let server = Server::start(binary);
        let nodes = Arc::new(nodes(&server));
        let runtime = runtime();
        for limit in ["PerUser", "PerTeam"] {
            let tasks: Vec<_> = (0..2 * TASKS)
                .map(|number| {
                    let users = nodes[number as usize % 2].shared(limit).unwrap();
                    runtime.spawn(async move {
                        for at in 0..REFUNDS {
                            let (decision, receipt) = users.spend_estimate("hot", 3).await?;
                            assert!(decision.allowed());
                            match at % 2 {
                                0 => drop(receipt.unwrap().settle(0).await?),
                                _ => drop(users.refund("hot", 3).await?),
                            }
                        }
                        Ok::<_, crate::Error>(())
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap().unwrap());
            let left = block_on(nodes[0].shared(limit).unwrap().check("hot", 0)).unwrap();
            assert_eq!(left.remaining(), Some(10_000), "{limit}");
        }
    });
}
