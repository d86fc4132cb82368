//! Tests against real servers: each one that is found runs all of them.

#[cfg(feature = "boulder")]
mod boulder;
mod bound;
mod breaker;
mod clock;
mod cluster;
mod edges;
mod failover;
mod failures;
mod flood;
mod histories;
mod idle;
#[cfg(feature = "tower")]
mod layer;
mod many;
mod model;
mod moving;
mod mute;
mod nodes;
mod one_node;
mod pauses;
mod processes;
mod scripts;
mod sentinels;
mod server;
mod shards;
mod sick;
mod speed;
mod speed_exact;
mod speed_node;
mod split_batches;
mod tls;
mod together;

use std::time::Duration;

use crate::error::Error;
use crate::limit::Limit;
use crate::limits::StoreOptions;
use crate::shared::block_on;
use crate::shared::protocol::{Found, SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::ValkeyStore;
use server::Server;

fn options(server: &Server) -> StoreOptions {
    options_of(&server.url("")).answer_timeout(Duration::from_secs(2)).unwrap()
}

fn options_of(url: &str) -> StoreOptions {
    StoreOptions::new(url).unwrap().connect_timeout(Duration::from_secs(1)).unwrap()
}

fn member(key: &str, limit: &Limit, cost: u64) -> StoreMember {
    let (limit, mode) = (limit.clone(), SharedMode::CheckAndSpend);
    StoreMember { key: key.into(), limit, unscaled: None, cost, mode, keep_ms: 0, lease: None }
}

fn secondly(burst: u64, count: u64) -> Limit {
    Limit::new(burst, count, Duration::from_secs(1)).unwrap()
}

/// Charges a batch on the store's thread, and waits for its answer.
fn charge(store: &ValkeyStore, members: &[StoreMember]) -> Result<Found, Error> {
    run(store, store.charge(members.into()))
}

/// Runs a call on the store's thread, and waits for its answer.
fn run<T: Send + 'static>(
    store: &ValkeyStore,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (tell, answer) = tokio::sync::oneshot::channel();
    store.run(Box::pin(async move {
        let _ = tell.send(call.await);
    }));
    block_on(answer).unwrap()
}

/// Waits until the store has connected.
fn wait_until_connected(store: &ValkeyStore) {
    let limit = secondly(1, 1);
    wait_until("connected", || {
        let checked = StoreMember { mode: SharedMode::CheckOnly, ..member("none", &limit, 0) };
        charge(store, &[checked]).is_ok()
    });
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    wait_for(what, || is_true().then_some(()));
}

/// Waits until `find` has found something.
fn wait_for<T>(what: &str, find: impl Fn() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "not {what} in 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
