//! Text for people.

use jiff::Timestamp;

/// `1 limit`, `2 limits`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

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

/// A time since the Unix epoch, in UTC: `2015-05-17 10:05:03 UTC`, with a fraction if it has one.
pub(crate) fn time(at_ns: u64) -> String {
    // Every `u64` is a time before 2555, which jiff can show.
    let at = Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(Timestamp::MAX);
    let text = at.to_string().replacen('T', " ", 1);
    format!("{} UTC", text.trim_end_matches('Z'))
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
    fn times_are_those_of_greenwich() {
        assert_eq!(time(1_431_857_103_000_000_000), "2015-05-17 10:05:03 UTC");
        assert_eq!(time(1_500_000), "1970-01-01 00:00:00.0015 UTC");
        assert!(time(u64::MAX).starts_with("2554-07-21 "), "{}", time(u64::MAX));
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            (counted(1, "limit"), counted(0, "limit")),
            ("1 limit".into(), "0 limits".into())
        );
    }
}
