//! Measures calls that leases answer. Run it alone, in a release build:
//! `cargo test --release --features valkey --lib shared::valkey::tests::speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use super::options;
use super::server::{Server, with_each};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, LimitOptions, Limits, Shared};
use crate::shared::SharedLimit;
use crate::shared::Store;
use crate::shared::block_on;

/// A limiter with a local limit and a leased one of the same numbers, on a server.
fn local_and_leased(server: &Server, limit: &Limit) -> (Limiter, [SharedLimit; 2]) {
    let leased = LimitOptions::default().shared(Shared::Leased);
    let limits = Limits::builder().limit("Local", IdFormat::String, limit.clone()).unwrap();
    let limits = limits.limit_with("Leased", IdFormat::String, limit.clone(), leased).unwrap();
    let store = Store::connect(&options(server)).unwrap();
    let limiter =
        Limiter::with_options(limits.build(), LimiterOptions::default().store(store)).unwrap();
    let handles = ["Local", "Leased"].map(|name| limiter.shared(name).unwrap());
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
                while leased.check_here(id, CALLS.into()).is_none() {
                    assert!(block_on(leased.spend(id, 1)).unwrap().allowed());
                }
                for (handle, times) in [&local, &leased].into_iter().zip(&mut times) {
                    let began = Instant::now();
                    for _ in 0..CALLS {
                        assert!(block_on(handle.spend(id, 1)).unwrap().allowed());
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

/// A flood of one id, of which the node keeps the denial: about twenty calls a second ask the store.
#[test]
#[ignore = "measures"]
fn time_of_a_kept_denial() {
    let limit = Limit::new(5, 1, Duration::from_secs(3_600)).unwrap();
    with_each(|binary| {
        let server = Server::start(binary);
        let exact = LimitOptions::default().shared(Shared::Exact);
        let limits = Limits::builder().limit("Local", IdFormat::String, limit.clone()).unwrap();
        let limits = limits.limit_with("Exact", IdFormat::String, limit.clone(), exact).unwrap();
        let store = Store::connect(&options(&server)).unwrap();
        let options = LimiterOptions::default().store(store);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        for name in ["Local", "Exact"] {
            let handle = limiter.shared(name).unwrap();
            assert!(block_on(handle.spend("one", 5)).unwrap().allowed());
            let (began, mut calls) = (Instant::now(), 0);
            while began.elapsed() < Duration::from_secs(1) {
                for _ in 0..1_000 {
                    assert!(!block_on(handle.spend("one", 1)).unwrap().allowed());
                }
                calls += 1_000;
            }
            let each = began.elapsed().as_nanos() / calls;
            println!("{name}: {each} ns a denial, {calls} of them");
        }
        println!("{} calls to the store", limiter.counters().store().unwrap().calls);
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
            match leased.spend_here("one", 1) {
                Some(decision) => assert!(decision.allowed()),
                None => {
                    asked += 1;
                    assert!(block_on(leased.spend("one", 1)).unwrap().allowed());
                }
            }
        }
        println!("{asked} of {CALLS} calls in {:?} asked the store", began.elapsed());
    });
}

/// Reservations of one id at once, with the default timeout: how many meet the error that others have changed the bucket.
#[test]
#[ignore = "measures"]
fn reservations_of_one_id_at_once() {
    let reserve = |all: &SharedLimit, id: &str| block_on(all.reserve(id, 1, Duration::MAX)).is_ok();
    with_each(|binary| {
        let server = Server::start(binary);
        for (threads, nodes) in [16, 64, 256].into_iter().flat_map(|it| [(it, 1), (it, 4)]) {
            let file = format!(
                "store: {{url: \"{}\"}}\n\
                 All: {{burst: 5, count: 1, period: 1h, id: string, shared: exact}}\n",
                server.url("")
            );
            let node = |_| Limiter::new(Limits::from_yaml(&file).unwrap()).shared("All").unwrap();
            let nodes: Vec<SharedLimit> = (0..nodes).map(node).collect();
            let id = format!("{threads} of {}", nodes.len());
            for all in &nodes {
                super::wait_until("connected", || reserve(all, "none"));
            }
            let made: usize = std::thread::scope(|scope| {
                let all = (0..threads).map(|at| &nodes[at % nodes.len()]);
                let id = &id;
                let spawned: Vec<_> = all
                    .map(|all| scope.spawn(move || (0..20).filter(|_| reserve(all, id)).count()))
                    .collect();
                spawned.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            println!("{id} nodes: {made} of {} reservations", threads * 20);
        }
    });
}
