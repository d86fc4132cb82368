//! One bucket without a key.

use crate::algorithm::Outcome;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::store::cell::Cell;

/// One limit for one thing: a bucket without a key, alone on its cache line.
///
/// The calls are those of a [`KeyedLimit`](crate::KeyedLimit), without an id. Every call with a cost can fail
/// with [`Error::is_cost_above_burst`], and has changed nothing then.
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
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
pub struct Bucket {
    word: OwnLine,
    limit: Limit,
    clock: Clock,
}

/// The word that is written, apart from what is only read and from the neighbours in memory: two
/// lines of 64 bytes, for processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine(Cell);

#[cfg(not(tollgate_loom))]
const _: () = assert!(align_of::<Bucket>() == 128 && size_of::<OwnLine>() == 128);

impl Bucket {
    /// A full bucket.
    pub fn new(limit: Limit, clock: Clock) -> Bucket {
        Bucket { word: OwnLine(Cell::new()), limit, clock }
    }

    /// Asks for `cost` units and charges them if they are there.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    #[inline]
    pub fn spend(&self, cost: u64) -> Result<Decision, Error> {
        self.update(cost, |word, now_ns| self.limit.rule().spend(word, now_ns, cost))
    }

    /// Asks what a [`spend`](Bucket::spend) would say, and charges nothing.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    #[inline]
    pub fn check(&self, cost: u64) -> Result<Decision, Error> {
        self.allow_cost(cost)?;
        let word = self.word.0.load();
        Ok(self.limit.rule().spend(word, self.clock.now_ns(), cost).decision)
    }

    /// Gives back up to `cost` units, never past full.
    ///
    /// # Errors
    ///
    /// See [`Bucket`].
    pub fn refund(&self, cost: u64) -> Result<Decision, Error> {
        self.update(cost, |word, now_ns| self.limit.rule().refund(word, now_ns, cost))
    }

    /// Makes the bucket full.
    pub fn reset(&self) -> Decision {
        let now_ns = self.clock.now_ns();
        let step = |word| {
            let outcome = self.limit.rule().reset(word, now_ns);
            (outcome.word, outcome.decision)
        };
        self.word.0.update(step).1
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    #[inline]
    fn update(&self, cost: u64, change: impl Fn(u64, u64) -> Outcome) -> Result<Decision, Error> {
        self.allow_cost(cost)?;
        let now_ns = self.clock.now_ns();
        let (_, decision) = self.word.0.update(|word| {
            let outcome = change(word, now_ns);
            (outcome.word, outcome.decision)
        });
        Ok(decision)
    }

    #[inline]
    fn allow_cost(&self, cost: u64) -> Result<(), Error> {
        if cost > self.limit.burst() {
            return Err(self.limit.cost_error(cost, None));
        }
        Ok(())
    }
}
