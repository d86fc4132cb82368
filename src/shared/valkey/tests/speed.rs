//! Measures what the server's CPU costs a call. Run it alone, in a release build:
//! `cargo test --release --features valkey --lib shared::valkey::tests::speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use super::server::{Server, with_each};
use super::{member, options, run, wait_until_connected};
use crate::core::shared::{SharedMember, SharedMode, SharedStore};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, LimitOptions, Limits, Shared};
use crate::shared::Store;
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

/// A limiter with a local limit and a leased one of the same numbers, on a server.
fn local_and_leased(server: &Server, limit: &Limit) -> (Limiter, [KeyedLimit; 2]) {
    let leased = LimitOptions::default().shared(Shared::Leased);
    let limits = Limits::builder().limit("Local", IdFormat::String, limit.clone()).unwrap();
    let limits = limits.limit_with("Leased", IdFormat::String, limit.clone(), leased).unwrap();
    let store = Store::connect(&options(server)).unwrap();
    let limiter = Limiter::with_options(limits.build(), LimiterOptions::default().store(store));
    let handles = ["Local", "Leased"].map(|name| limiter.limit(name).unwrap());
    (limiter, handles)
}

#[test]
#[ignore = "measures"]
fn time_of_a_spend_from_a_lease() {
    let limit = Limit::new(50_000_000, 50_000_000, Duration::from_secs(1)).unwrap();
    with_each(|binary| {
        let server = Server::start(binary);
        let (_limiter, [local, leased]) = local_and_leased(&server, &limit);
        for id in ["one", "an id of forty bytes, as a UUID may be.."] {
            let mut times = [const { Vec::new() }; 2];
            for _ in 0..400 {
                const CALLS: u32 = 5_000;
                while leased.check(id, u64::from(CALLS)).is_err() {
                    assert!(leased.spend_blocking(id, 1).unwrap().allowed());
                }
                for (handle, times) in [&local, &leased].into_iter().zip(&mut times) {
                    let began = Instant::now();
                    for _ in 0..CALLS {
                        assert!(handle.spend(id, 1).unwrap().allowed());
                    }
                    times.push(began.elapsed().as_nanos() as f64 / f64::from(CALLS));
                }
            }
            let [local, leased] = times.map(|mut times| {
                times.sort_unstable_by(f64::total_cmp);
                times[times.len() / 2]
            });
            println!("{id}: a local spend {local:.2} ns, one from a lease {leased:.2} ns");
        }
    });
}

#[test]
#[ignore = "measures"]
fn share_of_calls_without_the_store() {
    let limit = Limit::new(10_000, 1_000, Duration::from_secs(1)).unwrap();
    with_each(|binary| {
        let server = Server::start(binary);
        let (_limiter, [_, leased]) = local_and_leased(&server, &limit);
        let (began, mut asked) = (Instant::now(), 0);
        const CALLS: u32 = 6_000;
        for call in 0..CALLS {
            let due = began + call * Duration::from_millis(10);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            match leased.spend("one", 1) {
                Ok(decision) => assert!(decision.allowed()),
                Err(_) => {
                    asked += 1;
                    assert!(leased.spend_blocking("one", 1).unwrap().allowed());
                }
            }
        }
        println!("{asked} of {CALLS} calls in {:?} asked the store", began.elapsed());
    });
}
