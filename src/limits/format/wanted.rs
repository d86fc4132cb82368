//! The texts of errors: what a field must be, and which type was given.

use std::net::IpAddr;

use super::STRING_MAX_BYTES;
use crate::limits::id::IdField;
use crate::limits::id_format::Part;

/// Says what a part must be.
#[cold]
pub(super) fn wanted(part: Part) -> String {
    match part {
        Part::String => return format!("must be text of 1 to {STRING_MAX_BYTES} bytes"),
        Part::Bytes => {
            return format!(
                "must be 1 to {STRING_MAX_BYTES} bytes, or two hexadecimal digits for each"
            );
        }
        Part::IpAddress => "must be an IP address",
        Part::RegId => {
            "must be an ACME registration Id, a number from 0 to 18446744073709551615 in decimal"
        }
        Part::Integer => "must be an integer of at most 128 bits in decimal",
        Part::Uuid => "must be a UUID: 16 bytes, or 32 hexadecimal digits with or without hyphens",
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.wanted(),
    }
    .into()
}

/// Says what a part must be, for a field of another type.
#[cold]
pub(super) fn wrong_type(part: Part, field: &IdField<'_>) -> String {
    format!("{}, not {}", wanted(part), kind(field))
}

/// Names the type of a field.
#[cold]
pub(super) fn kind(field: &IdField<'_>) -> &'static str {
    match field {
        IdField::Text(_) => "text",
        IdField::Number(_) => "a number",
        IdField::Integer(_) => "an integer",
        IdField::Address(IpAddr::V4(_)) => "an IPv4 address",
        IdField::Address(IpAddr::V6(_)) => "an IPv6 address",
        IdField::Bytes(_) => "bytes",
        IdField::Uuid(_) => "a UUID",
        #[cfg(feature = "boulder")]
        IdField::Set(_) => "a set",
    }
}
