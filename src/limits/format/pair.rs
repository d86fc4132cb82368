//! Pairs of a number and a text: as they lie under a tuple, and in text under `string`.

use crate::limits::IdFormat;
use crate::limits::id_format::Part;

/// The longest text of a pair whose bytes are written into a buffer of fixed size.
pub(super) const PAIR_TEXT_MAX_BYTES: usize = 64;
/// The digits of the largest number.
const DIGITS: usize = 20;

/// The most bytes of a pair in text.
pub(super) const IN_TEXT_MAX_BYTES: usize = DIGITS + 1 + PAIR_TEXT_MAX_BYTES;

/// Writes a pair as the formatter does, `number:text`.
#[inline(never)]
pub(super) fn pair_as_text<'b>(
    mut number: u64,
    text: &str,
    buffer: &'b mut [u8; IN_TEXT_MAX_BYTES],
) -> &'b [u8] {
    let end = DIGITS + 1 + text.len();
    buffer[DIGITS] = b':';
    buffer[DIGITS + 1..end].copy_from_slice(text.as_bytes());
    let mut start = DIGITS;
    while number >= 100 {
        start -= 2;
        buffer[start..start + 2].copy_from_slice(&TWO_DIGITS[(number % 100) as usize]);
        number /= 100;
    }
    let [tens, ones] = TWO_DIGITS[number as usize];
    start -= 1;
    buffer[start] = ones;
    if number >= 10 {
        start -= 1;
        buffer[start] = tens;
    }
    &buffer[start..end]
}

/// The numbers below 100 in two digits each: half as many divisions as one digit at a time.
const TWO_DIGITS: [[u8; 2]; 100] = {
    let (mut all, mut number) = ([[0; 2]; 100], 0);
    while number < 100 {
        all[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    all
};

/// The bytes in front of the text.
const HEAD_BYTES: usize = size_of::<u16>() + size_of::<u64>();

/// The most bytes of a pair under a tuple.
pub(super) const NUMBERED_MAX_BYTES: usize = HEAD_BYTES + PAIR_TEXT_MAX_BYTES;

/// A pair under a tuple of a number and `string`, with a text of at most [`PAIR_TEXT_MAX_BYTES`] bytes. The id's bytes are the
/// count 8 in two bytes, the number in eight, and the text.
pub(crate) struct NumberedText<'a> {
    pub(crate) number: u64,
    pub(crate) text: &'a str,
}

impl<'a> NumberedText<'a> {
    /// `None`: the format is another, or the text is empty or too long.
    #[inline(always)]
    pub(super) fn new(format: IdFormat, number: u64, text: &'a str) -> Option<NumberedText<'a>> {
        let IdFormat::Tuple(tuple) = format else { return None };
        let is_format = matches!(tuple.parts(), [Part::RegId | Part::Integer, Part::String]);
        let is_length = (1..=PAIR_TEXT_MAX_BYTES).contains(&text.len());
        (is_format && is_length).then_some(NumberedText { number, text })
    }

    /// Returns the bytes in front of the text, and how many they are. The first is the lowest, and those behind the last are 0.
    #[inline(always)]
    pub(crate) fn head(&self) -> (u128, usize) {
        let bytes_of_number = size_of::<u64>() as u128;
        (bytes_of_number << 8 | u128::from(self.number.swap_bytes()) << 16, HEAD_BYTES)
    }

    /// Writes the bytes.
    pub(super) fn write(self, buffer: &mut [u8; NUMBERED_MAX_BYTES]) -> &[u8] {
        let len = HEAD_BYTES + self.text.len();
        buffer[..16].copy_from_slice(&self.head().0.to_le_bytes());
        buffer[HEAD_BYTES..len].copy_from_slice(self.text.as_bytes());
        &buffer[..len]
    }
}
