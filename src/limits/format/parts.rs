//! Takes ids in normal form apart, to compare them.

use super::{Part, Shape};
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
        Part::RegId => None,
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.octets_of(rest),
    }
}

/// Returns a domain name. `rest` is an id without an account's number, and no address.
#[cfg_attr(not(feature = "boulder"), allow(unused_variables, reason = "no format has names"))]
pub(crate) fn name_of(format: IdFormat, rest: &[u8]) -> Option<&str> {
    match Shape::new(format)?.part {
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.name_of(rest),
        _ => None,
    }
}

/// Returns the registered domain of a name.
#[cfg_attr(not(feature = "boulder"), allow(unused_variables, reason = "no list of suffixes"))]
pub(crate) fn registered_domain(name: &str) -> Option<&str> {
    #[cfg(feature = "boulder")]
    return psl::domain_str(name);
    #[cfg(not(feature = "boulder"))]
    None
}
