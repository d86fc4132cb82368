//! Maps an IPv6 address to the address by which the HTTP parts count its client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A customer gets a /64 at least.
pub(crate) const IPV6_PREFIX_DEFAULT: u8 = 64;

/// The prefix of all translators under which they put the address of an IPv4 client into IPv6 (RFC 6052, 2.1).
const NAT64_PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The first group of 6to4 (RFC 3056).
const SIX_TO_FOUR: u16 = 0x2002;
/// The network that one IPv4 address has under 6to4.
const SIX_TO_FOUR_PREFIX: u8 = 48;

/// Returns the IPv4 address within an address of the well-known prefix `64:ff9b::/96`.
pub(crate) fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    (address.segments()[..6] == NAT64_PREFIX).then_some(Ipv4Addr::new(a, b, c, d))
}

pub(crate) fn is_6to4(address: Ipv6Addr) -> bool {
    address.segments()[0] == SIX_TO_FOUR
}

/// Returns the base address of the client's network, of `prefix` bits. The client of a translator is its IPv4 address. The
/// client of 6to4 has a /48 at most, also with a longer prefix: one IPv4 address would otherwise have 65,536 networks of 64 bits.
pub(crate) fn client_network(address: Ipv6Addr, prefix: u8) -> IpAddr {
    if let Some(address) = nat64(address) {
        return address.into();
    }
    let prefix = if is_6to4(address) { prefix.min(SIX_TO_FOUR_PREFIX) } else { prefix };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask).into()
}
