//! Defines [`ScaledLimit`]: the calls of a handle for callers with a factor.

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::Member;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limits::Id;

/// Applies a limit to callers with a [`Factor`], such as that of their role. Made by [`KeyedLimit::scaled`].
///
/// The calls are those of [`KeyedLimit`], on the same buckets: units that were spent with one factor count with
/// another. With a factor of 0 every call is allowed. A call also fails with [`Error::is_invalid_limit`] if the factor
/// takes the limit's numbers out of their range.
///
/// # Example: a trusted role may spend twice as much
///
/// ```
/// use std::time::Duration;
/// use tollgate::limit::Factor;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::leaky_bucket(2, 1, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("Notes", IdFormat::String, limit)?.build());
/// let notes = limiter.limit("Notes")?;
/// let trusted: Factor = "0.5".parse()?;
/// assert!(notes.spend("alice", 2)?.allowed());
/// assert!(!notes.spend("alice", 1)?.allowed());
/// assert!(notes.scaled(trusted).spend("alice", 2)?.allowed());
/// assert_eq!(notes.scaled(Factor::ZERO).spend("alice", 1)?.remaining(), None);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ScaledLimit<'h> {
    pub(super) handle: &'h KeyedLimit,
    pub(super) factor: Factor,
}

impl KeyedLimit {
    /// Applies the limit to callers with a factor. Such calls are about as fast as those for keys with an override.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(5));
    /// assert_eq!(users.scaled("0.5".parse()?).check("alice", 0)?.remaining(), Some(10));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn scaled(&self, factor: Factor) -> ScaledLimit<'_> {
        ScaledLimit { handle: self, factor }
    }
}

impl<'h> ScaledLimit<'h> {
    /// Like [`KeyedLimit::spend`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.scaled("0.5".parse()?).spend("alice", 8)?.remaining(), Some(2)); // of 10
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Spend(cost))
    }

    /// Like [`KeyedLimit::check`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.scaled("2".parse()?).check("alice", 1)?.remaining(), Some(2)); // of 3
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Check(cost))
    }

    /// Like [`KeyedLimit::refund`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let trusted = users.scaled("0.5".parse()?);
    /// assert!(trusted.spend("alice", 8)?.allowed());
    /// assert_eq!(trusted.refund("alice", 3)?.remaining(), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Refund(cost))
    }

    /// Like [`KeyedLimit::reset`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let trusted = users.scaled("0.5".parse()?);
    /// assert!(trusted.spend("alice", 8)?.allowed());
    /// assert_eq!(trusted.reset("alice")?.remaining(), Some(10));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Reset)
    }

    /// Makes a member of a [batch](crate::Limiter::batch) with this factor: check-and-spend, at a cost of 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.scaled("0.5".parse()?).member("alice").cost(8)];
    /// assert_eq!(limiter.batch(&members).spend()?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn member<'a>(&self, id: impl Into<Id<'a>>) -> Member<'a>
    where
        'h: 'a,
    {
        self.handle.member(id).factor(self.factor)
    }
}
