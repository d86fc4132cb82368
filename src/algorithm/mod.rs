//! The algorithms of limits: pure functions on the 64-bit state word of one bucket.
//!
//! An algorithm uses no atomics, no clock and no table. Its callers store the word and pass the time in. A word is
//! never 0 and its top bit is clear. As an argument, 0 stands for a bucket that was never charged, and a full bucket
//! answers like one that does not exist.

pub(crate) mod built_in;
pub(crate) mod charge_mark;
pub(crate) mod concurrency;
pub(crate) mod custom;
pub(crate) mod demand;
pub(crate) mod factor;
pub(crate) mod gcra;
pub(crate) mod leaky_bucket;
mod leaving;
pub(crate) mod rule;
pub(crate) mod timed_count;
pub(crate) mod window;

use std::fmt;

use crate::decision::Decision;

/// The result of a call on a state word: the new word and the decision.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{Limit, algorithm::Algorithm};
/// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
/// let charged = limit.spend(0, 1, 10);
/// let denied = limit.spend(charged.word.expect("allowed"), 1, 1);
/// assert_eq!(denied.word, None);
/// assert_eq!(denied.decision.retry_in(), Duration::from_secs(1));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The word to store, or `None` if the call changes nothing: a denial, a cost of 0, a refund that returns no unit.
    /// Never `Some(0)`, and never a word whose top bit is set.
    pub word: Option<u64>,
    /// The answer to the caller.
    pub decision: Decision,
}

/// Computes how spends, refunds and resets change the state word of one bucket, and when the bucket is full.
///
/// Implement it for a custom algorithm, and make a limit of it with [`Limit::custom`](crate::Limit::custom). `Limit`
/// itself implements it, so a simulation can run any limit, built-in or custom, without a limiter.
///
/// # Contract
///
/// * **Pure.** An answer depends on `self` and the arguments only, and `self` never changes. A method may run several
///   times for one decision, because a call is repeated when another thread has changed the word meanwhile. No method
///   panics, blocks or allocates.
/// * **Word.** The word is the whole state of a bucket. A method never returns 0 or a word whose top bit is set: the
///   table uses both. As an argument, 0 means a bucket that was never charged. If a spend, a refund or a reset returns
///   such a word, the limiter does not store it: it denies the call, and panics in a debug build. From
///   [`shifted`](Algorithm::shifted) such a word counts as `None`, and from [`full`](Algorithm::full) as 1.
/// * **Time.** `now_ns` is nanoseconds since the clock's origin, from 1 to 2^62 - 1. It can be earlier than the time at
///   which the word was written: a thread was slow, or the clock went back. Then the word's own time counts as the
///   present, but `retry_in` and `reset_in` count from `now_ns`. A call that is denied at some time is also denied at every earlier time.
/// * **Full.** A bucket for which [`is_full`](Algorithm::is_full) is true stays full until it is charged. From then on
///   every answer for its word equals the answer for 0. The limiter may drop a full bucket at any moment; the next call
///   on its key starts from 0. `is_full` is false at a time before the word's own time.
/// * **Charging.** A denial and a cost of 0 write no word. An allowed spend of at least 1 writes one. A call that is
///   denied at `now_ns` is allowed at `now_ns + retry_in` if no other call spends meanwhile. An algorithm that counts
///   time in a coarser unit than nanoseconds may allow it later, by less than that unit, and never sooner.
/// * **Cost.** The caller has checked that a cost is at most [`max_cost`](Algorithm::max_cost).
///
/// `tests/algorithms/laws.rs` in the repository checks the contract with property tests. To check your own algorithm,
/// copy that file to `tests/contract/` of your crate, add the dev-dependency proptest, and call
/// `laws::laws(&algorithm, start_ns, tick_ns, &history)` with a history of `laws::steps(unit_ns)` in a `proptest!`. The
/// [guide](crate::docs::algorithms#a-custom-algorithm) shows such a test.
///
/// # Example: one unit, then none until a second has passed
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::algorithm::{Algorithm, Outcome};
/// use tollgate::{Bucket, Clock, Decision, Limit};
///
/// /// The word is the time at which the next unit may be spent.
/// #[derive(Debug)]
/// struct OneASecond;
///
/// const SECOND_NS: u64 = 1_000_000_000;
///
/// impl Algorithm for OneASecond {
///     fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
///         let wait = Duration::from_nanos(word.saturating_sub(now_ns));
///         if cost == 0 || !wait.is_zero() {
///             let remaining = u64::from(wait.is_zero());
///             let decision = Decision::for_spend(cost == 0, remaining, wait, wait);
///             return Outcome { word: None, decision };
///         }
///         let second = Duration::from_nanos(SECOND_NS);
///         Outcome { word: Some(now_ns + SECOND_NS), decision: Decision::for_spend(true, 0, second, second) }
///     }
///
///     fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
///         let refunded = cost > 0 && word > now_ns;
///         let left_ns = if refunded { 0 } else { word.saturating_sub(now_ns) };
///         let remaining = u64::from(left_ns == 0);
///         let decision = Decision::for_refund(refunded, remaining, Duration::from_nanos(left_ns));
///         Outcome { word: refunded.then_some(now_ns), decision }
///     }
///
///     fn is_full(&self, word: u64, now_ns: u64) -> bool {
///         word <= now_ns
///     }
///
///     fn full(&self, now_ns: u64) -> u64 {
///         now_ns
///     }
///
///     fn max_cost(&self) -> u64 {
///         1
///     }
/// }
///
/// let (clock, manual) = Clock::manual();
/// let bucket = Bucket::new(Limit::custom(Arc::new(OneASecond))?, clock);
/// assert!(bucket.spend(1)?.allowed());
/// assert_eq!(bucket.spend(1)?.retry_in(), Duration::from_secs(1));
/// manual.advance(Duration::from_secs(1));
/// assert!(bucket.spend(1)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Example: a simulation without a limiter
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
/// use tollgate::algorithm::Algorithm;
///
/// let limit = Limit::new(2, 1, Duration::from_secs(1))?;
/// let (mut word, mut allowed) = (0, 0);
/// for quarter in 1..10 {
///     if let Some(charged) = limit.spend(word, quarter * 250_000_000, 1).word {
///         word = charged;
///         allowed += 1;
///     }
/// }
/// assert_eq!(allowed, 4); // two at once, then one a second
/// # Ok::<(), tollgate::Error>(())
/// ```
pub trait Algorithm: Send + Sync + fmt::Debug {
    /// Charges `cost` units if the bucket has them. Make the decision with [`Decision::for_spend`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.spend(0, 1, 7).word.expect("allowed");
    /// assert_eq!(limit.spend(word, 1, 3).decision.remaining(), Some(0));
    /// assert!(!limit.spend(word, 1, 4).decision.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome;

