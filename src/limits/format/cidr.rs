//! Networks that an override of a limit of addresses may name, such as `10.0.0.0/8`.
//!
//! In normal form a network is the octets of its lowest address, and one byte for the length of its prefix. No address has
//! as many bytes.

use std::net::IpAddr;

#[cfg(feature = "boulder")]
use ipnet::IpNet;

use super::address::decode_address;
#[cfg(feature = "boulder")]
use super::reserved;
use crate::limits::IdFormat;

const WANTED: &str = "must be an IP address, or a network such as \"10.0.0.0/8\"";
const V4_OCTETS: usize = 4;
const V6_OCTETS: usize = 16;
/// The bits of an IPv6 address before an IPv4 address that it stands for.
const MAPPED_BITS: u8 = 96;

/// A network in normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkId {
    bytes: [u8; V6_OCTETS + 1],
    len: u8,
}

impl NetworkId {
    /// Returns the network of the first `bits` bits of an address or of a smaller network, in normal form. `None` if `id`
    /// is neither.
    pub(crate) fn around(id: &[u8], bits: u8) -> Option<NetworkId> {
        let (octets, _) = split(id)?;
        let mut address = [0; V6_OCTETS];
        address.get_mut(..octets.len())?.copy_from_slice(octets);
        let mask = u128::MAX.checked_shl(u128::BITS - u32::from(bits)).unwrap_or(0);
        let masked = (u128::from_be_bytes(address) & mask).to_be_bytes();
        let mut bytes = [0; V6_OCTETS + 1];
        bytes[..octets.len()].copy_from_slice(&masked[..octets.len()]);
        bytes[octets.len()] = bits;
        Some(NetworkId { bytes, len: octets.len() as u8 + 1 })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Returns the octets of an address or a network in normal form, and the number of bits that are fixed.
fn split(id: &[u8]) -> Option<(&[u8], u8)> {
    match (id.len(), id) {
        (V4_OCTETS | V6_OCTETS, _) => Some((id, id.len() as u8 * 8)),
        (5 | 17, [octets @ .., bits]) => Some((octets, *bits)),
        _ => None,
    }
}

/// Returns whether the address or the network is of IPv4, and the number of bits that are fixed.
pub(crate) fn family_and_bits(id: &[u8]) -> Option<(bool, u8)> {
    split(id).map(|(octets, bits)| (octets.len() == V4_OCTETS, bits))
}

/// Whether an override's id in normal form is a network.
pub(crate) fn is_network(format: IdFormat, id: &[u8]) -> bool {
    format == IdFormat::IpAddress && matches!(id.len(), 5 | 17)
}

/// Whether this is the text of a network in canonical form.
#[cfg(feature = "snapshot")]
pub(crate) fn is_network_text(text: &str) -> bool {
    parse(text, false).is_ok()
}

/// Returns the text of a network in normal form.
pub(super) fn decode(id: &[u8]) -> Option<String> {
    let (octets, bits) = split(id).filter(|_| matches!(id.len(), 5 | 17))?;
    Some(format!("{}/{bits}", decode_address(octets)?))
}

/// Parses the text of a network, which must be in canonical form. `public_only` refuses networks in reserved blocks.
pub(super) fn parse(text: &str, public_only: bool) -> Result<NetworkId, String> {
    let (address, length) = text.split_once('/').ok_or(WANTED)?;
    let given: IpAddr = address.parse().map_err(|_| WANTED)?;
    let is_digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u8 = length.parse().ok().filter(|_| is_digits).ok_or(WANTED)?;
    let address = given.to_canonical();
    let mapped_bits = if address == given { 0 } else { MAPPED_BITS };
    let all = if address.is_ipv4() { 32 } else { 128 };
    // A network around all IPv4-mapped addresses has other addresses as well.
    let Some(bits) = bits.checked_sub(mapped_bits).filter(|&bits| bits <= all) else {
        return Err(format!("must have a prefix of at most {all} bits"));
    };
    if bits == all {
        return Err(format!("is one address: must be {:?}", address.to_string()));
    }
    let id = match address {
        IpAddr::V4(address) => NetworkId::around(&address.octets(), bits),
        IpAddr::V6(address) => NetworkId::around(&address.octets(), bits),
    };
    let id = id.ok_or(WANTED)?;
    let canonical = decode(id.as_bytes()).ok_or(WANTED)?;
    if canonical != text {
        let mapped = if mapped_bits == 0 { "" } else { "is a network of IPv4-mapped addresses, " };
        return Err(format!("{mapped}must be in canonical form, {canonical:?}"));
    }
    #[cfg(feature = "boulder")]
    if public_only && let Ok(net) = text.parse::<IpNet>() {
        reserved::refuse(net)?;
    }
    #[cfg(not(feature = "boulder"))]
    let _ = public_only; // Only Boulder's limits have that rule.
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_its_lowest_address_and_length() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.128/25", "::/0", "2001:db8::/32", "::/127"]
        {
            let id = parse(text, false).expect(text);
            assert_eq!(decode(id.as_bytes()).as_deref(), Some(text));
            assert!(is_network(IdFormat::IpAddress, id.as_bytes()));
        }
        let why = |text| parse(text, false).unwrap_err();
        for (text, wanted) in [
            ("10.0.0.1/8", "must be in canonical form, \"10.0.0.0/8\""),
            ("2001:DB8::/32", "must be in canonical form, \"2001:db8::/32\""),
            ("10.0.0.0/08", "must be in canonical form, \"10.0.0.0/8\""),
            ("10.0.0.1/32", "is one address: must be \"10.0.0.1\""),
            ("2001:db8::1/128", "is one address: must be \"2001:db8::1\""),
            ("10.0.0.0/33", "must have a prefix of at most 32 bits"),
            ("::/129", "must have a prefix of at most 128 bits"),
            (
                "::ffff:10.0.0.0/104",
                "is a network of IPv4-mapped addresses, must be in canonical form, \"10.0.0.0/8\"",
            ),
            ("::ffff:10.0.0.1/64", "must have a prefix of at most 32 bits"),
            ("10.0.0.0/", WANTED),
            ("10.0.0.0/+8", WANTED),
            ("10.0.0.0/999", WANTED),
            ("10.0.0/8", WANTED),
            ("/8", WANTED),
            ("a/8", WANTED),
        ] {
            assert_eq!(why(text), wanted, "{text}");
        }
    }

    #[test]
    fn network_around_has_its_first_bits() {
        let around = |id: &[u8], bits| NetworkId::around(id, bits).map(|it| it.as_bytes().to_vec());
        let text = |id: Option<Vec<u8>>| id.and_then(|id| decode(&id));
        assert_eq!(text(around(&[10, 255, 3, 4], 9)).as_deref(), Some("10.128.0.0/9"));
        assert_eq!(text(around(&[10, 255, 3, 4], 0)).as_deref(), Some("0.0.0.0/0"));
        let larger = around(&around(&[10, 255, 3, 4], 24).unwrap(), 8);
        assert_eq!(text(larger).as_deref(), Some("10.0.0.0/8"));
        let v6 = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(text(around(&v6, 64)).as_deref(), Some("2001:db8:1:2::/64"));
        assert_eq!(text(around(&v6, 127)).as_deref(), Some("2001:db8:1:2::6/127"));
        assert_eq!(around(&[1, 2, 3], 8), None);
    }
}
