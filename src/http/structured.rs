//! Writes structured fields (RFC 9651): the members of a list, as strings or integers with parameters. The library writes
//! no other kinds. Recognizes all lists. The tests compare with the crate `sfv`.

/// The largest integer, which has at most 15 digits (RFC 9651, 3.3.1).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The key of the partition parameter of both fields of the current draft.
pub(crate) const PARTITION: &str = "pk";

/// Returns whether a string can have all characters of `text`: printable ASCII.
pub(crate) fn is_string(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Appends what separates a list's members. The first member gets nothing.
pub(crate) fn separate(field: &mut String) {
    if !field.is_empty() {
        field.push_str(", ");
    }
}

/// Appends `text` as a string. It must be one that [`is_string`] accepts.
pub(crate) fn push_string(field: &mut String, text: &str) {
    debug_assert!(is_string(text), "{text:?}");
    field.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            field.push('\\');
        }
        field.push(char);
    }
    field.push('"');
}

/// Appends a number as an integer, at most [`INTEGER_MAX`].
pub(crate) fn push_integer(field: &mut String, number: u64) {
    field.push_str(itoa::Buffer::new().format(number.min(INTEGER_MAX)));
}

/// Appends a parameter whose value is an integer.
pub(crate) fn push_parameter(field: &mut String, key: &str, number: u64) {
    push_key(field, key);
    push_integer(field, number);
}

/// Appends a parameter whose value is a byte sequence: base64 between colons.
pub(crate) fn push_bytes_parameter(field: &mut String, key: &str, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    push_key(field, key);
    field.push(':');
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            // A group of n bytes has n + 1 digits.
            let value = (bits >> (18 - 6 * digit)) as usize % DIGITS.len();
            field.push(if digit <= group.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    field.push(':');
}

pub(crate) fn push_key(field: &mut String, key: &str) {
    field.push(';');
    field.push_str(key);
    field.push('=');
}

/// Returns whether the line of a field is a list of structured fields (RFC 9651, 4.2), also an empty one.
pub(crate) fn is_list(line: &[u8]) -> bool {
    let mut rest = Rest(line);
    rest.skip(b" ");
    rest.0.is_empty() || rest.list().is_some()
}

/// The part of a field that is still to be read. Each function reads one production of the grammar, `None` if it is not
/// there.
struct Rest<'f>(&'f [u8]);

