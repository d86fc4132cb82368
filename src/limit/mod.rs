//! A validated limit: the algorithm of an operator's choice with its parameters.

mod at_most;
pub(crate) mod carry_over;
mod concurrency;
mod counted;
mod custom;
pub(crate) mod display;
pub(crate) mod max_debt;
mod parameters;
mod scaled;

use std::time::Duration;

#[cfg(doc)]
use crate::algorithm::Algorithm;
use crate::algorithm::demand::Demand;
use crate::algorithm::gcra;
use crate::algorithm::rule::Rule;
use crate::algorithm::window::WindowKind;
use crate::error::{Error, ErrorKind};

pub use crate::algorithm::factor::Factor;
pub use parameters::{ParameterValue, Parameters};

#[cfg(any(feature = "yaml", feature = "serde"))]
pub(crate) use counted::whole_of_decimal;

/// One limit: an algorithm and its parameters.
///
/// The constructors check the parameters, so that no later computation overflows. Each algorithm has a bound, which holds
/// for any clock and any number of concurrent calls:
///
/// | made by | in any interval of length `t`, the admitted cost less refunds is at most |
/// |---|---|
/// | [`new`](Limit::new), gcra: the default | `burst + t / emission_interval` |
/// | [`at_most`](Limit::at_most), also gcra | `n`, if `t` is at most the window |
/// | [`fixed_window`](Limit::fixed_window) | `limit`, if the interval is in one window |
/// | [`token_bucket`](Limit::token_bucket) | `limit`, if it is in one window, and `burst + t * (limit - burst) / window` if it begins with it |
/// | [`leaky_bucket`](Limit::leaky_bucket) | `size + ceil(t / drip_rate) * drip_size` |
/// | [`custom`](Limit::custom) | the bound of the custom algorithm |
///
/// fixed_window, token_bucket and leaky_bucket count whole milliseconds, for 17.4 years from the clock's origin; then
/// their time stands still. A wait is never too short: a call that is repeated after its `retry_in` is allowed if no
/// other call has spent.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// A copy of the rule's largest cost, so that a call reads it without a branch on the rule.
    max_cost: u64,
    count: u64,
    period_ns: u64,
    rule: Rule,
}

/// The reason why parameters are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitFault {
    /// The field at fault, as it is called in YAML.
    pub(crate) field: &'static str,
    /// The error's text.
    pub(crate) message: String,
}

impl Limit {
    /// The longest time from empty to full: 2^62 ns, 146 years.
    pub(crate) const MAX_BURST_OFFSET_NS: u128 = gcra::MAX_BURST_OFFSET_NS as u128;

