use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{Jitter, Quota, RateLimiter};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (rate, burst) = (NonZeroU32::new(10).unwrap(), NonZeroU32::new(20).unwrap());
    let users = Arc::new(RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst)));
    let cleaned = Arc::clone(&users);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(60));
            cleaned.retain_recent();
        }
    });
    let alice = "alice".to_owned();
    if users.check_key(&alice).is_ok() {
        println!("allowed");
    }
    // The outer result is an error if the cost is above the burst; the inner one, if the call is denied.
    if users.check_key_n(&alice, NonZeroU32::new(5).unwrap())?.is_ok() {
        println!("allowed as well");
    }
    users.until_key_ready_with_jitter(&alice, Jitter::up_to(Duration::from_millis(2))).await;
    Ok(())
}
