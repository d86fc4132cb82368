//! Parses decimals with at most six digits after the point, exactly: factors, and the numbers of Sharkey's limits
//! files.

/// A decimal, stored as a whole number of millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Decimal {
    pub(crate) millionths: u64,
}

/// The number of millionths in 1.
pub(crate) const ONE: u64 = 1_000_000;

/// The largest number of digits after the point.
const PLACES: usize = 6;

const ALLOWED: &str = "a decimal with at most six digits after the point is allowed";

impl Decimal {
    pub(crate) const ONE: Decimal = Decimal { millionths: ONE };

    /// Parses `text`. The error says what is allowed, and does not repeat `text`.
    pub(crate) fn parse(text: &str) -> Result<Decimal, String> {
        if let Some(positive) = text.strip_prefix('-') {
            // One sign at most: a recursion for each sign of a long text would overflow the stack.
            let is_number = !positive.starts_with('-') && Decimal::parse(positive).is_ok();
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
        let too_large = || format!("at most {} is allowed", Decimal { millionths: u64::MAX });
        millionths.map(|millionths| Decimal { millionths }).ok_or_else(too_large)
    }

    /// A whole number; one that is too large becomes the largest decimal, which is out of the range of every count.
    pub(crate) fn from_whole(number: u64) -> Decimal {
        Decimal { millionths: number.saturating_mul(ONE) }
    }

    /// Converts a float by its shortest decimal that parses back to the same float: the decimal that a person wrote.
    pub(crate) fn from_f64(number: f64) -> Result<Decimal, String> {
        if !number.is_finite() {
            return Err(ALLOWED.into());
        }
        // Adding 0.0 turns -0.0 into 0.0.
        Decimal::parse(&(number + 0.0).to_string())
    }

    /// Rounds up to a whole number.
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
            assert_eq!(Decimal::from_f64(number), Ok(Decimal { millionths }), "{number}");
        }
    }

    #[test]
    fn refuses_text_that_is_no_decimal() {
        for text in
            ["", ".", "1.0000000", "1.", ".5", "1e3", "+1", "0x1", "0.0000001", "--1", "1_0", " 1"]
        {
            assert_eq!(Decimal::parse(text), Err(ALLOWED.into()), "{text}");
        }
        assert_eq!(Decimal::parse(&"-".repeat(1_000_000)), Err(ALLOWED.into()));
        assert_eq!(Decimal::parse("-1.5"), Err("negative; at least 0 is allowed".into()));
        let large = "at most 18446744073709.551615 is allowed".to_string();
        assert_eq!(Decimal::parse("18446744073709.551616"), Err(large.clone()));
        assert_eq!(Decimal::from_f64(1e300), Err(large));
        for number in [f64::NAN, f64::INFINITY, 1.0 / 3.0] {
            assert_eq!(Decimal::from_f64(number), Err(ALLOWED.into()), "{number}");
        }
    }

    #[test]
    fn displays_the_parsed_decimal() {
        for text in ["0", "1", "0.5", "0.000001", "12.34"] {
            assert_eq!(Decimal::parse(text).unwrap().to_string(), text);
        }
    }
}
