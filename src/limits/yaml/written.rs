//! An id under the format `string` as it is written: what is YAML's own, and cannot be meant to be part of it.

use super::events::{Scalar, Style};
use super::faults::Given;

/// An id, and how the scalar is written that it is in.
#[derive(Clone, Copy)]
pub(super) struct Written<'s> {
    pub(super) text: &'s str,
    style: Style,
    lines: u64,
    /// Whether it stands in a key, after a name and its colon.
    is_in_key: bool,
}

impl<'s> Written<'s> {
    /// In a list.
    pub(super) fn alone(scalar: &'s Scalar<'_>) -> Written<'s> {
        Written { text: &scalar.text, style: scalar.style, lines: scalar.lines, is_in_key: false }
    }

    pub(super) fn in_key(id: &'s str, key: &Scalar<'_>) -> Written<'s> {
        Written { text: id, style: key.style, lines: key.lines, is_in_key: true }
    }

    /// Says why this cannot be meant as an id, if it cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        let given = Given(self.text);
        if self.style == Style::Block {
            return Err(format!(
                "{given}, after a '|' or '>', where every line and comment is part of the id: one line, without either, is allowed"
            ));
        }
        if self.lines > 1 {
            let hint = match self.style == Style::Plain && self.text.contains(" - ") {
                true => "; the items of a list stand in one column",
                false => "",
            };
            return Err(format!(
                "{given}, one id on {} lines: an id on one line is allowed{hint}",
                self.lines
            ));
        }
        if self.text.contains(ends_line) {
            return Err(format!("{given}: an id without line breaks is allowed"));
        }
        if self.text.starts_with(is_blank) || self.text.ends_with(is_blank) {
            return Err(format!("{given}: an id without blanks at its ends is allowed"));
        }
        if self.is_in_key && self.style == Style::Plain {
            self.check_plain_key()?;
        }
        Ok(())
    }

    /// What means something to YAML at a value's start is text within a key.
    fn check_plain_key(&self) -> Result<(), String> {
        let given = Given(self.text);
        if self.text.starts_with(['"', '\'']) {
            return Err(format!(
                "{given}, of which the quotes are part: Name:id without them, or with the whole key in quotes, is allowed"
            ));
        }
        if self.text.starts_with('[') && self.text.ends_with(']') && self.text.contains(',') {
            return Err(format!(
                "{given}, one id: several have a list of ids; one that is spelled so must be quoted with its name"
            ));
        }
        Ok(())
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Whether a text is shown on another line after it, by some programs at least.
fn ends_line(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
