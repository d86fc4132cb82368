//! Addresses: their canonical text, and with Boulder's names the blocks that are nobody's own.

use std::net::IpAddr;
#[cfg(feature = "boulder")]
use std::net::{Ipv4Addr, Ipv6Addr};

#[cfg(feature = "boulder")]
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Origin;

/// The bits of a network that `ipv6RangeCIDR` stands for.
#[cfg(feature = "boulder")]
const RANGE_BITS: u8 = 48;
#[cfg(feature = "boulder")]
const RANGE_BITS_TEXT: &str = "48";
#[cfg(feature = "boulder")]
const RANGE_WANTED: &str =
    "must be an IPv6 CIDR range and must be /48, such as \"2602:80a:6000::/48\"";
#[cfg(feature = "boulder")]
pub(super) const RANGE_OR_ADDRESS_WANTED: &str =
    "must be an IPv6 address, or an IPv6 CIDR range and then must be /48";
/// The bits of an IPv6 network under `domainOrCIDR`; an IPv4 one is a single address.
#[cfg(feature = "boulder")]
const SUBNET_BITS: u8 = 64;

/// The address that `text` is, by the rules of where it comes from; else what it must be.
pub(super) fn parse(text: &str, origin: Origin) -> Result<IpAddr, String> {
    let given: IpAddr = text.parse().map_err(|_| match text.contains('%') {
        true => String::from("must be an IP address without a zone"),
        false => String::from("must be an IP address"),
    })?;
    accept(given, text, origin)
}

/// The address `given` as `text`, by the rules of where it comes from.
pub(super) fn accept(given: IpAddr, text: &str, origin: Origin) -> Result<IpAddr, String> {
    let address = given.to_canonical();
    if let Origin::Override { public_only } = origin {
        let canonical = address.to_string();
        if canonical != text {
            return Err(match given == address {
                true => format!("must be in canonical form, {canonical:?}"),
                false => {
                    format!("is an IPv4-mapped address, must be in canonical form, {canonical:?}")
                }
            });
        }
        if public_only {
            refuse_reserved_address(address)?;
        }
    }
    Ok(address)
}

#[cfg(not(feature = "boulder"))]
fn refuse_reserved_address(_: IpAddr) -> Result<(), String> {
    // Only Boulder's limits have the rule.
    Ok(())
}

#[cfg(feature = "boulder")]
fn refuse_reserved_address(address: IpAddr) -> Result<(), String> {
    refuse_reserved(IpNet::from(address))
}

/// The first 48 bits of the network that `text` is: itself with its `/48`, or in a request an
/// address of it.
#[cfg(feature = "boulder")]
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
            refuse_reserved(IpNet::V6(net))?;
        }
    }
    Ok(range)
}

/// The first 48 bits of an IPv6 address. An IPv4-mapped one is IPv4, which has no such range.
#[cfg(feature = "boulder")]
pub(super) fn range(address: IpAddr) -> Option<[u8; 6]> {
    let IpAddr::V6(address) = address.to_canonical() else { return None };
    address.octets().first_chunk().copied()
}

#[cfg(feature = "boulder")]
pub(super) fn range_net(range: [u8; 6]) -> Ipv6Net {
    let mut octets = [0; 16];
    octets[..6].copy_from_slice(&range);
    Ipv6Net::new_assert(Ipv6Addr::from(octets), RANGE_BITS)
}

/// The network that an address counts for under `domainOrCIDR`.
#[cfg(feature = "boulder")]
pub(super) fn covering(address: IpAddr) -> IpNet {
    match address.to_canonical() {
        IpAddr::V4(address) => IpNet::V4(Ipv4Net::from(address)),
        IpAddr::V6(address) => IpNet::V6(Ipv6Net::new_assert(address, SUBNET_BITS).trunc()),
    }
}

/// The network under `domainOrCIDR` that `text` is; None if it is no address at all. A file names
/// it by its lowest address alone; a request by any, or as [`decode`](super::decode) shows it.
#[cfg(feature = "boulder")]
pub(super) fn parse_covered(text: &str, origin: Origin) -> Result<Option<IpNet>, String> {
    let Origin::Override { public_only } = origin else {
        return parse_covered_request(text);
    };
    let Ok(given) = text.parse() else { return Ok(None) };
    let address = accept(given, text, Origin::Override { public_only: false })?;
    let net = covering(address);
    if net.addr() != address {
        let lowest = net.addr().to_string();
        return Err(format!("must be the lowest address in its prefix {net}, {lowest:?}"));
    }
    if public_only {
        refuse_reserved(net)?;
    }
    Ok(Some(net))
}

