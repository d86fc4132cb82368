//! The limits as they are at one time, for good.

use std::time::SystemTime;

use super::Limits;
use crate::limits::expiry::{Expiry, seconds};

impl Limits {
    /// The limits as they apply at `now`, for good: overrides that have expired are gone, and the others
    /// do not expire. For those who try limits on traffic that was.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::{IdFormat, Limit, Limits};
    /// use tollgate::limits::OverrideOptions;
    ///
    /// let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
    /// let options = OverrideOptions::default().expires(now + minute);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
    ///     .override_with("PerUser", "alice", Limit::new(200, 600, minute)?, options)?
    ///     .build();
    /// let burst = |limits: &Limits| limits.limit_for("PerUser", "alice").map(|of| of.map(|of| of.burst()));
    /// assert_eq!(burst(&limits.clone().as_of(now))?, Some(200));
    /// assert_eq!(burst(&limits.as_of(now + 2 * minute))?, Some(20));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn as_of(mut self, now: SystemTime) -> Limits {
        let now_s = seconds(now);
        for entry in &mut self.entries {
            let numbers = &mut entry.numbers;
            entry.overrides.retain(|_, given| {
                let numbers = numbers.get(given.numbers.0 as usize);
                numbers.is_none_or(|numbers| !numbers.expires.is_over(now_s))
            });
            for numbers in numbers {
                numbers.expires = Expiry::NEVER;
            }
        }
        self
    }
}
