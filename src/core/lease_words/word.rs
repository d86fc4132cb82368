//! The word of a lease on its node: units that calls may spend until a time.

use crate::util::fault::{self, Fault};

/// Bit 0 is set in each word, because a cell's word is never 0. Bits 1 to 20: the units. Bits 21 to 62: the time, in units of
/// 2^18 ns of the node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseWord(u64);

const IS_WORD: u64 = 1;
const UNITS_SHIFT: u32 = 1;
const UNITS_MASK: u64 = (1 << 20) - 1;
const TIME_SHIFT: u32 = 21;
/// The binary logarithm of `TICK_NS`.
const TICK_LOG2: u32 = 18;
/// The step between two times that words can have.
pub(crate) const TICK_NS: u64 = 1 << TICK_LOG2;

/// A call that a lease has the units for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    /// The lease's word after the call.
    pub(crate) word: u64,
    /// The units that are left then.
    pub(crate) left: u64,
}

impl LeaseWord {
    /// Nothing is known of the bucket.
    pub(crate) const UNKNOWN: LeaseWord = LeaseWord(IS_WORD);

    /// Makes the word of a lease; `None` if it has more units than a word holds.
    pub(crate) fn lease(until_ns: u64, units: u64) -> Option<LeaseWord> {
        // A clock's reading is below 2^62, so the time has 44 bits at most; the word has room for 42. Later times, after 36
        // years, are cut to the last one that fits, which is over then: such a word says nothing.
        let ticks = (until_ns >> TICK_LOG2).min(u64::MAX >> 1 >> TIME_SHIFT);
        let word = LeaseWord(ticks << TIME_SHIFT | units << UNITS_SHIFT | IS_WORD);
        (units <= UNITS_MASK).then_some(word)
    }

    /// Reads the word of a cell.
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> LeaseWord {
        LeaseWord(word | IS_WORD)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Returns the time until which the lease may be spent, in ns of the node's clock.
    #[inline(always)]
    pub(crate) fn until_ns(self) -> u64 {
        self.0 >> TIME_SHIFT << TICK_LOG2
    }

    #[inline(always)]
    pub(crate) fn is_over(self, now_ns: u64) -> bool {
        now_ns >= self.until_ns()
    }

    /// Whether it is a lease that was granted, with or without units that are left.
    pub(crate) fn is_lease(self) -> bool {
        self != LeaseWord::UNKNOWN
    }

    /// Returns the units that are left.
    #[inline(always)]
    pub(crate) fn units(self) -> u64 {
        self.0 >> UNITS_SHIFT & UNITS_MASK
    }

    /// Spends units. `None`: the lease is over or does not have them, so only the store can tell.
    #[inline(always)]
    pub(crate) fn spend(self, now_ns: u64, cost: u64) -> Option<Spent> {
        let units = self.units();
        match units.checked_sub(cost) {
            Some(left) if units > 0 && !self.is_over(now_ns) => {
                Some(Spent { word: self.0 - (cost << UNITS_SHIFT), left })
            }
            _ => None,
        }
    }

    /// Gives units back to the lease that ends at `until_ns`. `None` if it is not this one: its units have gone to the store.
    pub(crate) fn with_units_back(self, until_ns: u64, units: u64) -> Option<LeaseWord> {
        let is_same = self.is_lease()
            && (self.until_ns() == until_ns || fault::active(Fault::UnitsBackToAnyLease));
        is_same.then(|| LeaseWord::lease(self.until_ns(), self.units() + units)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1000 * TICK_NS;
    const UNTIL_NS: u64 = 2000 * TICK_NS;

    fn spent(word: LeaseWord, cost: u64) -> (LeaseWord, u64) {
        let Spent { word, left } = word.spend(NOW_NS, cost).unwrap();
        (LeaseWord::from_word(word), left)
    }

    #[test]
    fn lease_is_spent_until_its_end() {
        let lease = LeaseWord::lease(UNTIL_NS + 5, 3).unwrap();
        assert_eq!((lease.until_ns(), lease.units()), (UNTIL_NS, 3));
        let (lease, left) = spent(lease, 2);
        assert_eq!((lease, left), (LeaseWord::lease(UNTIL_NS, 1).unwrap(), 1));
        assert_eq!(lease.spend(NOW_NS, 2), None);
        assert_eq!(lease.spend(UNTIL_NS, 1), None, "it has ended");
        assert_eq!(spent(lease, 0).1, 1, "a call of nothing");
        let (empty, _) = spent(lease, 1);
        assert_eq!(empty.spend(NOW_NS, 0), None);
        assert_eq!(LeaseWord::lease(UNTIL_NS, 1 << 20), None);
        let most = LeaseWord::lease(UNTIL_NS, (1 << 20) - 1).unwrap();
        assert_eq!(spent(most, (1 << 20) - 1).1, 0);
    }

    #[test]
    fn units_come_back_to_their_own_lease() {
        let lease = LeaseWord::lease(UNTIL_NS, 3).unwrap();
        let (empty, _) = spent(lease, 3);
        assert_eq!(empty.with_units_back(UNTIL_NS, 3), Some(lease));
        assert_eq!(lease.with_units_back(UNTIL_NS + TICK_NS, 1), None);
        assert_eq!(LeaseWord::UNKNOWN.with_units_back(UNTIL_NS, 1), None);
        assert_eq!(LeaseWord::UNKNOWN.with_units_back(0, 1), None);
    }

    #[test]
    fn times_beyond_the_word_are_cut() {
        let lease = LeaseWord::lease(u64::MAX >> 2, 3).unwrap();
        assert_eq!(lease.units(), 3);
        assert!(lease.is_over(u64::MAX >> 2) && lease.word() >> 63 == 0);
        assert_eq!(LeaseWord::UNKNOWN.spend(0, 0), None);
    }
}
