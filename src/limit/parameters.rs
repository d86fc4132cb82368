//! The parameters of a limit, by its algorithm and by their names.

use std::time::Duration;

use crate::algorithm::Algorithm;
#[cfg(doc)]
use crate::limit::Limit;

/// The parameters of a limit, by its algorithm. A limit of [`from_sharkey`](Limit::from_sharkey) or
/// [`at_most`](Limit::at_most), or one that a factor has scaled, has the parameters that it was converted to.
///
/// # Example: read the parameters of a limit
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
        /// The units available at a window's start.
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
    /// See [`Limit::concurrency`].
    Concurrency {
        /// The most permits that are out at once.
        max: u64,
        /// What a denial tells the caller to wait.
        retry_after: Duration,
    },
    /// Of [`Limit::custom`].
    Custom(&'a dyn Algorithm),
}

/// The value of a parameter.
///
/// # Example
///
/// See [`Parameters::named`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterValue {
    /// A number of units, or of permits.
    Units(u64),
    /// A length of time.
    Time(Duration),
}

impl Parameters<'_> {
    /// Lists the parameters under the names that limits files have, in their order there; of a custom algorithm its
    /// [largest cost](Algorithm::max_cost) as `max_cost`.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    /// use tollgate::limit::ParameterValue::{Time, Units};
    ///
    /// let minute = Duration::from_secs(60);
    /// let limit = Limit::token_bucket(30, 100, minute)?;
    /// let named: Vec<_> = limit.parameters().named().collect();
    /// assert_eq!(named, [("limit", Units(100)), ("window", Time(minute)), ("burst", Units(30))]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn named(&self) -> impl Iterator<Item = (&'static str, ParameterValue)> + use<> {
        use ParameterValue::{Time, Units};
        let all = match *self {
            Parameters::Gcra { burst, count, period } => [
                Some(("burst", Units(burst))),
                Some(("count", Units(count))),
                Some(("period", Time(period))),
            ],
            Parameters::FixedWindow { limit, window } => {
                [Some(("limit", Units(limit))), Some(("window", Time(window))), None]
            }
            Parameters::TokenBucket { limit, window, burst } => [
                Some(("limit", Units(limit))),
                Some(("window", Time(window))),
                Some(("burst", Units(burst))),
            ],
            Parameters::LeakyBucket { size, drip_rate, drip_size } => [
                Some(("size", Units(size))),
                Some(("drip_rate", Time(drip_rate))),
                Some(("drip_size", Units(drip_size))),
            ],
            Parameters::Concurrency { max, retry_after } => {
                [Some(("max", Units(max))), Some(("retry_after", Time(retry_after))), None]
            }
            Parameters::Custom(rule) => [Some(("max_cost", Units(rule.max_cost()))), None, None],
        };
        all.into_iter().flatten()
    }

    /// Returns the name of the parameter that is the largest cost, for messages.
    pub(crate) fn name_of_burst(&self) -> &'static str {
        match self {
            Parameters::Gcra { .. } | Parameters::TokenBucket { .. } => "burst",
            Parameters::FixedWindow { .. } => "limit",
            Parameters::LeakyBucket { .. } => "size",
            Parameters::Concurrency { .. } => "max",
            Parameters::Custom(_) => "largest cost",
        }
    }
}