#[cfg(feature = "boulder")]
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

/// A block that IANA's special-purpose registries list, or multicast, which Boulder adds.
#[cfg(feature = "boulder")]
struct Block {
    net: IpNet,
    name: &'static str,
}

#[cfg(feature = "boulder")]
fn refuse_reserved(net: IpNet) -> Result<(), String> {
    let overlapping =
        RESERVED.iter().filter(|block| block.net.contains(&net) || net.contains(&block.net));
    match overlapping.max_by_key(|block| block.net.prefix_len()) {
        Some(Block { net, name }) => Err(format!("is in a reserved address block, {net} ({name})")),
        None => Ok(()),
    }
}

#[cfg(feature = "boulder")]
const fn v4(octets: [u8; 4], bits: u8, name: &'static str) -> Block {
    let [a, b, c, d] = octets;
    Block { net: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)), name }
}

/// `head` and `tail` are the first four groups and the last.
#[cfg(feature = "boulder")]
const fn v6(head: [u16; 4], tail: u16, bits: u8, name: &'static str) -> Block {
    let [a, b, c, d] = head;
    Block {
        net: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, tail), bits)),
        name,
    }
}

#[cfg(feature = "boulder")]
const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96);

/// The registries as Boulder has them, which is IANA's state of 2025.
#[cfg(feature = "boulder")]
#[rustfmt::skip]
const RESERVED: &[Block] = &[
    v4([0, 0, 0, 0], 8, "this network"),
    v4([0, 0, 0, 0], 32, "this host on this network"),
    v4([10, 0, 0, 0], 8, "private use"),
    v4([100, 64, 0, 0], 10, "shared address space"),
    v4([127, 0, 0, 0], 8, "loopback"),
    v4([169, 254, 0, 0], 16, "link local"),
    v4([172, 16, 0, 0], 12, "private use"),
    v4([192, 0, 0, 0], 24, "IETF protocol assignments"),
    v4([192, 0, 0, 0], 29, "IPv4 service continuity"),
    v4([192, 0, 0, 8], 32, "IPv4 dummy address"),
    v4([192, 0, 0, 9], 32, "port control protocol anycast"),
    v4([192, 0, 0, 10], 32, "TURN anycast"),
    v4([192, 0, 0, 170], 32, "NAT64/DNS64 discovery"),
    v4([192, 0, 0, 171], 32, "NAT64/DNS64 discovery"),
    v4([192, 0, 2, 0], 24, "documentation, TEST-NET-1"),
    v4([192, 31, 196, 0], 24, "AS112-v4"),
    v4([192, 52, 193, 0], 24, "AMT"),
    v4([192, 88, 99, 0], 24, "deprecated, 6to4 relay anycast"),
    v4([192, 168, 0, 0], 16, "private use"),
    v4([192, 175, 48, 0], 24, "direct delegation AS112 service"),
    v4([198, 18, 0, 0], 15, "benchmarking"),
    v4([198, 51, 100, 0], 24, "documentation, TEST-NET-2"),
    v4([203, 0, 113, 0], 24, "documentation, TEST-NET-3"),
    v4([224, 0, 0, 0], 4, "multicast"),
    v4([240, 0, 0, 0], 4, "reserved"),
    v4([255, 255, 255, 255], 32, "limited broadcast"),
    v6([0, 0, 0, 0], 1, 128, "loopback"),
    v6([0, 0, 0, 0], 0, 128, "unspecified address"),
    Block { net: IpNet::V6(MAPPED), name: "IPv4-mapped" },
    v6([0x64, 0xff9b, 0, 0], 0, 96, "IPv4-IPv6 translation"),
    v6([0x64, 0xff9b, 1, 0], 0, 48, "IPv4-IPv6 translation, local"),
    v6([0x100, 0, 0, 0], 0, 64, "discard only"),
    v6([0x100, 0, 0, 1], 0, 64, "dummy prefix"),
    v6([0x2001, 0, 0, 0], 0, 23, "IETF protocol assignments"),
    v6([0x2001, 0, 0, 0], 0, 32, "Teredo"),
    v6([0x2001, 1, 0, 0], 1, 128, "port control protocol anycast"),
    v6([0x2001, 1, 0, 0], 2, 128, "TURN anycast"),
    v6([0x2001, 1, 0, 0], 3, 128, "DNS-SD service registration anycast"),
    v6([0x2001, 2, 0, 0], 0, 48, "benchmarking"),
    v6([0x2001, 3, 0, 0], 0, 32, "AMT"),
    v6([0x2001, 4, 0x112, 0], 0, 48, "AS112-v6"),
    v6([0x2001, 0x10, 0, 0], 0, 28, "deprecated, ORCHID"),
    v6([0x2001, 0x20, 0, 0], 0, 28, "ORCHIDv2"),
    v6([0x2001, 0x30, 0, 0], 0, 28, "drone remote id"),
    v6([0x2001, 0xdb8, 0, 0], 0, 32, "documentation"),
    v6([0x2002, 0, 0, 0], 0, 16, "6to4"),
    v6([0x2620, 0x4f, 0x8000, 0], 0, 48, "direct delegation AS112 service"),
    v6([0x3fff, 0, 0, 0], 0, 20, "documentation"),
    v6([0x5f00, 0, 0, 0], 0, 16, "segment routing SIDs"),
    v6([0xfc00, 0, 0, 0], 0, 7, "unique local"),
    v6([0xfe80, 0, 0, 0], 0, 10, "link local unicast"),
    v6([0xff00, 0, 0, 0], 0, 8, "multicast"),
];

