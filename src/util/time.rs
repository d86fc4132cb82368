//! Converts durations to nanoseconds, and reads the clocks of std where it has them.

use std::time::{Duration, Instant, SystemTime};

/// Whether std has clocks. On wasm32-unknown-unknown they panic.
const HAS_CLOCKS: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// Returns the system's time, where std has it.
pub(crate) fn system_now() -> Option<SystemTime> {
    HAS_CLOCKS.then(SystemTime::now)
}

/// Returns the time of the monotonic clock, where std has it.
pub(crate) fn instant_now() -> Option<Instant> {
    HAS_CLOCKS.then(Instant::now)
}

/// Returns the nanoseconds of a duration, at most `u64::MAX`.
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns `max * random / 2^64`, rounded down. A `max` above 584 years counts as 584 years.
pub(crate) fn share_of(max: Duration, random: u64) -> Duration {
    let ns = (u128::from(saturating_ns(max)) * u128::from(random)) >> 64;
    Duration::from_nanos(ns as u64)
}
