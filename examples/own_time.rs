//! A test that does not sleep: its clock shows the time that the test sets.

use std::time::Duration;

use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

fn main() -> Result<(), tollgate::Error> {
    let (clock, time) = Clock::manual();
    let limit = Limit::new(1, 1, Duration::from_secs(3600))?;
    let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    let users = Limiter::with_options(limits, clock)?.limit("PerUser")?;
    assert!(users.spend("alice", 1)?.allowed());
    assert_eq!(users.spend("alice", 1)?.retry_in(), Duration::from_secs(3600));
    time.advance(Duration::from_secs(3599));
    assert!(!users.spend("alice", 1)?.allowed());
    time.advance(Duration::from_secs(1));
    assert!(users.spend("alice", 1)?.allowed());
    Ok(())
}
