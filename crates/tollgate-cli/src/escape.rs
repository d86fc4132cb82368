//! Escapes text from outside for a terminal, as the library's messages do.

use std::fmt::{self, Write};

use icu_properties::{CodePointSetData, props::DefaultIgnorableCodePoint};

/// Displays a text with an escape in place of every character that is not [visible](is_visible). Escaping a
/// text twice changes nothing.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

/// Escapes the first `max_chars` characters of a text. A longer text ends in `...`.
pub(crate) fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}...", Escaped(&text[..end])),
        None => Escaped(text).to_string(),
    }
}

/// Escapes the first `max_chars` characters of a text and puts them in quotes. A longer text has `...`
/// after them.
pub(crate) fn quoted(text: &str, max_chars: usize) -> String {
    let end = text.char_indices().nth(max_chars).map(|(end, _)| end);
    let part = &text[..end.unwrap_or(text.len())];
    let part = part.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"{}", Escaped(&part), if end.is_some() { "..." } else { "" })
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_visible(c) {
                f.write_char(c)?;
            } else {
                write!(f, "{}", c.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Returns whether a character is a visible glyph or an ASCII space. Control characters, characters that
/// change the direction of writing, other spaces and invisible characters are not.
pub(crate) fn is_visible(c: char) -> bool {
    const IGNORED: icu_properties::CodePointSetDataBorrowed<'static> =
        CodePointSetData::new::<DefaultIgnorableCodePoint>();
    // The marks around an annotation, which few programs draw, and two glyphs without ink.
    let is_blank = matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{2800}' | '\u{1d159}');
    match c {
        ' '..='~' => true,
        _ => !c.is_control() && !c.is_whitespace() && !is_blank && !IGNORED.contains(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped_and_cut() {
        for (text, escaped) in [
            ("a\u{1b}[2Jb\n", "a\\u{1b}[2Jb\\n"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
            ("a b", "a b"),
            ("\u{5d0}\u{e9}\u{1f600}", "\u{5d0}\u{e9}\u{1f600}"),
        ] {
            assert_eq!(shortened(text, 80), escaped);
        }
        assert_eq!((&*shortened("abcdef", 3), &*shortened("abc", 3)), ("abc...", "abc"));
    }

    #[test]
    fn invisible_characters_are_escaped_once() {
        for c in "\u{7}\u{7f}\u{85}\u{9b}\u{a0}\u{ad}\u{3000}\u{2028}\u{3164}\u{fe0f}\u{feff}\u{fffa}\u{e0041}\u{2800}\u{1d159}"
            .chars()
        {
            let once = Escaped(&format!("a{c}b")).to_string();
            assert_eq!(once, format!("a{}b", c.escape_default()));
            assert_eq!(Escaped(&once).to_string(), once);
        }
    }

    /// The messages of the library and those of the command escape the same characters.
    #[test]
    fn the_library_escapes_the_same_characters() {
        let every_char: String = ('\0'..=char::MAX).collect();
        let missing = tollgate::Limits::from_yaml_files(&every_char, None);
        let Err(error) = missing else { panic!("no file has this name") };
        assert!(error.to_string().contains(&Escaped(&every_char).to_string()));
    }

    #[test]
    fn quotes_end_where_the_text_ends() {
        assert_eq!(quoted("a\"\\\n", 80), "\"a\\\"\\\\\\n\"");
        assert_eq!(quoted("abcdef", 3), "\"abc\"...");
    }
}
