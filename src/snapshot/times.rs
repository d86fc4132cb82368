//! Moves times from the old limiter's clock to the new one's.

use super::format::Header;
use crate::clock::MAX_NOW_NS;

/// The latest time at which a restored limiter begins: 2^56 ns, 2.3 years. Words that count whole milliseconds have room
/// for 17.4 years, and windows that began in the last 2.3 years stay exact.
const MAX_START_NS: u64 = 1 << 56;
const NS_PER_MS: u64 = 1_000_000;

/// The times of a snapshot and of its restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// The time of the snapshot by the old limiter's clock.
    pub(super) at_ns: u64,
    /// The time since the snapshot by the wall clock.
    pub(super) elapsed_ns: u64,
    /// How much later the new clock's origin is than the old one's, in whole milliseconds.
    pub(super) by_ns: u64,
    /// The time at which the new limiter's clock begins.
    pub(super) now_ns: u64,
}

impl Times {
    pub(super) fn new(header: &Header, wall_ns: u64) -> Times {
        let at_ns = header.now_ns.clamp(1, MAX_NOW_NS);
        // After MAX_NOW_NS every bucket is full.
        let elapsed_ns = wall_ns.saturating_sub(header.wall_ns).min(MAX_NOW_NS);
        let now_ns = at_ns + elapsed_ns;
        let by_ns = now_ns.saturating_sub(MAX_START_NS).next_multiple_of(NS_PER_MS);
        Times { at_ns, elapsed_ns, by_ns, now_ns: now_ns - by_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::format::Keys;

    fn times(at_ns: u64, then_ns: u64, wall_ns: u64) -> (u64, u64, u64) {
        let header = Header { keys: Keys::Ids, wall_ns: then_ns, now_ns: at_ns, seeds: [0; 4] };
        let times = Times::new(&header, wall_ns);
        assert_eq!(times.by_ns % NS_PER_MS, 0);
        assert_eq!(times.now_ns + times.by_ns, times.at_ns + times.elapsed_ns);
        (times.now_ns, times.by_ns, times.elapsed_ns)
    }

    #[test]
    fn time_goes_on_and_never_back() {
        assert_eq!(times(5, 100, 107), (12, 0, 7));
        assert_eq!(times(5, 100, 100), (5, 0, 0));
        assert_eq!(times(5, 100, 0), (5, 0, 0), "the clock went back");
        assert_eq!(times(5, 0, MAX_START_NS - 5), (MAX_START_NS, 0, MAX_START_NS - 5));
        // One nanosecond more moves the origin by a whole millisecond.
        assert_eq!(
            times(5, 0, MAX_START_NS - 4),
            (MAX_START_NS + 1 - NS_PER_MS, NS_PER_MS, MAX_START_NS - 4)
        );
        let (now_ns, _, elapsed_ns) = times(MAX_NOW_NS, 0, u64::MAX);
        assert!(now_ns <= MAX_START_NS && elapsed_ns == MAX_NOW_NS);
        assert_eq!(times(0, 0, 0).0, 1, "no clock shows 0");
    }
}
