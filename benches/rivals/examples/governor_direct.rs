use std::num::NonZeroU32;

use governor::clock::Clock;
use governor::{Quota, RateLimiter};

fn main() {
    let (rate, burst) = (NonZeroU32::new(10).unwrap(), NonZeroU32::new(20).unwrap());
    let limiter = RateLimiter::direct(Quota::per_second(rate).allow_burst(burst));
    match limiter.check() {
        Ok(()) => println!("allowed"),
        Err(not_until) => {
            println!("denied, wait {:?}", not_until.wait_time_from(limiter.clock().now()));
        }
    }
}
