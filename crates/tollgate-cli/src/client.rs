//! Maps the IPv6 address of a log's client to its network, as the tower layer does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefix of the IPv6 addresses into which NAT64 translators embed IPv4 addresses (RFC 6052).
const NAT64_PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The first group of 6to4 (RFC 3056).
const SIX_TO_FOUR: u16 = 0x2002;

/// Returns the first address of the client's network, whose prefix has `prefix` bits, 1 to 128. Returns the IPv4
/// address if the IPv6 address embeds one. Returns `None` if `client` is an IPv4 address or no address: it stays as
/// written.
pub(crate) fn network_of(client: &[u8], prefix: u8) -> Option<String> {
    let address: Ipv6Addr = std::str::from_utf8(client).ok()?.parse().ok()?;
    if let IpAddr::V4(mapped) = address.to_canonical() {
        return Some(mapped.to_string());
    }
    if address.segments()[..6] == NAT64_PREFIX {
        let [.., a, b, c, d] = address.octets();
        return Some(Ipv4Addr::new(a, b, c, d).to_string());
    }
    // One IPv4 address has a /48 under 6to4, whatever the prefix.
    let prefix = if address.segments()[0] == SIX_TO_FOUR { prefix.min(48) } else { prefix };
    let mask = u128::MAX << (128 - u32::from(prefix));
    Some(Ipv6Addr::from_bits(address.to_bits() & mask).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_clients_are_their_network() {
        let of = |client: &str, prefix| network_of(client.as_bytes(), prefix);
        for (client, prefix, network) in [
            ("2001:DB8:1:2:3::4", 64, Some("2001:db8:1:2::")),
            ("2001:db8:1:2:3::4", 48, Some("2001:db8:1::")),
            ("2001:db8:1:2:3::4", 128, Some("2001:db8:1:2:3::4")),
            ("2001:db8:1:2:3::4", 1, Some("::")),
            ("ffff::1", 1, Some("8000::")),
            ("64:ff9b::192.0.2.1", 64, Some("192.0.2.1")),
            ("2002:c000:201:5::1", 64, Some("2002:c000:201::")),
            ("2002:c000:201:5::1", 32, Some("2002:c000::")),
            ("192.0.2.1", 64, None),
            ("::ffff:192.0.2.1", 64, Some("192.0.2.1")),
            ("fe80::1%eth0", 64, None),
            ("name", 64, None),
        ] {
            assert_eq!(of(client, prefix).as_deref(), network, "{client}/{prefix}");
        }
        assert_eq!(network_of(b"\xff", 64), None);
    }
}
