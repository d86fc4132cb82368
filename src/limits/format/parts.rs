//! Takes ids in normal form apart, to compare them.

use super::{Part, Shape};
#[cfg(feature = "boulder")]
use super::{TAG_V4, TAG_V6};
use crate::limits::IdFormat;

/// Whether ids of this format begin with an account's number.
pub(crate) fn is_composite(format: IdFormat) -> bool {
    Shape::new(format).is_some_and(|shape| shape.is_composite)
}

/// Whether an id in normal form is only the account's number of a format that has another part.
pub(crate) fn is_account(format: IdFormat, id: &[u8]) -> bool {
    id.len() == size_of::<u64>() && is_composite(format)
}

/// Returns the octets of an address, or the octets that a network of `domainOrCIDR` fixes. `rest` is an id without an
/// account's number.
pub(crate) fn address_of(format: IdFormat, rest: &[u8]) -> Option<&[u8]> {
    match Shape::new(format)?.part {
        Part::IpAddress => Some(rest),
        #[cfg(feature = "boulder")]
        Part::IdentValue | Part::DomainOrCidr => match rest {
            [TAG_V4 | TAG_V6, octets @ ..] => Some(octets),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a domain name. `rest` is an id without an account's number, and no address.
#[cfg(feature = "boulder")]
pub(crate) fn name_of(format: IdFormat, rest: &[u8]) -> Option<&str> {
    match Shape::new(format)?.part {
        Part::IdentValue | Part::DomainOrCidr | Part::Domain => std::str::from_utf8(rest).ok(),
        _ => None,
    }
}

/// Without the feature, no format has names.
#[cfg(not(feature = "boulder"))]
pub(crate) fn name_of(_: IdFormat, _: &[u8]) -> Option<&str> {
    None
}

/// Returns the registered domain of a name.
#[cfg(feature = "boulder")]
pub(crate) fn registered_domain(name: &str) -> Option<&str> {
    psl::domain_str(name)
}

/// Without the feature, there is no list of public suffixes.
#[cfg(not(feature = "boulder"))]
pub(crate) fn registered_domain(_: &str) -> Option<&str> {
    None
}
