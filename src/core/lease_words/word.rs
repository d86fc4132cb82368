//! The word of a lease on its node: units that calls may spend until a time, or a denial that holds until a time.

use super::denied::Denied;
use crate::util::fault::{self, Fault};

/// Bit 0 is set in each word, because a cell's word is never 0. Bits 1 to 20: the units, or a [`Denied`]. Bit 21: whether it
/// is a denial. Bits 22 to 62: the time, in units of 2^18 ns of the node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseWord(u64);

const IS_WORD: u64 = 1;
const COUNT_SHIFT: u32 = 1;
const COUNT_MASK: u64 = (1 << 20) - 1;
const IS_DENIAL: u64 = 1 << 21;
const TIME_SHIFT: u32 = 22;
/// The binary logarithm of `TICK_NS`.
const TICK_LOG2: u32 = 18;
/// The step between two times that words can have.
pub(crate) const TICK_NS: u64 = 1 << TICK_LOG2;

/// How a lease answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAnswer {
    /// The lease has the units. These are its word after the call, and the units that are left.
    Spends { word: u64, left: u64 },
    /// The store has denied such a call. By its answer it would allow it after these ns.
    Denies { retry_in_ns: u64, is_blocked: bool },
    /// Only the store can tell.
    Asks,
}

impl LeaseWord {
    /// Nothing is known of the bucket.
    pub(crate) const UNKNOWN: LeaseWord = LeaseWord(IS_WORD);

    /// Makes the word of a lease; `None` if it has more units than a word holds.
    pub(crate) fn lease(until_ns: u64, units: u64) -> Option<LeaseWord> {
        (units <= COUNT_MASK).then(|| LeaseWord::new(until_ns, 0, units))
    }

    /// Makes the word of a denial that holds until a time. The store would allow the call `longer_ns` after it. `None` if a
    /// word cannot hold the cost.
    pub(crate) fn denial(until_ns: u64, longer_ns: u64, what: Denied) -> Option<LeaseWord> {
        let bits = what.bits(longer_ns >> TICK_LOG2)?;
        Some(LeaseWord::new(until_ns, IS_DENIAL, bits))
    }

    fn new(until_ns: u64, kind: u64, count: u64) -> LeaseWord {
        // A clock's reading is below 2^62, so the time has 44 bits at most; the word has room for 41. Later times, after 18
        // years, are cut to the last one that fits, which is over then: such a word says nothing.
        let ticks = (until_ns >> TICK_LOG2).min(u64::MAX >> 1 >> TIME_SHIFT);
        LeaseWord(ticks << TIME_SHIFT | kind | count << COUNT_SHIFT | IS_WORD)
    }

