//! Who a client is: the address that it is limited by.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use http::header::FORWARDED;
use http::{Extensions, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};

use crate::http::forwarded::{FromRight, parse_forwarded_element, parse_forwarded_for_entry, trim};
use crate::http::{ClientError, Peer, SetupError};
use crate::util::escape::quoted;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// How nginx, too, writes that peers on Unix sockets are trusted.
const UNIX: &str = "unix:";

/// Entries that are looked at, empty ones included: more proxies than anyone has in a row.
pub(crate) const HOPS_MAX: usize = 256;

/// The /64 is what one customer gets at least.
const IPV6_PREFIX_DEFAULT: u8 = 64;
/// Coarser than this is a provider, not a client.
const IPV6_PREFIX_MIN: u8 = 32;

/// IPv4 in IPv6 for translators (RFC 6052): the address of an IPv4 client.
const NAT64_PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
const MAPPED_BITS: u8 = 96;

/// The field in which the user's proxies say whom they forward for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// A field with one address, such as `CF-Connecting-IP` or `X-Real-IP`. The proxy must set it on every
    /// request: one that passes on what its client wrote lets clients choose their address. More than one
    /// address or line is an error.
    Header(HeaderName),
}

type PeerOf = Arc<dyn Fn(&Extensions) -> Option<Peer> + Send + Sync>;

/// Finds the address that a client is limited by.
///
/// It is the peer's, unless the peer is a proxy that the user [trusts](ClientAddress::trust): then it is
/// the rightmost address in the proxies' field that is not trusted itself. What a client writes into
/// such a field is to the left of that, and is never looked at.
///
/// An IPv4 address in IPv6 (`::ffff:192.0.2.1`, or behind a translator `64:ff9b::192.0.2.1`) is the IPv4
/// address; any other IPv6 address stands for its /64, or [another prefix](ClientAddress::ipv6_prefix).
/// Zones are no addresses.
///
/// # Example: behind one's own proxies
///
/// ```
/// use std::net::IpAddr;
/// use http::HeaderMap;
/// use tollgate::http::{ClientAddress, Forwarding};
///
/// let clients = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor)?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 192.0.2.7".parse()?);
/// let proxy = Some(IpAddr::from([10, 0, 0, 1]));
/// assert_eq!(clients.find(proxy, &headers)?.to_string(), "192.0.2.7");
/// let stranger = Some(IpAddr::from([203, 0, 113, 5]));
/// assert_eq!(clients.find(stranger, &headers)?.to_string(), "203.0.113.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientAddress {
    peer_of: Option<PeerOf>,
    trusted: Arc<[IpNet]>,
    trusts_unix: bool,
    forwarding: Forwarding,
    proxies_may_ask: bool,
    ipv6_prefix: u8,
}

impl Default for ClientAddress {
    fn default() -> ClientAddress {
        ClientAddress::new()
    }
}

impl ClientAddress {
    /// The address of the peer: no proxy is trusted, and no field is read.
    pub fn new() -> ClientAddress {
        ClientAddress {
            peer_of: None,
            trusted: Arc::new([]),
            trusts_unix: false,
            forwarding: Forwarding::XForwardedFor,
            proxies_may_ask: false,
            ipv6_prefix: IPV6_PREFIX_DEFAULT,
        }
    }

