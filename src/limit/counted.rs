//! Constructors of the limits that count: fixed_window, token_bucket, leaky_bucket and its older form.

use std::time::Duration;

use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::{MAX_COUNT, NS_PER_MS};
use crate::algorithm::window::{Window, WindowKind};
use crate::error::Error;
use crate::limit::{Limit, LimitFault, duration_ns, to_error};
use crate::util::decimal::{self, Decimal};

impl Limit {
    /// Makes a fixed_window limit: at most `limit` units in a window, which the first allowed call opens. The instant at
    /// which a window ends belongs to the next one.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if `limit` is not from 1 to 16777215, or `window` is not a whole number of milliseconds
    /// from 1 to 2^39 - 1 (17.4 years).
    ///
    /// # Example: 10 a minute
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let limit = Limit::fixed_window(10, Duration::from_secs(60))?;
    /// assert_eq!(limit.burst(), 10);
    /// assert!(Limit::fixed_window(10, Duration::from_micros(1500)).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn fixed_window(limit: u64, window: Duration) -> Result<Limit, Error> {
        let window_ns = duration_ns("window", window)?;
        to_error(Limit::validate_fixed_window(limit, window_ns))
    }

    /// Makes a token_bucket limit: `burst` units at once, and `limit - burst` more at a steady rate over a window, which
    /// the first allowed call opens. So a window admits at most `limit` units, and one call costs at most `burst`. The last
    /// unit of the rate comes when the window ends, and the next one begins: if `burst` is below `limit`, a window admits
    /// `limit - 1`.
    ///
    /// Units that the rate has brought are not capped inside a window.
    /// [`remaining`](crate::Decision::remaining) counts the window's quota, so a call can be denied while some remain.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] like [`fixed_window`](Limit::fixed_window), and if `burst` is 0 or above `limit`.
    ///
    /// # Example: 15 a minute: 3 at once, then one more every 5 s
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bucket, Clock, Limit};
    ///
    /// let limit = Limit::token_bucket(3, 15, Duration::from_secs(60))?;
    /// let (clock, _manual) = Clock::manual();
    /// let bucket = Bucket::new(limit, clock);
    /// assert!(bucket.spend(3)?.allowed());
    /// let denied = bucket.spend(1)?;
    /// assert_eq!(denied.retry_in(), Duration::from_secs(5));
    /// assert_eq!(denied.remaining(), Some(12));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn token_bucket(burst: u64, limit: u64, window: Duration) -> Result<Limit, Error> {
        let window_ns = duration_ns("window", window)?;
        to_error(Limit::validate_token_bucket(limit, window_ns, burst))
    }

    /// Makes a leaky_bucket limit: a bucket for `size` units, out of which `drip_size` drip at once every `drip_rate`.
    ///
    /// Fractions of a millisecond are rounded up. `drip_size` may exceed `size`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if a count is not from 1 to 16777215, if `drip_rate` is not from 1 ms to 2^39 - 1 ms, or
    /// if the bucket would take longer than 2^62 ns to empty.
    ///
    /// # Example: 10 at once, one more every 250 ms
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let limit = Limit::leaky_bucket(10, 1, Duration::from_millis(250))?;
    /// assert_eq!(limit, Limit::leaky_bucket(10, 1, Duration::from_micros(249_001))?);
    /// let error = Limit::leaky_bucket(0, 1, Duration::from_millis(250)).unwrap_err();
    /// assert_eq!(error.to_string(), "invalid size 0: at least 1 is allowed");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn leaky_bucket(size: u64, drip_size: u64, drip_rate: Duration) -> Result<Limit, Error> {
        let drip_rate_ns = duration_ns("drip_rate", drip_rate)?;
        to_error(Limit::validate_leaky_bucket(size, drip_rate_ns, drip_size))
    }

    /// Makes a leaky_bucket limit of Sharkey's older parameters: `max` calls in `duration`, or one call every
    /// `min_interval`. `None` means no limit: `max` has a `duration` of 0, or there is neither `max` with `duration` nor a
    /// `min_interval` above 0.
    ///
    /// With `max` and `duration`, the arithmetic is exact, times are in ms, `round` rounds half up, and each result is at
    /// least 1. `min_interval` then shapes the drips; it does not keep calls apart.
    ///
    /// - `r0` is `min_interval` if given, else `round(duration / max)`.
    /// - `drip_size` is `round(max / (duration / r0))`.
    /// - `drip_rate` is `round(duration / (max / drip_size))`.
    /// - `size` is `max`.
    ///
    /// Otherwise only `min_interval` counts: `size` and `drip_size` are 1, and `drip_rate` is `round(min_interval)`, at least 1.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if `max` is below 1, or if a result is out of the range of
    /// [`leaky_bucket`](Limit::leaky_bucket).
    ///
    /// # Example: 10 in 5 s, a second apart on average
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let second = Duration::from_secs(1);
    /// let limit = Limit::from_sharkey(Some(10), Some(5 * second), Some(second))?;
    /// assert_eq!(limit, Some(Limit::leaky_bucket(10, 2, second)?));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn from_sharkey(
        max: Option<u64>,
        duration: Option<Duration>,
        min_interval: Option<Duration>,
    ) -> Result<Option<Limit>, Error> {
        let duration = duration.map(|time| duration_ns("duration", time)).transpose()?;
        let min_interval =
            min_interval.map(|time| duration_ns("min_interval", time)).transpose()?;
        to_error(Limit::validate_legacy(max.map(Decimal::from_whole), duration, min_interval))
    }

    pub(crate) fn validate_fixed_window(limit: u64, window_ns: u64) -> Result<Limit, LimitFault> {
        check_count("limit", limit)?;
        Limit::from_window(WindowKind::FixedWindow, limit, whole_window_ms(window_ns)?, limit)
    }

    pub(crate) fn validate_token_bucket(
        limit: u64,
        window_ns: u64,
        burst: u64,
    ) -> Result<Limit, LimitFault> {
        check_count("limit", limit)?;
        Limit::from_window(WindowKind::TokenBucket, limit, whole_window_ms(window_ns)?, burst)
    }

    pub(crate) fn validate_leaky_bucket(
        size: u64,
        drip_rate_ns: u64,
        drip_size: u64,
    ) -> Result<Limit, LimitFault> {
        if drip_rate_ns < NS_PER_MS {
            let given = Duration::from_nanos(drip_rate_ns);
            return Err(fault("drip_rate", format!("{given:?}: at least 1ms is allowed")));
        }
        Limit::from_drips(size, drip_rate_ns.div_ceil(NS_PER_MS), drip_size)
    }

    /// See [`from_sharkey`](Limit::from_sharkey). A time of at most 2^64 ns times a count in millionths is
    /// below 2^128.
    pub(crate) fn validate_legacy(
        max: Option<Decimal>,
        duration_ns: Option<u64>,
        min_interval_ns: Option<u64>,
    ) -> Result<Option<Limit>, LimitFault> {
        if let Some(max) = max {
            at_least_one("max", max)?;
        }
        match (max, duration_ns, min_interval_ns) {
            (Some(_), Some(0), _) => Ok(None),
            (Some(max), Some(duration_ns), _) => {
                legacy(max, duration_ns, min_interval_ns).map(Some)
            }
            (_, _, None | Some(0)) => Ok(None),
            (_, _, Some(min_interval_ns)) => {
                let drip_rate_ms = round(u128::from(min_interval_ns), u128::from(NS_PER_MS));
                Limit::from_drips(1, drip_rate_ms, 1).map(Some)
            }
        }
    }

    /// Makes a limit by windows; the window has a valid length.
    pub(super) fn from_window(
        kind: WindowKind,
        limit: u64,
        window_ms: u64,
        burst: u64,
    ) -> Result<Limit, LimitFault> {
        let (quota, burst_units) = (check_count("limit", limit)?, check_count("burst", burst)?);
        if burst > limit {
            return Err(fault("burst", format!("{burst}: at most the limit {limit} is allowed")));
        }
        let rule = Rule::Window(Window { kind, quota, burst: burst_units, window_ms });
        Ok(Limit { max_cost: burst, count: limit, period_ns: window_ms * NS_PER_MS, rule })
    }

    pub(super) fn from_drips(
        size: u64,
        drip_rate_ms: u64,
        drip_size: u64,
    ) -> Result<Limit, LimitFault> {
        let counts = (check_count("size", size)?, check_count("drip_size", drip_size)?);
        if drip_rate_ms > LeakyBucket::MAX_DRIP_RATE_MS {
            let max_ms = LeakyBucket::MAX_DRIP_RATE_MS;
            let reason = format!("{drip_rate_ms}ms: at most {max_ms}ms is allowed");
            return Err(fault("drip_rate", reason));
        }
        let drip_rate_ns = drip_rate_ms.max(1) * NS_PER_MS;
        let empty_ns = u128::from(size.div_ceil(drip_size)) * u128::from(drip_rate_ns);
        if empty_ns > Limit::MAX_BURST_OFFSET_NS {
            let reason = format!(
                "{size}: by {drip_size} every {drip_rate_ms}ms it takes {empty_ns} ns to empty, at most 2^62 ns is allowed"
            );
            return Err(fault("size", reason));
        }
        let rule =
            LeakyBucket { size: counts.0, drip_size: counts.1, drip_rate_ms: drip_rate_ms.max(1) };
        Ok(Limit {
            max_cost: size,
            count: drip_size,
            period_ns: drip_rate_ns,
            rule: Rule::LeakyBucket(rule),
        })
    }
}