    /// Makes a gcra limit: `burst` units at one instant, refilled at `count` units per `period`.
    ///
    /// The emission interval is `period / count` in whole nanoseconds, rounded down as in Boulder. So a bucket refills at
    /// most 1 % faster than the parameters say.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if `burst`, `count` or `period` is 0, if `count` exceeds the period's nanoseconds, if
    /// rounding changes the interval by more than 1 %, or if the bucket would take longer than 2^62 ns to fill.
    ///
    /// # Example: 300 at once, then one every 36 s
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let limit = Limit::new(300, 100, Duration::from_secs(3600))?;
    /// assert_eq!(limit.emission_interval(), Duration::from_secs(36));
    /// assert!(Limit::new(0, 100, Duration::from_secs(3600)).unwrap_err().is_invalid_limit());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn new(burst: u64, count: u64, period: Duration) -> Result<Limit, Error> {
        let period_ns = duration_ns("period", period)?;
        to_error(Limit::validate(burst, count, period_ns))
    }

    /// Makes a gcra limit like [`Limit::new`], with an error that names the field at fault.
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
        // Rounding shortens the period by the remainder. More than a hundredth of the period is refused.
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
        if u128::from(emission_interval_ns) > Limit::MAX_BURST_OFFSET_NS {
            return fault(
                "period",
                format!(
                    "invalid period {:?}: at a count of {count} a unit takes {emission_interval_ns} ns, at most 2^62 ns (146 years) is allowed",
                    Duration::from_nanos(period_ns),
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
        Ok(Limit { max_cost: burst, count, period_ns, rule: Rule::Gcra(rule) })
    }

    /// The algorithm's name in files: `gcra`, `fixed_window`, `token_bucket`, `leaky_bucket`, or the
    /// [name](Algorithm::name) of a custom algorithm.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// assert_eq!(limit.algorithm(), "gcra");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn algorithm(&self) -> &'static str {
        self.rule.name()
    }

    /// The parameters.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, limit::Parameters};
    /// let limit = Limit::token_bucket(30, 100, Duration::from_secs(60))?;
    /// assert!(matches!(limit.parameters(), Parameters::TokenBucket { limit: 100, burst: 30, .. }));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn parameters(&self) -> Parameters<'_> {
        match &self.rule {
            Rule::Gcra(rule) => {
                Parameters::Gcra { burst: rule.burst(), count: self.count, period: self.period() }
            }
            Rule::Window(rule) => {
                let (limit, window) = (rule.quota.into(), self.period());
                match rule.kind {
                    WindowKind::FixedWindow => Parameters::FixedWindow { limit, window },
                    WindowKind::TokenBucket => {
                        Parameters::TokenBucket { limit, window, burst: rule.burst.into() }
                    }
                }
            }
            Rule::LeakyBucket(rule) => Parameters::LeakyBucket {
                size: rule.size.into(),
                drip_rate: self.period(),
                drip_size: rule.drip_size.into(),
            },
            Rule::Concurrency(rule) => {
                Parameters::Concurrency { max: rule.max.into(), retry_after: self.period() }
            }
            Rule::Custom(rule) => Parameters::Custom(&*rule.0),
        }
    }

    /// The most units that one call can spend: the `burst` of gcra and token_bucket, the `limit` of fixed_window, the
    /// `size` of leaky_bucket, the [largest cost](Algorithm::max_cost) of a custom algorithm.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::leaky_bucket(8, 2, Duration::from_secs(1))?;
    /// assert_eq!(limit.burst(), 8);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline(always)]
    pub fn burst(&self) -> u64 {
        self.max_cost
    }

    /// The units that come back every [`period`](Limit::period): the `count` of gcra, the `limit` of a window, the
    /// `drip_size`; 0 for a custom algorithm.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::leaky_bucket(8, 2, Duration::from_secs(1))?;
    /// assert_eq!(limit.count(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time in which [`count`](Limit::count) units come back: the `period` of gcra, a window, the `drip_rate`; 0 for
    /// a custom algorithm.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::new(20, 10, Duration::from_secs(60))?;
    /// assert_eq!(limit.period(), Duration::from_secs(60));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// The time in which one unit comes back: `period / count`, rounded down to a nanosecond. An average for algorithms
    /// that return several units at once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::new(20, 10, Duration::from_secs(60))?;
    /// assert_eq!(limit.emission_interval(), Duration::from_secs(6));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn emission_interval(&self) -> Duration {
        Duration::from_nanos(self.period_ns.checked_div(self.count).unwrap_or(0))
    }

    /// The time in which `cost` units come back: `cost * emission_interval`, by which gcra moves a bucket's theoretical
    /// arrival time. At most 584 years.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::new(20, 10, Duration::from_secs(60))?;
    /// assert_eq!(limit.cost_increment(3), Duration::from_secs(18));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn cost_increment(&self, cost: u64) -> Duration {
        let interval_ns = self.period_ns.checked_div(self.count).unwrap_or(0);
        Duration::from_nanos(interval_ns.saturating_mul(cost))
    }

    /// The longest time from empty to full: `burst * emission_interval` for gcra, a window, the time in which `size` drips
    /// out; 0 for a custom algorithm.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let limit = Limit::new(20, 10, Duration::from_secs(60))?;
    /// assert_eq!(limit.burst_offset(), Duration::from_secs(120));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn burst_offset(&self) -> Duration {
        Duration::from_nanos(self.burst_offset_ns())
    }

    /// Like [`burst_offset`](Limit::burst_offset), in ns.
    #[inline(always)]
    pub(crate) fn burst_offset_ns(&self) -> u64 {
        match self.rule.gcra() {
            Some(gcra) => gcra.burst_offset_ns(),
            // What is in flight and custom algorithms have no rate.
            None if self.rule.is_concurrency() || self.rule.is_custom() => 0,
            None => self.rule.fills_in_ns(),
        }
    }

    /// The algorithm of this limit.
    #[inline(always)]
    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Makes the error for a demand above the largest cost, with the name that the algorithm's field has in files.
    #[cold]
    pub(crate) fn cost_error(&self, demand: Demand, name: Option<&str>) -> Error {
        let field = self.parameters().name_of_burst();
        let max_cost = self.burst();
        let of_limit = name.map(|name| format!(" of {name}")).unwrap_or_default();
        let Demand { cost, leave } = demand;
        let leaving = if leave > 0 { format!(" leaving {leave}") } else { String::new() };
        let message = format!("cost {cost}{leaving} is above the {field} {max_cost}{of_limit}");
        Error::new(ErrorKind::Cost, message)
    }
}

/// Converts a time to nanoseconds; refuses more than 584 years.
fn duration_ns(field: &str, time: Duration) -> Result<u64, Error> {
    u64::try_from(time.as_nanos()).map_err(|_| {
        let max = Duration::from_nanos(u64::MAX);
        Error::new(
            ErrorKind::Limit,
            format!("invalid {field} {time:?}: at most {max:?} is allowed"),
        )
    })
}

fn to_error<T>(made: Result<T, LimitFault>) -> Result<T, Error> {
    made.map_err(|fault| Error::new(ErrorKind::Limit, fault.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(burst: u64, count: u64, period_ns: u64) -> String {
        Limit::new(burst, count, Duration::from_nanos(period_ns)).unwrap_err().to_string()
    }

    #[test]
    fn refuses_zeros_as_boulder_does() {
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
    fn refuses_rounding_above_one_percent() {
        // governor accepts this one, and runs it 1.667 times too fast.
        assert!(refusal(1, 600_000_000, 1_000_000_000).contains("1.667 times"));
        // Rounding loses 1 ns of 199, of 99 (more than 1 %) and of 101.
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
        // No burst is allowed at such an interval: the period is at fault.
        let years = 147 * 31_557_600 * 1_000_000_000;
        assert_eq!(
            refusal(1, 1, years),
            "invalid period 4638967200s: at a count of 1 a unit takes 4638967200000000000 ns, at most 2^62 ns (146 years) is allowed"
        );
        assert!(Limit::new(1, 2, Duration::from_nanos(years)).is_ok());
        assert!(Limit::new(1, 1, Duration::MAX).is_err());
    }

    #[test]
    fn intervals_are_boulders() {
        let limit = Limit::new(3, 3, Duration::from_secs(1)).unwrap();
        assert_eq!(limit.emission_interval(), Duration::from_nanos(333_333_333));
        assert_eq!(limit.burst_offset(), Duration::from_nanos(999_999_999));
        assert_eq!(Limit::concurrency(8).unwrap().burst_offset(), Duration::ZERO);
    }
}
