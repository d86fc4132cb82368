//! Rounds the waits that clients are told.

use std::time::Duration;

use crate::decision::Decision;

/// Returns the `Retry-After` of a denial in whole seconds: the wait rounded up, at least 1. `None` if the call
/// is allowed.
///
/// RFC 9110, 10.2.3, allows whole seconds only; RFC 6585, 4, puts the field on a 429. A client that waits this
/// long, and shares its bucket with no other, is admitted at its first retry.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
/// use tollgate::http::retry_after;
///
/// let (clock, _manual) = Clock::manual();
/// let bucket = Bucket::new(Limit::new(1, 10, Duration::from_secs(1))?, clock);
/// assert_eq!(retry_after(&bucket.spend(1)?), None);
/// assert_eq!(retry_after(&bucket.spend(1)?), Some(1), "of 100 ms");
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn retry_after(decision: &Decision) -> Option<u64> {
    (!decision.allowed()).then(|| seconds(decision.retry_in()).max(1))
}

/// Rounds a time up to whole seconds.
pub(crate) fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Rounds a time up to whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (ns, s) in [(0, 0), (1, 1), (999_999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2)] {
            assert_eq!(seconds(Duration::from_nanos(ns)), s, "{ns} ns");
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        for (ns, ms) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(milliseconds(Duration::from_nanos(ns)), ms, "{ns} ns");
        }
        assert_eq!(milliseconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_denial_never_says_0() {
        let decision = |allowed, ns| Decision::new(allowed, (0, 1), ns, ns);
        assert_eq!(retry_after(&decision(false, 0)), Some(1));
        assert_eq!(retry_after(&decision(false, 1_000_000_001)), Some(2));
        assert_eq!(retry_after(&decision(true, 5)), None);
    }
}
