//! Field values from text and numbers: one allocation each, none on the way there.

use std::cell::RefCell;
use std::fmt::Write as _;

use http::HeaderValue;
use sfv::Integer;

thread_local! {
    /// Values are put together here and copied once, at their final length.
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A longer text than this is not kept for the next value.
const SCRATCH_MAX_BYTES: usize = 4096;

/// The value that `write` puts together; `None` if it is no field value, which is then left out.
pub(crate) fn value_of(write: impl FnOnce(&mut String)) -> Option<HeaderValue> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        write(scratch);
        let value = HeaderValue::from_str(scratch).ok();
        if scratch.capacity() > SCRATCH_MAX_BYTES {
            *scratch = String::new();
        }
        value
    })
}

/// A number as a value.
pub(crate) fn number(number: u64) -> Option<HeaderValue> {
    value_of(|text| {
        // Writing to a string does not fail.
        let _ = write!(text, "{number}");
    })
}

/// The same value, whose clones allocate nothing: the first clone of a new one does, once.
pub(crate) fn shared(value: HeaderValue) -> HeaderValue {
    let _first = value.clone();
    value
}

/// The largest integer of a structured field: it has at most 15 digits (RFC 9651, 3.3.1).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The nearest integer of a structured field.
pub(crate) fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_at_most_15_digits() {
        assert_eq!(integer(0).to_string(), "0");
        assert_eq!(integer(INTEGER_MAX).to_string(), "999999999999999");
        assert_eq!(integer(INTEGER_MAX + 1).to_string(), "999999999999999");
        assert_eq!(integer(u64::MAX).to_string(), "999999999999999");
    }

    #[test]
    fn what_is_no_value_is_none() {
        assert_eq!(value_of(|text| text.push('\n')), None);
        assert_eq!(number(u64::MAX).unwrap(), "18446744073709551615");
    }
}