impl Rest<'_> {
    fn list(&mut self) -> Option<()> {
        loop {
            if self.take(b'(') {
                self.inner_list()?
            } else {
                self.item()?
            }
            self.skip(b" \t");
            if self.0.is_empty() {
                return Some(());
            }
            self.take(b',').then_some(())?;
            self.skip(b" \t");
        }
    }

    /// Reads an inner list after its `(`.
    fn inner_list(&mut self) -> Option<()> {
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return self.parameters();
            }
            self.item()?;
            matches!(self.0.first(), Some(b' ' | b')')).then_some(())?;
        }
    }

    fn item(&mut self) -> Option<()> {
        self.bare_item()?;
        self.parameters()
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            matches!(self.next()?, b'a'..=b'z' | b'*').then_some(())?;
            self.count(
                |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
            );
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.string(),
            b'?' => matches!(self.next()?, b'0' | b'1').then_some(()),
            b':' => {
                let digits =
                    self.count(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
                let padding = self.count(|byte| byte == b'=');
                // Padding may be left out, also in part, as the crate `sfv` takes it.
                let is_base64 = digits % 4 != 1 && padding <= digits.next_multiple_of(4) - digits;
                (is_base64 && self.take(b':')).then_some(())
            }
            b'@' => {
                self.take(b'-');
                matches!(self.digits(), 1..=15).then_some(())
            }
            b'%' => self.display_string(),
            b'-' => self.number(0),
            b'0'..=b'9' => self.number(1),
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => {
                let is_in_token =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                self.count(is_in_token);
                Some(())
            }
            _ => None,
        }
    }

    /// Reads an integer or a decimal after its sign and its first `read` digits.
    fn number(&mut self, read: usize) -> Option<()> {
        let whole = read + self.digits();
        let is_valid = match self.take(b'.') {
            true => matches!(whole, 1..=12) && matches!(self.digits(), 1..=3),
            false => matches!(whole, 1..=15),
        };
        is_valid.then_some(())
    }

    fn string(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => matches!(self.next()?, b'"' | b'\\').then_some(())?,
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    fn display_string(&mut self) -> Option<()> {
        let mut text = Vec::new();
        self.take(b'"').then_some(())?;
        loop {
            match self.next()? {
                b'"' => return str::from_utf8(&text).is_ok().then_some(()),
                b'%' => {
                    let mut digit = || match self.next()? {
                        byte @ (b'0'..=b'9' | b'a'..=b'f') => char::from(byte).to_digit(16),
                        _ => None,
                    };
                    text.push((digit()? << 4 | digit()?) as u8);
                }
                byte @ b' '..=b'~' => text.push(byte),
                _ => return None,
            }
        }
    }

    fn digits(&mut self) -> usize {
        self.count(|byte| byte.is_ascii_digit())
    }

    /// Reads the bytes that are `wanted`, and returns their number.
    fn count(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let end = self.0.iter().position(|&byte| !wanted(byte)).unwrap_or(self.0.len());
        self.0 = &self.0[end..];
        end
    }

    fn skip(&mut self, spaces: &[u8]) {
        self.count(|byte| spaces.contains(&byte));
    }

    /// Reads the byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, Integer, ItemSerializer, KeyRef, ListEntry, ListSerializer, Parser};

    use super::*;

    /// A member of a list: its name or number, and its parameters.
    type Member = (Result<String, u64>, Vec<(&'static str, Result<Vec<u8>, u64>)>);

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let number =
            || prop_oneof![0..1000u64, any::<u64>(), Just(INTEGER_MAX), Just(INTEGER_MAX + 1)];
        let bytes = prop::collection::vec(any::<u8>(), 0..70);
        let value = prop_oneof![bytes.prop_map(Ok), number().prop_map(Err)];
        let parameters = prop::sample::subsequence(vec!["q", "w", "pk", "t"], 0..=4).prop_flat_map(
            move |keys| {
                let values = prop::collection::vec(value.clone(), keys.len());
                values.prop_map(move |values| keys.iter().copied().zip(values).collect())
            },
        );
        let item = prop_oneof!["[ -~]{0,40}".prop_map(Ok), number().prop_map(Err)];
        prop::collection::vec((item, parameters), 1..5)
    }

    fn integer(number: u64) -> Integer {
        Integer::try_from(number).unwrap_or(Integer::MAX)
    }

    fn bare(value: &Result<String, u64>) -> BareItem {
        match value {
            Ok(text) => BareItem::String(sfv::String::from_string(text.clone()).unwrap()),
            Err(number) => BareItem::Integer(integer(*number)),
        }
    }

    fn parameter(value: &Result<Vec<u8>, u64>) -> BareItem {
        match value {
            Ok(bytes) => BareItem::ByteSequence(bytes.clone()),
            Err(number) => BareItem::Integer(integer(*number)),
        }
    }

    #[test]
    fn edges_of_lists_are_those_of_sfv() {
        for text in [
            ":YQ==:",
            ":YWJj====:",
            ":====:",
            ":Y:",
            ":YWJjZ:",
            ":YQ=:",
            "123456789012.5",
            "1234567890123.5",
            "1.",
            "1.2345",
            "1.234",
            "1234567890123456",
            "-",
            "@",
            "@-1",
            "@1234567890123456",
            "?2",
            "a;b=1",
            "a;B",
            "a;1=2",
            "a;*",
            "(1\"a\")",
            "(\"a\"1)",
            "(1 \"a\")",
            "(1",
            "(1);a",
            "%\"%c3%a9\"",
            "%\"%C3%A9\"",
            "%\"%e9\"",
            "%\"a",
            "\"\\a\"",
            "\"\\\"\"",
            "1 2",
            "1\"a\"",
            "1,,2",
            "1,",
            "1\t,\t2",
            "a b",
        ] {
            let parsed: Result<sfv::List, _> = Parser::new(text).parse();
            assert_eq!(is_list(text.as_bytes()), parsed.is_ok(), "{text:?}: {parsed:?}");
        }
    }

    proptest! {
        #[test]
        fn lists_are_those_of_the_crate_sfv(members in members()) {
            let mut field = String::new();
            let mut list = ListSerializer::new();
            for (item, parameters) in &members {
                separate(&mut field);
                match item {
                    Ok(text) => push_string(&mut field, text),
                    Err(number) => push_integer(&mut field, *number),
                }
                let mut expected = list.bare_item(&bare(item));
                for (key, value) in parameters {
                    match value {
                        Ok(bytes) => push_bytes_parameter(&mut field, key, bytes),
                        Err(number) => push_parameter(&mut field, key, *number),
                    }
                    expected = expected.parameter(KeyRef::from_str(key).unwrap(), &parameter(value));
                }
                let _ = expected.finish();
            }
            prop_assert_eq!(Some(field.clone()), list.finish());

            let parsed: sfv::List = Parser::new(&field).parse().unwrap();
            prop_assert_eq!(parsed.len(), members.len());
            for (entry, (item, parameters)) in parsed.iter().zip(&members) {
                let ListEntry::Item(entry) = entry else { panic!("{field}") };
                prop_assert_eq!(&entry.bare_item, &bare(item));
                prop_assert_eq!(entry.params.len(), parameters.len());
                for (key, value) in parameters {
                    prop_assert_eq!(entry.params.get(*key), Some(&parameter(value)));
                }
            }
        }

        #[test]
        fn strings_are_those_of_the_crate_sfv(text in any::<String>(), byte in any::<u8>()) {
            for text in [text, char::from(byte).to_string()] {
                let expected = sfv::String::from_string(text.clone());
                prop_assert_eq!(is_string(&text), expected.is_ok());
                if let Ok(expected) = expected {
                    let mut field = String::new();
                    push_string(&mut field, &text);
                    prop_assert_eq!(field, ItemSerializer::new().bare_item(&expected).finish());
                }
            }
        }

        #[test]
        fn lists_are_recognized_as_by_the_crate_sfv(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec![
                        "\"", "\\", ":", "=", "==", ";", ",", " ", "\t", "(", ")", "-", ".", "@", "?", "?1", "%", "%\"", "%c3%a9",
                        "%e9", "1", "123456789012", "a", "a=", "*", "A", "F", ";a=", "\"a\"", ":YQ==:", ":YWI:", ", ", "(1 2)",
                        "1.5", "-3", "@9", "%\"a%20\"", "/", "~", "\u{7f}",
                    ]).prop_map(|text: &str| text.to_owned()),
                    "[ -~]{0,3}",
                ],
                0..12,
            ),
        ) {
            let text = parts.concat();
            let parsed: Result<sfv::List, _> = Parser::new(&text).parse();
            prop_assert_eq!(is_list(text.as_bytes()), parsed.is_ok(), "{:?}: {:?}", text, parsed);
        }
    }
}
