//! Names of limits: which are well formed, which are Boulder's, and which was probably meant.

use crate::limits::IdFormat;

/// A name that is known without being declared.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "boulder"), allow(dead_code, reason = "there is none"))]
pub(crate) struct BoulderName {
    pub(crate) name: &'static str,
    /// Boulder's own number of it, which begins its bucket keys; an older name has none.
    #[cfg_attr(not(test), allow(dead_code, reason = "its vectors are told apart by it"))]
    pub(crate) number: Option<u8>,
    pub(crate) format: IdFormat,
}

/// Boulder's names in the order of their numbers, then the older one.
#[cfg(feature = "boulder")]
pub(crate) const BOULDER: &[BoulderName] = &[
    boulder("NewRegistrationsPerIPAddress", Some(1), IdFormat::IpAddress),
    boulder("NewRegistrationsPerIPv6Range", Some(2), IdFormat::Ipv6RangeCidr),
    boulder("NewOrdersPerAccount", Some(3), IdFormat::RegId),
    boulder("FailedAuthorizationsPerDomainPerAccount", Some(4), IdFormat::RegIdIdentValue),
    boulder("CertificatesPerDomain", Some(5), IdFormat::DomainOrCidr),
    boulder("CertificatesPerDomainPerAccount", Some(6), IdFormat::RegIdDomainOrCidr),
    boulder("CertificatesPerFQDNSet", Some(7), IdFormat::FqdnSet),
    boulder(
        "FailedAuthorizationsForPausingPerDomainPerAccount",
        Some(8),
        IdFormat::RegIdIdentValue,
    ),
    boulder("LimitOverrideRequestsPerIPAddress", Some(9), IdFormat::IpAddress),
    boulder("CertificatesPerFQDNSetPerAccount", None, IdFormat::RegIdFqdnSet),
];

/// Without the feature no name is known that was not declared.
#[cfg(not(feature = "boulder"))]
pub(crate) const BOULDER: &[BoulderName] = &[];

const NAME_MAX_CHARS: usize = 128;

/// A guess takes time by the product of both lengths, and nobody mistypes a name of this length.
const GUESS_MAX_BYTES: usize = 2 * NAME_MAX_CHARS;

#[cfg(feature = "boulder")]
const fn boulder(name: &'static str, number: Option<u8>, format: IdFormat) -> BoulderName {
    BoulderName { name, number, format }
}

/// Whether `name` is a letter, then letters, digits, `_`, `.` or `-`: at most 128 in all.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX_CHARS
        && bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// The one of `known` that `given` was probably meant to be: at most a third of it differs,
/// whatever the case of its letters.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > GUESS_MAX_BYTES {
        return None;
    }
    let given = given.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&given, &name.to_lowercase()), name))
        .filter(|(distance, name)| 3 * distance <= given.len().max(name.len()))
        // By the name too, so that the order of a hash map does not show.
        .min()
        .map(|(_, name)| name)
}

/// The text for a name that is neither declared nor Boulder's.
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let hint = match nearest(name, known) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    };
    format!("unknown limit {name:?}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_a_letter_then_letters_digits_marks() {
        for name in ["a", "Z9", "Requests_Per.Client-2", &"x".repeat(128)] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in ["", "9a", "_a", "-a", ".a", "a b", "a:b", "a\n", "caf\u{e9}", &"x".repeat(129)]
        {
            assert!(!is_valid_name(name), "{name:?}");
        }
    }

    #[cfg(feature = "boulder")]
    #[test]
    fn boulder_numbers_ascend_and_names_are_well_formed() {
        let numbers: Vec<_> = BOULDER.iter().filter_map(|known| known.number).collect();
        assert_eq!(numbers, (1..=9).collect::<Vec<u8>>());
        assert!(BOULDER.iter().all(|known| is_valid_name(known.name)));
        assert_eq!(BOULDER[9].name, "CertificatesPerFQDNSetPerAccount");
        assert_eq!(BOULDER[9].format, IdFormat::RegIdFqdnSet);
    }

    #[test]
    fn suggests_a_near_name_and_nothing_else() {
        let known = ["burst", "count", "period", "NewOrdersPerAccount"];
        let near = |given: &str| nearest(given, known.iter().copied());
        assert_eq!(near("brust"), Some("burst"));
        assert_eq!(near("Burst"), Some("burst"));
        assert_eq!(near("NewOrderPerAccount"), Some("NewOrdersPerAccount"));
        assert_eq!(near("neworderperacount"), Some("NewOrdersPerAccount"));
        assert_eq!(near("UsageRequestsPerIPv10Address"), None);
        assert_eq!(near(""), None);
        assert_eq!(near(&"burst".repeat(1000)), None);
    }

    #[test]
    fn a_tie_does_not_depend_on_the_order() {
        assert_eq!(nearest("abcx", ["abcd", "abce"].into_iter()), Some("abcd"));
        assert_eq!(nearest("abcx", ["abce", "abcd"].into_iter()), Some("abcd"));
    }
}
