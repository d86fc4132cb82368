//! The end of an override, and its date as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// The part of messages that says which dates are allowed.
#[cfg(any(feature = "yaml", feature = "serde"))]
const ALLOWED: &str = "a date such as 2026-12-31, from 1970-01-01 to 9999-12-31, is allowed";

const YEARS: std::ops::RangeInclusive<u64> = 1970..=9999;

/// The second since the Unix epoch from which an override no longer applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Expiry(u64);

impl Expiry {
    pub(crate) const NEVER: Expiry = Expiry(u64::MAX);

    /// Returns the end at a time, without the fraction of its second. A time before the epoch becomes the epoch.
    pub(crate) fn at(time: SystemTime) -> Expiry {
        Expiry(seconds(time))
    }

    /// Returns the end of the day `YYYY-MM-DD`, in UTC. An error says which dates are allowed.
    #[cfg(any(feature = "yaml", feature = "serde"))]
    pub(crate) fn after_day(text: &str) -> Result<Expiry, &'static str> {
        let day = day_of(text).ok_or(ALLOWED)?;
        Ok(Expiry((day + 1) * SECONDS_A_DAY))
    }

    /// Whether the override has ended by `now_s`, in seconds since the epoch.
    #[inline]
    pub(crate) fn is_over(self, now_s: u64) -> bool {
        self.0 <= now_s
    }

    /// Returns the seconds that are left at `now_s`; 0 after the end.
    #[cfg(any(feature = "yaml", feature = "serde"))]
    pub(crate) fn left_s(self, now_s: u64) -> u64 {
        self.0.saturating_sub(now_s)
    }

    /// Returns the time; `None` if the override does not end.
    pub(crate) fn time(self) -> Option<SystemTime> {
        if self == Expiry::NEVER {
            return None;
        }
        UNIX_EPOCH.checked_add(Duration::from_secs(self.0))
    }
}

/// Shows the last day on which the override applies. If the end is not at midnight UTC, shows the day and the time of the end.
impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Expiry::NEVER {
            return f.write_str("never");
        }
        let (days, seconds) = (self.0 / SECONDS_A_DAY, self.0 % SECONDS_A_DAY);
        match days.checked_sub(1) {
            Some(last) if seconds == 0 => write_date(f, last),
            _ => {
                write_date(f, days)?;
                let (minutes, second) = (seconds / 60, seconds % 60);
                write!(f, "T{:02}:{:02}:{second:02}Z", minutes / 60, minutes % 60)
            }
        }
    }
}

/// Returns the whole seconds since the Unix epoch; 0 for a time before it.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the days from the epoch to the date `YYYY-MM-DD`, if that date exists.
#[cfg(any(feature = "yaml", feature = "serde"))]
fn day_of(text: &str) -> Option<u64> {
    let bytes: &[u8; 10] = text.as_bytes().try_into().ok()?;
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |number: u64, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
        })
    };
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(&bytes[..4])?, number(&bytes[5..7])?, number(&bytes[8..])?);
    let exists = YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day);
    exists.then(|| days_before(year) + days_before_month(year, month) + day - 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from the epoch to the first day of a year.
fn days_before(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let (first, years) = (*YEARS.start(), year - YEARS.start());
    years * 365 + leap_days(year - 1) - leap_days(first - 1)
}

#[cfg(any(feature = "yaml", feature = "serde"))]
fn days_before_month(year: u64, month: u64) -> u64 {
    (1..month).map(|before| days_in(year, before)).sum()
}

/// Writes the date `days` after the epoch; after the year 9999, the number of days.
fn write_date(f: &mut fmt::Formatter<'_>, days: u64) -> fmt::Result {
    if days >= days_before(YEARS.end() + 1) {
        return write!(f, "day {days}");
    }
    // No year has more than 366 days, so this guess is never too late.
    let mut year = YEARS.start() + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let mut day = days - days_before(year);
    let mut month = 1;
    while day >= days_in(year, month) {
        day -= days_in(year, month);
        month += 1;
    }
    write!(f, "{year:04}-{month:02}-{:02}", day + 1)
}

#[cfg(all(test, feature = "yaml"))]
mod tests {
    use super::*;
    #[cfg(not(tollgate_loom))]
    use crate::full_size::full_size;

    fn of(text: &str) -> Expiry {
        Expiry::after_day(text).expect(text)
    }

    #[test]
    fn override_applies_to_the_end_of_its_day() {
        let last = of("2026-12-31");
        // date -u -d '2027-01-01 00:00:00' +%s
        assert_eq!(last, Expiry(1_798_761_600));
        assert!(!last.is_over(1_798_761_599) && last.is_over(1_798_761_600));
        assert_eq!(of("1970-01-01"), Expiry(SECONDS_A_DAY));
        assert!(!Expiry::NEVER.is_over(u64::MAX - 1));
        assert_eq!(Expiry::NEVER.time(), None);
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for bad in [
            "",
            "2026",
            "2026-1-01",
            "2026-01-1",
            "2026-01-01 ",
            "2026/01/01",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2100-02-29",
            "2026-04-31",
            "2026-01-00",
            "1969-12-31",
            "+202-01-01",
            "20260101",
            "2026-01-01T00:00:00Z",
            "\u{661}026-1-01",
            "-026-01-01",
        ] {
            assert_eq!(Expiry::after_day(bad), Err(ALLOWED), "{bad:?}");
        }
        assert!(Expiry::after_day("2000-02-29").is_ok() && Expiry::after_day("2028-02-29").is_ok());
    }

    #[test]
    fn shown_as_last_day_or_time_of_day() {
        for text in ["1970-01-01", "1999-12-31", "2000-02-29", "2026-12-31", "9999-12-31"] {
            assert_eq!(of(text).to_string(), text);
        }
        let noon = UNIX_EPOCH + Duration::from_secs(SECONDS_A_DAY * 3 / 2 + 61);
        assert_eq!(Expiry::at(noon).to_string(), "1970-01-02T12:01:01Z");
        assert_eq!(Expiry::at(UNIX_EPOCH).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Expiry::at(UNIX_EPOCH - Duration::from_secs(9)), Expiry(0));
        assert_eq!(
            Expiry(u64::MAX - 1).to_string(),
            format!("day {}T07:00:14Z", u64::MAX / 86_400)
        );
        assert_eq!(Expiry::NEVER.to_string(), "never");
    }

    /// Compares every day with jiff's calendar, at full size until the year 9999.
    #[cfg(not(tollgate_loom))]
    #[test]
    fn every_day_is_jiffs() {
        let mut date = jiff::civil::date(1970, 1, 1);
        let last = full_size(jiff::civil::date(2400, 12, 31), jiff::civil::Date::MAX);
        for day in 0.. {
            let text = date.to_string();
            assert_eq!(day_of(&text), Some(day), "{text}");
            assert_eq!(of(&text).to_string(), text);
            if date == last {
                break;
            }
            date = date.tomorrow().unwrap();
        }
    }

    #[cfg(not(tollgate_loom))]
    mod beside_jiff {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn ten_characters_are_a_date_as_in_jiff(
                year in 0..=9999_u32, month in 0..=14_u32, day in 0..=33_u32,
            ) {
                let text = format!("{year:04}-{month:02}-{day:02}");
                let jiffs = text.parse::<jiff::civil::Date>().ok().filter(|_| year >= 1970);
                prop_assert_eq!(day_of(&text).is_some(), jiffs.is_some(), "{}", text);
            }
        }
    }
}
