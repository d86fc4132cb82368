//! The program of `examples/strings.rs` with governor.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use governor::{Quota, RateLimiter};

fn main() {
    let quota = Quota::per_second(NonZeroU32::new(20).unwrap());
    let users = Arc::new(RateLimiter::keyed(quota));
    let swept = Arc::clone(&users);
    spawn(move || {
        loop {
            sleep(Duration::from_millis(10));
            swept.retain_recent();
        }
    });
    assert!(users.check_key(&"alice".to_owned()).is_ok());
    assert!(users.check_key(&"bob".to_owned()).is_ok());
    while !users.is_empty() {
        sleep(Duration::from_millis(10));
    }
}
