//! Warns of overrides for one IPv6 address, or a network without a client's base address, because the HTTP layer counts a client by its network.

use std::net::{IpAddr, Ipv6Addr};

use crate::limits::IdFormat;
use crate::limits::names::BOULDER;
use crate::limits::registry::entries::OverrideEntry;
use crate::util::client_network::{IPV6_PREFIX_DEFAULT, client_network, is_6to4};

impl OverrideEntry<'_> {
    /// Returns the warning if the HTTP layer, with its defaults, looks for another id. Boulder counts by the address.
    pub(super) fn one_address(&self) -> Option<String> {
        let limit = self.limit_entry();
        let is_boulders = BOULDER.iter().any(|(name, _)| *name == limit.name());
        if limit.format() != IdFormat::IpAddress || is_boulders {
            return None;
        }
        let id = self.id();
        let address: Ipv6Addr = id.split('/').next()?.parse().ok()?;
        let network = client_network(address, IPV6_PREFIX_DEFAULT);
        let by = match network {
            // The clients of a translator may have any of its IPv4 addresses.
            IpAddr::V4(_) if self.is_of_network() => return None,
            IpAddr::V4(_) => "IPv4 address",
            IpAddr::V6(network) if network == address => return None,
            IpAddr::V6(network) if is_6to4(network) => "/48",
            IpAddr::V6(_) => "/64",
        };
        let counts =
            if self.is_of_network() { "counts these by their" } else { "counts this one by its" };
        Some(format!(
            "applies to no client of the HTTP layer, which {counts} {by}: write {network}"
        ))
    }
}