/// Converts `max` and a `duration` that is not 0, and `min_interval` if given.
fn legacy(
    max: Decimal,
    duration_ns: u64,
    min_interval_ns: Option<u64>,
) -> Result<Limit, LimitFault> {
    check_count("max", max.ceil())?;
    let (millionths, duration_ns) = (u128::from(max.millionths), u128::from(duration_ns));
    let (ns_per_ms, one) = (u128::from(NS_PER_MS), u128::from(decimal::ONE));
    let r0_ns = match min_interval_ns {
        Some(min_interval_ns) => u128::from(min_interval_ns).max(ns_per_ms),
        // The factors 10^6 of a millisecond's nanoseconds and of `max` cancel each other.
        None => u128::from(round(duration_ns, millionths)) * ns_per_ms,
    };
    let drip_size = round(millionths * r0_ns, one * duration_ns);
    if drip_size > MAX_COUNT {
        let (field, ns) = match min_interval_ns {
            Some(ns) => ("min_interval", ns),
            None => ("duration", duration_ns as u64),
        };
        let message = format!(
            "invalid {field} {:?}: it makes drips of {drip_size} units, at most {MAX_COUNT} are allowed",
            Duration::from_nanos(ns),
        );
        return Err(LimitFault { field, message });
    }
    let drip_rate_ms = round(duration_ns * u128::from(drip_size), millionths);
    Limit::from_drips(max.ceil(), drip_rate_ms, drip_size)
}

