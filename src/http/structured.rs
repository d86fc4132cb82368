//! Writes structured fields (RFC 9651): lists whose members are strings or integers, with parameters. The library writes no
//! other kinds. The crate `sfv` tells whether a field that a service has written is a list. The tests compare this writer
//! with the one of `sfv`.

use sfv::Parser;
use sfv::visitor::Ignored;

/// The largest integer, which has at most 15 digits (RFC 9651, 3.3.1).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The partition parameter of both fields of the current draft. Keys of parameters stand with the characters around them, so that
/// one copy writes them.
pub(crate) const PARTITION: &str = ";pk=";

/// Returns whether `text` can be written as a string: it has printable characters of ASCII only.
pub(crate) fn is_string(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Appends the comma before the next member of a list; nothing before the first member.
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

/// Appends a number as an integer. A number above [`INTEGER_MAX`] becomes that maximum.
pub(crate) fn push_integer(field: &mut String, number: u64) {
    field.push_str(itoa::Buffer::new().format(number.min(INTEGER_MAX)));
}

/// Appends a parameter whose value is an integer. `key` is such as `;q=`.
#[inline]
pub(crate) fn push_parameter(field: &mut String, key: &'static str, number: u64) {
    field.push_str(key);
    push_integer(field, number);
}

/// Appends a parameter whose value is a byte sequence: base64 between colons.
pub(crate) fn push_bytes_parameter(field: &mut String, key: &'static str, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    field.push_str(key);
    field.push(':');
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            // A group of n bytes has n + 1 digits. `=` fills it up to four characters.
            let value = (bits >> (18 - 6 * digit)) as usize % DIGITS.len();
            field.push(if digit <= group.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    field.push(':');
}

/// Returns whether a field's line is a list (RFC 9651, 4.2). An empty line is an empty list.
pub(crate) fn is_list(line: &[u8]) -> bool {
    Parser::new(line).parse_list_with_visitor(Ignored).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, Integer, ItemSerializer, KeyRef, ListEntry, ListSerializer};

    use super::*;

    /// A member of a list: its name or number, and its parameters.
    type Member = (Result<String, u64>, Vec<(&'static str, Result<Vec<u8>, u64>)>);

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let number =
            || prop_oneof![0..1000u64, any::<u64>(), Just(INTEGER_MAX), Just(INTEGER_MAX + 1)];
        let bytes = prop::collection::vec(any::<u8>(), 0..70);
        let value = prop_oneof![bytes.prop_map(Ok), number().prop_map(Err)];
        let parameters = prop::sample::subsequence(vec![";q=", ";w=", PARTITION, ";t="], 0..=4)
            .prop_flat_map(move |keys| {
                let values = prop::collection::vec(value.clone(), keys.len());
                values.prop_map(move |values| keys.iter().copied().zip(values).collect())
            });
        let item = prop_oneof!["[ -~]{0,40}".prop_map(Ok), number().prop_map(Err)];
        prop::collection::vec((item, parameters), 1..5)
    }

    fn integer(number: u64) -> Integer {
        Integer::try_from(number).unwrap_or(Integer::MAX)
    }

    fn bare_key(key: &str) -> &str {
        key.trim_matches([';', '='])
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
    fn lines_of_other_services_are_lists_or_not() {
        for line in ["", " ", "1", "a;q=1, \"b\";t=:YQ==:", "(1 2);a, ?1"] {
            assert!(is_list(line.as_bytes()), "{line:?}");
        }
        for line in ["1,", "a b", "q=1;", "\"a", "1.2345", "limit=10, remaining=9;reset"] {
            assert!(!is_list(line.as_bytes()), "{line:?}");
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
                    let key = KeyRef::from_str(bare_key(key)).unwrap();
                    expected = expected.parameter(key, &parameter(value));
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
                    prop_assert_eq!(entry.params.get(bare_key(key)), Some(&parameter(value)));
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
    }
}
