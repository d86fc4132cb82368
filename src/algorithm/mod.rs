//! The rules of the limits: pure functions on one 64-bit word. They know no atomics, no clock, no store.
//!
//! A word is never 0 and its top bit is clear; 0 stands for a bucket that was never charged, and a
//! full bucket equals one that does not exist.

pub(crate) mod gcra;

/// What a call makes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Outcome {
    /// The word to store, or `None` when the call writes nothing.
    pub(crate) word: Option<u64>,
    /// The answer to the caller.
    pub(crate) decision: crate::Decision,
}
