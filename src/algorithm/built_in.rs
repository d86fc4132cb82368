//! What the library asks an algorithm beyond the contract of [`Algorithm`].

use crate::algorithm::Algorithm;
use crate::algorithm::charge_mark::ChargeMark;
#[cfg(feature = "http")]
use crate::decision::Decision;

/// What the library asks an algorithm beyond the contract of [`Algorithm`]. [`Custom`](crate::algorithm::custom::Custom)
/// answers for the custom ones. No method has a default, so that the compiler asks for each.
pub(crate) trait BuiltIn: Algorithm {
    /// Returns what a later return of units needs to know of a charge by this limit, which wrote `word`.
    fn charge_mark(&self, word: u64) -> ChargeMark;

    /// Returns `units` units of a charge to a bucket, as [`refund`](Algorithm::refund) does, whatever has come in between: the
    /// new word, or `None` if nothing changes. `self` is the limit without the factor of the charge.
    fn returned(&self, word: u64, now_ns: u64, units: u64, charge: ChargeMark) -> Option<u64>;

    /// Returns all that a charge has taken: the new word, or `None` if nothing changes. `change` is the words before and after
    /// the charge, `times_ns` its time and the present.
    fn undone(&self, word: u64, change: (u64, u64), times_ns: (u64, u64)) -> Option<u64>;

    /// Charges `cost` units whether the bucket has them or not, down to a debt of `max_debt` units beyond those that calls may
    /// spend now: a settlement above its estimate. Returns the new word, or `None` if it does not change.
    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64>;

    /// The most units beyond the burst that a bucket's word can hold; 0 if a bucket has no debt.
    fn debt_room(&self) -> u64;

    /// Returns the units that calls may spend now.
    fn available(&self, word: u64, now_ns: u64) -> u64;

    /// Returns the time before which the bucket is not full whatever its units are: the word's own time, of words that have
    /// one, and else 0. The clock may have gone back behind it.
    fn kept_until_ns(&self, word: u64) -> u64;

    /// The time in which an empty bucket fills.
    fn fills_in_ns(&self) -> u64;

    /// Whether a factor changes the time at which a bucket with a given word is full.
    fn fills_slower_by_factor(&self) -> bool;

    /// Returns the time until the bucket has a unit more than after `decision`, 0 if it is full. The decision allows a call,
    /// or is a check; a denial has its own wait.
    #[cfg(feature = "http")]
    fn next_unit_ns(&self, decision: &Decision) -> u64;
}
