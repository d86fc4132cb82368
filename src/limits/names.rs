//! Names of limits: which are valid, which are Boulder's, and which one an unknown name was probably meant to be.

use crate::limits::IdFormat;

/// Boulder's names with the formats of their ids, which need no declaration: in the order of the numbers that begin
/// Boulder's bucket keys, then an older name without a number.
#[cfg(feature = "boulder")]
pub(crate) const BOULDER: &[(&str, IdFormat)] = &[
    ("NewRegistrationsPerIPAddress", IdFormat::IpAddress),
    ("NewRegistrationsPerIPv6Range", IdFormat::Ipv6RangeCidr),
    ("NewOrdersPerAccount", IdFormat::RegId),
    ("FailedAuthorizationsPerDomainPerAccount", IdFormat::RegIdIdentValue),
    ("CertificatesPerDomain", IdFormat::DomainOrCidr),
    ("CertificatesPerDomainPerAccount", IdFormat::RegIdDomainOrCidr),
    ("CertificatesPerFQDNSet", IdFormat::FqdnSet),
    ("FailedAuthorizationsForPausingPerDomainPerAccount", IdFormat::RegIdIdentValue),
    ("LimitOverrideRequestsPerIPAddress", IdFormat::IpAddress),
    ("CertificatesPerFQDNSetPerAccount", IdFormat::RegIdFqdnSet),
];

/// Returns the number that begins Boulder's bucket keys of a limit.
#[cfg(feature = "boulder")]
pub(crate) fn boulder_number(name: &str) -> Option<usize> {
    let numbered = BOULDER.len() - 1;
    BOULDER[..numbered].iter().position(|(known, _)| *known == name).map(|at| at + 1)
}

/// Without the feature, every name has to be declared.
#[cfg(not(feature = "boulder"))]
pub(crate) const BOULDER: &[(&str, IdFormat)] = &[];

/// The name of the section of the store in a limits file. No limit has it.
pub(crate) const STORE: &str = "store";

/// Why no limit is called [`STORE`].
pub(crate) const STORE_IS_RESERVED: &str = "the name store is reserved for the section of the store that limits share: give the limit another name";

/// The names that are valid, for messages.
pub(crate) const ALLOWED: &str =
    "a letter, then letters, digits, '_', '.' or '-', at most 128 characters,";

const NAME_MAX_CHARS: usize = 128;

/// The longest text that is compared with known names: a comparison takes time by the product of both lengths.
const GUESS_MAX_BYTES: usize = 2 * NAME_MAX_CHARS;

/// Whether `name` is a letter, then letters, digits, `_`, `.` or `-`, at most 128 characters in all.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX_CHARS
        && bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Returns `; did you mean ...?` with the nearest of the known words, or nothing if none is near.
pub(crate) fn hint<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(given, known).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// Returns the word that `given` was probably meant to be: at most a third of it differs, regardless of case. Without the
/// features `yaml` and `serde` only the case may differ.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > GUESS_MAX_BYTES {
        return None;
    }
    let given = given.to_lowercase();
    known
        .map(|name| (distance(&given, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= given.len().max(name.len()) / 3)
        // Equally near words are ordered by their text, so that the order of a hash map does not show.
        .min()
        .map(|(_, name)| name)
}

/// Counts the characters in which two words differ.
fn distance(a: &str, b: &str) -> usize {
    #[cfg(any(feature = "yaml", feature = "serde"))]
    return strsim::damerau_levenshtein(a, b);
    #[cfg(not(any(feature = "yaml", feature = "serde")))]
    return if a == b { 0 } else { usize::MAX };
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
    fn boulders_names_are_well_formed() {
        assert!(BOULDER.iter().all(|(name, _)| is_valid_name(name)));
        assert_eq!(BOULDER.len(), 10);
        assert_eq!(BOULDER[9], ("CertificatesPerFQDNSetPerAccount", IdFormat::RegIdFqdnSet));
    }

    #[cfg(any(feature = "yaml", feature = "serde"))]
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

    #[cfg(any(feature = "yaml", feature = "serde"))]
    #[test]
    fn a_tie_does_not_depend_on_the_order() {
        assert_eq!(nearest("abcx", ["abcd", "abce"].into_iter()), Some("abcd"));
        assert_eq!(nearest("abcx", ["abce", "abcd"].into_iter()), Some("abcd"));
    }
}
