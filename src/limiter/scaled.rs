//! Calls by callers with a factor.

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::Member;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limits::Id;

/// A limit as it is for callers with a [`Factor`], such as that of their role. Made by
/// [`KeyedLimit::scaled`].
///
/// The calls are those of the [`KeyedLimit`], on the same buckets: what a caller has spent with one factor
/// counts with another. A factor of 0 is no limit. Every call can fail with
/// [`Error::is_invalid_limit`], when the factor takes the limit's numbers out of their range.
///
/// # Example: a trusted role may do twice as much
///
/// ```
/// use std::time::Duration;
/// use tollgate::limit::Factor;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::leaky_bucket(2, Duration::from_secs(1), 1)?;
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
    pub(crate) handle: &'h KeyedLimit,
    pub(crate) factor: Factor,
}

impl<'h> ScaledLimit<'h> {
    /// As [`KeyedLimit::spend`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Spend(cost))
    }

    /// As [`KeyedLimit::check`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Check(cost))
    }

    /// As [`KeyedLimit::refund`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Refund(cost))
    }

    /// As [`KeyedLimit::reset`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit`].
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.handle.call_with_factor(id.into(), self.factor, Call::Reset)
    }

    /// A member of a [batch](crate::Limiter::batch) with this factor: check-and-spend, at a cost of 1.
    pub fn member<'a>(&self, id: impl Into<Id<'a>>) -> Member<'a>
    where
        'h: 'a,
    {
        Member::new(self.handle, id.into()).factor(self.factor)
    }
}
