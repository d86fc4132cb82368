//! A limit: what an operator writes, validated once.

pub(crate) mod carry_over;
mod counted;
pub(crate) mod display;
pub(crate) mod max_debt;
mod own;
mod scaled;

use std::time::Duration;

use crate::algorithm::rule::Rule;
use crate::algorithm::{Algorithm, gcra};
use crate::error::{Error, ErrorKind};

pub use crate::algorithm::factor::Factor;

#[cfg(feature = "yaml")]
pub(crate) use counted::whole_of_decimal;

/// The numbers of one limit, and the algorithm that they are for.
///
/// Once made, a limit cannot be wrong: nothing that is computed from it overflows. What each algorithm
/// keeps to, whatever the clock and however many call at once:
///
/// | made by | in any interval of length `t`, the admitted cost less what was given back is at most |
/// |---|---|
/// | [`new`](Limit::new), gcra: the default | `burst + t / emission_interval` |
/// | [`fixed_window`](Limit::fixed_window) | `limit`, if the interval is in one window |
/// | [`token_bucket`](Limit::token_bucket) | `limit`, if it is in one window, and `burst + t * (limit - burst) / window` if it begins with it |
/// | [`leaky_bucket`](Limit::leaky_bucket) | `size + ceil(t / drip_rate) * drip_size` |
/// | [`custom`](Limit::custom) | what the rule says |
///
/// All but gcra and rules of one's own count whole milliseconds, for 17.4 years since their clock's
/// origin; after that their time stands still. Waits are never early: a call that is repeated after its
/// `retry_in` is allowed if nothing else was spent.
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
    /// Beside the rule, so that no call has to ask which it is.
    max_cost: u64,
    count: u64,
    period_ns: u64,
    rule: Rule,
}

/// The numbers of a limit by its algorithm, as they were given, or as they came out of the legacy form
/// or a factor.
///
/// # Example: what an override changed
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
/// use tollgate::limit::Parameters;
///
/// let limit = Limit::fixed_window(10, Duration::from_secs(60))?;
/// match limit.parameters() {
///     Parameters::FixedWindow { limit, window } => assert_eq!((limit, window.as_secs()), (10, 60)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Parameters<'a> {
    /// Of [`Limit::new`].
    Gcra {
        /// The most units at one instant.
        burst: u64,
        /// The units that come back every `period`.
        count: u64,
        /// The time in which `count` units come back.
        period: Duration,
    },
    /// Of [`Limit::fixed_window`].
    FixedWindow {
        /// The most units in a window.
        limit: u64,
        /// The length of a window.
        window: Duration,
    },
    /// Of [`Limit::token_bucket`].
    TokenBucket {
        /// The most units in a window.
        limit: u64,
        /// The length of a window.
        window: Duration,
        /// The units that are there at a window's start.
        burst: u64,
    },
    /// Of [`Limit::leaky_bucket`].
    LeakyBucket {
        /// The most units in the bucket.
        size: u64,
        /// The time between two drips.
        drip_rate: Duration,
        /// The units of a drip.
        drip_size: u64,
    },
    /// Of [`Limit::custom`].
    Custom(&'a dyn Algorithm),
}

/// Why numbers make no limit: which of them is at fault, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitFault {
    /// The field to look at, as YAML names it.
    pub(crate) field: &'static str,
    pub(crate) message: String,
}

impl Limit {
    /// The longest time from empty to full: 2^62 ns, 146 years.
    pub(crate) const MAX_BURST_OFFSET_NS: u128 = 1 << 62;

    /// A limit of `burst` units at one instant, refilled by `count` units every `period`: gcra.
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
        let period_ns = duration_ns("period", period)?;
        to_error(Limit::validate(burst, count, period_ns))
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
        Ok(Limit { max_cost: burst, count, period_ns, rule: Rule::Gcra(rule) })
    }

    /// What the algorithm is called in files: `gcra`, `fixed_window`, `token_bucket`, `leaky_bucket`, or
    /// the [name](Algorithm::name) of a rule of one's own.
    pub fn algorithm(&self) -> &'static str {
        self.rule.name()
    }

    /// The numbers, by the algorithm.
    pub fn parameters(&self) -> Parameters<'_> {
        match &self.rule {
            Rule::Gcra(rule) => {
                Parameters::Gcra { burst: rule.burst(), count: self.count, period: self.period() }
            }
            Rule::FixedWindow(rule) => {
                Parameters::FixedWindow { limit: rule.limit.into(), window: self.period() }
            }
            Rule::TokenBucket(rule) => Parameters::TokenBucket {
                limit: rule.limit.into(),
                window: self.period(),
                burst: rule.burst.into(),
            },
            Rule::LeakyBucket(rule) => Parameters::LeakyBucket {
                size: rule.size.into(),
                drip_rate: self.period(),
                drip_size: rule.drip_size.into(),
            },
            Rule::Custom(rule) => Parameters::Custom(&**rule),
        }
    }

    /// The most units that can be spent at one instant, and so by one call: the `burst` of gcra and
    /// token_bucket, the `limit` of fixed_window, the `size` of leaky_bucket, the
    /// [largest cost](Algorithm::max_cost) of a rule of one's own.
    #[inline(always)]
    pub fn burst(&self) -> u64 {
        self.max_cost
    }

    /// The units that come back every [`period`](Limit::period): the `limit` of a window, a
    /// `drip_size`; 0 for a rule of one's own.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time in which [`count`](Limit::count) units come back: a window, a `drip_rate`; 0 for a rule
    /// of one's own.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// The time in which one unit comes back: `period / count`, rounded down to a nanosecond; on average,
    /// for algorithms that bring back several at once.
    pub fn emission_interval(&self) -> Duration {
        Duration::from_nanos(self.period_ns.checked_div(self.count).unwrap_or(0))
    }

    /// The longest time from empty to full: gcra's `burst * emission_interval`, a window, what `size`
    /// takes to drip out; 0 for a rule of one's own.
    pub fn burst_offset(&self) -> Duration {
        let offset_ns = match &self.rule {
            Rule::Gcra(rule) => rule.burst_offset_ns(),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) => self.period_ns,
            // At most 2^62: it was checked.
            Rule::LeakyBucket(_) => {
                self.max_cost.div_ceil(self.count.max(1)).saturating_mul(self.period_ns)
            }
            Rule::Custom(_) => 0,
        };
        Duration::from_nanos(offset_ns)
    }

    /// The arithmetic of this limit.
    #[inline(always)]
    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Makes the error for a cost above the burst, in the words of the limit's algorithm.
    #[cold]
    pub(crate) fn cost_error(&self, cost: u64, name: Option<&str>) -> Error {
        let word = match self.parameters() {
            Parameters::Gcra { .. } | Parameters::TokenBucket { .. } => "burst",
            Parameters::FixedWindow { .. } => "limit",
            Parameters::LeakyBucket { .. } => "size",
            Parameters::Custom(_) => "largest cost",
        };
        let most = self.burst();
        let of = name.map(|name| format!(" of {name}")).unwrap_or_default();
        Error::new(ErrorKind::Cost, format!("cost {cost} is above the {word} {most}{of}"))
    }
}

/// A time in nanoseconds; above 584 years is refused.
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
    fn refuses_interval_over_one_percent_off_naming_rate() {
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
