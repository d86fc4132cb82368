//! Escapes text from outside for a terminal or a log. All messages of the library that show an id, a path or a
//! part of a file use this module.

use std::fmt::{self, Write};

/// Displays a text with these characters escaped: those that a terminal could obey, those that change the direction
/// of writing, and those that are invisible. Escaping a text twice changes nothing.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "only events cut a text"))]
/// Returns at most `max_chars` of a text, [`Escaped`]. A longer text ends in `...`.
pub(crate) fn shown(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}...", Escaped(&text[..end])),
        None => Escaped(text).to_string(),
    }
}

/// Returns at most `max_chars` of a text, [`Escaped`] and in quotes. A longer text ends in `...`.
pub(crate) fn quoted(text: &str, max_chars: usize) -> String {
    let end = text.char_indices().nth(max_chars).map(|(end, _)| end);
    let part = &text[..end.unwrap_or(text.len())];
    let part = part.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"{}", Escaped(&part), if end.is_some() { "..." } else { "" })
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        // Each pass shortens `rest` by at least one character.
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_visible(*c)) {
            f.write_str(&rest[..at])?;
            c.escape_default().try_for_each(|c| f.write_char(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        f.write_str(rest)
    }
}

/// Returns whether a terminal draws the character as a visible glyph or a blank.
pub(crate) fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !c.is_control() && !c.is_whitespace() && !is_ignorable(c)
}

/// Returns whether Unicode tells a program to draw nothing for the character (`Default_Ignorable_Code_Point`), or
/// the character annotates a text, or its glyph has no ink.
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d159}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_hostile_text_is_tamed() {
        assert_eq!(shown("a\u{1b}[2Jb\n", 80), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("a\u{202e}b\u{200b}", 80), "a\\u{202e}b\\u{200b}");
        assert_eq!(shown("\u{5d0}\u{e9}\u{1f600}", 80), "\u{5d0}\u{e9}\u{1f600}");
        assert_eq!(shown("abcdef", 3), "abc...");
        assert_eq!(shown("abc", 3), "abc");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        for c in
            "\u{7}\u{7f}\u{85}\u{9b}\u{a0}\u{ad}\u{3000}\u{2028}\u{fe0f}\u{feff}\u{e0041}".chars()
        {
            let text = format!("a{c}b");
            assert_eq!(shown(&text, 80), format!("a{}b", c.escape_default()));
        }
        assert_eq!(shown("a b", 80), "a b", "a blank is visible");
    }

    #[test]
    fn escaping_twice_changes_nothing() {
        let once = Escaped("\u{1b}]0;x\u{7}\\n").to_string();
        assert_eq!(once, "\\u{1b}]0;x\\u{7}\\n");
        assert_eq!(Escaped(&once).to_string(), once);
    }

    #[test]
    fn quotes_end_where_the_text_ends() {
        assert_eq!(quoted("a\"\\\n", 80), "\"a\\\"\\\\\\n\"");
        assert_eq!(quoted("abcdef", 3), "\"abc\"...");
    }
}
