//! The constructor of a gcra limit that admits at most `n` units in any window.

use std::time::Duration;

use crate::error::Error;
use crate::limit::{Limit, LimitFault, duration_ns, to_error};

impl Limit {
    /// Makes a gcra limit of at most `n` units in any window, whenever the window begins: `burst` units at one instant, and
    /// `n - burst` more at a steady rate over the window.
    ///
    /// A gcra limit of [`Limit::new`] admits `burst + count` units in a period, because the period may begin with a full
    /// bucket. Here the burst is part of `n`. The emission interval is `window / (n - burst)`, rounded *up* to whole
    /// nanoseconds. So a window with both its ends has at most `n` units, and the units that were returned. The limit
    /// is one of gcra in every other way: its parameters are `burst`, a count of 1, and the interval as the period.
    ///
    /// A small burst leaves more for the rate: callers that come steadily get `n - burst` units in a window.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if `burst` is 0, or not below `n`; if `window` is 0; if rounding lengthens the interval by
    /// more than 1 %; or if the bucket would take longer than 2^62 ns to fill.
    ///
    /// # Example: never more than 100 in a minute, 10 of them at once
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bucket, Clock, Limit};
    ///
    /// let limit = Limit::at_most(100, Duration::from_secs(60), 10)?;
    /// assert_eq!(limit.emission_interval(), Duration::from_nanos(666_666_667));
    /// let (clock, manual) = Clock::manual();
    /// let bucket = Bucket::new(limit, clock);
    /// let mut admitted = 0;
    /// for _ in 0..=60_000 {
    ///     admitted += u64::from(bucket.spend(1)?.allowed());
    ///     manual.advance(Duration::from_millis(1));
    /// }
    /// assert_eq!(admitted, 99);
    /// let error = Limit::at_most(10, Duration::from_secs(60), 10).unwrap_err();
    /// assert_eq!(error.to_string(), "invalid burst 10: at most 9, one below the limit, is allowed");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn at_most(n: u64, window: Duration, burst: u64) -> Result<Limit, Error> {
        let window_ns = duration_ns("window", window)?;
        to_error(Limit::validate_at_most(n, window_ns, burst))
    }

    /// Makes the limit of [`at_most`](Limit::at_most), with an error that names the field at fault.
    pub(crate) fn validate_at_most(
        limit: u64,
        window_ns: u64,
        burst: u64,
    ) -> Result<Limit, LimitFault> {
        let fault = |field, why: String| {
            Err(LimitFault { field, message: format!("invalid {field} {why}") })
        };
        if limit < 2 {
            let why =
                format!("{limit}: at least 2, a burst of 1 and a unit of the rate, is allowed");
            return fault("limit", why);
        }
        if burst == 0 {
            return fault("burst", "0: at least 1 is allowed".into());
        }
        if burst >= limit {
            let most = limit - 1;
            return fault(
                "burst",
                format!("{burst}: at most {most}, one below the limit, is allowed"),
            );
        }
        if window_ns == 0 {
            return fault("window", "0s: more than 0s is allowed".into());
        }
        let (units, window) = (limit - burst, Duration::from_nanos(window_ns));
        let interval_ns = window_ns.div_ceil(units);
        let (gained_ns, most_ns) =
            (u128::from(interval_ns) * u128::from(units) - u128::from(window_ns), window_ns / 100);
        if gained_ns > u128::from(most_ns) {
            let why = format!(
                "{window:?}: for {units} units the interval, rounded up, is {interval_ns} ns, which makes the window {gained_ns} ns longer, at most 1 % is allowed"
            );
            return fault("window", why);
        }
        if u128::from(interval_ns) > Limit::MAX_BURST_OFFSET_NS {
            let why = format!(
                "{window:?}: a unit takes {interval_ns} ns, at most 2^62 ns (146 years) is allowed"
            );
            return fault("window", why);
        }
        Limit::validate(burst, 1, interval_ns)
    }
}