    /// Trusts the proxies in these networks, such as `10.0.0.0/8` or `192.0.2.1`, and with `unix:` those
    /// on a Unix socket, to say in this field whom they forward for. No other field is read: a proxy
    /// that writes one passes on what a client writes in the others. A second call replaces what the first
    /// one set.
    ///
    /// # Errors
    ///
    /// A text is no network and no address; or the network is all there is, which would let
    /// every client choose its address.
    ///
    /// # Example: behind Cloudflare, and behind nginx on the same machine
    ///
    /// ```
    /// use http::{HeaderMap, HeaderName};
    /// use tollgate::http::{ClientAddress, Forwarding, Peer};
    ///
    /// let cloudflare = ClientAddress::new()
    ///     .trust(["173.245.48.0/20"], Forwarding::Header(HeaderName::from_static("cf-connecting-ip")))?;
    /// let nginx = ClientAddress::new()
    ///     .trust(["unix:"], Forwarding::Header(HeaderName::from_static("x-real-ip")))?
    ///     .peer_by(|_| Some(Peer::Unix));
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-real-ip", "192.0.2.7".parse()?);
    /// assert_eq!(nginx.of(&headers, &http::Extensions::new())?.to_string(), "192.0.2.7");
    /// # let _ = cloudflare;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trust<'n>(
        self,
        networks: impl IntoIterator<Item = &'n str>,
        forwarding: Forwarding,
    ) -> Result<ClientAddress, SetupError> {
        let mut trusts_unix = false;
        let mut trusted = Vec::new();
        for text in networks {
            if text == UNIX {
                trusts_unix = true;
            } else {
                trusted.push(network(text)?);
            }
        }
        Ok(ClientAddress { trusted: trusted.into(), trusts_unix, forwarding, ..self })
    }

    /// Lets trusted proxies ask for themselves, such as a load balancer that looks whether the server
    /// is well: a request of theirs without the field, or with nothing in it, is their own, and counts
    /// for their address; one over a Unix socket counts for 127.0.0.1. Without this it is an error,
    /// because a proxy that forgets the field would put all its clients into one bucket.
    pub fn proxies_may_ask(self) -> ClientAddress {
        ClientAddress { proxies_may_ask: true, ..self }
    }

    /// The bits of an IPv6 address by which clients are told apart: 32 to 128, and 64 by default.
    ///
    /// Many customers have a /56, which is 256 networks of 64 bits and as many buckets, or a /48, which is
    /// 65,536. Either count by the /56, where neighbours of one provider may then share a bucket, or have
    /// two rules: one by the /64, and one by the /48 that allows a few times as much.
    ///
    /// # Errors
    ///
    /// Any other number.
    ///
    /// # Example: two rules
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use std::time::Duration;
    /// use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder()
    ///     .limit("PerClient", IdFormat::IpAddress, Limit::new(20, 10, second)?)?
    ///     .limit("PerSite", IdFormat::IpAddress, Limit::new(80, 40, second)?)?
    ///     .build();
    /// let limiter = Limiter::new(limits);
    /// let clients = ClientAddress::new();
    /// let sites = clients.clone().ipv6_prefix(48)?;
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(Rule::new(limiter.limit("PerClient")?, extract::client(clients)))
    ///     .rule(Rule::new(limiter.limit("PerSite")?, extract::client(sites)))
    ///     .build()?;
    /// # let _ = layer;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ipv6_prefix(self, bits: u8) -> Result<ClientAddress, SetupError> {
        if !(IPV6_PREFIX_MIN..=128).contains(&bits) {
            return Err(SetupError::new(format!(
                "invalid prefix of {bits} bits: {IPV6_PREFIX_MIN} to 128 are allowed"
            )));
        }
        Ok(ClientAddress { ipv6_prefix: bits, ..self })
    }

    /// Takes the peer's address from the extension `T` of requests, such as axum's
    /// `ConnectInfo<SocketAddr>`. Without this it is [`Peer`].
    pub fn peer_in<T: Deref<Target = SocketAddr> + Send + Sync + 'static>(self) -> ClientAddress {
        self.peer_by(|extensions| extensions.get::<T>().map(|peer| **peer))
    }

    /// Takes the peer from a request's extensions: for tonic, `TcpConnectInfo`'s `remote_addr`; for a
    /// server on a Unix socket alone, `|_| Some(Peer::Unix)`.
    pub fn peer_by<P: Into<Peer>>(
        self,
        peer_of: impl Fn(&Extensions) -> Option<P> + Send + Sync + 'static,
    ) -> ClientAddress {
        let peer_of = move |extensions: &Extensions| peer_of(extensions).map(Into::into);
        ClientAddress { peer_of: Some(Arc::new(peer_of)), ..self }
    }

    /// The address by which the client of a request is limited.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn of(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<IpAddr, ClientError> {
        let peer = match &self.peer_of {
            Some(peer_of) => peer_of(extensions),
            None => extensions.get::<Peer>().copied(),
        };
        self.find(peer, headers)
    }

    /// The address by which a client is limited that connects from `peer` with these fields.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn find<P: Into<Peer>>(
        &self,
        peer: Option<P>,
        headers: &HeaderMap,
    ) -> Result<IpAddr, ClientError> {
        let client = match peer.map(Into::into).ok_or(ClientError::NoPeer)? {
            Peer::Unix if !self.trusts_unix => return Err(ClientError::UntrustedUnixPeer),
            Peer::Unix => self.forwarded_by(Peer::Unix, headers)?,
            Peer::Address(peer) => {
                let peer = peer.to_canonical();
                if self.trusts(peer) { self.forwarded_by(peer.into(), headers)? } else { peer }
            }
        };
        Ok(self.bucket_of(client))
    }

    /// Whom the trusted `peer` forwards for.
    fn forwarded_by(&self, peer: Peer, headers: &HeaderMap) -> Result<IpAddr, ClientError> {
        let forwarded = match &self.forwarding {
            Forwarding::Forwarded => {
                self.last_untrusted(peer, headers, FORWARDED, parse_forwarded_element)?
            }
            Forwarding::XForwardedFor => {
                self.last_untrusted(peer, headers, X_FORWARDED_FOR, parse_forwarded_for_entry)?
            }
            Forwarding::Header(name) => only_address(peer, headers, name)?,
        };
        match (forwarded, peer) {
            (Some(address), _) => Ok(address),
            (None, proxy) if !self.proxies_may_ask => Err(ClientError::NoForwarding { proxy }),
            (None, Peer::Address(address)) => Ok(address),
            (None, Peer::Unix) => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// The first address from the right that is not trusted; if all are, the leftmost. `None` if there is
    /// none at all.
    fn last_untrusted(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        name: HeaderName,
        parse: fn(&[u8]) -> Option<IpAddr>,
    ) -> Result<Option<IpAddr>, ClientError> {
        let lines = headers.get_all(name).iter().rev();
        let entries = lines.flat_map(|line| FromRight::new(line.as_bytes(), b','));
        // Each entry was written by the proxy before it, which is trusted.
        let (mut proxy, mut leftmost) = (peer, None);
        for (hop, entry) in entries.enumerate() {
            if hop == HOPS_MAX {
                return Err(ClientError::TooManyHops);
            }
            if trim(entry).is_empty() {
                // RFC 9110, 5.6.1: empty elements of a list are passed over.
                continue;
            }
            let address = parse(entry).ok_or(ClientError::NoAddress { proxy })?.to_canonical();
            if !self.trusts(address) {
                return Ok(Some(address));
            }
            (proxy, leftmost) = (address.into(), Some(address));
        }
        Ok(leftmost)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The address that stands for all that share a bucket.
    fn bucket_of(&self, client: IpAddr) -> IpAddr {
        let IpAddr::V6(address) = client else { return client };
        let groups = address.segments();
        if groups[..6] == NAT64_PREFIX {
            let [.., a, b, c, d] = address.octets();
            return IpAddr::from([a, b, c, d]);
        }
        let host_bits = 128 - u32::from(self.ipv6_prefix);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
    }
}

/// The address of a field that has one, written by the trusted `proxy`; `None` if there is no field, or
/// nothing in it.
fn only_address(
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

/// A network as a user writes it; one of mapped addresses is one of IPv4.
fn network(text: &str) -> Result<IpNet, SetupError> {
    let invalid =
        |why: &str| SetupError::new(format!("invalid trusted network {}: {why}", quoted(text, 64)));
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().map_err(|_| invalid("an address, a CIDR or unix: is allowed"))?,
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
        return Err(invalid("not every address can be a trusted proxy's"));
    }
    Ok(network)
}

impl fmt::Debug for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAddress")
            .field("trusted", &self.trusted)
            .field("trusts_unix", &self.trusts_unix)
            .field("forwarding", &self.forwarding)
            .field("proxies_may_ask", &self.proxies_may_ask)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}
