//! Calls by callers with a factor.

use std::sync::Arc;

use crate::batch::Member;
use crate::handle::{Check, Handle, Refund, Reset, Spend};
use crate::key::LimitIndex;
use crate::limits::Id;
use crate::probe::{Fault, broken};
use crate::sync::{AtomicU64, Ordering};
use crate::{Decision, Error, Factor};

/// A limit as it is for callers with a [`Factor`], such as that of their role. Made by
/// [`Handle::scaled`].
///
/// The calls are those of the [`Handle`], on the same buckets: what a caller has spent with one factor
/// counts with another. A factor of 0 is no limit. Every call can fail with
/// [`Error::is_invalid_limit`], when the factor takes the limit's numbers out of their range.
///
/// # Example: a trusted role may do twice as much
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Factor, IdFormat, Limit, Limiter, Limits};
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
pub struct Scaled<'h> {
    pub(crate) handle: &'h Handle,
    pub(crate) factor: Factor,
}

impl<'h> Scaled<'h> {
    /// As [`Handle::spend`].
    ///
    /// # Errors
    ///
    /// See [`Scaled`] and [`Handle`].
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.with_factor(id.into(), cost, self.factor, Spend(cost))
    }

    /// As [`Handle::check`].
    ///
    /// # Errors
    ///
    /// See [`Scaled`] and [`Handle`].
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.with_factor(id.into(), cost, self.factor, Check(cost))
    }

    /// As [`Handle::refund`].
    ///
    /// # Errors
    ///
    /// See [`Scaled`] and [`Handle`].
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.handle.with_factor(id.into(), cost, self.factor, Refund(cost))
    }

    /// As [`Handle::reset`].
    ///
    /// # Errors
    ///
    /// See [`Scaled`] and [`Handle`].
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.handle.with_factor(id.into(), 0, self.factor, Reset)
    }

    /// A member of a [batch](crate::Limiter::batch) with this factor: check-and-spend, at a cost of 1.
    pub fn member<'a>(&self, id: impl Into<Id<'a>>) -> Member<'a>
    where
        'h: 'a,
    {
        Member::new(self.handle, id.into()).factor(self.factor)
    }
}

/// The largest factor that each limit was charged with. A bucket drips the slower the larger it is,
/// and is full for a sweep only when it is full for all.
pub(crate) struct LargestFactors(Box<[Arc<AtomicU64>]>);

impl LargestFactors {
    pub(crate) fn new(limits: usize) -> LargestFactors {
        LargestFactors(Box::new([])).and_more(limits)
    }

    /// The same, which are shared, and those of new limits, so that there are so many.
    pub(crate) fn and_more(&self, limits: usize) -> LargestFactors {
        let one = || Arc::new(AtomicU64::new(Factor::ONE.millionths()));
        let new = (self.0.len()..limits).map(|_| one());
        LargestFactors(self.0.iter().cloned().chain(new).collect())
    }

    /// Before anything is charged with this factor.
    pub(crate) fn note(&self, limit: LimitIndex, factor: Factor) {
        if broken(Fault::FactorNotNoted) {
            return;
        }
        let largest = &self.0[limit.0 as usize];
        // Relaxed: published by the charge's swap, a Release; a sweep that has read that charge's word,
        // with Acquire, finds it here. Factors are few: most of the time nothing is written.
        if largest.load(Ordering::Relaxed) < factor.millionths() {
            largest.fetch_max(factor.millionths(), Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, limit: LimitIndex) -> Factor {
        // Relaxed: as above.
        Factor::from_millionths(self.0[limit.0 as usize].load(Ordering::Relaxed))
    }
}
