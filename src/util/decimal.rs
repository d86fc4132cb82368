//! Decimals with at most six digits after the point, taken exactly: factors, and Sharkey's numbers.

/// A decimal as its millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Decimal {
    pub(crate) millionths: u64,
}

/// The millionths of one.
pub(crate) const ONE: u64 = 1_000_000;

/// The digits after the point.
const PLACES: usize = 6;

const ALLOWED: &str = "a decimal with at most six digits after the point is allowed";

impl Decimal {
    pub(crate) const ONE: Decimal = Decimal { millionths: ONE };

    /// The decimal that `text` is; else what is allowed, without what was given.
    pub(crate) fn parse(text: &str) -> Result<Decimal, String> {
        if let Some(positive) = text.strip_prefix('-') {
            let is_number = Decimal::parse(positive).is_ok();
            return Err(if is_number { "negative; at least 0 is allowed" } else { ALLOWED }.into());
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let has_point = whole.len() < text.len();
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || (has_point && fraction.is_empty())
            || !are_digits(whole)
            || !are_digits(fraction)
        {
            return Err(ALLOWED.into());
        }
        if fraction.len() > PLACES {
            return Err(ALLOWED.into());
        }
        let mut millionths = Some(0_u64);
        let padding = std::iter::repeat_n(b'0', PLACES - fraction.len());
        for digit in whole.bytes().chain(fraction.bytes()).chain(padding) {
            millionths = millionths
                .and_then(|sum| sum.checked_mul(10))
                .and_then(|sum| sum.checked_add(u64::from(digit - b'0')));
        }
        let too_large = || format!("at most {} is allowed", u64::MAX / ONE);
        millionths.map(|millionths| Decimal { millionths }).ok_or_else(too_large)
    }

    /// The shortest decimal that reads back as this number, which is what a person wrote.
    pub(crate) fn of_f64(number: f64) -> Result<Decimal, String> {
        if !number.is_finite() {
            return Err(ALLOWED.into());
        }
        // A negative zero is a zero.
        Decimal::parse(&(number + 0.0).to_string())
    }

    /// The whole number, rounded up.
    pub(crate) fn ceil(self) -> u64 {
        self.millionths.div_ceil(ONE)
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, fraction) = (self.millionths / ONE, self.millionths % ONE);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{fraction:06}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimals_exactly() {
        for (text, millionths) in [
            ("0", 0),
            ("1", ONE),
            ("0.5", 500_000),
            ("0.000001", 1),
            ("007.25", 7_250_000),
            ("18446744073709.551615", u64::MAX),
        ] {
            assert_eq!(Decimal::parse(text), Ok(Decimal { millionths }), "{text}");
        }
        for (number, millionths) in
            [(0.1, 100_000), (0.3, 300_000), (3.0, 3 * ONE), (-0.0, 0), (1e-6, 1)]
        {
            assert_eq!(Decimal::of_f64(number), Ok(Decimal { millionths }), "{number}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for text in
            ["", ".", "1.0000000", "1.", ".5", "1e3", "+1", "0x1", "0.0000001", "--1", "1_0", " 1"]
        {
            assert_eq!(Decimal::parse(text), Err(ALLOWED.into()), "{text}");
        }
        assert_eq!(Decimal::parse("-1.5"), Err("negative; at least 0 is allowed".into()));
        let large = "at most 18446744073709 is allowed".to_string();
        assert_eq!(Decimal::parse("18446744073709.551616"), Err(large.clone()));
        assert_eq!(Decimal::of_f64(1e300), Err(large));
        for number in [f64::NAN, f64::INFINITY, 1.0 / 3.0] {
            assert_eq!(Decimal::of_f64(number), Err(ALLOWED.into()), "{number}");
        }
    }

    #[test]
    fn shows_what_it_is() {
        for text in ["0", "1", "0.5", "0.000001", "12.34"] {
            assert_eq!(Decimal::parse(text).unwrap().to_string(), text);
        }
    }
}
