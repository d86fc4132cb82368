//! The text of a bucket in the store, and the word that the rules of this program compute with.
//!
//! ```text
//! text     = bucket [ "|" until { "|" end "|" units } ]
//! bucket   = ""                      a bucket that was never charged
//!          | digits                  gcra: the theoretical arrival time, in ns since 1970
//!          | digits ":" digits [ ":" digits ]
//!                                   the other algorithms: the time in ms since 1970, and the units; of a leaky bucket also the
//!                                   ms in which it fills from empty by the slowest factor of its calls
//! until    = digits                  the end of the id's block, in ms since 1970; 0 if it has none
//! end      = digits                  gcra: the end of leases, in ms since 1970: at most two of them, the earlier one first
//! units    = digits                  the units of the leases that end then
//! ```
//!
//! A number has no sign, no blank and no needless zero. Boulder writes its times in the same decimal form, so a text without
//! a block and leases can be read by both. The node's words count from 2020, because a word has only 39 bits of milliseconds: they last
//! until 2037.

use crate::algorithm::timed_count::{MAX_COUNT, MAX_MS, NS_PER_MS, TimedCount};
use crate::clock::MAX_NOW_NS;
use crate::limit::Limit;
use crate::shared::protocol::groups::{LeaseGroup, LeaseGroups};
use crate::util::escape::Escaped;

/// 2020-01-01, the origin of the words of shared limits, in ms since 1970.
pub(crate) const ORIGIN_MS: u64 = 1_577_836_800_000;
pub(crate) const ORIGIN_NS: u64 = ORIGIN_MS * NS_PER_MS;
/// The last ms of the words' time, in ms since 1970.
pub(crate) const LAST_UNIX_MS: u64 = ORIGIN_MS + MAX_MS - 1;

/// The longest time for which a store keeps a text, about 146 years.
pub(crate) const MAX_KEPT_MS: u64 = (1 << 62) / NS_PER_MS;

/// A bucket as the store has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedBucket {
    /// The word for the rules of this program; 0 if the bucket was never charged.
    pub(crate) word: u64,
    /// The end of the id's block, in ms since 1970; 0 if it has none.
    pub(crate) blocked_until_ms: u64,
    /// The units that nodes hold.
    pub(crate) leases: LeaseGroups,
    /// The ms in which the bucket fills from empty by the slowest factor of its calls, on any node; 0 for gcra, and for a window
    /// without calls by a factor above 1.
    pub(crate) fills_in_ms: u64,
}

/// Returns the time for the rules: ns since 2020, from 1.
pub(crate) fn rule_time_ns(unix_ns: u64) -> u64 {
    unix_ns.saturating_sub(ORIGIN_NS).saturating_add(1).min(MAX_NOW_NS)
}

/// Returns the ms since 1970 that has not ended before `unix_ns`.
pub(crate) fn unix_ms(unix_ns: u64) -> u64 {
    unix_ns / NS_PER_MS
}

/// Returns the ms since 1970 of a ms in a word.
pub(crate) fn start_unix_ms(word_ms: u64) -> u64 {
    word_ms + (ORIGIN_MS - 1)
}

/// Returns the theoretical arrival time of a word, in ns since 1970.
pub(crate) fn tat_unix_ns(word: u64) -> u64 {
    // At most 2^63 - 1 and less than 2^61.
    word + (ORIGIN_NS - 1)
}

