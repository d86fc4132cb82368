//! Networks that addresses stand for: `ipv6RangeCIDR`, and the addresses of `domainOrCIDR`.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Origin, address, reserved};

/// The prefix length of a network of `ipv6RangeCIDR`.
const RANGE_BITS: u8 = 48;
const RANGE_BITS_TEXT: &str = "48";
const RANGE_WANTED: &str =
    "must be an IPv6 CIDR range and must be /48, such as \"2602:80a:6000::/48\"";
pub(super) const RANGE_OR_ADDRESS_WANTED: &str =
    "must be an IPv6 address, or an IPv6 CIDR range and then must be /48";
/// The prefix length of an IPv6 network of `domainOrCIDR`. An IPv4 network there is a single address.
const SUBNET_BITS: u8 = 64;

/// Parses a network of `ipv6RangeCIDR` to its first 48 bits. The text ends in `/48`; a request's may also be an address
/// of the network.
pub(super) fn parse_range(text: &str, origin: Origin) -> Result<[u8; 6], String> {
    let (address, is_whole) = match text.split_once('/') {
        Some((address, bits)) => (address, bits == RANGE_BITS_TEXT),
        None => (text, matches!(origin, Origin::Request)),
    };
    let Some(range) = address.parse().ok().and_then(range).filter(|_| is_whole) else {
        return Err(match origin {
            Origin::Request => RANGE_OR_ADDRESS_WANTED.into(),
            Origin::Override { .. } => RANGE_WANTED.into(),
        });
    };
    if let Origin::Override { public_only } = origin {
        let net = range_net(range);
        let canonical = net.to_string();
        if canonical != text {
            return Err(format!("must be in canonical form, {canonical:?}"));
        }
        if public_only {
            reserved::refuse(IpNet::V6(net))?;
        }
    }
    Ok(range)
}

/// Returns the first 48 bits of an IPv6 address; `None` for an IPv4 address, also an IPv4-mapped one.
pub(super) fn range(address: IpAddr) -> Option<[u8; 6]> {
    let IpAddr::V6(address) = address.to_canonical() else { return None };
    address.octets().first_chunk().copied()
}

/// Returns the network of the first 48 bits.
pub(super) fn range_net(range: [u8; 6]) -> Ipv6Net {
    let mut octets = [0; 16];
    octets[..6].copy_from_slice(&range);
    Ipv6Net::new_assert(Ipv6Addr::from(octets), RANGE_BITS)
}

/// Returns the network that an address stands for under `domainOrCIDR`.
pub(super) fn covering(address: IpAddr) -> IpNet {
    match address.to_canonical() {
        IpAddr::V4(address) => IpNet::V4(Ipv4Net::from(address)),
        IpAddr::V6(address) => IpNet::V6(Ipv6Net::new_assert(address, SUBNET_BITS).trunc()),
    }
}

/// Parses a network of `domainOrCIDR`; `None` if the text is no address. A file gives the network by its lowest address;
/// a request by any of its addresses, or as [`decode`](super::decode) shows the network.
pub(super) fn parse_covered(text: &str, origin: Origin) -> Result<Option<IpNet>, String> {
    let Origin::Override { public_only } = origin else {
        return parse_covered_request(text);
    };
    let Ok(given) = text.parse() else { return Ok(None) };
    let address = address::accept(given, text, Origin::Override { public_only: false })?;
    let net = covering(address);
    if net.addr() != address {
        let lowest = net.addr().to_string();
        return Err(format!("must be the lowest address in its prefix {net}, {lowest:?}"));
    }
    if public_only {
        reserved::refuse(net)?;
    }
    Ok(Some(net))
}

fn parse_covered_request(text: &str) -> Result<Option<IpNet>, String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse() else { return Ok(None) };
    let net = covering(address);
    let covering_bits = if net.addr().is_ipv4() { "32" } else { "64" };
    match bits {
        Some(bits) if bits != covering_bits => {
            Err(format!("must be an IP address, or its /{covering_bits}"))
        }
        _ => Ok(Some(net)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: Origin = Origin::Override { public_only: true };
    const OWN: Origin = Origin::Override { public_only: false };

    #[test]
    fn range_is_a_48_named_by_any_address() {
        let net = |text: &str| {
            parse_range(text, Origin::Request).map(|range| range_net(range).to_string())
        };
        for text in ["2001:db8:abcd:12::1", "2001:db8:abcd::/48", "2001:0DB8:abcd:12::/48"] {
            assert_eq!(net(text).unwrap(), "2001:db8:abcd::/48");
        }
        for text in [
            "1.2.3.4",
            "::ffff:1.2.3.4",
            "1.2.3.0/24",
            "2001:db8::/32",
            "2001:db8::/+48",
            "2001:db8::/048",
            "",
            "/48",
        ] {
            assert!(net(text).is_err(), "{text}");
        }
        let why = |text: &str| parse_range(text, PUBLIC).unwrap_err();
        assert_eq!(
            why("2001:db8::/48"),
            "is in a reserved address block, 2001:db8::/32 (documentation)"
        );
        assert_eq!(why("2602:80a:6000::1/48"), "must be in canonical form, \"2602:80a:6000::/48\"");
        assert_eq!(why("2602:80a:6000::/64"), RANGE_WANTED);
        assert_eq!(why("2602:80a:6000::1"), RANGE_WANTED);
        assert!(parse_range("fd00:1:2::/48", OWN).is_ok());
    }

    #[test]
    fn override_names_prefix_by_lowest_address() {
        let net =
            |text: &str, origin| parse_covered(text, origin).map(|net| net.unwrap().to_string());
        assert_eq!(net("8.8.8.8", PUBLIC).unwrap(), "8.8.8.8/32");
        assert_eq!(net("2602:80a:6000:666::", PUBLIC).unwrap(), "2602:80a:6000:666::/64");
        assert_eq!(net("2602:80a:6000:666::1", Origin::Request).unwrap(), "2602:80a:6000:666::/64");
        assert_eq!(
            net("2602:80a:6000:666::/64", Origin::Request).unwrap(),
            "2602:80a:6000:666::/64"
        );
        assert!(net("2602:80a:6000:666::/56", Origin::Request).is_err());
        assert!(net("8.8.8.0/24", Origin::Request).is_err());
        assert_eq!(parse_covered("2602:80a:6000:666::/64", PUBLIC), Ok(None));
        assert_eq!(parse_covered("example.com/24", Origin::Request), Ok(None));
        assert_eq!(
            net("2602:80a:6000:666::1", PUBLIC).unwrap_err(),
            "must be the lowest address in its prefix 2602:80a:6000:666::/64, \"2602:80a:6000:666::\""
        );
    }
}
