//! One limit, converted for each limiter.

use std::num::NonZeroU32;
use std::time::Duration;

/// Allows `burst` units at once, then one each `interval`.
#[derive(Clone, Copy)]
pub struct Rule {
    burst: u32,
    interval: Duration,
}

/// The latest time at which a bucket may be full again: all limiters count it in 64-bit nanoseconds.
const HORIZON_NS: u64 = 1 << 61;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Rule {
    /// Allows `calls` calls of one key without any refill.
    ///
    /// It refills as slowly as possible. A full bucket may be dropped, and a call would then measure an insert.
    pub fn ample(calls: usize) -> Rule {
        let burst = u32::try_from(calls).expect("fewer than 2^32 calls").max(1);
        let slowest = Duration::from_nanos(HORIZON_NS / u64::from(burst));
        Rule { burst, interval: slowest.min(HOUR) }
    }

    /// Allows one call of a key and denies all others for the rest of the run.
    pub fn scarce() -> Rule {
        Rule { burst: 1, interval: DAY }
    }

    /// Allows a thousand calls of a key, and is full within the [hour](Rule::REFILLED) after them.
    pub fn refilling() -> Rule {
        Rule { burst: 1_000, interval: Duration::from_secs(1) }
    }

    /// After this time a bucket of [`refilling`](Rule::refilling) is full.
    pub const REFILLED: Duration = HOUR;

    pub(crate) fn burst(self) -> u32 {
        self.burst
    }

    pub(crate) fn interval(self) -> Duration {
        self.interval
    }

    /// Returns the burst and the interval in whole milliseconds, so that a bucket is full again within 2^53 microseconds,
    /// the most that runlimit takes.
    pub(crate) fn within_285_years(self) -> (u64, Duration) {
        let burst = u64::from(self.burst);
        let most_ms = ((1 << 53) - 1) / 1000 / burst;
        let interval_ms = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        (burst, Duration::from_millis(interval_ms.clamp(1, most_ms)))
    }

    pub(crate) fn tollgate(self) -> tollgate::Limit {
        tollgate::Limit::new(self.burst.into(), 1, self.interval).expect("a limit that is valid")
    }

    pub(crate) fn governor(self) -> governor::Quota {
        let quota = governor::Quota::with_period(self.interval).expect("the interval is not 0");
        quota.allow_burst(NonZeroU32::new(self.burst).expect("the burst is not 0"))
    }

    pub(crate) fn rate_net(self) -> rate_net::Builder {
        rate_net::RateLimiter::builder().quota(1, self.interval).burst(self.burst)
    }
}
