//! Text for people.

/// `1 limit`, `2 limits`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// At most `max_chars` of a text that others wrote, with what a terminal could obey escaped.
pub(crate) fn shown(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == max_chars {
            shown.push_str("...");
            break;
        }
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_hostile_text_is_tamed() {
        assert_eq!(shown("a\u{1b}[2Jb\n", 80), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("abcdef", 3), "abc...");
        assert_eq!(shown("abc", 3), "abc");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            (counted(1, "limit"), counted(0, "limit")),
            ("1 limit".into(), "0 limits".into())
        );
    }
}
