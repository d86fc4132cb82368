//! A rule of one's own: at most so many units in a day and in each half of it, so that nobody spends the
//! day's quota in the morning.
//!
//! Run it with `cargo run --example own_algorithm`. `tests/algorithms/custom.rs` has the same rule, put
//! through the laws that every rule keeps to.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

#[path = "own_algorithm/halves.rs"]
mod halves;

use halves::Halves;

fn main() -> Result<(), tollgate::Error> {
    let hour = Duration::from_secs(3600);
    let rule = Halves::new(100, 60, 24 * hour);
    let limits = Limits::builder()
        .limit("UploadsPerUser", IdFormat::String, Limit::custom(Arc::new(rule))?)?
        .build();
    // The time is moved by hand here; `Limiter::new` takes the system's.
    let (clock, hand) = Clock::manual();
    let limiter = Limiter::with_clock(limits, clock);
    let uploads = limiter.limit("UploadsPerUser")?;

    for (wait, cost) in [(0, 50), (1, 20), (1, 10), (10, 40), (1, 1)] {
        hand.advance(wait * hour);
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
