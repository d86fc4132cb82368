//! Checks how ids of the format `string` are written: refuses YAML's own characters, which cannot be meant as part of an id.

use super::node::{Scalar, Style};
use crate::limits::shown;

/// An id, and how its scalar is written.
#[derive(Clone, Copy)]
pub(crate) struct WrittenId<'s> {
    pub(crate) text: &'s str,
    style: Style,
    lines: u64,
    /// Whether the id is in a key, after a name and a colon.
    is_in_key: bool,
}

impl<'s> WrittenId<'s> {
    pub(super) fn in_list(scalar: &'s Scalar<'_>) -> WrittenId<'s> {
        WrittenId { text: &scalar.text, style: scalar.style, lines: scalar.lines, is_in_key: false }
    }

    pub(super) fn in_key(id: &'s str, key: &Scalar<'_>) -> WrittenId<'s> {
        WrittenId { text: id, style: key.style, lines: key.lines, is_in_key: true }
    }

    /// Returns an id that code gave, as if it were in quotes.
    #[cfg(feature = "serde")]
    pub(crate) fn in_quotes(id: &'s str) -> WrittenId<'s> {
        WrittenId { text: id, style: Style::Quoted, lines: 1, is_in_key: false }
    }

    /// Checks that this can be meant as an id. An error says why not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let given = shown(self.text);
        if self.style == Style::Block {
            return Err(format!(
                "{given}, after a '|' or '>', where every line and comment is part of the id: one line, without either, is allowed"
            ));
        }
        if self.style == Style::Typed {
            return Err(format!(
                "{given}, a boolean or a number with a fraction, of which the text as written is not known: an id in quotes is allowed"
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

    /// Checks for quotes and brackets. YAML reads them at the start of a value only, and in a key they are text.
    fn check_plain_key(&self) -> Result<(), String> {
        let given = shown(self.text);
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

/// Whether some program shows the text after it on another line.
fn ends_line(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