    /// Reads the word of a cell.
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> LeaseWord {
        LeaseWord(word | IS_WORD)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Returns the time until which the lease may be spent or the denial holds, in ns of the node's clock.
    #[inline(always)]
    pub(crate) fn until_ns(self) -> u64 {
        self.0 >> TIME_SHIFT << TICK_LOG2
    }

    #[inline(always)]
    pub(crate) fn is_over(self, now_ns: u64) -> bool {
        now_ns >= self.until_ns()
    }

    pub(crate) fn is_denial(self) -> bool {
        self.0 & IS_DENIAL != 0
    }

    /// Whether it is a lease that was granted, with or without units that are left.
    pub(crate) fn is_lease(self) -> bool {
        !self.is_denial() && self != LeaseWord::UNKNOWN
    }

    /// Returns the units that a lease has left; 0 for a denial.
    #[inline(always)]
    pub(crate) fn units(self) -> u64 {
        if self.is_denial() { 0 } else { self.count() }
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT & COUNT_MASK
    }

    /// Answers a call of this cost.
    #[inline(always)]
    pub(crate) fn answer(self, now_ns: u64, cost: u64) -> LeaseAnswer {
        let (until_ns, count) = (self.until_ns(), self.count());
        if now_ns >= until_ns {
            return LeaseAnswer::Asks;
        }
        if self.0 & IS_DENIAL == 0 {
            return match count.checked_sub(cost) {
                Some(left) if count > 0 => {
                    LeaseAnswer::Spends { word: self.0 - (cost << COUNT_SHIFT), left }
                }
                _ => LeaseAnswer::Asks,
            };
        }
        let (denied, longer_ticks) = Denied::from_bits(count);
        let retry_in_ns = until_ns - now_ns + (longer_ticks << TICK_LOG2);
        match denied {
            Denied::Block => LeaseAnswer::Denies { retry_in_ns, is_blocked: true },
            Denied::From(least) if cost >= least => {
                LeaseAnswer::Denies { retry_in_ns, is_blocked: false }
            }
            Denied::From(_) => LeaseAnswer::Asks,
        }
    }

    /// Gives units back to the lease that ends at `until_ns`. `None` if it is not this one: its units have gone to the store.
    pub(crate) fn with_units_back(self, until_ns: u64, units: u64) -> Option<LeaseWord> {
        let is_same = self.is_lease()
            && (self.until_ns() == until_ns || fault::active(Fault::UnitsBackToAnyLease));
        is_same.then(|| LeaseWord::lease(self.until_ns(), self.count() + units)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1000 * TICK_NS;
    const UNTIL_NS: u64 = 2000 * TICK_NS;

    fn spent(word: LeaseWord, cost: u64) -> (LeaseWord, u64) {
        match word.answer(NOW_NS, cost) {
            LeaseAnswer::Spends { word, left } => (LeaseWord::from_word(word), left),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lease_is_spent_until_its_end() {
        let lease = LeaseWord::lease(UNTIL_NS + 5, 3).unwrap();
        assert_eq!((lease.until_ns(), lease.units()), (UNTIL_NS, 3));
        let (lease, left) = spent(lease, 2);
        assert_eq!((lease, left), (LeaseWord::lease(UNTIL_NS, 1).unwrap(), 1));
        assert_eq!(lease.answer(NOW_NS, 2), LeaseAnswer::Asks);
        assert_eq!(lease.answer(UNTIL_NS, 1), LeaseAnswer::Asks, "it has ended");
        assert_eq!(spent(lease, 0).1, 1, "a call of nothing");
        let (empty, _) = spent(lease, 1);
        assert_eq!(empty.answer(NOW_NS, 0), LeaseAnswer::Asks);
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
        let denial = LeaseWord::denial(UNTIL_NS, 0, Denied::From(3)).unwrap();
        assert_eq!(denial.with_units_back(UNTIL_NS, 1), None);
    }

    #[test]
    fn denial_holds_for_its_cost_and_more() {
        // An hour has room beside small costs only, and is shorter by a thirty-second at most.
        const LONGER_NS: u64 = 3_600_000_000_000;
        for (longer_ns, least) in [(0, 3), (LONGER_NS, 3), (LONGER_NS, 510), (LONGER_NS, 511)] {
            let denial = LeaseWord::denial(UNTIL_NS, longer_ns, Denied::From(least)).unwrap();
            for cost in [least, u64::MAX] {
                let answer = denial.answer(NOW_NS, cost);
                let LeaseAnswer::Denies { retry_in_ns, is_blocked: false } = answer else {
                    panic!("{answer:?}")
                };
                let beyond = retry_in_ns - (UNTIL_NS - NOW_NS);
                let expected = if least > 510 { 0 } else { longer_ns };
                assert!(beyond <= expected && beyond >= expected - expected / 32, "{beyond}");
            }
            assert_eq!(denial.answer(NOW_NS, least - 1), LeaseAnswer::Asks);
            assert_eq!(denial.answer(UNTIL_NS, least), LeaseAnswer::Asks);
            let block = LeaseWord::denial(UNTIL_NS, longer_ns, Denied::Block).unwrap();
            let answer = block.answer(NOW_NS, 0);
            let LeaseAnswer::Denies { retry_in_ns, is_blocked: true } = answer else {
                panic!("{answer:?}")
            };
            assert!(retry_in_ns - (UNTIL_NS - NOW_NS) >= longer_ns - longer_ns / 32);
            assert_eq!(block.answer(UNTIL_NS, 0), LeaseAnswer::Asks);
        }
        assert_eq!(LeaseWord::denial(UNTIL_NS, 0, Denied::From((1 << 19) - 1)), None);
        let most = LeaseWord::denial(UNTIL_NS, 0, Denied::From((1 << 19) - 2)).unwrap();
        assert_eq!(most.answer(NOW_NS, (1 << 19) - 3), LeaseAnswer::Asks);
    }

    #[test]
    fn times_beyond_the_word_are_cut() {
        let lease = LeaseWord::lease(u64::MAX >> 2, 3).unwrap();
        assert_eq!(lease.units(), 3);
        assert!(lease.is_over(u64::MAX >> 2) && lease.word() >> 63 == 0);
        assert_eq!(LeaseWord::UNKNOWN.answer(0, 0), LeaseAnswer::Asks);
    }
}
