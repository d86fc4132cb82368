//! Finds overrides of ids that an operator may mistake for the id of a call.

use super::entries::{LimitEntry, OverrideEntry};
use crate::limits::explanation::{NearEntry, WhyNot};
use crate::limits::{IdFormat, format};

/// The most entries that are shown beside the one that applies.
pub(super) const NEAR_MAX: usize = 8;

/// The fewest characters of an id that is compared for a typing error. Shorter ids differ in one character from many others.
const SLIP_MIN_CHARS: usize = 3;

/// Finds overrides of similar ids, at most `count`: the most similar first, and equally similar ones in the order of
/// their ids.
pub(super) fn find(limit: &LimitEntry<'_>, id: &[u8], count: usize) -> Vec<NearEntry> {
    let own = ComparedId::new(limit.format(), id);
    let mut found: Vec<Similar<'_>> = Vec::new();
    for given in limit.overrides() {
        let other = given.id_bytes();
        let is_around = || {
            given.is_of_network() && limit.overrides_around_id(id).any(|it| it.id_bytes() == other)
        };
        if other == id || format::account_of(limit.format(), id) == Some(other) || is_around() {
            continue;
        }
        let other = ComparedId::new(limit.format(), other);
        if let Some(why) = own.compare(&other) {
            let similar = Similar { rank: rank(&why), id: other.text, given, why };
            let before = |it: &Similar<'_>| (it.rank, &it.id) < (similar.rank, &similar.id);
            found.insert(found.partition_point(before), similar);
            found.truncate(count);
        }
    }
    found.into_iter().map(|similar| near_entry(&similar.given, similar.why)).collect()
}

pub(super) fn near_entry(given: &OverrideEntry<'_>, why: WhyNot) -> NearEntry {
    NearEntry {
        id: Some(given.id()),
        location: given.location(),
        limit: given.limit().cloned(),
        why,
    }
}

struct Similar<'a> {
    rank: u8,
    id: String,
    given: OverrideEntry<'a>,
    why: WhyNot,
}

/// Ranks a reason: the more similar the ids look, the lower.
fn rank(why: &WhyNot) -> u8 {
    match why {
        WhyNot::Expired(_) | WhyNot::LessSpecific => 0,
        WhyNot::Case => 1,
        WhyNot::Network(bits) => 2 + u8::from(*bits < 64),
        WhyNot::Domain(_) => 3,
        WhyNot::OneCharacter => 4,
        WhyNot::SameAccount => 5,
    }
}

/// An id with the parts that are compared.
struct ComparedId<'a> {
    format: IdFormat,
    text: String,
    /// The account's number, if the format has one before the rest.
    account: Option<&'a [u8]>,
    /// The octets of an address, or the octets that a network fixes.
    octets: Option<&'a [u8]>,
    /// A domain name.
    name: Option<&'a str>,
}

impl<'a> ComparedId<'a> {
    /// Takes an id in normal form apart.
    fn new(format: IdFormat, id: &'a [u8]) -> ComparedId<'a> {
        let (account, rest) = match id.split_at_checked(size_of::<u64>()) {
            Some((account, rest)) if format::is_composite(format) => (Some(account), rest),
            _ => (None, id),
        };
        let octets = format::address_of(format, rest);
        let name = if octets.is_none() { format::name_of(format, rest) } else { None };
        ComparedId { format, text: format::decode(format, id), account, octets, name }
    }

    fn compare(&self, other: &ComparedId<'_>) -> Option<WhyNot> {
        // Ids of two accounts are similar only if one number may be a typing error for the other.
        let is_same_account = self.account == other.account;
        if is_same_account && let Some(why) = self.compare_parts(other) {
            return Some(why);
        }
        let is_string = self.format == IdFormat::String;
        if is_string && self.text.to_lowercase() == other.text.to_lowercase() {
            return Some(WhyNot::Case);
        }
        if self.is_slip(other) {
            return Some(WhyNot::OneCharacter);
        }
        (is_same_account && self.account.is_some()).then_some(WhyNot::SameAccount)
    }

    /// Compares addresses by their network, and names by their registered domain.
    fn compare_parts(&self, other: &ComparedId<'_>) -> Option<WhyNot> {
        if let (Some(a), Some(b)) = (self.octets, other.octets) {
            // An IPv4 address has 4 octets; an IPv6 address 16, and an IPv6 network 8.
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

    /// Whether one id may have been typed by mistake for the other.
    fn is_slip(&self, other: &ComparedId<'_>) -> bool {
        // An account's override applies to all ids of the account: only the numbers are compared.
        let own = match (other.account, other.text.contains(':')) {
            (Some(_), false) => self.text.split(':').next().unwrap_or_default(),
            _ => &self.text,
        };
        differ_in_one_place(own, &other.text)
    }
}

/// Whether one character was added, removed or replaced, or two neighbours were swapped.
fn differ_in_one_place(a: &str, b: &str) -> bool {
    if a.len().abs_diff(b.len()) > char::MAX.len_utf8() || a == b {
        return false;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().min(b.len()) < SLIP_MIN_CHARS {
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
    fn one_place_is_one_edit_or_swap() {
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
