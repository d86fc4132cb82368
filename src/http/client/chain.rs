//! Finds the client in the field of trusted proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use super::{ClientAddress, Forwarding};
use crate::http::forwarded::{FromRight, parse_forwarded_element, parse_forwarded_for_entry, trim};
use crate::http::{ClientError, Peer, SetupError};

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The maximum number of entries that are read, including empty ones. No chain of proxies is that long.
pub(crate) const HOPS_MAX: usize = 256;

impl ClientAddress {
    /// Takes the client from its place in the field: the entry number `count` from the right, whatever its network.
    /// `count` is the number of your proxies that each request passes, 1 to 255. Each proxy adds the address that it sees,
    /// so with one proxy the client is the last entry.
    ///
    /// With a count, the [trusted](ClientAddress::trust) networks say only which peers are proxies. Without a count they
    /// also say which entries are proxies: a client whose own address is in a trusted network counts as one more proxy,
    /// and the text that it has written is read. A client that can reach the server directly, from a trusted address,
    /// chooses its entry in both cases.
    ///
    /// A request with fewer entries has not passed all proxies, and is an error. A second call replaces the count;
    /// `trust` removes it.
    ///
    /// # Errors
    ///
    /// `count` is 0; no proxy is trusted yet (call `trust` first); or the field is a [`Forwarding::Header`], which has
    /// one address.
    ///
    /// # Example: a client in the proxy's network
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::HeaderMap;
    /// use tollgate::http::{ClientAddress, Forwarding};
    ///
    /// let by_network = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor)?;
    /// let by_count = by_network.clone().trusted_hops(1)?;
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-forwarded-for", "6.6.6.6, 10.9.9.9".parse()?); // 10.9.9.9 is the client, and wrote 6.6.6.6
    /// let proxy = Some(IpAddr::from([10, 0, 0, 1]));
    /// assert_eq!(by_network.find(proxy, &headers)?.to_string(), "6.6.6.6");
    /// assert_eq!(by_count.find(proxy, &headers)?.to_string(), "10.9.9.9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trusted_hops(self, count: u8) -> Result<ClientAddress, SetupError> {
        let invalid = |why| Err(SetupError::new(format!("invalid trusted_hops({count}): {why}")));
        let Some(hops) = NonZeroU8::new(count) else {
            return invalid("1 to 255 are allowed");
        };
        if self.trusted.is_empty() && !self.trusts_unix {
            return invalid("no proxy is trusted, so call trust(networks, field) first");
        }
        if matches!(self.forwarding, Forwarding::Header(_)) {
            return invalid("the field has one address; Forwarded and X-Forwarded-For are allowed");
        }
        Ok(ClientAddress { hops: Some(hops), ..self })
    }

    /// Finds the client for which the trusted `peer` forwards.
    #[inline(never)]
    pub(super) fn forwarded_by(
        &self,
        peer: Peer,
        headers: &HeaderMap,
    ) -> Result<IpAddr, ClientError> {
        let forwarded = match &self.forwarding {
            Forwarding::Forwarded => {
                self.in_chain(peer, headers, FORWARDED, parse_forwarded_element)?
            }
            Forwarding::XForwardedFor => {
                self.in_chain(peer, headers, X_FORWARDED_FOR, parse_forwarded_for_entry)?
            }
            Forwarding::Header(name) => single_address(peer, headers, name)?,
        };
        match (forwarded, peer) {
            (Some(address), _) => Ok(address),
            (None, proxy) if !self.proxies_may_ask => Err(ClientError::NoForwarding { proxy }),
            (None, Peer::Address(address)) => Ok(address),
            (None, Peer::Unix) => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// Finds the client in a field to which each proxy adds an entry. This is the entry at the place that
    /// [`trusted_hops`](ClientAddress::trusted_hops) gives, else the first from the right that is not a trusted proxy's,
    /// or else the leftmost. `None` if the field has no entry.
    fn in_chain(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        name: HeaderName,
        parse: fn(&[u8]) -> Option<IpAddr>,
    ) -> Result<Option<IpAddr>, ClientError> {
        let lines = headers.get_all(name).iter().rev();
        let entries = lines.flat_map(|line| FromRight::new(line.as_bytes(), b','));
        // `proxy` is the trusted proxy that wrote the entry.
        let (mut proxy, mut leftmost) = (peer, None);
        let mut count = 0;
        for (hop, entry) in entries.enumerate() {
            if hop == HOPS_MAX {
                return Err(ClientError::TooManyHops);
            }
            if trim(entry).is_empty() {
                // RFC 9110, 5.6.1: a recipient ignores empty elements of a list.
                continue;
            }
            count += 1;
            if self.hops.is_some_and(|hops| count < usize::from(hops.get())) {
                if let Some(address) = parse(entry) {
                    proxy = address.to_canonical().into();
                }
                continue;
            }
            let address = parse(entry).ok_or(ClientError::NoAddress { proxy })?.to_canonical();
            if self.hops.is_some() || !self.trusts(address) {
                return Ok(Some(address));
            }
            (proxy, leftmost) = (address.into(), Some(address));
        }
        match self.hops {
            Some(hops) if count > 0 => {
                Err(ClientError::TooFewHops { proxy: peer, count, hops: hops.get() })
            }
            _ => Ok(leftmost),
        }
    }
}

/// Reads a field with one address, which the trusted `proxy` wrote. `None` if the field is missing or empty.
fn single_address(
    proxy: Peer,
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<IpAddr>, ClientError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(ClientError::NoAddress { proxy });
    }
    if trim(line.as_bytes()).is_empty() {
        return Ok(None);
    }
    let address = parse_forwarded_for_entry(line.as_bytes());
    address.map(|address| Some(address.to_canonical())).ok_or(ClientError::NoAddress { proxy })
}
