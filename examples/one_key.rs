//! One bucket for all calls: 20 at once, then one every three minutes.

use std::time::Duration;

use tollgate::{Bucket, Clock, Limit};

fn main() -> Result<(), tollgate::Error> {
    let limit = Limit::new(20, 20, Duration::from_secs(3600))?;
    let bucket = Bucket::new(limit, Clock::system());
    for _ in 0..20 {
        assert!(bucket.spend(1)?.allowed());
    }
    let denied = bucket.spend(1)?;
    assert!(denied.retry_in() > Duration::from_secs(60));
    println!("denied, wait {:?}", denied.retry_in());
    Ok(())
}
