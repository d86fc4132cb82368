//! Gives the text to the parser, with a bound on the text that the parser holds back.

use std::cell::Cell;
use std::rc::Rc;

use saphyr_parser::input::{Input, is_blank_or_breakz, is_breakz, is_flow};

use super::indicators::{count_unquoted, is_indicator};

/// Text that ends early once the parser has read too much of it without an event.
///
/// Where a key may be, the parser holds a whole `[...]` or `{...}` back until it knows whether a colon follows. That
/// takes some 200 bytes for each character. All other text streams. So the indicators, which are the characters that
/// can make a token, are counted from one event to the next.
///
/// A third of a load's time goes into the functions that read one character. Nearly all of a file is ASCII, so their
/// short path is the one for ASCII.
pub(super) struct BoundedInput<'t> {
    whole: &'t str,
    /// The rest of `whole`.
    text: &'t str,
    held: HeldBack,
    /// Where the first indicator after the last event was.
    since: usize,
    /// The count at which the indicators outside of quotes are counted: quoted text is one token.
    recount_at: u32,
}

/// The number of indicators since the last event, and whether it is above the bound. The reader of the events shares it.
#[derive(Clone, Default)]
pub(super) struct HeldBack {
    indicators: Rc<Cell<u32>>,
    is_exceeded: Rc<Cell<bool>>,
}

impl HeldBack {
    /// The most indicators (commas, brackets, colons, quotes and the like) between two events.
    pub(super) const MAX: u32 = 1 << 20;

    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Starts the count again. The reader calls it after each event.
    pub(super) fn clear(&self) {
        self.indicators.set(0);
    }
}

impl<'t> BoundedInput<'t> {
    pub(super) fn new(text: &'t str, held: HeldBack) -> BoundedInput<'t> {
        BoundedInput { whole: text, text, held, since: 0, recount_at: HeldBack::MAX }
    }

    #[inline]
    fn count(&mut self, byte: u8) {
        if is_indicator(byte) {
            let held = self.held.indicators.get().saturating_add(1);
            self.held.indicators.set(held);
            if held == 1 {
                self.since = self.whole.len() - self.text.len() - 1;
                self.recount_at = HeldBack::MAX;
            } else if held > self.recount_at {
                self.recount();
            }
        }
    }

    /// Ends the text if there are too many indicators outside of quotes since the last event. The next recount comes at
    /// twice the count, so that all recounts together take linear time.
    #[cold]
    fn recount(&mut self) {
        let read = self.whole.len() - self.text.len();
        let since = self.whole.as_bytes().get(self.since..read).unwrap_or_default();
        if count_unquoted(since) > HeldBack::MAX as usize {
            self.text = "";
            self.held.is_exceeded.set(true);
        }
        self.recount_at = self.recount_at.saturating_mul(2);
    }

    #[inline]
    fn first_ascii(&self) -> Option<u8> {
        self.text.as_bytes().first().copied().filter(u8::is_ascii)
    }
}

impl Input for BoundedInput<'_> {
    fn lookahead(&mut self, _: usize) {
        // The whole text is in memory.
    }

    /// The most characters that the parser looks ahead, and the room that it makes for a scalar at once.
    #[inline]
    fn buflen(&self) -> usize {
        16
    }

    #[inline]
    fn bufmaxlen(&self) -> usize {
        16
    }

    fn raw_read_ch(&mut self) -> char {
        let c = self.peek();
        self.skip();
        c
    }

    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        let c = self.peek_opt().filter(|c| !is_breakz(*c) && *c != '\u{feff}')?;
        self.skip();
        Some(c)
    }

    #[inline(always)]
    fn skip(&mut self) {
        if let Some(byte) = self.first_ascii() {
            self.text = self.text.get(1..).unwrap_or_default();
            self.count(byte);
        } else {
            let mut chars = self.text.chars();
            chars.next();
            self.text = chars.as_str();
        }
    }

    #[inline]
    fn skip_n(&mut self, count: usize) {
        for _ in 0..count {
            self.skip();
        }
    }

    /// Returns the next character; at the end NUL, as the parser expects.
    #[inline]
    fn peek(&self) -> char {
        match self.first_ascii() {
            Some(byte) => char::from(byte),
            None => self.text.chars().next().unwrap_or('\0'),
        }
    }

    #[inline]
    fn peek_nth(&self, n: usize) -> char {
        match self.text.as_bytes().get(..=n) {
            Some(bytes) if bytes.is_ascii() => char::from(bytes[n]),
            _ => self.text.chars().nth(n).unwrap_or('\0'),
        }
    }

    #[inline]
    fn peek_opt(&self) -> Option<char> {
        self.text.chars().next()
    }

    #[inline]
    fn next_can_be_plain_scalar(&self, in_flow: bool) -> bool {
        match self.peek() {
            // Like the parser's own input: an indicator ends a plain scalar by YAML 1.2, 7.3.3.
            ':' => {
                let next = self.peek_nth(1);
                !(is_blank_or_breakz(next) || (in_flow && is_flow(next)))
            }
            '\u{feff}' => false,
            c => !(in_flow && is_flow(c)),
        }
    }
}
