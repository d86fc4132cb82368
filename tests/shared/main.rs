//! Limits that several nodes share, by way of a store in memory.

#![cfg(feature = "valkey")]

mod explained;
#[path = "../support/full_size.rs"]
mod full_size;
mod handles;
mod meet;
mod nodes;
#[path = "../support/random.rs"]
mod random;
mod refused;
mod reserved;
mod share;
mod unlimited;

use std::time::Duration;

use tollgate::limits::{LimitOptions, Shared};
use tollgate::shared::Store;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

fn exact() -> LimitOptions {
    LimitOptions::default().shared(Shared::Exact)
}

fn minutely(burst: u64) -> Limit {
    Limit::new(burst, 1, Duration::from_secs(60)).unwrap()
}

/// A limit `Own` of this node, and a limit `All` of all nodes.
fn limits(own: u64, all: u64) -> Limits {
    let builder = Limits::builder().limit("Own", IdFormat::String, minutely(own)).unwrap();
    builder.limit_with("All", IdFormat::String, minutely(all), exact()).unwrap().build()
}

fn node(limits: Limits, store: &Store, clock: &Clock) -> Limiter {
    let options = LimiterOptions::default().store(store.clone()).clock(clock.clone());
    Limiter::with_options(limits, options).unwrap()
}

/// Waits for a future that the store in memory makes ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("the store in memory answers at once"),
    }
}
