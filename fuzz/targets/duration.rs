//! Parses a duration as the period of a limit, and compares it with a second parser of Go's notation in big integers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Limits;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Only text that YAML takes literally between double quotes.
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\') {
        return;
    }
    let yaml = format!("PerUser: {{burst: 1, count: 1, period: \"{text}\", id: string}}");
    let read = Limits::from_yaml(&yaml).map(|limits| {
        let limit = limits.limit_for("PerUser", "x").expect("a string").expect("declared");
        limit.period().as_nanos()
    });
    // A period is from 1 ns to 2^62 ns, because one unit takes the whole period.
    let expected = nanoseconds(text).filter(|ns| (1..=1 << 62).contains(ns));
    match (&read, expected) {
        (Ok(ns), Some(expected)) => assert_eq!(*ns, expected, "{text:?}"),
        (Ok(ns), None) => panic!("{text:?} was read as {ns} ns"),
        (Err(error), Some(expected)) => panic!("{text:?} is {expected} ns: {error}"),
        (Err(error), None) => assert!(error.is_invalid_config(), "{error:?}"),
    }
});

/// Parses the text to nanoseconds, each term rounded down. `None` if it is no duration, is negative, or is above Go's
/// 2^63 - 1 ns.
fn nanoseconds(text: &str) -> Option<u128> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u128;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let whole = &rest[..rest.len() - after.len()];
        let (fraction, after) = match after.strip_prefix('.') {
            Some(dotted) => {
                let after = dotted.trim_start_matches(|c: char| c.is_ascii_digit());
                (&dotted[..dotted.len() - after.len()], after)
            }
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let next = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let unit_ns: u128 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole = whole.trim_start_matches('0');
        if whole.len() > 19 {
            return None;
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole * unit_ns + fraction_of(fraction, unit_ns))?;
        if total > i64::MAX as u128 {
            return None;
        }
        rest = after;
    }
    (!negative || total == 0).then_some(total)
}

/// Computes `0.fraction` times the unit, rounded down, by long multiplication of all its digits.
fn fraction_of(fraction: &str, unit_ns: u128) -> u128 {
    // From the last digit to the first; the carry beyond the point is the result.
    fraction.bytes().rev().fold(0, |carry, digit| (carry + u128::from(digit - b'0') * unit_ns) / 10)
}
