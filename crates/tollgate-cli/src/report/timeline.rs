//! Counts events over a time of unknown length in a bounded number of bins.

use crate::tally::grown;

/// The counts of one row in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) newly_denied: u64,
    pub(crate) newly_allowed: u64,
}

/// Rows of bins that begin at the same round times. If there are too many bins, they become wider.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The index of the bins' width in [`WIDTHS_NS`].
    width: usize,
    /// The number of the first bin, counted from [`MONDAY_NS`]; `None` before the first time.
    first: Option<i64>,
    /// The bin of the latest time, counted from the first, and the times in that bin.
    latest: usize,
    latest_ns: std::ops::Range<i128>,
    /// Each row ends with its last bin that is not empty.
    rows: Vec<Vec<Bin>>,
}

/// As many bins as fit on the width of a phone.
pub(crate) const MAX_BINS: usize = 120;

pub(super) const S: u64 = 1_000_000_000;
pub(super) const DAY: u64 = 86_400 * S;

#[rustfmt::skip]
/// The widths of bins. Each divides the next, so that bins can be joined.
const WIDTHS_NS: [u64; 29] = [
    1_000, 5_000, 10_000, 50_000, 100_000, 500_000,
    1_000_000, 5_000_000, 10_000_000, 50_000_000, 100_000_000, 500_000_000,
    S, 5 * S, 10 * S, 30 * S,
    60 * S, 300 * S, 600 * S, 1_800 * S,
    3_600 * S, 10_800 * S, 21_600 * S, 43_200 * S,
    DAY, 7 * DAY, 28 * DAY, 140 * DAY, 700 * DAY,
];

/// The first Monday since the Unix epoch, at which a bin of each width begins.
pub(crate) const MONDAY_NS: i128 = 4 * DAY as i128;

/// The index of a second in [`WIDTHS_NS`].
const SECOND: usize = 12;

impl Timeline {
    /// Creates a timeline for times in nanoseconds.
    pub(crate) fn of_nanoseconds() -> Timeline {
        Timeline { width: 0, first: None, latest: 0, latest_ns: 0..0, rows: Vec::new() }
    }

    /// Creates a timeline for times in whole seconds, with bins of at least one second.
    pub(crate) fn of_seconds() -> Timeline {
        Timeline { width: SECOND, ..Timeline::of_nanoseconds() }
    }

    /// Moves to a time. Times do not decrease.
    #[inline]
    pub(crate) fn move_to(&mut self, at_ns: u64) {
        if !self.latest_ns.contains(&i128::from(at_ns)) {
            self.enter(i128::from(at_ns));
        }
    }

    /// Returns the bin of the latest time.
    pub(crate) fn bin(&mut self, row: usize) -> &mut Bin {
        grown(grown(&mut self.rows, row), self.latest)
    }

    /// Returns the number of bins up to that of the latest time.
    pub(crate) fn bins(&self) -> usize {
        self.first.map_or(0, |_| self.latest + 1)
    }

    pub(crate) fn width_ns(&self) -> u64 {
        WIDTHS_NS[self.width]
    }

    /// Returns the start of a bin, since the Unix epoch. The first bin may begin before the epoch.
    pub(crate) fn start_ns(&self, bin: usize) -> i128 {
        let number = i128::from(self.first.unwrap_or_default()) + bin as i128;
        MONDAY_NS + number * i128::from(self.width_ns())
    }

    /// Returns all bins of a row.
    pub(crate) fn row(&self, row: usize) -> Vec<Bin> {
        let mut bins = self.rows.get(row).cloned().unwrap_or_default();
        bins.resize(self.bins(), Bin::default());
        bins
    }

    fn enter(&mut self, at_ns: i128) {
        loop {
            let width_ns = i128::from(self.width_ns());
            // The number is at most 2^64 / 1000.
            let number = (at_ns - MONDAY_NS).div_euclid(width_ns) as i64;
            let first = *self.first.get_or_insert(number);
            let latest = (number - first) as usize;
            if latest < MAX_BINS || self.width + 1 == WIDTHS_NS.len() {
                self.latest = latest;
                let start_ns = self.start_ns(latest);
                self.latest_ns = start_ns..start_ns + width_ns;
                return;
            }
            self.widen();
        }
    }

