//! The program of `examples/waiting.rs` with governor.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use tokio::time::timeout;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hundred = NonZeroU32::new(100).unwrap();
    let quota = Quota::with_period(Duration::from_millis(100)).unwrap().allow_burst(hundred);
    let users = RateLimiter::keyed(quota);
    let alice = "alice".to_owned();
    assert!(users.check_key_n(&alice, hundred)?.is_ok());
    let at_most = Duration::from_secs(1);
    timeout(at_most, users.until_key_ready(&alice)).await?; // after 100 ms
    // That would take 10 s: an error after 1 s.
    assert!(timeout(at_most, users.until_key_n_ready(&alice, hundred)).await.is_err());
    Ok(())
}
