//! Defines [`Bucket`], one bucket without a key.

use crate::algorithm::Outcome;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::store::cell::Cell;

/// Limits one thing: a single bucket without a key, on its own cache lines.
///
/// The calls are those of a [`KeyedLimit`](crate::KeyedLimit), without an id. A call whose cost is above the burst
/// fails with [`Error::is_cost_above_burst`] and changes nothing.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
///
/// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(1))?, Clock::system());
/// assert!(bucket.spend(2)?.allowed());
/// assert!(!bucket.check(1)?.allowed());
/// assert!(bucket.refund(1)?.allowed());
/// assert!(bucket.spend(1)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
pub struct Bucket {
    cell: OwnLine,
    limit: Limit,
    clock: Clock,
}

/// Keeps the written cell apart from the fields that are only read, and from other data. 128 bytes: processors fetch
/// lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine(Cell);

#[cfg(not(tollgate_loom))]
const _: () = assert!(align_of::<Bucket>() == 128 && size_of::<OwnLine>() == 128);

impl Bucket {
    /// Makes a full bucket.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(1))?, Clock::system());
    /// assert_eq!(bucket.check(0)?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn new(limit: Limit, clock: Clock) -> Bucket {
        Bucket { cell: OwnLine(Cell::new()), limit, clock }
    }

    /// Makes a bucket with `units` units, or a full one if the burst is less.
    ///
    /// # Example: at the start of a program, a dependency is not met with a burst
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::with_units(Limit::new(100, 10, Duration::from_secs(1))?, Clock::system(), 0);
    /// assert!(!bucket.spend(1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn with_units(limit: Limit, clock: Clock, units: u64) -> Bucket {
        let bucket = Bucket::new(limit, clock);
        let _ = bucket.drain(units);
        bucket
    }

    /// Spends `cost` units if the bucket has them.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.spend(1)?.remaining(), Some(1));
    /// assert!(!bucket.spend(2)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn spend(&self, cost: u64) -> Result<Decision, Error> {
        self.update(cost, |word, now_ns| self.limit.rule().spend(word, now_ns, cost))
    }

    /// Spends as many units as the bucket has, at most `most`. Returns their number and the decision: a denial if the
    /// bucket has no unit.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(5, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.spend_up_to(3).0, 3);
    /// assert_eq!(bucket.spend_up_to(3).0, 2);
    /// assert!(!bucket.spend_up_to(3).1.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_up_to(&self, most: u64) -> (u64, Decision) {
        let (mut units, most) = (0, most.min(self.limit.burst()));
        let decision = self.change(|word, now_ns| {
            let (charged, outcome) = self.limit.rule().spend_up_to(word, now_ns, most);
            units = charged;
            outcome
        });
        (units, decision)
    }

    /// Spends all units but `leave`. A bucket with fewer units stays as it is.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(5, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.drain(2).remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn drain(&self, leave: u64) -> Decision {
        self.change(|word, now_ns| self.limit.rule().drain(word, now_ns, leave))
    }

    /// Returns the decision that a [`spend`](Bucket::spend) would get, and charges nothing.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.check(2)?.remaining(), Some(0));
    /// assert_eq!(bucket.check(2)?.remaining(), Some(0)); // nothing was charged
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn check(&self, cost: u64) -> Result<Decision, Error> {
        self.check_cost(cost)?;
        let word = self.cell.0.load();
        Ok(self.limit.rule().spend(word, self.clock.now_ns(), cost).decision)
    }

    /// Returns up to `cost` units to the bucket, never more than it lacks.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(60))?, Clock::system());
    /// assert!(bucket.spend(2)?.allowed());
    /// assert_eq!(bucket.refund(1)?.remaining(), Some(1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund(&self, cost: u64) -> Result<Decision, Error> {
        self.update(cost, |word, now_ns| self.limit.rule().refund(word, now_ns, cost))
    }

    /// Fills the bucket.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(60))?, Clock::system());
    /// assert!(bucket.spend(2)?.allowed());
    /// assert_eq!(bucket.reset().remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reset(&self) -> Decision {
        self.change(|word, now_ns| self.limit.rule().reset(word, now_ns))
    }

    /// The bucket's limit.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.limit().burst(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    #[inline]
    fn update(&self, cost: u64, step: impl Fn(u64, u64) -> Outcome) -> Result<Decision, Error> {
        self.check_cost(cost)?;
        Ok(self.change(step))
    }

    #[inline]
    fn change(&self, mut step: impl FnMut(u64, u64) -> Outcome) -> Decision {
        let now_ns = self.clock.now_ns();
        let (_, decision) = self.cell.0.update(|word| {
            let outcome = step(word, now_ns);
            (outcome.word, outcome.decision)
        });
        decision
    }

    #[inline]
    fn check_cost(&self, cost: u64) -> Result<(), Error> {
        if cost > self.limit.burst() {
            return Err(self.limit.cost_error(cost.into(), None));
        }
        Ok(())
    }
}
