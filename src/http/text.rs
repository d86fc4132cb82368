//! Makes field values from text and numbers, with one allocation each.

use std::cell::RefCell;

use http::HeaderValue;

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
    HeaderValue::from_str(itoa::Buffer::new().format(number)).ok()
}

/// Makes a value's storage shared, so that its later clones allocate nothing. Only the first clone allocates.
pub(crate) fn shared(value: HeaderValue) -> HeaderValue {
    let _first = value.clone();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_a_line_break_is_no_value() {
        assert_eq!(value_of(|text| text.push('\n')), None);
        assert_eq!(number(u64::MAX).unwrap(), "18446744073709551615");
    }
}
