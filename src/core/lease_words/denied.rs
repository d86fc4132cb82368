//! What a kept denial denies, and how long: 20 bits of a lease's word.

use super::word::TICK_LOG2;

/// The calls that a denial denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Each cost from this one up.
    From(u64),
    /// Every cost, because the id is blocked.
    Block,
}

/// The bits have one of two forms. In the longer one there is room for the time from the end of the word's time to the
/// instant at which the store would allow the call.
///
/// ```text
/// bit  0..19  cost                          19  0
///      0..9   cost       9..19  a `Longer`  19  1
/// ```
///
/// In both, a cost with all bits set stands for a block.
const HAS_LONGER: u64 = 1 << 19;
const BLOCK: u64 = (1 << 19) - 1;
const LONGER_SHIFT: u32 = 9;
const SHORT_BLOCK: u64 = (1 << LONGER_SHIFT) - 1;

impl Denied {
    /// Returns the bits; `None` if they have no room for the cost. If they have none for both, the time is left out.
    pub(super) fn bits(self, longer_ns: u64) -> Option<u64> {
        let cost = |block| match self {
            Denied::Block => Some(block),
            Denied::From(cost) => (cost < block).then_some(cost),
        };
        match (Longer::new(longer_ns), cost(SHORT_BLOCK)) {
            (Longer(0), _) | (_, None) => cost(BLOCK),
            (longer, Some(cost)) => Some(HAS_LONGER | longer.0 << LONGER_SHIFT | cost),
        }
    }

    /// Reads the bits. Returns the longer time in ns as well.
    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> (Denied, u64) {
        let (block, longer_ns) = match bits & HAS_LONGER {
            0 => (BLOCK, 0),
            _ => (SHORT_BLOCK, Longer(bits >> LONGER_SHIFT & Longer::MOST).ns()),
        };
        let cost = bits & block;
        (if cost == block { Denied::Block } else { Denied::From(cost) }, longer_ns)
    }
}

/// A time in ten bits, as a floating-point number has it: an exponent, and the five digits after the leading one.
///
/// It is shorter than the time that it was made of, by at most a thirty-second or one tick, and at most 205 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Longer(u64);

impl Longer {
    const DIGITS: u32 = 5;
    const LEADING: u64 = 1 << Self::DIGITS;
    const MOST: u64 = (1 << 10) - 1;

    fn new(ns: u64) -> Longer {
        let ticks = ns >> TICK_LOG2;
        // The leading digit adds one to the exponent.
        let shift = (u64::BITS - ticks.leading_zeros()).saturating_sub(Self::DIGITS + 1);
        Longer(((u64::from(shift) << Self::DIGITS) + (ticks >> shift)).min(Self::MOST))
    }

    #[inline(always)]
    fn ns(self) -> u64 {
        let (exponent, digits) = (self.0 >> Self::DIGITS, self.0 & (Self::LEADING - 1));
        let ticks = match exponent {
            0 => digits,
            _ => (digits | Self::LEADING) << (exponent - 1),
        };
        ticks << TICK_LOG2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::word::TICK_NS;
    use super::*;

    #[test]
    fn longest_times_are_cut() {
        let most = Longer(Longer::MOST);
        assert_eq!(most.ns(), 63 << 30 << TICK_LOG2);
        for ns in [most.ns(), most.ns() * 2, u64::MAX >> 2, u64::MAX] {
            assert_eq!(Longer::new(ns), most);
        }
        assert_eq!([0, TICK_NS - 1].map(Longer::new), [Longer(0); 2]);
    }

    proptest! {
        #[test]
        fn time_loses_a_thirty_second(bits in 0_u32..53, random in any::<u64>()) {
            let ns = random >> (63 - bits);
            let (longer_ns, most) = (Longer::new(ns).ns(), (ns / 32).max(TICK_NS));
            prop_assert!(longer_ns <= ns && ns - longer_ns <= most, "{longer_ns} of {ns}");
        }

        #[test]
        fn bits_say_what_is_denied(cost in 0_u64..2_000_000, is_block: bool, longer_ns: u64) {
            let denied = if is_block { Denied::Block } else { Denied::From(cost) };
            match denied.bits(longer_ns) {
                None => prop_assert!(!is_block && cost >= BLOCK),
                Some(bits) => {
                    prop_assert_eq!(bits >> 20, 0);
                    let has_room = is_block || cost < SHORT_BLOCK;
                    let longer_ns = if has_room { Longer::new(longer_ns).ns() } else { 0 };
                    prop_assert_eq!(Denied::from_bits(bits), (denied, longer_ns));
                }
            }
        }
    }
}
