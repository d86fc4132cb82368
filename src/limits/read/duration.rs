//! Parses Go's duration text, such as `180m` or `1h30m`, in exact integers.

use crate::limits::shown;

/// The part of messages that says which text is allowed.
const ALLOWED: &str = "a duration such as 60s, 180m or 1h30m is allowed (ns, us, ms, s, m, h)";

/// The longest duration: Go's, 2^63 - 1 ns, 292 years.
const MAX_NS: u64 = i64::MAX as u64;

/// Returns the nanoseconds that Go's `time.ParseDuration` reads in `text`. An error says what is wrong with it.
///
/// Each component with a fraction is cut to whole nanoseconds, exactly. (Go multiplies a fraction in floating point:
/// `0.3333333333333333333h` is a nanosecond longer there.) A negative duration or one above 2^63 - 1 ns is refused.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let refuse = |reason: String| Err(format!("{}: {reason}", shown(text)));
    let (is_negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return refuse(ALLOWED.into());
    }
    let mut total_ns = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return refuse(ALLOWED.into());
        }
        // The unit is all text up to the next number.
        let is_number = |c: char| c == '.' || c.is_ascii_digit();
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return refuse(format!("missing unit; {ALLOWED}"));
        }
        let Some(unit_ns) = unit_ns(unit) else {
            return refuse(format!("unknown unit {}; {ALLOWED}", shown(unit)));
        };
        let sum = times(whole, fraction, unit_ns).and_then(|ns| total_ns.checked_add(ns));
        match sum.filter(|&ns| ns <= MAX_NS) {
            Some(ns) => total_ns = ns,
            None => return refuse("at most 2^63 - 1 ns, about 2562047h, is allowed".into()),
        }
        rest = after;
    }
    if is_negative && total_ns > 0 {
        return refuse("negative; more than 0s is allowed".into());
    }
    Ok(total_ns)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns `whole.fraction` times a unit, rounded down; `None` above u64.
fn times(whole: &str, fraction: &str, unit_ns: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // From the last digit to the first, each step adds `digit * unit` and divides by 10. Rounding down at each step
    // gives the same result as rounding down once.
    let fraction_ns = fraction
        .bytes()
        .rev()
        .fold(0, |ns: u64, digit| (ns + u64::from(digit - b'0') * unit_ns) / 10);
    whole.checked_mul(unit_ns)?.checked_add(fraction_ns)
}

