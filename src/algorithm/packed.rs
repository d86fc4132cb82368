//! The word of the algorithms that count: 39 bits of whole milliseconds since the clock's origin beside
//! a count of 24 bits. Bit 63 stays clear.

use crate::algorithm::rule::MAX_COUNT;

/// The latest time that a word has room for, 17.4 years after the origin. The clock goes no further for
/// these algorithms: later calls are all made at this time.
pub(crate) const MAX_MS: u64 = (1 << (63 - COUNT_BITS)) - 1;

const COUNT_BITS: u32 = 24;
const NS_PER_MS: u64 = 1_000_000;

const _: () = assert!(MAX_COUNT == (1 << COUNT_BITS) - 1);

/// A time and a count. Where the count is 0 nothing is spent, and of the time is left only that no call
/// is made before it: what was dropped before it was made cannot be asked for by a caller with an older
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// At least 1, but in a bucket that was never charged, where it is 0.
    pub(crate) at_ms: u64,
    pub(crate) count: u64,
}

impl Packed {
    #[inline]
    pub(crate) fn of_word(word: u64) -> Packed {
        Packed { at_ms: (word >> COUNT_BITS) & MAX_MS, count: word & MAX_COUNT }
    }

    /// The word. Not 0, for no time is.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        debug_assert!((1..=MAX_MS).contains(&self.at_ms) && self.count <= MAX_COUNT, "{self:?}");
        (self.at_ms.clamp(1, MAX_MS) << COUNT_BITS) | self.count.min(MAX_COUNT)
    }

    /// The time of a call on this word: `now_ns` cut to a millisecond, or the word's own time if that
    /// is later. The origin, 1 ns, is in the millisecond 1.
    #[inline]
    pub(crate) fn now_ms(self, now_ns: u64) -> u64 {
        ms_of(now_ns).max(self.at_ms)
    }
}

/// The count of a word.
#[inline]
pub(crate) fn count_of(word: u64) -> u64 {
    Packed::of_word(word).count
}

/// The word with so much less in its count; `None` if nothing would be left.
pub(crate) fn less(word: u64, by: u64) -> Option<u64> {
    let packed = Packed::of_word(word);
    let count = packed.count.checked_sub(by).filter(|&count| count > 0)?;
    Some(Packed { count, ..packed }.word())
}

/// So many whole milliseconds as such.
pub(crate) fn whole_ms(by_ns: u64) -> u64 {
    by_ns / NS_PER_MS
}

/// The millisecond that a time is in.
#[inline]
pub(crate) fn ms_of(now_ns: u64) -> u64 {
    (now_ns.saturating_sub(1) / NS_PER_MS + 1).min(MAX_MS)
}

/// The first nanosecond of a millisecond.
#[inline]
pub(crate) fn first_ns_of(ms: u64) -> u64 {
    ms.saturating_sub(1).saturating_mul(NS_PER_MS).saturating_add(1)
}

/// Milliseconds as the nanoseconds of a decision. Above 584 years, which only a bucket charged under
/// other numbers can be away from full, it stays there.
#[inline]
pub(crate) fn ns_of(ms: u64) -> u64 {
    ms.saturating_mul(NS_PER_MS)
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
    fn first_nanosecond_belongs_to_its_millisecond() {
        for ms in [1, 2, 1000, MAX_MS] {
            assert_eq!(ms_of(first_ns_of(ms)), ms);
            assert_eq!(ms_of(first_ns_of(ms) - 1), (ms - 1).max(1));
        }
    }

    #[test]
    fn largest_word_leaves_top_bit_and_reads_back() {
        for packed in [Packed { at_ms: MAX_MS, count: MAX_COUNT }, Packed { at_ms: 1, count: 0 }] {
            assert_eq!(packed.word() >> 63, 0);
            assert_ne!(packed.word(), 0);
            assert_eq!(Packed::of_word(packed.word()), packed);
        }
    }
}
