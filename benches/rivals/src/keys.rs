//! The keys: `6:3141592653` and its successors, as text and as numbers.

use std::fmt::Write;

/// Keys of one length in one buffer.
pub struct Keys {
    text: String,
    count: usize,
}

/// The length of a key in bytes.
const KEY_LEN: usize = 12;
/// The number of the first key.
const FIRST: u64 = 3_141_592_653;

impl Keys {
    pub fn new(count: usize) -> Keys {
        let mut text = String::with_capacity(count * KEY_LEN);
        for number in FIRST..FIRST + count as u64 {
            write!(text, "6:{number:010}").expect("a string takes all");
        }
        assert_eq!(text.len(), count * KEY_LEN, "each key has {KEY_LEN} bytes");
        Keys { text, count }
    }

    #[inline]
    pub fn text(&self, i: u32) -> &str {
        let at = i as usize * KEY_LEN;
        &self.text[at..at + KEY_LEN]
    }

    #[inline]
    pub fn number(&self, i: u32) -> u64 {
        FIRST + u64::from(i)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The index of each key, once.
    pub fn all(&self) -> std::ops::Range<u32> {
        0..self.count as u32
    }
}
