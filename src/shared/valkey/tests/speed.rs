//! Measures what the server's CPU costs a call. Run it alone, in a release build:
//! `cargo test --release --features valkey --lib shared::valkey::tests::speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use super::server::{Server, with_each};
use super::{member, options, run, wait_until_connected};
use crate::core::shared::{SharedMember, SharedMode, SharedStore};
use crate::limit::Limit;
use crate::shared::valkey::ValkeyStore;

/// The CPU time of the server so far.
fn cpu(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

#[test]
#[ignore = "measures"]
fn calls_for_each_second_of_the_server() {
    let limit = Limit::new(1_000_000, 1_000_000, Duration::from_secs(1)).unwrap();
    let lean = member("hot", &limit, 1);
    let general = SharedMember { mode: SharedMode::SpendOnly, ..lean.clone() };
    with_each(|binary| {
        let server = Server::start(binary);
        let store = std::sync::Arc::new(ValkeyStore::start(&options(&server)).unwrap());
        wait_until_connected(&store);
        for (name, member, at_once) in [
            ("lean", &lean, 1),
            ("lean", &lean, 16),
            ("general", &general, 1),
            ("general", &general, 16),
        ] {
            const CALLS: usize = 100_000;
            let (before, began) = (cpu(&server), Instant::now());
            let by = store.clone();
            let members: std::sync::Arc<[SharedMember]> = [member.clone()].into();
            let mut times = run(&store, async move {
                let mut waiting = Vec::new();
                for _ in 0..at_once {
                    let (by, members) = (by.clone(), members.clone());
                    waiting.push(tokio::spawn(async move {
                        let mut times = Vec::with_capacity(CALLS / at_once);
                        for _ in 0..CALLS / at_once {
                            let call = Instant::now();
                            by.charge(members.clone()).await.unwrap();
                            times.push(call.elapsed());
                        }
                        times
                    }));
                }
                let mut times = Vec::new();
                for task in waiting {
                    times.extend(task.await.unwrap());
                }
                Ok(times)
            })
            .unwrap();
            let (took, used) = (began.elapsed(), cpu(&server) - before);
            times.sort_unstable();
            println!(
                "{name}, {at_once} at once: {:.0} calls a second of the server's CPU, {:.0} a second in all; p50 {:?}, p99 {:?}",
                CALLS as f64 / used.as_secs_f64(),
                CALLS as f64 / took.as_secs_f64(),
                times[CALLS / 2],
                times[CALLS / 100 * 99],
            );
        }
    });
}
