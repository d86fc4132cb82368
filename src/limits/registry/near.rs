//! Overrides of ids that may be taken for another: what an operator has in mind who asks why one does
//! not apply.

use super::entries::{LimitEntry, OverrideEntry};
use super::explain::{NEAR_MAX, near_entry};
use crate::limits::explanation::{NearEntry, WhyNot};
use crate::limits::{IdFormat, format};

/// Shorter ids differ in one place from many.
const ONE_PLACE_MIN_CHARS: usize = 3;

/// How many are found before the nearest of them are kept.
const FOUND_MAX: usize = 8 * NEAR_MAX;

/// The overrides of other ids that are near, `count` at most: the nearest first, and equally near ones
/// by their ids.
pub(super) fn ids(limit: &LimitEntry<'_>, id: &[u8], count: usize) -> Vec<NearEntry> {
    let asked = Asked::new(limit.format(), id);
    let mut found: Vec<(Rank, String, OverrideEntry<'_>, WhyNot)> = Vec::new();
    for given in limit.overrides() {
        let other = given.id_bytes();
        if other == id || format::account_of(limit.format(), id) == Some(other) {
            continue;
        }
        if let Some(why) = asked.why_near(&given) {
            found.push((rank(&why), given.id(), given, why));
        }
        if found.len() > FOUND_MAX {
            keep_nearest(&mut found, count);
        }
    }
    keep_nearest(&mut found, count);
    found.into_iter().map(|(_, _, given, why)| near_entry(&given, why)).collect()
}

type Rank = u8;

fn keep_nearest(found: &mut Vec<(Rank, String, OverrideEntry<'_>, WhyNot)>, count: usize) {
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found.truncate(count);
}

/// The more alike the ids look, the lower.
fn rank(why: &WhyNot) -> Rank {
    match why {
        WhyNot::Expired(_) | WhyNot::LessSpecific => 0,
        WhyNot::Case => 1,
        WhyNot::Network(bits) => 2 + u8::from(*bits < 64),
        WhyNot::Domain(_) => 3,
        WhyNot::OneCharacter => 4,
        WhyNot::SameAccount => 5,
    }
}

/// The id that an explanation is of, as the comparisons need it.
struct Asked<'a> {
    format: IdFormat,
    text: String,
    parts: Parts<'a>,
}

/// An id in normal form, taken apart.
#[derive(Clone, Copy)]
struct Parts<'a> {
    /// An account's number, in the formats that have one before the rest.
    account: Option<&'a [u8]>,
    /// The octets of an address, or what a network fixes of them.
    octets: Option<&'a [u8]>,
    /// A domain name.
    name: Option<&'a str>,
}

impl Asked<'_> {
    fn new(format: IdFormat, id: &[u8]) -> Asked<'_> {
        Asked { format, text: format::decode(format, id), parts: Parts::of(format, id) }
    }

    fn why_near(&self, given: &OverrideEntry<'_>) -> Option<WhyNot> {
        let other = given.id_bytes();
        let parts = Parts::of(self.format, other);
        // Two ids of two accounts have nothing to do with each other, but for a slip.
        let is_same_account = self.parts.account == parts.account;
        if is_same_account && let Some(why) = self.parts.why_near(&parts) {
            return Some(why);
        }
        let text = given.id();
        if self.format == IdFormat::String && self.text.to_lowercase() == text.to_lowercase() {
            return Some(WhyNot::Case);
        }
        if self.is_slip(&text, &parts) {
            return Some(WhyNot::OneCharacter);
        }
        (is_same_account && parts.account.is_some()).then_some(WhyNot::SameAccount)
    }

    /// Whether one may have been typed for the other.
    fn is_slip(&self, text: &str, parts: &Parts<'_>) -> bool {
        // An account's override is near to every id of an account whose number is.
        let whole = (self.text.as_str(), text);
        let (asked, given) = match (parts.account, text.contains(':')) {
            (Some(_), false) => (self.text.split(':').next().unwrap_or_default(), text),
            _ => whole,
        };
        differ_in_one_place(asked, given)
    }
}

impl<'a> Parts<'a> {
    fn of(format: IdFormat, id: &'a [u8]) -> Parts<'a> {
        let (account, rest) = match format::is_composite(format) {
            true => id
                .split_at_checked(size_of::<u64>())
                .map_or((None, id), |(a, rest)| (Some(a), rest)),
            false => (None, id),
        };
        let (octets, name) = match format::address_of(format, rest) {
            Some(octets) => (Some(octets), None),
            None => (None, format::name_of(format, rest)),
        };
        Parts { account, octets, name }
    }

    fn why_near(&self, other: &Parts<'_>) -> Option<WhyNot> {
        if let (Some(a), Some(b)) = (self.octets, other.octets) {
            // An IPv4 address has 4; of IPv6 there are 16, or the 8 of a network.
            let is_v4 = a.len() == 4;
            if is_v4 != (b.len() == 4) {
                return None;
            }
            let networks: &[u8] = if is_v4 { &[24] } else { &[64, 48] };
            let same = |bits: &u8| a.get(..usize::from(bits / 8)) == b.get(..usize::from(bits / 8));
            return networks.iter().copied().find(same).map(WhyNot::Network);
        }
        let (a, b) = (self.name?, other.name?);
        let domain = format::registered_domain(a)?;
        (format::registered_domain(b) == Some(domain)).then(|| WhyNot::Domain(domain.into()))
    }
}

/// Whether one character is more, less, or another, or two beside each other have changed places.
fn differ_in_one_place(a: &str, b: &str) -> bool {
    if a.len().abs_diff(b.len()) > char::MAX.len_utf8() || a == b {
        return false;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().min(b.len()) < ONE_PLACE_MIN_CHARS {
        return false;
    }
    let same_before = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same_before..], &b[same_before..]);
    let same_after = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - same_after], &b[..b.len() - same_after]) {
        ([_], []) | ([], [_]) | ([_], [_]) => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_edit_is_a_character_or_a_swap() {
        for (a, b) in [
            ("abc", "abcd"),
            ("abc", "abd"),
            ("abc", "acb"),
            ("abcc", "abc"),
            ("xabc", "abc"),
            ("\u{e9}bc", "ebc"),
        ] {
            assert!(differ_in_one_place(a, b) && differ_in_one_place(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("abc", "abc"),
            ("abc", "cba"),
            ("abc", "abcde"),
            ("abcd", "badc"),
            ("ab", "ac"),
            ("", "a"),
        ] {
            assert!(!differ_in_one_place(a, b) && !differ_in_one_place(b, a), "{a} {b}");
        }
    }
}
