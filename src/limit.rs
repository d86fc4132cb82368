//! A limit: what an operator writes, validated once.

use std::time::Duration;

use crate::algorithm::gcra;
use crate::error::{Error, ErrorKind};

/// The numbers of one limit: at most `burst` at one instant, and `count` more every `period`.
///
/// Once made, a limit cannot be wrong: its emission interval is at least 1 ns, and nothing that is
/// computed from it overflows. The bound that it keeps: in any interval of length `t`, the admitted
/// cost, less what was given back, is at most `burst + t / emission_interval`.
///
/// # Example: 20 at once, then 10 a second
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// assert_eq!(limit.emission_interval(), Duration::from_millis(100));
/// assert_eq!(limit.burst_offset(), Duration::from_secs(2));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    count: u64,
    period_ns: u64,
    rule: gcra::Gcra,
}

/// Why numbers make no limit: which of them is at fault, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitFault {
    /// The field to look at, as YAML names it.
    pub(crate) field: &'static str,
    pub(crate) message: String,
}

impl Limit {
    /// The longest burst offset: 2^62 ns, 146 years.
    const MAX_BURST_OFFSET_NS: u128 = 1 << 62;

    /// A limit of `burst` units at one instant, refilled by `count` units every `period`.
    ///
    /// The emission interval is `period / count` in whole nanoseconds, rounded down, as Boulder has
    /// it: a bucket refills marginally faster than asked, by at most 1 %.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`]: `burst`, `count` or `period` is 0; `count` exceeds the period's
    /// nanoseconds; the rounded interval is more than 1 % off; the bucket would take longer than
    /// 2^62 ns to fill.
    pub fn new(burst: u64, count: u64, period: Duration) -> Result<Limit, Error> {
        let period_ns = u64::try_from(period.as_nanos()).map_err(|_| {
            let max = Duration::from_nanos(u64::MAX);
            Error::new(
                ErrorKind::Limit,
                format!("invalid period {period:?}: at most {max:?} is allowed"),
            )
        })?;
        Limit::validate(burst, count, period_ns)
            .map_err(|fault| Error::new(ErrorKind::Limit, fault.message))
    }

    /// As [`Limit::new`], naming the field at fault.
    pub(crate) fn validate(burst: u64, count: u64, period_ns: u64) -> Result<Limit, LimitFault> {
        let fault = |field, message| Err(LimitFault { field, message });
        for (field, value) in [("burst", burst), ("count", count)] {
            if value == 0 {
                return fault(field, format!("invalid {field} 0: at least 1 is allowed"));
            }
        }
        if period_ns == 0 {
            return fault("period", "invalid period 0s: more than 0s is allowed".into());
        }
        if count > period_ns {
            return fault(
                "count",
                format!(
                    "invalid count {count}: at most {period_ns}, one for each nanosecond of the period, is allowed"
                ),
            );
        }
        let emission_interval_ns = period_ns / count;
        // The remainder is what rounding takes off the period: more than a hundredth of it is refused.
        let lost_ns = period_ns % count;
        if u128::from(lost_ns) * 100 > u128::from(period_ns) {
            return fault(
                "count",
                format!(
                    "invalid count {count}: every {period_ns} ns it needs an interval of {} ns, which is cut to {emission_interval_ns} ns; the rate would be {:.3} times the one asked, at most 1.01 times is allowed",
                    period_ns as f64 / count as f64,
                    period_ns as f64 / (emission_interval_ns * count) as f64,
                ),
            );
        }
        let burst_offset_ns = u128::from(emission_interval_ns) * u128::from(burst);
        if burst_offset_ns > Limit::MAX_BURST_OFFSET_NS {
            return fault(
                "burst",
                format!(
                    "invalid burst {burst}: at {emission_interval_ns} ns a unit it takes {burst_offset_ns} ns to fill, at most 2^62 ns (burst {}) is allowed",
                    Limit::MAX_BURST_OFFSET_NS / u128::from(emission_interval_ns),
                ),
            );
        }
        let rule = gcra::Gcra::new(burst, emission_interval_ns, burst_offset_ns as u64);
        Ok(Limit { count, period_ns, rule })
    }

    /// The most units that can be spent at one instant.
    pub fn burst(&self) -> u64 {
        self.rule.burst()
    }

    /// The units that come back every [`period`](Limit::period).
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time in which [`count`](Limit::count) units come back.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// The time in which one unit comes back: `period / count`, rounded down to a nanosecond.
    pub fn emission_interval(&self) -> Duration {
        Duration::from_nanos(self.rule.emission_interval_ns())
    }

    /// The time from empty to full: `burst * emission_interval`.
    pub fn burst_offset(&self) -> Duration {
        Duration::from_nanos(self.rule.burst_offset_ns())
    }

    /// The arithmetic of this limit.
    pub(crate) fn rule(&self) -> &gcra::Gcra {
        &self.rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(burst: u64, count: u64, period_ns: u64) -> String {
        Limit::new(burst, count, Duration::from_nanos(period_ns)).unwrap_err().to_string()
    }

    #[test]
    fn refuses_zeros_in_boulders_order() {
        assert_eq!(refusal(0, 0, 0), "invalid burst 0: at least 1 is allowed");
        assert_eq!(refusal(1, 0, 0), "invalid count 0: at least 1 is allowed");
        assert_eq!(refusal(1, 1, 0), "invalid period 0s: more than 0s is allowed");
    }

    #[test]
    fn refuses_a_count_above_the_periods_nanoseconds() {
        assert_eq!(
            refusal(1, 2_000_000_000, 1_000_000_000),
            "invalid count 2000000000: at most 1000000000, one for each nanosecond of the period, is allowed"
        );
        assert!(Limit::new(1, 1_000_000_000, Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn refuses_an_interval_more_than_one_percent_off_and_names_the_rate() {
        // governor runs this one 1.667 times too fast.
        assert!(refusal(1, 600_000_000, 1_000_000_000).contains("1.667 times"));
        // 101 ns in 1: one part in 101 is lost, which is less than 1 %. 199/2: 1/199 is lost.
        assert!(Limit::new(1, 2, Duration::from_nanos(199)).is_ok());
        assert!(Limit::new(1, 2, Duration::from_nanos(99)).is_err());
        assert!(Limit::new(1, 2, Duration::from_nanos(101)).is_ok());
    }

    #[test]
    fn refuses_a_burst_offset_above_146_years() {
        assert!(Limit::new(1 << 62, 1, Duration::from_nanos(1)).is_ok());
        let text = refusal((1 << 62) + 1, 1, 1);
        assert!(text.contains("invalid burst 4611686018427387905"), "{text}");
        assert!(text.contains("(burst 4611686018427387904) is allowed"), "{text}");
        assert!(Limit::new(u64::MAX, 1, Duration::from_nanos(u64::MAX)).is_err());
        assert!(Limit::new(1, 1, Duration::MAX).is_err());
    }

    #[test]
    fn intervals_are_boulders() {
        let limit = Limit::new(3, 3, Duration::from_secs(1)).unwrap();
        assert_eq!(limit.emission_interval(), Duration::from_nanos(333_333_333));
        assert_eq!(limit.burst_offset(), Duration::from_nanos(999_999_999));
    }
}