impl SharedBucket {
    /// Reads the text of a bucket of `limit`. The error says what is wrong with the text.
    pub(crate) fn read(limit: &Limit, text: Option<&[u8]>) -> Result<SharedBucket, String> {
        let Some(text) = text else { return Ok(SharedBucket::default()) };
        let is_gcra = limit.rule().gcra().is_some();
        let parts = || {
            let (bucket, beside) = split_at(text, b'|');
            let (until, leases) = beside.map_or(Some((0, LeaseGroups::default())), read_beside)?;
            let (word, fills_in_ms) = match (bucket, is_gcra) {
                (b"", _) if until > 0 && leases.units() == 0 => (0, 0),
                (tat, true) => (word_of_tat(number(tat)?)?, 0),
                (timed, false) => {
                    let (at_ms, count) = split_at(timed, b':');
                    let (count, fills) = split_at(count?, b':');
                    let fills_in_ms = fills.map_or(Some(0), fill_time)?;
                    (word_of_count(number(at_ms)?, number(count)?)?, fills_in_ms)
                }
            };
            // Only limits of gcra have leases.
            (is_gcra || leases.units() == 0).then_some(SharedBucket {
                word,
                blocked_until_ms: until,
                leases,
                fills_in_ms,
            })
        };
        parts().ok_or_else(|| {
            let wanted = match is_gcra {
                true => "a time in ns since 1970",
                false => "a time in ms since 1970, a colon and a count of units",
            };
            let shown = String::from_utf8_lossy(&text[..text.len().min(64)]);
            format!("found \"{}\", where {wanted} is expected", Escaped(&shown))
        })
    }

    /// Returns the text of a bucket of `limit`.
    pub(crate) fn text(self, limit: &Limit) -> String {
        let bucket = match self.word {
            0 => String::new(),
            tat if limit.rule().gcra().is_some() => tat_unix_ns(tat).to_string(),
            word => {
                let TimedCount { at_ms, count } = TimedCount::from_word(word);
                let timed = format!("{}:{count}", start_unix_ms(at_ms));
                match self.fills_in_ms {
                    0 => timed,
                    fills_in_ms => format!("{timed}:{fills_in_ms}"),
                }
            }
        };
        let until_ms = self.blocked_until_ms;
        match until_ms == 0 && self.leases.units() == 0 {
            true => bucket,
            false => self.leases.iter().fold(format!("{bucket}|{until_ms}"), |text, group| {
                format!("{text}|{}|{}", group.until_ms, group.units)
            }),
        }
    }

    /// Returns the bucket with the time in which it fills for a call. The store keeps its text as long after each later call.
    pub(crate) fn with_fill_time(self, limit: &Limit, fills_in_ms: u64) -> SharedBucket {
        if limit.rule().gcra().is_some() {
            return self;
        }
        let fills_in_ms = self.fills_in_ms.max(fills_in_ms.min(MAX_KEPT_MS));
        SharedBucket { fills_in_ms, ..self }
    }

    /// Returns the ns until the block ends; `None` if the id is not blocked at this time.
    pub(crate) fn blocked_ns(self, unix_ns: u64) -> Option<u64> {
        let until_ns = self.blocked_until_ms.saturating_mul(NS_PER_MS);
        until_ns.checked_sub(unix_ns).filter(|&left_ns| left_ns > 0)
    }
}

/// Reads the parts beside the bucket: the end of the block, and the leases.
fn read_beside(text: &[u8]) -> Option<(u64, LeaseGroups)> {
    let mut numbers = text.split(|&byte| byte == b'|').map(number);
    let until = numbers.next()??;
    let mut groups = [LeaseGroup::default(); 2];
    let mut groups_left = groups.iter_mut();
    while let Some(until_ms) = numbers.next() {
        let until_ms = until_ms.filter(|ms| (ORIGIN_MS..=LAST_UNIX_MS).contains(ms))?;
        *groups_left.next()? = LeaseGroup { until_ms, units: numbers.next()?? };
    }
    LeaseGroups::new(groups).map(|leases| (until, leases))
}

/// Reads the time in which a bucket fills.
fn fill_time(text: &[u8]) -> Option<u64> {
    number(text).filter(|fills_in_ms| (1..=MAX_KEPT_MS).contains(fills_in_ms))
}

/// Splits a text at the first `mark`.
fn split_at(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    let at = text.iter().position(|&byte| byte == mark);
    at.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])))
}

/// Reads a number without sign, blank or needless zero.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let (&first, others) = digits.split_first()?;
    if first == b'0' && !others.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// A bucket that was full in 2020 is full.
fn word_of_tat(tat_unix_ns: u64) -> Option<u64> {
    /// The bit of a word that belongs to the local table.
    const TABLE_BIT: u64 = 1 << 63;
    let word = (tat_unix_ns.saturating_sub(ORIGIN_NS)).saturating_add(1);
    (word < TABLE_BIT).then_some(word)
}

