//! Formats numbers and times for people.

use std::io;
use std::time::Duration;

use indicatif::HumanCount;
use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{SignedDuration, Timestamp};

/// Formats a count with its noun: `1 limit`, `2 limits`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Formats a count with its noun, and groups its digits: `1 line`, `1,234 lines`.
pub(crate) fn counted_grouped(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(count))
}

/// Groups the digits of a number: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a duration in whole numbers of Go's units, as limits files write it: `1h30m`.
pub(crate) fn span(time: Duration) -> String {
    const PRINTER: SpanPrinter =
        SpanPrinter::new().spacing(Spacing::None).designator(Designator::Compact);
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    PRINTER.duration_to_string(&time).replace('\u{b5}', "u")
}

/// Formats a wait in whole milliseconds, rounded up.
pub(crate) fn wait(time: Duration) -> String {
    let ms = time.as_nanos().div_ceil(1_000_000);
    span(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// Formats nanoseconds since the Unix epoch in UTC: `2015-05-17 10:05:03 UTC`, with a fraction if there is
/// one.
pub(crate) fn time(at_ns: u64) -> String {
    // jiff can format every `u64`: the latest is in the year 2554.
    let at = Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(Timestamp::MAX);
    let text = at.to_string().replacen('T', " ", 1);
    format!("{} UTC", text.trim_end_matches('Z'))
}

/// Formats the system's reason for a failure as the library does for files of limits: it begins with a small letter.
pub(crate) fn reason(error: &io::Error) -> String {
    // A failure that has no number of the system's has other words.
    if error.kind() == io::ErrorKind::IsADirectory {
        return "it is a directory".into();
    }
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(time(1_431_857_103_000_000_000), "2015-05-17 10:05:03 UTC");
        assert_eq!(time(1_500_000), "1970-01-01 00:00:00.0015 UTC");
        assert!(time(u64::MAX).starts_with("2554-07-21 "), "{}", time(u64::MAX));
    }

    #[test]
    fn counts_are_grouped_and_have_nouns() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(counted(1, "limit") + ", " + &counted(0, "limit"), "1 limit, 0 limits");
    }

    #[test]
    fn durations_are_gos_and_waits_round_up() {
        let ns = Duration::from_nanos;
        assert_eq!(span(ns(3_661_001_001_001)), "1h1m1s1ms1us1ns");
        assert_eq!(span(ns(5_400_000_000_000)), "1h30m");
        assert_eq!(span(Duration::ZERO), "0s");
        assert_eq!(wait(ns(1)), "1ms");
        assert_eq!(wait(ns(17_999_000_001)), "18s");
        assert_eq!(wait(Duration::ZERO), "0s");
    }
}
