//! The text of an id of several fields: the fields, joined by colons.
//!
//! In all fields but the last, a colon is written `\:` and a backslash `\\`. So two ids never have the same text.

use std::borrow::Cow;

/// Returns a field's text as it is written before another field.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains([':', '\\']) {
        return text.replace('\\', "\\\\").replace(':', "\\:").into();
    }
    text.into()
}

/// Splits a text after its first field, and returns the field without escapes. `None` if there is no second field, or a
/// backslash is not part of an escape.
pub(crate) fn split_first(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find([':', '\\'])?;
    if text.as_bytes().get(end) == Some(&b':') {
        return Some((text[..end].into(), &text[end + 1..]));
    }
    let mut field = text[..end].to_owned();
    let mut rest = text[end..].chars();
    while let Some(c) = rest.next() {
        match c {
            ':' => return Some((field.into(), rest.as_str())),
            '\\' => field.push(rest.next().filter(|c| matches!(c, ':' | '\\'))?),
            c => field.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_split_at_the_first_plain_colon() {
        for (text, expected) in [
            ("a:b", Some(("a", "b"))),
            (":", Some(("", ""))),
            ("a:b:c", Some(("a", "b:c"))),
            (r"a\:b:c\:d", Some(("a:b", r"c\:d"))),
            (r"a\\:b", Some((r"a\", "b"))),
            (r"\\\::", Some((r"\:", ""))),
            ("a", None),
            ("", None),
            (r"a\:b", None),
            (r"a\b:c", None),
            ("a\\", None),
        ] {
            let found = split_first(text);
            let found = found.as_ref().map(|(field, rest)| (&**field, *rest));
            assert_eq!(found, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_two_fields_are_read_back(first in "[a:\\\\\u{e9}]{0,8}", rest in "[a:\\\\]{0,8}") {
            let joined = format!("{}:{rest}", escaped(&first));
            prop_assert_eq!(split_first(&joined), Some((first.into(), &*rest)));
        }
    }
}
