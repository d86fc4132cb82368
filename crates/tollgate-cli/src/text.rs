//! Text for people.

use std::time::Duration;

use jiff::Timestamp;

pub(crate) use crate::escape::{Escaped, quoted, shortened};

/// `1 limit`, `2 limits`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in whole numbers of Go's units, as the files have it: `1h30m`.
pub(crate) fn span(time: Duration) -> String {
    const UNITS_NS: [(&str, u128); 6] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut text = String::new();
    let mut left_ns = time.as_nanos();
    for (unit, unit_ns) in UNITS_NS {
        if left_ns >= unit_ns {
            text += &format!("{}{unit}", left_ns / unit_ns);
        }
        left_ns %= unit_ns;
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// A time that somebody waits for: in whole milliseconds, and never too short.
pub(crate) fn wait(time: Duration) -> String {
    let ms = time.as_nanos().div_ceil(1_000_000);
    span(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// A time since the Unix epoch, in UTC: `2015-05-17 10:05:03 UTC`, with a fraction if it has one.
pub(crate) fn time(at_ns: u64) -> String {
    // Every `u64` is a time before 2555, which jiff can show.
    let at = Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(Timestamp::MAX);
    let text = at.to_string().replacen('T', " ", 1);
    format!("{} UTC", text.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_greenwich() {
        assert_eq!(time(1_431_857_103_000_000_000), "2015-05-17 10:05:03 UTC");
        assert_eq!(time(1_500_000), "1970-01-01 00:00:00.0015 UTC");
        assert!(time(u64::MAX).starts_with("2554-07-21 "), "{}", time(u64::MAX));
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn times_follow_go_and_waits_round_up() {
        let ns = Duration::from_nanos;
        assert_eq!(span(ns(3_661_001_001_001)), "1h1m1s1ms1us1ns");
        assert_eq!(span(ns(5_400_000_000_000)), "1h30m");
        assert_eq!(span(Duration::ZERO), "0s");
        assert_eq!(wait(ns(1)), "1ms");
        assert_eq!(wait(ns(17_999_000_001)), "18s");
        assert_eq!(wait(Duration::ZERO), "0s");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            (counted(1, "limit"), counted(0, "limit")),
            ("1 limit".into(), "0 limits".into())
        );
    }
}
