//! How much of a piece of text can be tokens: its indicators, but for those in quotes and comments.

/// Whether every token but a scalar starts with it, or one stands between two scalars.
pub(super) fn is_indicator(byte: u8) -> bool {
    matches!(
        byte,
        b',' | b'[' | b']' | b'{' | b'}' | b':' | b'?' | b'&' | b'*' | b'!' | b'"' | b'\''
    )
}

/// Where in the text a byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Where a token may start: here alone a quote opens.
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
    /// After a closing quote or bracket: a colon here needs no blank.
    Closed(u8),
    Comment,
}

/// The indicators of `text` outside of quotes and comments. It begins where no quote is open, and may
/// end anywhere.
///
/// In brackets this is exact. Outside of them a plain scalar may have commas and brackets in it, and
/// a quote after one is taken to open: the caller begins anew at each event, and an event comes after
/// such a scalar and before the next bracket.
pub(super) fn weigh(text: &[u8]) -> usize {
    let mut at = At::Start;
    let mut after_blank = true;
    let mut weight = 0;
    for &byte in text {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        at = match at {
            At::Comment if byte != b'\n' => At::Comment,
            At::Quoted(b'"') if byte == b'\\' => At::Escaped,
            At::Quoted(quote) if byte == quote => At::Closed(quote),
            At::Quoted(quote) => At::Quoted(quote),
            At::Escaped => At::Quoted(b'"'),
            // A quote doubled in single quotes is one quote.
            At::Closed(b'\'') if byte == b'\'' => At::Quoted(b'\''),
            _ if byte == b'#' && after_blank => At::Comment,
            _ => {
                weight += usize::from(is_indicator(byte));
                outside(at, byte, is_blank)
            }
        };
        after_blank = is_blank;
    }
    weight
}

/// Where the next byte is, after one that is neither in quotes nor in a comment.
fn outside(at: At, byte: u8, is_blank: bool) -> At {
    match (at, byte) {
        (_, b',' | b'[' | b'{') => At::Start,
        (_, b']' | b'}') => At::Closed(byte),
        (At::PlainColon | At::Indicator, _) if is_blank => At::Start,
        (At::Word | At::Start | At::Comment, _) if is_blank => At::Start,
        (At::Closed(closed), _) if is_blank => At::Closed(closed),
        (At::Closed(_), b':') => At::Start,
        (At::Start | At::Comment | At::Closed(_), b'"' | b'\'') => At::Quoted(byte),
        (At::Start | At::Comment, b'-' | b'?' | b':') => At::Indicator,
        (At::Start | At::Comment, b'&' | b'*' | b'!') => At::Word,
        (At::Word, _) => At::Word,
        (_, b':') => At::PlainColon,
        _ => At::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_comments_weigh_their_quotes_at_most() {
        for (text, weight) in [
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
            assert_eq!(weigh(text.as_bytes()), weight, "{text}");
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
            assert!(weigh(text.as_bytes()) >= 2 + commas, "{text}: {}", weigh(text.as_bytes()));
        }
    }
}
