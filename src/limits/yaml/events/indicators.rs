//! Counts the indicators in a text, except those in quotes and comments: they bound the number of its tokens.

/// Whether the byte is an indicator: every token but a scalar starts with one, and one is between any two scalars.
pub(super) fn is_indicator(byte: u8) -> bool {
    matches!(
        byte,
        b',' | b'[' | b']' | b'{' | b'}' | b':' | b'?' | b'&' | b'*' | b'!' | b'"' | b'\''
    )
}

/// The context of a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// Where a token may start. Only here does a quote open.
    Start,
    /// After a `-`, `?` or `:` at a start, which is an indicator only before a blank.
    Indicator,
    /// In an anchor, alias or tag, which ends at a blank.
    Word,
    /// In a plain scalar, which a colon before a blank ends.
    Plain,
    PlainColon,
    Quoted(u8),
    /// After a backslash in double quotes.
    Escaped,
    /// After this closing quote or bracket. A colon here needs no blank.
    Closed(u8),
    Comment,
}

/// Counts the indicators of `text` outside of quotes and comments. The text begins where no quote is open, and may end
/// anywhere.
///
/// In brackets the count is exact. Outside of them a plain scalar may contain commas and brackets, and a quote after one
/// is taken for an opening quote. The caller begins again at each event, and an event comes after such a scalar and
/// before the next bracket.
pub(super) fn count_unquoted(text: &[u8]) -> usize {
    let mut at = Context::Start;
    let mut after_blank = true;
    let mut count = 0;
    for &byte in text {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        at = match at {
            Context::Comment if byte != b'\n' => Context::Comment,
            Context::Quoted(b'"') if byte == b'\\' => Context::Escaped,
            Context::Quoted(quote) if byte == quote => Context::Closed(quote),
            Context::Quoted(quote) => Context::Quoted(quote),
            Context::Escaped => Context::Quoted(b'"'),
            // In single quotes, a doubled quote is one quote.
            Context::Closed(b'\'') if byte == b'\'' => Context::Quoted(b'\''),
            _ if byte == b'#' && after_blank => Context::Comment,
            _ => {
                count += usize::from(is_indicator(byte));
                outside(at, byte, is_blank)
            }
        };
        after_blank = is_blank;
    }
    count
}

/// Returns the context after a byte that is neither in quotes nor in a comment.
fn outside(at: Context, byte: u8, is_blank: bool) -> Context {
    match (at, byte) {
        (_, b',' | b'[' | b'{') => Context::Start,
        (_, b']' | b'}') => Context::Closed(byte),
        (Context::PlainColon | Context::Indicator, _) if is_blank => Context::Start,
        (Context::Word | Context::Start | Context::Comment, _) if is_blank => Context::Start,
        (Context::Closed(closed), _) if is_blank => Context::Closed(closed),
        (Context::Closed(_), b':') => Context::Start,
        (Context::Start | Context::Comment | Context::Closed(_), b'"' | b'\'') => {
            Context::Quoted(byte)
        }
        (Context::Start | Context::Comment, b'-' | b'?' | b':') => Context::Indicator,
        (Context::Start | Context::Comment, b'&' | b'*' | b'!') => Context::Word,
        (Context::Word, _) => Context::Word,
        (_, b':') => Context::PlainColon,
        _ => Context::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_quotes_of_quoted_text_are_counted() {
        for (text, count) in [
            ("", 0),
            ("a, b", 1),
            ("[a, b]", 3),
            ("\"[[[[\"", 1),
            ("'[[[['", 1),
            ("comment: '[[[['", 2),
            ("- \"[[\\\"[[\"", 1),
            ("- '[[''[['", 1),
            ("# [[[[\n[", 1),
            ("a # [[[[\n[", 1),
            ("a#[[", 2),
            ("{\"a\":\"[[\"}", 5),
            ("{'a': '[['}", 5),
            ("&anchor \"[[\"", 2),
            ("!tag '[['", 2),
        ] {
            assert_eq!(count_unquoted(text.as_bytes()), count, "{text}");
        }
    }

    #[test]
    fn a_quote_inside_a_plain_scalar_hides_nothing() {
        for text in [
            "[it's, a, b]",
            "[a 'b, c, d]",
            "[a\n'b, c, d]",
            "[a - 'b, c, d]",
            "[-'b, c, d]",
            "[:'b, c, d]",
            "[a:'b, c, d]",
            "[&a'b, c, d]",
            "[a#'b, c, d]",
        ] {
            let commas = text.matches(',').count();
            assert!(
                count_unquoted(text.as_bytes()) >= 2 + commas,
                "{text}: {}",
                count_unquoted(text.as_bytes())
            );
        }
    }
}
