//! The program of `examples/own_time.rs` with governor.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, FakeRelativeClock};
use governor::{Quota, RateLimiter};

fn main() {
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_hour(NonZeroU32::new(1).unwrap());
    let users = RateLimiter::dashmap_with_clock(quota, clock.clone());
    let alice = "alice".to_owned();
    assert!(users.check_key(&alice).is_ok());
    let denied = users.check_key(&alice).unwrap_err();
    assert_eq!(denied.wait_time_from(clock.now()), Duration::from_secs(3600));
    clock.advance(Duration::from_secs(3599));
    assert!(users.check_key(&alice).is_err());
    clock.advance(Duration::from_secs(1));
    assert!(users.check_key(&alice).is_ok());
}
