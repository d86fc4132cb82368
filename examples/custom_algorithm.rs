//! A custom algorithm: a quota for a day and a smaller one for each half of it, so that no user spends the whole day's quota
//! in the morning. The limits file names it.
//!
//!     cargo run --example custom_algorithm
//!
//! `custom_algorithm/halves.rs` implements the algorithm. `tests/algorithms/custom.rs` checks it against the contract
//! of `Algorithm`.

use std::sync::Arc;
use std::time::Duration;

use tollgate::limits::Loader;
use tollgate::{Clock, Limiter};

#[path = "custom_algorithm/halves.rs"]
mod halves;

use halves::Halves;

fn main() -> Result<(), tollgate::Error> {
    let loader = Loader::new().algorithm("halves", |fields| {
        let (whole, half) = (fields.whole_number("day")?, fields.whole_number("half")?);
        if half > whole {
            return Err(fields.refuse("half", "at most the number of the day is allowed"));
        }
        Ok(Arc::new(Halves::new(whole, half, Duration::from_secs(86_400))))
    })?;
    let limits = loader.text(
        "UploadsPerUser: {algorithm: halves, day: 100, half: 60, id: string}\n\
         UploadsPerUser:probe: {day: 1000, half: 1000}",
    )?;
    // This program moves the time itself; `Limiter::new` uses the system's clock.
    let (clock, manual) = Clock::manual();
    let limiter = Limiter::with_options(limits, clock)?;
    let uploads = limiter.limit("UploadsPerUser")?;

    for (wait, cost) in [(0, 50), (1, 20), (1, 10), (10, 40), (1, 1)] {
        manual.advance(Duration::from_secs(wait * 3600));
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
