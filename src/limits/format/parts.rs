//! What is in an id in normal form, for those who compare ids with each other.

use super::{Part, Shape};
#[cfg(feature = "boulder")]
use super::{TAG_V4, TAG_V6};
use crate::limits::IdFormat;

/// Whether an id of this format may have an account's number before the rest.
pub(crate) fn is_composite(format: IdFormat) -> bool {
    Shape::of(format).is_some_and(|shape| shape.is_composite)
}

/// Whether an id in normal form is an account's alone, where it may be more.
pub(crate) fn is_account(format: IdFormat, id: &[u8]) -> bool {
    id.len() == size_of::<u64>() && is_composite(format)
}

/// The octets of an address, or those that a network of at least 64 bits fixes; `rest` is an id without
/// an account's number.
pub(crate) fn address_of(format: IdFormat, rest: &[u8]) -> Option<&[u8]> {
    match Shape::of(format)?.part {
        Part::IpAddress => Some(rest),
        #[cfg(feature = "boulder")]
        Part::IdentValue | Part::DomainOrCidr => match rest {
            [TAG_V4 | TAG_V6, octets @ ..] => Some(octets),
            _ => None,
        },
        _ => None,
    }
}

/// A domain name; `rest` is an id without an account's number.
#[cfg(feature = "boulder")]
pub(crate) fn name_of(format: IdFormat, rest: &[u8]) -> Option<&str> {
    match Shape::of(format)?.part {
        Part::IdentValue | Part::DomainOrCidr | Part::Domain => std::str::from_utf8(rest).ok(),
        _ => None,
    }
}

/// Without the feature no id is a name.
#[cfg(not(feature = "boulder"))]
pub(crate) fn name_of(_: IdFormat, _: &[u8]) -> Option<&str> {
    None
}

/// The domain that a name belongs to whoever registered it.
#[cfg(feature = "boulder")]
pub(crate) fn registered_domain(name: &str) -> Option<&str> {
    psl::domain_str(name)
}

/// Without the feature there is no list of suffixes.
#[cfg(not(feature = "boulder"))]
pub(crate) fn registered_domain(_: &str) -> Option<&str> {
    None
}
