//! Formats shares and times for the page.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;

/// Formats a share as `12.3 %`. Only a share of 0 is written as `0 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if percent < 0.1 { "< 0.1 %".into() } else { format!("{percent:.1} %") }
}

/// Formats the start of a bin with the precision that its width needs.
pub(crate) fn bin_start(at_ns: i128, width_ns: u64) -> String {
    let format = match width_ns {
        86_400_000_000_000.. => "%Y-%m-%d",
        60_000_000_000.. => "%Y-%m-%d %H:%M",
        1_000_000_000.. => "%Y-%m-%d %H:%M:%S",
        1_000_000.. => "%Y-%m-%d %H:%M:%S%.3f",
        _ => "%Y-%m-%d %H:%M:%S%.6f",
    };
    formatted(at_ns, format)
}

/// Formats a mark on an axis with marks every `step_ns`. At midnight this is the date.
pub(crate) fn tick(at_ns: i128, step_ns: u64) -> String {
    let since_second_ns = at_ns.rem_euclid(1_000_000_000);
    if since_second_ns != 0 {
        let format = if step_ns >= 1_000_000 { "%S%.3f s" } else { "%S%.6f s" };
        return formatted(at_ns, format);
    }
    let is_midnight = at_ns.rem_euclid(86_400_000_000_000) == 0;
    let format = match step_ns {
        15_552_000_000_000_000.. => "%b %Y",
        _ if is_midnight => "%-d %b",
        60_000_000_000.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    formatted(at_ns, format)
}

fn formatted(at_ns: i128, format: &str) -> String {
    // jiff can format all times of a replay, and of the bins around them.
    let at = Timestamp::from_nanosecond(at_ns).unwrap_or(Timestamp::MAX);
    strtime::format(format, Offset::UTC.to_datetime(at)).unwrap_or_else(|_| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_are_not_rounded_to_zero() {
        for (part, text) in [(0, "0 %"), (1, "< 0.1 %"), (25, "0.2 %"), (10_000, "100.0 %")] {
            assert_eq!(percent(part, 10_000), text);
        }
        assert_eq!(percent(0, 0), "0 %");
    }

    #[test]
    fn precision_of_times_follows_the_width() {
        let at_ns = 1_431_857_103_250_000_000; // 2015-05-17 10:05:03.25 UTC
        let s = 1_000_000_000;
        for (width_ns, text) in [
            (86_400 * s, "2015-05-17"),
            (60 * s, "2015-05-17 10:05"),
            (s, "2015-05-17 10:05:03"),
            (50_000_000, "2015-05-17 10:05:03.250"),
            (1_000, "2015-05-17 10:05:03.250000"),
        ] {
            assert_eq!(bin_start(at_ns, width_ns), text);
        }
        assert_eq!(bin_start(-86_400_000_000_000, 86_400 * s), "1969-12-31");
        let midnight_ns = 1_431_820_800_000_000_000;
        for (at_ns, step_ns, text) in [
            (at_ns, 50_000_000, "03.250 s"),
            (midnight_ns, 3_600 * s, "17 May"),
            (midnight_ns + 36_000_000_000_000, 3_600 * s, "10:00"),
            (midnight_ns + 1_000_000_000, s, "00:00:01"),
            (midnight_ns, 365 * 86_400 * s, "May 2015"),
        ] {
            assert_eq!(tick(at_ns, step_ns), text);
        }
    }
}