    /// Returns up to `cost` units to the bucket, never beyond full. Make the decision with [`Decision::for_refund`]; its `allowed` is
    /// true if a unit was returned.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.spend(0, 1, 7).word.expect("allowed");
    /// assert_eq!(limit.refund(word, 1, 2).decision.remaining(), Some(5));
    /// assert!(!limit.refund(0, 1, 2).decision.allowed()); // full already
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome;

    /// Whether the bucket is full at `now_ns`, so that the limiter may drop it. True for the word 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.spend(0, 1, 7).word.expect("allowed");
    /// assert!(!limit.is_full(word, 7_000_000_000)); // 1 ns before the seventh unit is back
    /// assert!(limit.is_full(word, 7_000_000_001));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn is_full(&self, word: u64, now_ns: u64) -> bool;

    /// A word, other than 0, of a bucket that became full at `now_ns`. The answer to a call on it with an earlier time
    /// is the answer at `now_ns`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.full(5);
    /// assert!(limit.is_full(word, 5));
    /// assert_eq!(limit.spend(word, 5, 0).decision.remaining(), Some(10));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn full(&self, now_ns: u64) -> u64;

    /// The largest cost of one call: the most that the bucket ever holds. At least 1, and always the same number.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::leaky_bucket(8, 2, Duration::from_secs(1))?;
    /// assert_eq!(limit.max_cost(), 8);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn max_cost(&self) -> u64;

    /// Makes the bucket full.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.spend(0, 1, 7).word.expect("allowed");
    /// assert_eq!(limit.reset(word, 1).decision.remaining(), Some(10));
    /// assert_eq!(limit.reset(0, 1).word, None); // full already
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        let decision = self.spend(0, now_ns, 0).decision;
        Outcome { word: (!self.is_full(word, now_ns)).then(|| self.full(now_ns)), decision }
    }

    /// A lower bound, at least 1, on the time in ns from a charge until the bucket can be full again. The limiter uses it
    /// only when the table is full: to rule out that a key's bucket was charged and dropped during one call, and as the
    /// `retry_in` of a new key that is denied if no other bucket says when there is room.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// assert_eq!(limit.unit_ns(), 1_000_000_000);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn unit_ns(&self) -> u64 {
        1
    }

    /// Converts a word to a clock whose origin is `by_ns` later, a whole number of milliseconds. The new word answers at
    /// a time `t` as `word` does at `t + by_ns`. `now_ns` is the present by the new origin; no call has an earlier time.
    /// A time in the word that would be before the new origin moves to the origin, if the bucket then owes as much or
    /// more.
    ///
    /// A limiter that is restored from a snapshot continues the clock of the limiter that wrote it, so words do not
    /// change. Only if that clock is beyond two years, the restore moves the origin and calls this.
    ///
    /// The default implementation returns `None`: the restore then drops the bucket.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::new(10, 1, Duration::from_secs(1))?;
    /// let word = limit.spend(0, 5_000_000_000, 3).word.expect("allowed");
    /// let shifted = limit.shifted(word, 2_000_000_000, 3_000_000_000).expect("gcra converts words");
    /// assert_eq!(limit.spend(shifted, 4_000_000_000, 1).decision, limit.spend(word, 6_000_000_000, 1).decision);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        let _ = (word, by_ns, now_ns);
        None
    }

    /// The name of the algorithm in messages and snapshots. A limit and its overrides must have algorithms of one name,
    /// because a bucket's word can pass from one to the other. Choose a fixed name if another version of your program
    /// reads the snapshots; the default implementation returns the name of the Rust type. The names of the built-in
    /// algorithms are refused by [`Limit::custom`](crate::Limit::custom).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// let limit = Limit::fixed_window(10, Duration::from_secs(60))?;
    /// assert_eq!(limit.name(), "fixed_window");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}
