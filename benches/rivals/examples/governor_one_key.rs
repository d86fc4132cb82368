//! The program of `examples/one_key.rs` with governor.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::{Quota, RateLimiter};

fn main() {
    let quota = Quota::per_hour(NonZeroU32::new(20).unwrap());
    let limiter = RateLimiter::direct(quota);
    for _ in 0..20 {
        assert!(limiter.check().is_ok());
    }
    let denied = limiter.check().unwrap_err();
    let wait = denied.wait_time_from(limiter.clock().now());
    assert!(wait > Duration::from_secs(60));
    println!("denied, wait {wait:?}");
}
