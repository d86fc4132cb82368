//! The word of the algorithms that count: 39 bits of whole milliseconds since the clock's origin, then 24 bits of units.
//! Bit 63 stays clear.

/// The latest time in a word, 17.4 years after the origin. For the algorithms that count, time stands still from then
/// on: later calls are decided as at this time.
pub(crate) const MAX_MS: u64 = (1 << (63 - COUNT_BITS)) - 1;

/// The largest count in a word.
pub(crate) const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

pub(crate) const NS_PER_MS: u64 = 1_000_000;

const COUNT_BITS: u32 = 24;

/// A time and a count of units. Where the count is 0, the bucket is empty of charges, and the time is only a lower bound:
/// a call with an earlier time is decided as at this time. Without it, a caller with an older time could spend again what
/// a dropped bucket had admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedCount {
    /// At least 1, except in the word 0 of a bucket that was never charged.
    pub(crate) at_ms: u64,
    pub(crate) count: u64,
}

impl TimedCount {
    #[inline]
    pub(crate) fn from_word(word: u64) -> TimedCount {
        TimedCount { at_ms: (word >> COUNT_BITS) & MAX_MS, count: word & MAX_COUNT }
    }

    /// The word; never 0, because the time is at least 1.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        debug_assert!((1..=MAX_MS).contains(&self.at_ms) && self.count <= MAX_COUNT, "{self:?}");
        (self.at_ms.clamp(1, MAX_MS) << COUNT_BITS) | self.count.min(MAX_COUNT)
    }

    /// The word of a bucket that became full at `now_ns`: no later call is decided as at an earlier time.
    #[inline]
    pub(crate) fn full_word(now_ns: u64) -> u64 {
        TimedCount { at_ms: ms_of(now_ns), count: 0 }.word()
    }

    /// The first nanosecond of the word's own millisecond.
    pub(crate) fn at_ns(self) -> u64 {
        ms_to_ns(self.at_ms.saturating_sub(1)) + 1
    }

    /// The time of a call on this word: the millisecond of `now_ns`, or the word's own time if that is later.
    #[inline]
    pub(crate) fn now_ms(self, now_ns: u64) -> u64 {
        ms_of(now_ns).max(self.at_ms)
    }
}

/// The millisecond that contains `now_ns`. The origin, 1 ns, is in millisecond 1.
#[inline]
pub(crate) fn ms_of(now_ns: u64) -> u64 {
    (now_ns.saturating_sub(1) / NS_PER_MS + 1).min(MAX_MS)
}

/// Converts a duration of milliseconds to nanoseconds. Saturates at 584 years; only a bucket that was charged under
/// another limit can be that far from full.
#[inline]
pub(crate) fn ms_to_ns(ms: u64) -> u64 {
    ms.saturating_mul(NS_PER_MS)
}

/// Converts a duration of nanoseconds to milliseconds, rounded down.
pub(crate) fn ns_to_ms(ns: u64) -> u64 {
    ns / NS_PER_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MAX_NOW_NS;

    #[test]
    fn the_origin_is_in_the_first_millisecond() {
        for (now_ns, ms) in [(0, 1), (1, 1), (1_000_000, 1), (1_000_001, 2), (2_000_000, 2)] {
            assert_eq!(ms_of(now_ns), ms, "{now_ns} ns");
        }
        assert_eq!(ms_of(MAX_NOW_NS), MAX_MS);
        assert_eq!(ms_of(u64::MAX), MAX_MS);
    }

    #[test]
    fn largest_word_leaves_top_bit_and_reads_back() {
        for timed in
            [TimedCount { at_ms: MAX_MS, count: MAX_COUNT }, TimedCount { at_ms: 1, count: 0 }]
        {
            assert_eq!(timed.word() >> 63, 0);
            assert_ne!(timed.word(), 0);
            assert_eq!(TimedCount::from_word(timed.word()), timed);
        }
    }
}