fn fault(field: &'static str, reason: String) -> LimitFault {
    LimitFault { field, message: format!("invalid {field} {reason}") }
}

/// What to do about a count above [`MAX_COUNT`], such as one of bytes.
const WAY_OUT: &str = "count in thousands, or use gcra";

fn check_count(field: &'static str, count: u64) -> Result<u32, LimitFault> {
    match u32::try_from(count) {
        Ok(0) => Err(fault(field, "0: at least 1 is allowed".into())),
        Ok(small) if count <= MAX_COUNT => Ok(small),
        _ => Err(fault(field, format!("{count}: at most {MAX_COUNT} is allowed; {WAY_OUT}"))),
    }
}

/// The length of a window in milliseconds, which must be whole.
fn whole_window_ms(window_ns: u64) -> Result<u64, LimitFault> {
    let given = Duration::from_nanos(window_ns);
    let max_ms = Window::MAX_MS;
    if window_ns == 0 {
        return Err(fault("window", "0s: at least 1ms is allowed".into()));
    }
    if !window_ns.is_multiple_of(NS_PER_MS) {
        return Err(fault("window", format!("{given:?}: whole milliseconds are allowed")));
    }
    if window_ns / NS_PER_MS > max_ms {
        return Err(fault("window", format!("{given:?}: at most {max_ms}ms is allowed")));
    }
    Ok(window_ns / NS_PER_MS)
}

/// Rounds a decimal count up.
#[cfg_attr(
    not(any(feature = "yaml", feature = "serde")),
    allow(dead_code, reason = "only files and configurations have decimals")
)]
pub(crate) fn whole_of_decimal(field: &'static str, number: Decimal) -> Result<u64, LimitFault> {
    at_least_one(field, number)?;
    check_count(field, number.ceil()).map(u64::from)
}

fn at_least_one(field: &'static str, number: Decimal) -> Result<(), LimitFault> {
    if number < Decimal::ONE {
        return Err(fault(field, format!("{number}: at least 1 is allowed")));
    }
    Ok(())
}

/// Computes `numerator / denominator`, rounded half up, at least 1. Saturates at a number that is out of every range.
fn round(numerator: u128, denominator: u128) -> u64 {
    let (whole, rest) = (numerator / denominator, numerator % denominator);
    let rounded = whole + u128::from(rest >= denominator.div_ceil(2));
    u64::try_from(rounded.max(1)).unwrap_or(u64::MAX)
}
