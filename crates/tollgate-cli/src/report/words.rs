//! Numbers, times and limits as the page writes them.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;
use tollgate::Limit;
use tollgate::limit::Parameters;

pub(crate) use crate::text::grouped as number;

/// The part of a whole, as `12.3 %`: one that is not 0 is not written as 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if percent < 0.1 { "< 0.1 %".into() } else { format!("{percent:.1} %") }
}

const UNITS_NS: [(u64, &str); 7] = [
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "\u{b5}s"),
    (1, "ns"),
];

/// `1 min 30 s`.
pub(crate) fn duration(ns: u64) -> String {
    let mut parts = Vec::new();
    let mut rest_ns = ns;
    for (unit_ns, unit) in UNITS_NS {
        let count = rest_ns / unit_ns;
        rest_ns %= unit_ns;
        if count > 0 {
            parts.push(format!("{count} {unit}"));
        }
    }
    if parts.is_empty() { "0 s".into() } else { parts.join(" ") }
}

/// When a bin begins, as precisely as bins of that width need it.
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

/// A mark on an axis whose marks are `step_ns` apart. Midnight shows its date.
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
    // All times of a replay, and of the bins around them, are ones that jiff can show.
    let at = Timestamp::from_nanosecond(at_ns).unwrap_or(Timestamp::MAX);
    strtime::format(format, Offset::UTC.to_datetime(at)).unwrap_or_else(|_| at.to_string())
}

/// The numbers of a limit as a sentence's part.
pub(crate) fn limit(limit: &Limit) -> String {
    let duration = |of: std::time::Duration| duration(of.as_nanos() as u64);
    match limit.parameters() {
        Parameters::Gcra { burst, count, period } => {
            format!("gcra: {burst} at once, {count} more every {}", duration(period))
        }
        Parameters::FixedWindow { limit, window } => {
            format!("fixed_window: {limit} in a window of {}", duration(window))
        }
        Parameters::TokenBucket { limit, window, burst } => {
            format!("token_bucket: {limit} in a window of {}, {burst} at once", duration(window))
        }
        Parameters::LeakyBucket { size, drip_rate, drip_size } => {
            format!(
                "leaky_bucket: room for {size}, {drip_size} drips out every {}",
                duration(drip_rate)
            )
        }
        _ => limit.algorithm().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_have_commas_shares_never_round_away() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(value), text);
        }
        for (part, text) in [(0, "0 %"), (1, "< 0.1 %"), (25, "0.2 %"), (10_000, "100.0 %")] {
            assert_eq!(percent(part, 10_000), text);
        }
        assert_eq!(percent(0, 0), "0 %");
    }

    #[test]
    fn durations_have_the_units_that_people_use() {
        for (ns, text) in [(0, "0 s"), (90_000_000_000, "1 min 30 s"), (1_500, "1 \u{b5}s 500 ns")]
        {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(duration(7 * 86_400_000_000_000), "7 d");
    }

    #[test]
    fn times_are_as_precise_as_they_must_be() {
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

    #[test]
    fn each_algorithm_has_its_words() {
        let s = Duration::from_secs;
        for (of, text) in [
            (Limit::new(20, 10, s(1)), "gcra: 20 at once, 10 more every 1 s"),
            (Limit::fixed_window(3, s(10)), "fixed_window: 3 in a window of 10 s"),
            (Limit::token_bucket(12, s(30), 2), "token_bucket: 12 in a window of 30 s, 2 at once"),
            (
                Limit::leaky_bucket(2, Duration::from_millis(1500), 1),
                "leaky_bucket: room for 2, 1 drips out every 1 s 500 ms",
            ),
        ] {
            assert_eq!(limit(&of.unwrap()), text);
        }
    }
}
