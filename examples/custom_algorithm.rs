//! A custom algorithm: a quota for a day and a smaller one for each half of it, so that no user spends the whole day's quota
//! in the morning.
//!
//!     cargo run --example custom_algorithm
//!
//! `custom_algorithm/halves.rs` implements the algorithm. `tests/algorithms/custom.rs` checks it against the contract
//! of `Algorithm`.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

#[path = "custom_algorithm/halves.rs"]
mod halves;

use halves::Halves;

fn main() -> Result<(), tollgate::Error> {
    let hour = Duration::from_secs(3600);
    let halves = Halves::new(100, 60, 24 * hour);
    let limits = Limits::builder()
        .limit("UploadsPerUser", IdFormat::String, Limit::custom(Arc::new(halves))?)?
        .build();
    // This program moves the time itself; `Limiter::new` uses the system's clock.
    let (clock, manual) = Clock::manual();
    let limiter = Limiter::with_clock(limits, clock);
    let uploads = limiter.limit("UploadsPerUser")?;

    for (wait, cost) in [(0, 50), (1, 20), (1, 10), (10, 40), (1, 1)] {
        manual.advance(wait * hour);
        let decision = uploads.spend("alice", cost)?;
        println!(
            "after {wait:2} h, {cost:2} units: {}, {} remaining, again in {:?}, full in {:?}",
            if decision.allowed() { "allowed" } else { "denied " },
            decision.remaining().unwrap_or_default(),
            decision.retry_in(),
            decision.reset_in(),
        );
    }
    Ok(())
}
