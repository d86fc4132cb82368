//! Packs a denial that a node keeps into 20 bits of a lease's word: the costs that are denied, and how long the store would
//! deny them beyond the time for which the word is valid.

/// The calls that a denial denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Each cost from this one up.
    From(u64),
    /// Every cost, because the id is blocked.
    Block,
}

/// The bits have one of two forms, and bit 19 says which. The second form also has a [`Longer`]: the time from the end of the
/// word's validity to the instant at which the store would allow the call.
///
/// ```text
/// bit  0..19  cost                          19  0
///      0..9   cost       9..19  a `Longer`  19  1
/// ```
///
/// In both forms, a cost with all bits set stands for a block.
const HAS_LONGER: u64 = 1 << 19;
const BLOCK: u64 = (1 << 19) - 1;
const LONGER_SHIFT: u32 = 9;
const SHORT_BLOCK: u64 = (1 << LONGER_SHIFT) - 1;

impl Denied {
    /// Returns the bits; `None` if the cost is too large for the first form. A cost that is too large for the second form gets
    /// the first one, without the longer time.
    pub(super) fn bits(self, longer_ticks: u64) -> Option<u64> {
        let cost = |block| match self {
            Denied::Block => Some(block),
            Denied::From(cost) => (cost < block).then_some(cost),
        };
        match (Longer::new(longer_ticks), cost(SHORT_BLOCK)) {
            (Longer(0), _) | (_, None) => cost(BLOCK),
            (longer, Some(cost)) => Some(HAS_LONGER | longer.0 << LONGER_SHIFT | cost),
        }
    }

    /// Reads the bits. Returns the denied calls, and the longer time in ticks: 0 if the bits have none.
    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> (Denied, u64) {
        let (block, longer_ticks) = match bits & HAS_LONGER {
            0 => (BLOCK, 0),
            _ => (SHORT_BLOCK, Longer(bits >> LONGER_SHIFT & Longer::MOST).ticks()),
        };
        let cost = bits & block;
        (if cost == block { Denied::Block } else { Denied::From(cost) }, longer_ticks)
    }
}

/// A number of ticks in ten bits, like a floating-point number: a five-bit exponent, and the five binary digits after the
/// leading 1. The number is rounded down, by up to a thirty-second of it. The largest one is 63 * 2^30: 205 days in a lease's
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Longer(u64);

impl Longer {
    const DIGITS: u32 = 5;
    const LEADING: u64 = 1 << Self::DIGITS;
    const MOST: u64 = (1 << 10) - 1;

    fn new(ticks: u64) -> Longer {
        // From 32 ticks on, `ticks >> shift` has its leading 1 in the exponent's lowest bit. The sum adds it to the exponent.
        let shift = (u64::BITS - ticks.leading_zeros()).saturating_sub(Self::DIGITS + 1);
        Longer(((u64::from(shift) << Self::DIGITS) + (ticks >> shift)).min(Self::MOST))
    }

    #[inline(always)]
    fn ticks(self) -> u64 {
        let (exponent, digits) = (self.0 >> Self::DIGITS, self.0 & (Self::LEADING - 1));
        match exponent {
            0 => digits,
            _ => (digits | Self::LEADING) << (exponent - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn longest_times_are_cut() {
        let most = Longer(Longer::MOST);
        assert_eq!(most.ticks(), 63 << 30);
        for ticks in [most.ticks(), most.ticks() * 2, u64::MAX] {
            assert_eq!(Longer::new(ticks), most);
        }
        assert_eq!(
            (0..64).map(|it| Longer::new(it).ticks()).collect::<Vec<_>>(),
            Vec::from_iter(0..64)
        );
    }

    proptest! {
        #[test]
        fn time_loses_a_thirty_second(bits in 0_u32..35, random in any::<u64>()) {
            let given = random >> (63 - bits);
            let ticks = Longer::new(given).ticks();
            prop_assert!(ticks <= given && given - ticks <= given / 32, "{ticks} of {given}");
        }

        #[test]
        fn bits_say_what_is_denied(cost in 0_u64..2_000_000, is_block: bool, longer: u64) {
            let denied = if is_block { Denied::Block } else { Denied::From(cost) };
            match denied.bits(longer) {
                None => prop_assert!(!is_block && cost >= BLOCK),
                Some(bits) => {
                    prop_assert_eq!(bits >> 20, 0);
                    let has_room = is_block || cost < SHORT_BLOCK;
                    let longer = if has_room { Longer::new(longer).ticks() } else { 0 };
                    prop_assert_eq!(Denied::from_bits(bits), (denied, longer));
                }
            }
        }
    }
}
