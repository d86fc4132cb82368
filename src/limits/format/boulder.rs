//! The parts of ids that only Boulder's limits have: networks, domain names and sets.

use std::net::IpAddr;

use ipnet::IpNet;

use super::address::{decode_address, push_octets};
use super::{Origin, Scratch, address, domain, network};
use crate::limits::IdentifierSet;
use crate::limits::id_format::{BoulderPart, Part};

/// The first byte of an address in a part that may also be a name. No name begins with these bytes.
const TAG_V4: u8 = 4;
const TAG_V6: u8 = 6;

pub(super) const FQDN_SET: Part = Part::Boulder(BoulderPart::FqdnSet);

/// Whether an `identValue` in normal form is an address.
pub(in crate::limits) fn is_address(id: &[u8]) -> bool {
    matches!(id, [TAG_V4 | TAG_V6, ..])
}

impl BoulderPart {
    /// Says what the part must be.
    pub(super) fn wanted(self) -> &'static str {
        match self {
            BoulderPart::Ipv6RangeCidr => network::RANGE_OR_ADDRESS_WANTED,
            BoulderPart::IdentValue | BoulderPart::DomainOrCidr => {
                "must be a domain or an IP address"
            }
            BoulderPart::Domain => "must be a domain",
            BoulderPart::FqdnSet => {
                "must be a set of domains and IP addresses, or its text with commas"
            }
        }
    }

    /// Appends a part that is given as text.
    pub(super) fn push(
        self,
        text: &str,
        origin: Origin,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let push_name = |scratch: &mut Scratch| domain::push(text, origin, scratch);
        match self {
            BoulderPart::Ipv6RangeCidr => {
                scratch.extend_from_slice(&network::parse_range(text, origin)?);
            }
            BoulderPart::IdentValue => match text.parse() {
                Ok(given) => push_tagged(address::accept(given, text, origin)?, scratch),
                Err(_) => push_name(scratch).map(drop).map_err(|why| neither(text, &why))?,
            },
            BoulderPart::DomainOrCidr => match network::parse_covered(text, origin)? {
                Some(net) => push_net(net, scratch),
                None => push_name(scratch)
                    .map_err(|why| neither(text, &why))?
                    .cut_to_registered(origin, scratch),
            },
            BoulderPart::Domain => push_name(scratch).map(drop)?,
            BoulderPart::FqdnSet => {
                let set =
                    IdentifierSet::read(text.split(','), origin).map_err(|why| why.to_string())?;
                scratch.extend_from_slice(set.hash());
            }
        }
        Ok(())
    }

    /// Appends a part that is given as an address; `None` if the part is not of that type.
    pub(super) fn push_address(self, address: IpAddr, scratch: &mut Scratch) -> Option<()> {
        match self {
            BoulderPart::Ipv6RangeCidr => scratch.extend_from_slice(&network::range(address)?),
            BoulderPart::IdentValue => push_tagged(address.to_canonical(), scratch),
            BoulderPart::DomainOrCidr => push_net(network::covering(address), scratch),
            BoulderPart::Domain | BoulderPart::FqdnSet => return None,
        }
        Some(())
    }

    /// Returns the text of a part in normal form; `None` for a set, and for bytes that are no valid part.
    pub(super) fn decode(self, id: &[u8]) -> Option<String> {
        match (self, id) {
            (BoulderPart::FqdnSet, _) => None,
            (BoulderPart::Ipv6RangeCidr, _) => {
                id.try_into().ok().map(|range| network::range_net(range).to_string())
            }
            (BoulderPart::DomainOrCidr, [TAG_V4 | TAG_V6, octets @ ..]) => {
                let address = match octets.len() {
                    8 => decode_address(&[octets, &[0; 8]].concat())?,
                    _ => decode_address(octets)?,
                };
                Some(network::covering(address).to_string())
            }
            (_, [TAG_V4 | TAG_V6, octets @ ..]) => {
                decode_address(octets).map(|address| address.to_string())
            }
            (_, name) => Some(String::from_utf8_lossy(name).into_owned()),
        }
    }

    /// Returns the octets of an address, or those that a network of `domainOrCIDR` fixes.
    pub(super) fn octets_of(self, id: &[u8]) -> Option<&[u8]> {
        match (self, id) {
            (
                BoulderPart::IdentValue | BoulderPart::DomainOrCidr,
                [TAG_V4 | TAG_V6, octets @ ..],
            ) => Some(octets),
            _ => None,
        }
    }

    /// Returns a domain name. `id` is no address.
    pub(super) fn name_of(self, id: &[u8]) -> Option<&str> {
        match self {
            BoulderPart::Ipv6RangeCidr | BoulderPart::FqdnSet => None,
            _ => std::str::from_utf8(id).ok(),
        }
    }
}

fn push_tagged(address: IpAddr, scratch: &mut Scratch) {
    scratch.push(if address.is_ipv4() { TAG_V4 } else { TAG_V6 });
    push_octets(address, scratch);
}

/// Appends the octets that a network of `domainOrCIDR` fixes.
fn push_net(net: IpNet, scratch: &mut Scratch) {
    let end = scratch.len() + 1 + usize::from(net.prefix_len() / 8);
    push_tagged(net.addr(), scratch);
    scratch.truncate(end);
}

#[cold]
fn neither(text: &str, why: &str) -> String {
    let hint = match text {
        _ if text.contains('%') => " without a zone",
        _ if text.contains('/') => " without a prefix length",
        _ => "",
    };
    format!("is neither a domain ({why}) nor an IP address{hint}")
}
