//! Addresses and their canonical text.

use std::net::IpAddr;

#[cfg(feature = "boulder")]
use super::reserved;
use super::{Origin, Scratch};

/// Parses an address. An id of a file and one of a call have different rules. An error says what the text must be.
pub(super) fn parse(text: &str, origin: Origin) -> Result<IpAddr, String> {
    let given: IpAddr = text.parse().map_err(|_| match text.contains('%') {
        true => String::from("must be an IP address without a zone"),
        false => String::from("must be an IP address"),
    })?;
    accept(given, text, origin)
}

/// Accepts the address that `text` was parsed to, by the rules for its origin, and returns it in canonical form.
pub(super) fn accept(given: IpAddr, text: &str, origin: Origin) -> Result<IpAddr, String> {
    let address = given.to_canonical();
    let Origin::Override { public_only } = origin else { return Ok(address) };
    let canonical = address.to_string();
    if canonical != text {
        let mapped = if given == address { "" } else { "is an IPv4-mapped address, " };
        return Err(format!("{mapped}must be in canonical form, {canonical:?}"));
    }
    #[cfg(feature = "boulder")]
    if public_only {
        reserved::refuse_address(address)?;
    }
    #[cfg(not(feature = "boulder"))]
    let _ = public_only; // Only Boulder's limits have that rule.
    Ok(address)
}

#[inline]
pub(super) fn push_octets(address: IpAddr, scratch: &mut Scratch) {
    match address {
        IpAddr::V4(address) => scratch.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => scratch.extend_from_slice(&address.octets()),
    }
}

pub(super) fn decode_address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
        _ => None,
    }
}

#[cfg(all(test, feature = "boulder"))]
mod tests {
    use super::*;

    const PUBLIC: Origin = Origin::Override { public_only: true };
    const OWN: Origin = Origin::Override { public_only: false };

    #[test]
    fn reserved_address_is_refused_by_smallest_block() {
        let why = |text: &str| parse(text, PUBLIC).unwrap_err();
        assert_eq!(why("10.0.0.1"), "is in a reserved address block, 10.0.0.0/8 (private use)");
        assert_eq!(
            why("192.0.0.9"),
            "is in a reserved address block, 192.0.0.9/32 (port control protocol anycast)"
        );
        assert_eq!(why("2001:2::1"), "is in a reserved address block, 2001:2::/48 (benchmarking)");
        assert_eq!(parse("10.0.0.1", OWN).unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn a_file_has_addresses_in_canonical_text() {
        for (text, why) in [
            ("2602:80A:6000::1", "must be in canonical form, \"2602:80a:6000::1\""),
            ("2602:80a:6000:0:0:0:0:1", "must be in canonical form, \"2602:80a:6000::1\""),
            ("::ffff:8.8.8.8", "is an IPv4-mapped address, must be in canonical form, \"8.8.8.8\""),
            ("2602:80a:6000::1%eth0", "must be an IP address without a zone"),
            ("[2602:80a:6000::1]", "must be an IP address"),
            ("8.8.8.08", "must be an IP address"),
            ("8.8.8", "must be an IP address"),
            ("", "must be an IP address"),
        ] {
            assert_eq!(parse(text, OWN).unwrap_err(), why, "{text}");
        }
    }
}
