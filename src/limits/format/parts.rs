//! Takes ids in normal form apart, to compare them.

use super::is_network;
use crate::limits::IdFormat;
use crate::limits::id_format::{Part, Shape};

/// Whether ids of this format begin with an account's number.
#[inline]
pub(crate) fn is_composite(format: IdFormat) -> bool {
    matches!(format.shape(), Shape::Composite(_))
}

/// Whether an id in normal form is only the account's number of a format that has another part.
pub(crate) fn is_account(format: IdFormat, id: &[u8]) -> bool {
    id.len() == size_of::<u64>() && is_composite(format)
}

/// Returns the octets of an address, or the octets that a network of `domainOrCIDR` fixes. `rest` is an id without an
/// account's number.
pub(crate) fn address_of(format: IdFormat, rest: &[u8]) -> Option<&[u8]> {
    match part_of(format)? {
        Part::IpAddress => (!is_network(format, rest)).then_some(rest),
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.octets_of(rest),
        _ => None,
    }
}

/// Returns a domain name. `rest` is an id without an account's number, and no address.
#[cfg_attr(not(feature = "boulder"), allow(unused_variables, reason = "no format has names"))]
pub(crate) fn name_of(format: IdFormat, rest: &[u8]) -> Option<&str> {
    match part_of(format)? {
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.name_of(rest),
        _ => None,
    }
}

/// Returns the part beside an account's number, or the only part; `None` for a tuple.
fn part_of(format: IdFormat) -> Option<Part> {
    match format.shape() {
        Shape::One(part) | Shape::Composite(part) => Some(part),
        Shape::Tuple(_) => None,
    }
}

/// Returns the registered domain of a name.
#[cfg_attr(not(feature = "boulder"), allow(unused_variables, reason = "no list of suffixes"))]
pub(crate) fn registered_domain(name: &str) -> Option<&str> {
    #[cfg(feature = "boulder")]
    return super::domain::registered_domain(name);
    #[cfg(not(feature = "boulder"))]
    None
}
