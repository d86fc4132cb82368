//! The rules of the limits: pure functions on one 64-bit word. They know no atomics, no clock, no store.
//!
//! A word is never 0 and its top bit is clear; 0 stands for a bucket that was never charged, and a
//! full bucket equals one that does not exist.

pub(crate) mod factor;
pub(crate) mod fixed_window;
pub(crate) mod gcra;
pub(crate) mod leaky_bucket;
pub(crate) mod packed;
pub(crate) mod rule;
pub(crate) mod token_bucket;
pub(crate) mod window;

use std::fmt;
use std::sync::Arc;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;

/// What a call makes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The word to store, or `None` when the call writes nothing: a denial, a cost of 0, a refund of
    /// nothing. Never `Some(0)`, and never with the top bit set.
    pub word: Option<u64>,
    /// The answer to the caller.
    pub decision: Decision,
}

/// A charge that was made, kept to take it back: a batch charges its buckets one after the other, and
/// may be denied by the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge {
    /// The word before the charge; 0 if the bucket was new.
    pub before: u64,
    /// The word that the charge left.
    pub after: u64,
    /// When it was charged: nanoseconds since the clock's origin.
    pub now_ns: u64,
    /// By how much the word may have been lowered since from beneath others' charges, at most, in the
    /// word's own measure. 0: it is as charges, refunds and resets left it.
    pub lowered: u64,
}

/// A place that a cost has taken, now or in the future, by moving the word. Made by
/// [`Algorithm::reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The word with the place taken.
    pub word: u64,
    /// When it is granted: nanoseconds since the clock's origin, never before the time of the call.
    pub at_ns: u64,
}

impl Charge {
    /// The charge that made `after` of `before` at `now_ns`, in the units of its fields.
    pub fn new(before: u64, after: u64, now_ns: u64) -> Charge {
        Charge { before, after, now_ns, lowered: 0 }
    }

    /// Whether the word is what the charge left, and nobody else's charge is behind it.
    #[inline]
    pub(crate) fn is_last(&self, word: u64) -> bool {
        word == self.after && self.lowered == 0
    }
}

/// A rule: what spends, refunds and resets make of the state of one bucket, and when it is full.
///
/// The built-in rules are made by [`Limit`](crate::Limit)'s constructors; an implementation of one's
/// own becomes a limit by [`Limit::custom`](crate::Limit::custom). A `Limit` is an `Algorithm` itself, so
/// that every rule can be run without a limiter: in a simulation, or through the laws below.
///
/// # The contract
///
/// * **Pure.** An answer depends on `self` and the arguments alone, and `self` never changes. A call is
///   repeated when another caller was faster, so that a method may run several times for one decision.
///   No method panics, blocks or allocates.
/// * **The word** is all that is kept of a bucket. It is never 0, and its top bit is clear: both belong
///   to the table. As an argument, 0 is a bucket that was never charged. An outcome that breaks this is
///   not stored, and its call is denied.
/// * **Time.** `now_ns` is nanoseconds since the clock's origin: at least 1, at most 2^62 - 1. It may be
///   earlier than what the word was written at, by a slow caller or a clock that went back; then it
///   counts as the word's own time. What a call could not have at a time, one with an earlier `now_ns`
///   cannot have either.
/// * **Full.** A bucket that [`is_full`](Algorithm::is_full) at some time is full at every later one
///   until it is charged, and no answer at that time or later differs from that of a bucket that does
///   not exist. A sweep drops full buckets at any moment, and what was dropped starts again as 0.
/// * **Charging.** A denial, and an answer to a cost of 0, write nothing: their word is `None`. An
///   allowed spend of more writes. Whoever was denied at `now_ns` is allowed at `now_ns + retry_in` if
///   nothing else is spent; a rule that counts coarser than in nanoseconds may have it a part of its
///   unit later, never sooner.
/// * **Cost.** Callers have checked that no cost is above [`max_cost`](Algorithm::max_cost).
///
/// `tests/algorithms/laws.rs` in the repository has these as property tests, and `tests/algorithms/custom.rs` puts
/// a rule of one's own through them.
///
/// # Example: a bucket that is emptied at once and takes a rest
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::algorithm::{Algorithm, Outcome};
/// use tollgate::{Bucket, Clock, Decision, Limit};
///
/// /// One unit, then none until a second has passed. The word is the end of the rest.
/// #[derive(Debug)]
/// struct Rest;
///
/// const REST_NS: u64 = 1_000_000_000;
///
/// impl Algorithm for Rest {
///     fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
///         let left = Duration::from_nanos(word.saturating_sub(now_ns));
///         if cost == 0 || !left.is_zero() {
///             let there = u64::from(left.is_zero());
///             let decision = Decision::to_spend(cost == 0, there, left, left);
///             return Outcome { word: None, decision };
///         }
///         let rest = Duration::from_nanos(REST_NS);
///         Outcome { word: Some(now_ns + REST_NS), decision: Decision::to_spend(true, 0, rest, rest) }
///     }
///
///     fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
///         let given_back = cost > 0 && word > now_ns;
///         let left = if given_back { 0 } else { word.saturating_sub(now_ns) };
///         let decision =
///             Decision::to_refund(given_back, u64::from(left == 0), Duration::from_nanos(left));
///         Outcome { word: given_back.then_some(now_ns), decision }
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
/// let (clock, hand) = Clock::manual();
/// let bucket = Bucket::new(Limit::custom(Arc::new(Rest))?, clock);
/// assert!(bucket.spend(1)?.allowed());
/// assert_eq!(bucket.spend(1)?.retry_in(), Duration::from_secs(1));
/// hand.advance(Duration::from_secs(1));
/// assert!(bucket.spend(1)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
pub trait Algorithm: Send + Sync + fmt::Debug {
    /// Asks for `cost` units, and charges them if they are there. Its decision is made by
    /// [`Decision::to_spend`].
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome;

