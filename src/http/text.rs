//! Makes field values from text and numbers, with one allocation each.

use std::cell::RefCell;

use http::HeaderValue;
use sfv::Integer;

thread_local! {
    /// The buffer in which a value is written before it is copied at its final length.
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A larger buffer is freed after use.
const SCRATCH_MAX_BYTES: usize = 4096;

/// Returns the text that `write` writes as a field value. `None` if a field value cannot have that text: the
/// caller then omits the field.
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

/// Returns a number as a field value.
pub(crate) fn number(number: u64) -> Option<HeaderValue> {
    value_of(|text| text.push_str(itoa::Buffer::new().format(number)))
}

/// Makes a value's storage shared, so that its later clones allocate nothing. Only the first clone allocates.
pub(crate) fn shared(value: HeaderValue) -> HeaderValue {
    let _first = value.clone();
    value
}

/// The largest integer of a structured field, which has at most 15 digits (RFC 9651, 3.3.1).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Returns the number as an integer of a structured field, cut to [`INTEGER_MAX`].
pub(crate) fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

/// Appends the number as an integer of a structured field, cut to [`INTEGER_MAX`].
pub(crate) fn push_integer(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number.min(INTEGER_MAX)));
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
        for number in [0, 7, INTEGER_MAX - 1, INTEGER_MAX, INTEGER_MAX + 1, u64::MAX] {
            let mut text = "t=".to_owned();
            push_integer(&mut text, number);
            assert_eq!(text, format!("t={}", integer(number)));
        }
    }

    #[test]
    fn text_with_a_line_break_is_no_value() {
        assert_eq!(value_of(|text| text.push('\n')), None);
        assert_eq!(number(u64::MAX).unwrap(), "18446744073709551615");
    }
}