fn word_of_count(at_unix_ms: u64, count: u64) -> Option<u64> {
    let at_ms = at_unix_ms.saturating_sub(ORIGIN_MS).saturating_add(1);
    (at_ms <= MAX_MS && count <= MAX_COUNT).then(|| TimedCount { at_ms, count }.word())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn gcra() -> Limit {
        Limit::new(20, 10, Duration::from_secs(1)).unwrap()
    }

    fn window() -> Limit {
        Limit::fixed_window(20, Duration::from_secs(1)).unwrap()
    }

    fn leaky() -> Limit {
        Limit::leaky_bucket(20, 1, Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn words_of_known_texts() {
        let read = |limit: &Limit, text: &str| SharedBucket::read(limit, Some(text.as_bytes()));
        let bucket = |word, blocked_until_ms| {
            Ok(SharedBucket { word, blocked_until_ms, ..SharedBucket::default() })
        };
        assert_eq!(read(&gcra(), "1577836800000000000"), bucket(1, 0));
        assert_eq!(read(&gcra(), "1790000000000000007"), bucket(212_163_200_000_000_008, 0));
        assert_eq!(read(&gcra(), "12"), bucket(1, 0), "full long ago");
        assert_eq!(
            read(&gcra(), "1577836800000000041|1790000000001"),
            bucket(42, 1_790_000_000_001)
        );
        assert_eq!(read(&gcra(), "|1790000000001"), bucket(0, 1_790_000_000_001));
        assert_eq!(read(&window(), "1577836800004:3"), bucket((5 << 24) | 3, 0));
        assert_eq!(read(&leaky(), "1577836800004:3"), bucket((5 << 24) | 3, 0));
        let filling = bucket((5 << 24) | 3, 0).map(|it| SharedBucket { fills_in_ms: 20_001, ..it });
        for limit in [window(), leaky()] {
            assert_eq!(read(&limit, "1577836800004:3:20001"), filling);
        }
        assert_eq!(SharedBucket::read(&gcra(), None), bucket(0, 0));
    }

    #[test]
    fn other_texts_are_refused_with_what_is_expected() {
        for text in [
            "",
            "|",
            "|0",
            "x",
            "-1",
            "+1",
            " 1",
            "1 ",
            "01",
            "1.5",
            "1e9",
            "0x10",
            "1|",
            "1|2|3",
            "1:2",
            "1~2:3:4:5:6:7:8",
            "99999999999999999999",
        ] {
            assert!(SharedBucket::read(&gcra(), Some(text.as_bytes())).is_err(), "{text:?}");
        }
        for text in
            ["", "1", "1:", ":1", "1:2:3:4", "1577836800004:16777216", "9577836800004:1", "1:-1"]
        {
            assert!(SharedBucket::read(&window(), Some(text.as_bytes())).is_err(), "{text:?}");
        }
        for text in ["1:2:0", "1:2:", "1:2:03", "1:2:4611686018428", "1:2:3:4", "1::3"] {
            assert!(SharedBucket::read(&leaky(), Some(text.as_bytes())).is_err(), "{text:?}");
        }
        let error = SharedBucket::read(&gcra(), Some(b"a\xff\x1b\n")).unwrap_err();
        assert_eq!(
            error,
            "found \"a\u{fffd}\\u{1b}\\n\", where a time in ns since 1970 is expected"
        );
    }

    proptest! {
        #[test]
        fn texts_and_words_agree(word in 1..1u64 << 62, until in 0..4_000_000_000_000u64) {
            for limit in [gcra(), window(), leaky()] {
                let (word, leases) = (word | 1 << 24, LeaseGroups::default());
                let bucket =
                    SharedBucket { word, blocked_until_ms: until, leases, fills_in_ms: 0 };
                let bucket = bucket.with_fill_time(&limit, until);
                let text = bucket.text(&limit);
                prop_assert_eq!(SharedBucket::read(&limit, Some(text.as_bytes())), Ok(bucket));
            }
        }
    }
}
