//! Converts durations to nanoseconds.

use std::time::Duration;

/// Returns the nanoseconds of a duration, at most `u64::MAX`.
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