    /// Gives back up to `cost` units, never past full. `allowed` says whether anything was given back.
    /// Its decision is made by [`Decision::to_refund`].
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome;

    /// Whether a bucket with this word is full at `now_ns`, and so carries nothing. True of 0.
    fn is_full(&self, word: u64, now_ns: u64) -> bool;

    /// A word of a bucket that is full at `now_ns` and was not before: no call on it may be answered as
    /// of a time before `now_ns`. Not 0, for nobody writes that.
    fn full(&self, now_ns: u64) -> u64;

    /// The most that one call can cost: more than this the bucket never holds. At least 1, and always
    /// the same.
    fn max_cost(&self) -> u64;

    /// Makes the bucket full.
    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        let decision = self.spend(0, now_ns, 0).decision;
        Outcome { word: (!self.is_full(word, now_ns)).then(|| self.full(now_ns)), decision }
    }

    /// The word with `charge` taken back; `None` if nothing is to be written.
    ///
    /// This is no refund. Where nobody else has charged since, the word goes back to what it was. Where
    /// somebody has, no more may be given back than what the charge still takes from them: the bucket
    /// may have refilled behind it, and giving back the whole cost would forget part of their charges.
    /// `now_ns` is the time, no earlier than any that another's charge on this word was made at; it
    /// costs a look at the clock, so ask only where it is needed.
    ///
    /// Left alone, gives nothing back where another has charged, which is safe: until the bucket has
    /// refilled, the charge of a denied batch then stays.
    fn roll_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        let _ = now_ns;
        charge.is_last(word).then(|| restored(self, charge))
    }

    /// Takes the earliest place for `cost` units behind all that have one, be it in the future: the word
    /// moves beyond what the bucket holds, and calls are denied until it has come back. `None`, and
    /// nothing is taken, if there is none before the clock or the word's room ends. The cost is not 0.
    ///
    /// Left alone, takes only what a spend would have at once.
    fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        self.spend(word, now_ns, cost).word.map(|word| Grant { word, at_ns: now_ns })
    }

    /// The word with `cost` more units charged, whether they are there or not, up to `max_debt` units
    /// beyond what the bucket holds; what is above that is forgiven. `None` if nothing is to be written.
    ///
    /// Left alone, charges what a spend would allow, and forgives the rest.
    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let _ = max_debt;
        self.spend(word, now_ns, cost.min(self.max_cost())).word
    }

    /// The least time in ns between a charge and a moment at which its bucket can be full again: a lower
    /// bound, at least 1. It spares some work where new keys find no room.
    fn unit_ns(&self) -> u64 {
        1
    }

    /// The word of the same bucket on a clock whose origin is `by_ns` later, whole milliseconds: its answers
    /// are those of `word` at times that are `by_ns` later. By the new origin it is `now_ns`, and none is
    /// asked for before. What would come before the origin is put there, if the bucket owes no less for
    /// it. `None`, if left alone: the bucket cannot be told, and is not kept.
    ///
    /// A limiter that is restored from a file goes on with the time of the one before, and words
    /// stay as they are. This is asked only when that time is beyond two years, for words to have room.
    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        let _ = (word, by_ns, now_ns);
        None
    }

    /// The same rule with its numbers multiplied by a caller's factor, which is neither 0 nor 1; `None`,
    /// which a call with such a factor answers by an error, if the rule has none. A bucket that is full
    /// by the rule that a larger factor makes is full by that of a smaller one: sweeps ask the largest.
    fn scaled(&self, factor: Factor) -> Option<Arc<dyn Algorithm>> {
        let _ = factor;
        None
    }

    /// What the rule is called, in messages. All numbers of one limit, its overrides included, must have
    /// rules of one name, because a bucket's word passes from one to the other. A file of buckets has it,
    /// too: one that is to be read by another version of the program needs a name that stays.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}

/// The word before a charge that nobody has charged after.
///
/// Never 0: to a cell that was new, a bucket full at the charge's time is as good, and it lets no
/// caller with an older time in among what may have been dropped before.
fn restored<A: Algorithm + ?Sized>(rule: &A, charge: Charge) -> u64 {
    if charge.before == 0 { rule.full(charge.now_ns) } else { charge.before }
}
