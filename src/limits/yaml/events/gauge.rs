//! The text as the parser reads it, with a bound on what the parser may hold back.

use std::cell::Cell;
use std::rc::Rc;

use saphyr_parser::input::{Input, is_blank_or_breakz, is_breakz, is_flow};

use super::weight::{is_indicator, weigh};

/// Text that ends early once the parser has read too much without making an event of it.
///
/// Where a key may stand, the parser holds a whole `[...]` or `{...}` back until it knows whether a
/// colon follows: some 200 bytes for every character of it. Everything else streams. So the
/// characters that can make a token are counted, from one event to the next.
///
/// Nearly all of a file is ASCII, and what is asked of one character is a third of a load's time:
/// that way is the short one below.
pub(super) struct Gauge<'t> {
    /// All of the text, and what is left of it.
    whole: &'t str,
    text: &'t str,
    held: Held,
    /// Where the first indicator after the last event was.
    since: usize,
    /// Weighed when the count gets there: quoted text has indicators, and is one token.
    weighed_at: u32,
}

/// The count, and whether it was too much, shared with whoever takes the events.
#[derive(Clone, Default)]
pub(super) struct Held(Rc<Cell<u32>>, Rc<Cell<bool>>);

impl Held {
    /// The most indicators (commas, brackets, colons, quotes and their like) between two events.
    pub(super) const MAX: u32 = 1 << 20;

    pub(super) fn is_exceeded(&self) -> bool {
        self.1.get()
    }

    /// To be called after an event.
    pub(super) fn clear(&self) {
        self.0.set(0);
    }
}

impl<'t> Gauge<'t> {
    pub(super) fn new(text: &'t str, held: Held) -> Gauge<'t> {
        Gauge { whole: text, text, held, since: 0, weighed_at: Held::MAX }
    }

    #[inline]
    fn count(&mut self, byte: u8) {
        if is_indicator(byte) {
            let held = self.held.0.get().saturating_add(1);
            self.held.0.set(held);
            if held == 1 {
                self.since = self.whole.len() - self.text.len() - 1;
                self.weighed_at = Held::MAX;
            } else if held > self.weighed_at {
                self.weigh();
            }
        }
    }

    /// Ends the text if there is too much since the last event that is not quoted. Each time twice
    /// as much has to come before the next: all of them together are linear.
    #[cold]
    fn weigh(&mut self) {
        let read = self.whole.len() - self.text.len();
        let since = self.whole.as_bytes().get(self.since..read).unwrap_or_default();
        if weigh(since) > Held::MAX as usize {
            self.text = "";
            self.held.1.set(true);
        }
        self.weighed_at = self.weighed_at.saturating_mul(2);
    }

    #[inline]
    fn first_ascii(&self) -> Option<u8> {
        self.text.as_bytes().first().copied().filter(u8::is_ascii)
    }
}

impl Input for Gauge<'_> {
    fn lookahead(&mut self, _: usize) {
        // All of the text is there.
    }

    /// The most that the parser looks ahead, and the room that it makes for a scalar at once.
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

    /// The next character; at the end, as the parser wants it, NUL.
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
            // As the parser has it: an indicator ends a plain scalar where YAML 1.2, 7.3.3, says so.
            ':' => {
                let next = self.peek_nth(1);
                !(is_blank_or_breakz(next) || (in_flow && is_flow(next)))
            }
            '\u{feff}' => false,
            c => !(in_flow && is_flow(c)),
        }
    }
}
