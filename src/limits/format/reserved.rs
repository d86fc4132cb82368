//! The blocks of addresses that overrides of Boulder's limits may not have.

use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;

/// The blocks of IANA's special-purpose registries, as of 2025, and multicast, which Boulder adds.
#[rustfmt::skip]
const RESERVED: &[(&str, &str)] = &[
    ("0.0.0.0/8", "this network"),
    ("0.0.0.0/32", "this host on this network"),
    ("10.0.0.0/8", "private use"),
    ("100.64.0.0/10", "shared address space"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link local"),
    ("172.16.0.0/12", "private use"),
    ("192.0.0.0/24", "IETF protocol assignments"),
    ("192.0.0.0/29", "IPv4 service continuity"),
    ("192.0.0.8/32", "IPv4 dummy address"),
    ("192.0.0.9/32", "port control protocol anycast"),
    ("192.0.0.10/32", "TURN anycast"),
    ("192.0.0.170/32", "NAT64/DNS64 discovery"),
    ("192.0.0.171/32", "NAT64/DNS64 discovery"),
    ("192.0.2.0/24", "documentation, TEST-NET-1"),
    ("192.31.196.0/24", "AS112-v4"),
    ("192.52.193.0/24", "AMT"),
    ("192.88.99.0/24", "deprecated, 6to4 relay anycast"),
    ("192.168.0.0/16", "private use"),
    ("192.175.48.0/24", "direct delegation AS112 service"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation, TEST-NET-2"),
    ("203.0.113.0/24", "documentation, TEST-NET-3"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("255.255.255.255/32", "limited broadcast"),
    ("::1/128", "loopback"),
    ("::/128", "unspecified address"),
    ("::ffff:0.0.0.0/96", "IPv4-mapped"),
    ("64:ff9b::/96", "IPv4-IPv6 translation"),
    ("64:ff9b:1::/48", "IPv4-IPv6 translation, local"),
    ("100::/64", "discard only"),
    ("100:0:0:1::/64", "dummy prefix"),
    ("2001::/23", "IETF protocol assignments"),
    ("2001::/32", "Teredo"),
    ("2001:1::1/128", "port control protocol anycast"),
    ("2001:1::2/128", "TURN anycast"),
    ("2001:1::3/128", "DNS-SD service registration anycast"),
    ("2001:2::/48", "benchmarking"),
    ("2001:3::/32", "AMT"),
    ("2001:4:112::/48", "AS112-v6"),
    ("2001:10::/28", "deprecated, ORCHID"),
    ("2001:20::/28", "ORCHIDv2"),
    ("2001:30::/28", "drone remote id"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "direct delegation AS112 service"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "segment routing SIDs"),
    ("fc00::/7", "unique local"),
    ("fe80::/10", "link local unicast"),
    ("ff00::/8", "multicast"),
];

/// Refuses an address or network that overlaps a reserved block. The message names the smallest such block.
pub(super) fn refuse(net: IpNet) -> Result<(), String> {
    static BLOCKS: LazyLock<Vec<(IpNet, &str)>> = LazyLock::new(|| {
        let parse = |&(block, name): &(&str, _)| Some((block.parse().ok()?, name));
        RESERVED.iter().filter_map(parse).collect()
    });
    let overlapping =
        BLOCKS.iter().filter(|(block, _)| block.contains(&net) || net.contains(block));
    match overlapping.max_by_key(|(block, _)| block.prefix_len()) {
        Some((block, name)) => Err(format!("is in a reserved address block, {block} ({name})")),
        None => Ok(()),
    }
}

/// Refuses an address in a reserved block.
pub(super) fn refuse_address(address: IpAddr) -> Result<(), String> {
    refuse(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_a_network_in_canonical_text() {
        for (text, name) in RESERVED {
            let block: IpNet = text.parse().expect(name);
            assert_eq!((&*block.to_string(), block.trunc()), (*text, block));
        }
    }

    #[test]
    fn reserved_blocks_have_the_bounds_of_registries() {
        let reserved = |text: &str| refuse_address(text.parse().unwrap()).is_err();
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
}
