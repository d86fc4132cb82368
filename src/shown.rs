//! Text that others wrote, for a terminal or a log.

/// At most `max_chars` of a text that others wrote, with what a terminal could obey, what turns the
/// direction of writing, and what nobody sees escaped.
pub(crate) fn shown(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == max_chars {
            shown.push_str("...");
            break;
        }
        if is_seen(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    shown
}

fn is_seen(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
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
}
