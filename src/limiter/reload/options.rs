//! Configures a reload.

use crate::limit::carry_over::CarryOver;

/// Options of a [reload](crate::Limiter::reload_with). A [`CarryOver`] alone is one.
///
/// # Example: a limit is taken away on purpose
///
/// ```
/// use std::time::Duration;
/// use tollgate::reload::ReloadOptions;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(3600))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// let users = limiter.limit("PerUser")?;
/// let none = || Limits::builder().build();
/// assert!(limiter.reload(none()).is_err(), "`users` is alive");
/// let reloaded = limiter.reload_with(none(), ReloadOptions::default().remove_missing(true))?;
/// assert_eq!(reloaded.removed, ["PerUser"]);
/// assert_eq!(users.spend("alice", 9)?.remaining(), None, "no limit");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ReloadOptions {
    pub(super) carry_over: CarryOver,
    pub(super) remove_missing: bool,
}

impl ReloadOptions {
    /// Sets how the buckets' debts are carried over. By default [`CarryOver::Share`].
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::reload::{CarryOver, ReloadOptions};
    ///
    /// assert_eq!(ReloadOptions::default().carry_over(CarryOver::Units), CarryOver::Units.into());
    /// ```
    pub fn carry_over(self, carry_over: CarryOver) -> ReloadOptions {
        ReloadOptions { carry_over, ..self }
    }

    /// Sets whether the reload takes away the limits that the new ones do not declare, although handles of them are
    /// alive. These handles then allow every call, and limit again once a later reload declares the limit. By default
    /// not: such a reload is an error. See the example of [`ReloadOptions`].
    pub fn remove_missing(self, remove_missing: bool) -> ReloadOptions {
        ReloadOptions { remove_missing, ..self }
    }
}

impl From<CarryOver> for ReloadOptions {
    fn from(carry_over: CarryOver) -> ReloadOptions {
        ReloadOptions::default().carry_over(carry_over)
    }
}