    /// Joins the bins to bins of the next width.
    fn widen(&mut self) {
        let before = self.width_ns();
        self.width += 1;
        let factor = (self.width_ns() / before) as i64;
        let Some(first) = self.first else { return };
        let joined_first = first.div_euclid(factor);
        self.first = Some(joined_first);
        for row in &mut self.rows {
            let mut joined: Vec<Bin> = Vec::new();
            for (number, bin) in (first..).zip(row.drain(..)) {
                let at = (number.div_euclid(factor) - joined_first) as usize;
                joined.resize(at + 1, Bin::default());
                joined[at].allowed += bin.allowed;
                joined[at].denied += bin.denied;
                joined[at].newly_denied += bin.newly_denied;
                joined[at].newly_allowed += bin.newly_allowed;
            }
            *row = joined;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_width_divides_the_next() {
        for pair in WIDTHS_NS.windows(2) {
            assert_eq!(pair[1] % pair[0], 0, "{pair:?}");
        }
        for width_ns in WIDTHS_NS.iter().filter(|width_ns| **width_ns <= DAY) {
            assert_eq!(MONDAY_NS % i128::from(*width_ns), 0, "{width_ns}");
        }
        assert_eq!(jiff::Timestamp::UNIX_EPOCH.to_string(), "1970-01-01T00:00:00Z");
        let monday = jiff::Timestamp::from_nanosecond(MONDAY_NS).unwrap();
        let date = jiff::tz::Offset::UTC.to_datetime(monday).date();
        assert_eq!(date.weekday(), jiff::civil::Weekday::Monday);
    }

    #[test]
    fn an_hour_has_bins_of_half_minutes() {
        let mut timeline = Timeline::of_seconds();
        let start_s = 1_431_857_103; // 2015-05-17 10:05:03 UTC
        for second in 0..3590 {
            timeline.move_to((start_s + second) * S);
            timeline.bin(0).allowed += 1;
            if second == 1 {
                assert_eq!((timeline.width_ns(), timeline.bins()), (S, 2));
            }
        }
        assert_eq!(timeline.width_ns(), 30 * S);
        assert_eq!(timeline.start_ns(0), i128::from(1_431_857_100 * S));
        let bins: Vec<u64> = timeline.row(0).iter().map(|bin| bin.allowed).collect();
        assert_eq!((bins.len(), bins[0], bins[1], bins[119]), (120, 27, 30, 23));
    }

    #[test]
    fn extreme_times_have_bins() {
        let mut timeline = Timeline::of_nanoseconds();
        for at_ns in [0, 1, 3 * DAY, u64::MAX] {
            timeline.move_to(at_ns);
            timeline.bin(2).denied += 1;
        }
        assert!(timeline.start_ns(0) <= 0, "{timeline:?}");
        assert!(timeline.bins() > MAX_BINS, "the widest bins do not suffice: {}", timeline.bins());
        assert_eq!(timeline.row(2).iter().map(|bin| bin.denied).sum::<u64>(), 4);
        assert_eq!(timeline.row(0).len(), timeline.bins());
        assert_eq!(timeline.row(9).len(), timeline.bins());
    }

    proptest! {
        #[test]
        fn bins_agree_with_a_map(
            steps in proptest::collection::vec((0_u64..4, 0_u32..16), 1..300),
            start_ns in 0_u64..1 << 60,
        ) {
            let mut timeline = Timeline::of_nanoseconds();
            let mut times = Vec::new();
            let mut at_ns = start_ns;
            for (step, magnitude) in steps {
                at_ns += step * 7_u64.pow(magnitude) * 1000;
                times.push(at_ns);
                timeline.move_to(at_ns);
                timeline.bin(1).denied += 1;
            }
            prop_assert!(timeline.bins() <= MAX_BINS, "{}", timeline.bins());
            let width_ns = i128::from(timeline.width_ns());
            let mut expected: BTreeMap<i128, u64> = BTreeMap::new();
            for at_ns in times {
                let since_ns = i128::from(at_ns) - MONDAY_NS;
                *expected.entry(at_ns as i128 - since_ns.rem_euclid(width_ns)).or_default() += 1;
            }
            let counted = timeline.row(1).into_iter().enumerate().filter(|(_, bin)| bin.denied > 0);
            let counted: BTreeMap<i128, u64> =
                counted.map(|(i, bin)| (timeline.start_ns(i), bin.denied)).collect();
            prop_assert_eq!(counted, expected);
        }
    }
}
