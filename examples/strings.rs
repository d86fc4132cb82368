//! A bucket for each user's name, and a thread that drops the buckets that are full again.

use std::thread::sleep;
use std::time::Duration;

use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};

fn main() -> Result<(), tollgate::Error> {
    let limit = Limit::new(20, 20, Duration::from_secs(1))?;
    let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    let limiter = Limiter::new(limits);
    let every_10_ms = SweepOptions::default().interval(Duration::from_millis(10));
    let _sweeper = limiter.start_sweeper(every_10_ms)?;
    let users = limiter.limit("PerUser")?;
    assert!(users.spend("alice", 1)?.allowed());
    assert!(users.spend("bob", 1)?.allowed());
    while limiter.stats().cells > 0 {
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
