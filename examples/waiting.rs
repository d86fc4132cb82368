//! A caller that waits at most a second until it is allowed.

use std::time::Duration;

use tollgate::{IdFormat, Limit, Limiter, Limits};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Limit::new(100, 100, Duration::from_secs(10))?;
    let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    let users = Limiter::new(limits).limit("PerUser")?;
    assert!(users.spend("alice", 100)?.allowed());
    let waiting = users.waiting(Duration::from_secs(1), tokio::time::sleep);
    waiting.until_allowed("alice", 1).await?; // after 100 ms
    // That would take 10 s: an error at once.
    assert!(waiting.until_allowed("alice", 100).await.unwrap_err().is_not_in_time());
    Ok(())
}