#[cfg(all(test, feature = "boulder"))]
mod tests {
    use super::*;

    const PUBLIC: Origin = Origin::Override { public_only: true };
    const OWN: Origin = Origin::Override { public_only: false };

    #[test]
    fn reserved_blocks_match_the_registries_at_both_ends() {
        let reserved = |text: &str| refuse_reserved_address(text.parse().unwrap()).is_err();
        for (outside, first, last, next) in [
            ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
            ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
            ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
            ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
            ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
            ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
            ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
            ("192.31.195.255", "192.31.196.0", "192.31.196.255", "192.31.197.0"),
            ("192.52.192.255", "192.52.193.0", "192.52.193.255", "192.52.194.0"),
            ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"),
            ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
            ("192.175.47.255", "192.175.48.0", "192.175.48.255", "192.175.49.0"),
            ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
            ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"),
            ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"),
            ("64:ff9a:ffff::", "64:ff9b::", "64:ff9b::ffff:ffff", "64:ff9b::1:0:0"),
            (
                "64:ff9b:0:ffff::",
                "64:ff9b:1::",
                "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
                "64:ff9b:2::",
            ),
            ("ff:ffff::", "100::", "100::1:ffff:ffff:ffff:ffff", "100:0:0:2::"),
            ("2000:ffff::", "2001::", "2001:1ff:ffff::", "2001:200::"),
            ("2001:db7:ffff::", "2001:db8::", "2001:db8:ffff::", "2001:db9::"),
            ("2001:ffff::", "2002::", "2002:ffff::", "2003::"),
            ("2620:4f:7fff::", "2620:4f:8000::", "2620:4f:8000:ffff::", "2620:4f:8001::"),
            ("3ffe:ffff::", "3fff::", "3fff:fff:ffff::", "3fff:1000::"),
            ("5eff:ffff::", "5f00::", "5f00:ffff::", "5f01::"),
            ("fbff:ffff::", "fc00::", "fdff:ffff::", "fe00::"),
            ("fe7f:ffff::", "fe80::", "febf:ffff::", "fec0::"),
        ] {
            assert!(!reserved(outside), "{outside}");
            assert!(reserved(first), "{first}");
            assert!(reserved(last), "{last}");
            assert!(!reserved(next), "{next}");
        }
        for text in [
            "0.0.0.0",
            "0.255.255.255",
            "224.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "ff02::1",
        ] {
            assert!(reserved(text), "{text}");
        }
        for text in ["1.0.0.0", "223.255.255.255", "::2", "2602:80a:6000::42:42"] {
            assert!(!reserved(text), "{text}");
        }
    }

    #[test]
    fn reserved_address_error_names_the_smallest_block() {
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

    #[test]
    fn range_is_a_48_and_covers_its_addresses() {
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
    fn override_names_a_prefix_by_its_lowest_address() {
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
