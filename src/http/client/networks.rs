//! Parses networks, and takes IPv4 addresses out of IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::ClientAddress;
use crate::http::SetupError;
use crate::util::client_network::nat64;
use crate::util::escape::quoted;

const MAPPED_BITS: u8 = 96;

/// The lengths that a translator's prefix may have (RFC 6052, 2.2).
const TRANSLATOR_BITS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// The octet that no prefix and no IPv4 address has: it is 0.
const ZERO_OCTET: usize = 8;

impl ClientAddress {
    /// Counts a client behind your own translators (NAT64, SIIT) as its IPv4 address: each address under one of these
    /// prefixes has it within (RFC 6052). Without this, all IPv4 clients of a /96 share one bucket. The well-known prefix
    /// `64:ff9b::/96` needs no such call. A second call replaces the prefixes.
    ///
    /// Give the prefix that the translator is configured with, not a network around it, because its length says where the
    /// IPv4 address is: a translator within `64:ff9b:1::/48` (RFC 8215) often uses a /96 such as `64:ff9b:1::/96`. Of
    /// prefixes that contain one another, the longest counts. Give no prefix in which clients themselves have addresses:
    /// they would choose their IPv4 address. [Trusted](ClientAddress::trust) networks are compared with the address as it
    /// is in IPv6.
    ///
    /// # Errors
    ///
    /// A text is not an IPv6 network of 32, 40, 48, 56, 64 or 96 bits; or bits 64 to 71 of a /96 are not 0.
    ///
    /// # Example: clients of IPv4 in a network that has only IPv6
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use http::HeaderMap;
    /// # use tollgate::http::ClientAddress;
    /// let clients = ClientAddress::new().translated(["2001:db8:64::/96"])?;
    /// let peer: IpAddr = "2001:db8:64::192.0.2.7".parse()?;
    /// assert_eq!(clients.find(Some(peer), &HeaderMap::new())?.to_string(), "192.0.2.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn translated<'n>(
        self,
        prefixes: impl IntoIterator<Item = &'n str>,
    ) -> Result<ClientAddress, SetupError> {
        let prefixes = prefixes.into_iter().map(parse_translator);
        let mut translators = prefixes.collect::<Result<Vec<_>, _>>()?;
        translators.sort_by_key(|prefix| std::cmp::Reverse(prefix.prefix_len()));
        Ok(ClientAddress { translators: translators.into(), ..self })
    }

    /// Returns the IPv4 address of a translator's client, and any other address as it is.
    pub(super) fn translated_back(&self, client: IpAddr) -> IpAddr {
        let IpAddr::V6(address) = client else { return client };
        let translator = self.translators.iter().find(|prefix| prefix.contains(&address));
        let inner = match translator {
            Some(prefix) => embedded(address, prefix.prefix_len()),
            None => nat64(address),
        };
        inner.map_or(client, IpAddr::V4)
    }
}

/// Returns the IPv4 address that begins after `prefix_len` bits. `None` if no translator has made the address.
fn embedded(address: Ipv6Addr, prefix_len: u8) -> Option<Ipv4Addr> {
    let mut octets = address.octets().into_iter().enumerate();
    let mut inner = octets.by_ref().skip(usize::from(prefix_len / 8));
    let mut next = || inner.find(|(at, _)| *at != ZERO_OCTET).map(|(_, octet)| octet);
    let inner = Ipv4Addr::new(next()?, next()?, next()?, next()?);
    (address.octets()[ZERO_OCTET] == 0).then_some(inner)
}

fn parse_translator(text: &str) -> Result<Ipv6Net, SetupError> {
    let invalid = |why: &str| {
        SetupError::new(format!("invalid translator's prefix {}: {why}", quoted(text, 64)))
    };
    let prefix: Ipv6Net =
        text.parse().map_err(|_| invalid("an IPv6 network is allowed, such as 64:ff9b:1::/96"))?;
    if !TRANSLATOR_BITS.contains(&prefix.prefix_len()) {
        return Err(invalid("32, 40, 48, 56, 64 or 96 bits are allowed"));
    }
    let prefix = prefix.trunc();
    if prefix.addr().octets()[ZERO_OCTET] != 0 {
        return Err(invalid("bits 64 to 71 must be 0"));
    }
    Ok(prefix)
}

/// The purpose of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its addresses are trusted proxies.
    Trusted,
    /// Its clients are not limited.
    #[cfg(feature = "tower")]
    Exempt,
}

impl Use {
    /// Returns the words of an error: the name of the network, what is allowed, and why not all addresses are.
    fn words(self) -> [&'static str; 3] {
        match self {
            Use::Trusted => [
                "trusted",
                "an address, a CIDR or unix: is allowed",
                "not every address can be a trusted proxy's",
            ],
            #[cfg(feature = "tower")]
            Use::Exempt => [
                "exempt",
                "an address or a CIDR is allowed",
                "a layer that exempts every client limits nothing",
            ],
        }
    }
}

/// Parses a network. A network of IPv4-mapped addresses becomes one of IPv4 addresses.
pub(crate) fn parse_network(text: &str, usage: Use) -> Result<IpNet, SetupError> {
    let [word, allowed, too_large] = usage.words();
    let invalid =
        |why: &str| SetupError::new(format!("invalid {word} network {}: {why}", quoted(text, 64)));
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().map_err(|_| invalid(allowed))?,
    };
    let network = match network {
        IpNet::V6(v6) if v6.prefix_len() >= MAPPED_BITS => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len() - MAPPED_BITS)
                .map_err(|_| invalid("a shorter prefix is allowed"))?
                .into(),
            None => network,
        },
        _ => network,
    };
    if network.prefix_len() == 0 {
        return Err(invalid(too_large));
    }
    Ok(network)
}