/// Returns the nanoseconds of a unit.
fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 and U+03BC are Unicode's two letters for micro.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_go_reads() {
        let table: &[(&str, u64)] = &[
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("1ns", 1),
            ("5us", 5_000),
            ("5\u{b5}s", 5_000),
            ("5\u{3bc}s", 5_000),
            ("250ms", 250_000_000),
            ("1s", 1_000_000_000),
            ("+5s", 5_000_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("5.600s", 5_600_000_000),
            ("180m", 10_800_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("2160h", 7_776_000_000_000_000),
            ("0.9ns", 0),
            ("0.9ns0.9ns", 0),
            ("1.9999999999s", 1_999_999_999),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("0.3333333333333333333333333h", 1_199_999_999_999),
            ("0.3333333333333333333333334h", 1_200_000_000_000),
            ("0.00000000000027777777777777777777777777777h", 0),
            ("0.00000000000027777777777777777777777777778h", 1),
            ("0.100000000000000000000h", 360_000_000_000),
            ("0.830103483285477580700h", 2_988_372_539_827),
            ("9223372036854775807ns", i64::MAX as u64),
            ("9223372036854775.807us", i64::MAX as u64),
            ("9223372036s854ms775us807ns", i64::MAX as u64),
            ("0000000000000000000000000000001s", 1_000_000_000),
        ];
        for (text, ns) in table {
            assert_eq!(parse(text), Ok(*ns), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let allowed = ALLOWED;
        let long = "at most 2^63 - 1 ns, about 2562047h, is allowed";
        let table = [
            ("", format!("\"\": {allowed}")),
            ("-", format!("\"-\": {allowed}")),
            ("s", format!("\"s\": {allowed}")),
            (".", format!("\".\": {allowed}")),
            ("-.", format!("\"-.\": {allowed}")),
            (".s", format!("\".s\": {allowed}")),
            (" 1s", format!("\" 1s\": {allowed}")),
            ("--1s", format!("\"--1s\": {allowed}")),
            ("60", format!("\"60\": missing unit; {allowed}")),
            ("1h30", format!("\"1h30\": missing unit; {allowed}")),
            ("1.2.3s", format!("\"1.2.3s\": missing unit; {allowed}")),
            ("1d", format!("\"1d\": unknown unit \"d\"; {allowed}")),
            ("1H", format!("\"1H\": unknown unit \"H\"; {allowed}")),
            ("1 s", format!("\"1 s\": unknown unit \" s\"; {allowed}")),
            ("1s ", format!("\"1s \": unknown unit \"s \"; {allowed}")),
            ("1e3s", format!("\"1e3s\": unknown unit \"e\"; {allowed}")),
            ("-1s", "\"-1s\": negative; more than 0s is allowed".into()),
            ("9223372036854775808ns", format!("\"9223372036854775808ns\": {long}")),
            ("99999999999999999999999h", format!("\"99999999999999999999999h\": {long}")),
            ("2562047h48m", format!("\"2562047h48m\": {long}")),
        ];
        for (text, message) in table {
            assert_eq!(parse(text), Err(message), "{text}");
        }
    }

    /// Computes each component as one fraction, in u128.
    fn naive(parts: &[(u64, Option<u64>, u64)]) -> Option<u64> {
        let mut sum = 0_u128;
        for (whole, fraction, unit_ns) in parts {
            let shown = fraction.map(|fraction| fraction.to_string()).unwrap_or_default();
            let scale = 10_u128.pow(shown.len() as u32);
            let all = u128::from(*whole) * scale + u128::from(fraction.unwrap_or(0));
            sum += all * u128::from(*unit_ns) / scale;
        }
        u64::try_from(sum).ok().filter(|&ns| ns <= i64::MAX as u64)
    }

    const UNITS: [(&str, u64); 6] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];

    proptest! {
        #[test]
        fn agrees_with_a_naive_oracle(
            parts in prop::collection::vec(
                (
                    prop_oneof![0..100_u64, 0..=1_u64 << 40],
                    prop::option::of(prop_oneof![0..1000_u64, 0..=1_u64 << 40]),
                    0..UNITS.len(),
                ),
                1..5,
            ),
        ) {
            let mut text = String::new();
            for (whole, fraction, unit) in &parts {
                text.push_str(&whole.to_string());
                if let Some(fraction) = fraction {
                    text.push('.');
                    text.push_str(&fraction.to_string());
                }
                text.push_str(UNITS[*unit].0);
            }
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(whole, fraction, unit)| (whole, fraction, UNITS[unit].1))
                .collect();
            prop_assert_eq!(parse(&text).ok(), naive(&parts), "{}", text);
        }

        #[test]
        fn agrees_on_a_fraction_of_any_length(digits in "[0-9]{20,25}", unit in 0..UNITS.len()) {
            // 25 digits times an hour in ns are below 2^128.
            let (name, unit_ns) = UNITS[unit];
            let numerator: u128 = digits.parse().expect("digits");
            let exact = numerator * u128::from(unit_ns) / 10_u128.pow(digits.len() as u32);
            let text = format!("0.{digits}{name}");
            prop_assert_eq!(parse(&text).map(u128::from), Ok(exact), "{}", text);
        }

        #[test]
        fn never_panics(text in "\\PC{0,20}", digits in "[-+.0-9a-z\u{b5}]{0,40}") {
            let _ = parse(&text);
            let _ = parse(&digits);
        }
    }
}
