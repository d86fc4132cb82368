//! Finds the address that a client is limited by, also behind proxies.

pub(crate) mod chain;
mod lines;
pub(crate) mod networks;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::ops::Deref;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv6Net};

use crate::http::client::networks::{Use, parse_network};
use crate::http::{ClientError, Peer, SetupError};
use crate::util::client_network::{IPV6_PREFIX_DEFAULT, client_network};

/// The name of all Unix sockets in a list of trusted proxies, as in nginx's `set_real_ip_from`.
const UNIX: &str = "unix:";

/// A shorter prefix is that of a provider, not of a client.
const IPV6_PREFIX_MIN: u8 = 32;

/// The header field in which your proxies give the client's address.
///
/// # Example
///
/// ```
/// # use http::{HeaderMap, HeaderName};
/// # use std::net::IpAddr;
/// # use tollgate::http::{ClientAddress, Forwarding};
/// let field = Forwarding::Header(HeaderName::from_static("x-real-ip"));
/// let clients = ClientAddress::new().trust(["10.0.0.1"], field)?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-real-ip", "192.0.2.7".parse()?);
/// headers.insert("x-forwarded-for", "6.6.6.6".parse()?); // not the chosen field
/// assert_eq!(clients.find(Some(IpAddr::from([10, 0, 0, 1])), &headers)?.to_string(), "192.0.2.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// A field with one address, such as `CF-Connecting-IP` or `X-Real-IP`. The proxy must set it on every
    /// request: if it forwards a client's own field, clients choose their address. More than one address or
    /// line is an error.
    Header(HeaderName),
}

type FindPeer = Arc<dyn Fn(&Extensions) -> Option<Peer> + Send + Sync>;

/// Finds the address that a client is limited by.
///
/// This is the peer's address. If the peer is a [trusted](ClientAddress::trust) proxy, it is the rightmost
/// address in the proxies' field that is not a trusted proxy's, or the one at [a given
/// place](ClientAddress::trusted_hops). Text that a client writes into that field is further left. It is read only if the
/// client's own address is in a trusted network and no place is given, so trust the proxies' own addresses.
///
/// An IPv4 address within IPv6 (`::ffff:192.0.2.1`, or `64:ff9b::192.0.2.1` from a translator) counts as the IPv4
/// address; [other translators](ClientAddress::translated) must be named. Any other IPv6 address counts as its /64, or as
/// [another prefix](ClientAddress::ipv6_prefix); one of 6to4 (`2002::/16`) as its /48, the network of one IPv4
/// address, or as a shorter chosen prefix. An
/// address with a zone (`fe80::1%eth0`) is invalid.
///
/// # Example: behind a load balancer
///
/// ```
/// use std::net::IpAddr;
/// use http::HeaderMap;
/// use tollgate::http::{ClientAddress, Forwarding};
///
/// let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::XForwardedFor)?;
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
    find_peer: Option<FindPeer>,
    trusted: Arc<[IpNet]>,
    trusts_unix: bool,
    forwarding: Forwarding,
    /// The number of proxies that a request passes; `None`: the networks decide for each entry.
    hops: Option<NonZeroU8>,
    proxies_may_ask: bool,
    ipv6_prefix: u8,
    /// The prefixes of the operator's own translators, the longest first.
    translators: Arc<[Ipv6Net]>,
}

impl Default for ClientAddress {
    fn default() -> ClientAddress {
        ClientAddress::new()
    }
}

impl ClientAddress {
    /// Uses the peer's address: no proxy is trusted, and no field is read.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use tollgate::http::ClientAddress;
    /// let peer = IpAddr::from([192, 0, 2, 7]);
    /// assert_eq!(ClientAddress::new().find(Some(peer), &http::HeaderMap::new())?, peer);
    /// # Ok::<(), tollgate::http::ClientError>(())
    /// ```
    pub fn new() -> ClientAddress {
        ClientAddress {
            find_peer: None,
            trusted: Arc::new([]),
            trusts_unix: false,
            forwarding: Forwarding::XForwardedFor,
            hops: None,
            proxies_may_ask: false,
            ipv6_prefix: IPV6_PREFIX_DEFAULT,
            translators: Arc::new([]),
        }
    }

    /// Trusts the proxies at these addresses or in these networks to give the client's address in this field. A network is
    /// written as `10.0.5.0/28` or `192.0.2.1`; `unix:` stands for all peers on Unix sockets. No other field is read,
    /// because a proxy that writes one field forwards the others as a client wrote them. A second call replaces networks
    /// and field.
    ///
    /// Trust no network in which clients have addresses. Such a client counts as a proxy: with a connection to the server
    /// it chooses its address, and through a proxy it does so unless [`trusted_hops`](ClientAddress::trusted_hops) gives
    /// its place in the field.
    ///
    /// # Errors
    ///
    /// A text is neither a network nor an address; or a network contains all addresses, which would let every
    /// client choose its address.
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
                trusted.push(parse_network(text, Use::Trusted)?);
            }
        }
        Ok(ClientAddress { trusted: trusted.into(), trusts_unix, forwarding, hops: None, ..self })
    }

    /// Accepts requests that a trusted proxy makes itself, such as the health checks of a load balancer: a request
    /// of a trusted proxy whose field is missing or empty counts for the proxy's address, or for 127.0.0.1 over a
    /// Unix socket. Without this option such a request is an error, because a proxy that omits the field by mistake
    /// would put all its clients into one bucket.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::HeaderMap;
    /// # use std::net::IpAddr;
    /// # use tollgate::http::{ClientAddress, Forwarding};
    /// let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::Forwarded)?;
    /// let proxy = IpAddr::from([10, 0, 0, 1]);
    /// assert!(clients.find(Some(proxy), &HeaderMap::new()).is_err());
    /// assert_eq!(clients.proxies_may_ask().find(Some(proxy), &HeaderMap::new())?, proxy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn proxies_may_ask(self) -> ClientAddress {
        ClientAddress { proxies_may_ask: true, ..self }
    }

    /// Sets the number of leading bits of an IPv6 address that identify a client: 32 to 128, by default 64.
    ///
    /// A customer with a /56 has 256 networks of 64 bits, and so 256 buckets; one with a /48 has 65,536. Either use
    /// 56 bits, where neighbours at one provider may share a bucket, or two rules: one by the /64, and one by the
    /// /48 with a limit a few times as high.
    ///
    /// # Errors
    ///
    /// The number is below 32 or above 128.
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

    /// Takes the peer's address from the request's extension `T`, such as axum's `ConnectInfo<SocketAddr>`. The
    /// default is the extension [`Peer`].
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Extensions, HeaderMap};
    /// # use std::net::{IpAddr, SocketAddr};
    /// # use tollgate::http::ClientAddress;
    /// use axum::extract::ConnectInfo;
    ///
    /// let mut extensions = Extensions::new();
    /// extensions.insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 49_152)))); // as axum does
    /// let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    /// assert_eq!(clients.of(&HeaderMap::new(), &extensions)?, IpAddr::from([192, 0, 2, 7]));
    /// # Ok::<(), tollgate::http::ClientError>(())
    /// ```
    pub fn peer_in<T: Deref<Target = SocketAddr> + Send + Sync + 'static>(self) -> ClientAddress {
        self.peer_by(|extensions| extensions.get::<T>().map(|peer| **peer))
    }

    /// Takes the peer from a request's extensions by a function: for tonic, `TcpConnectInfo`'s `remote_addr`; for a
    /// server that listens only on a Unix socket, `|_| Some(Peer::Unix)`.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Extensions, HeaderMap};
    /// # use std::net::IpAddr;
    /// # use tollgate::http::ClientAddress;
    /// #[derive(Clone)]
    /// struct Connection {
    ///     from: IpAddr,
    /// }
    ///
    /// let mut extensions = Extensions::new();
    /// extensions.insert(Connection { from: IpAddr::from([192, 0, 2, 7]) });
    /// let clients = ClientAddress::new()
    ///     .peer_by(|extensions| extensions.get::<Connection>().map(|connection| connection.from));
    /// assert_eq!(clients.of(&HeaderMap::new(), &extensions)?, IpAddr::from([192, 0, 2, 7]));
    /// # Ok::<(), tollgate::http::ClientError>(())
    /// ```
    pub fn peer_by<P: Into<Peer>>(
        self,
        find_peer: impl Fn(&Extensions) -> Option<P> + Send + Sync + 'static,
    ) -> ClientAddress {
        let find_peer = move |extensions: &Extensions| find_peer(extensions).map(Into::into);
        ClientAddress { find_peer: Some(Arc::new(find_peer)), ..self }
    }

    /// Finds the address by which the client of a request is limited, from the request's header fields and
    /// extensions.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Extensions, HeaderMap};
    /// # use std::net::IpAddr;
    /// # use tollgate::http::{ClientAddress, ClientError, Peer};
    /// let (clients, mut extensions) = (ClientAddress::new(), Extensions::new());
    /// assert_eq!(clients.of(&HeaderMap::new(), &extensions), Err(ClientError::NoPeer));
    /// extensions.insert(Peer::Address(IpAddr::from([192, 0, 2, 7])));
    /// assert_eq!(clients.of(&HeaderMap::new(), &extensions), Ok(IpAddr::from([192, 0, 2, 7])));
    /// ```
    pub fn of(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<IpAddr, ClientError> {
        let peer = self.peer(extensions);
        if self.trusted.is_empty()
            && let Some(Peer::Address(client @ IpAddr::V4(_))) = peer
        {
            return Ok(client); // as `find` would
        }
        self.find(peer, headers)
    }

    /// Finds the client's own address, like [`find_exact`](ClientAddress::find_exact).
    #[cfg(feature = "tower")]
    pub(crate) fn exact_of(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<IpAddr, ClientError> {
        self.find_exact(self.peer(extensions), headers)
    }

    fn peer(&self, extensions: &Extensions) -> Option<Peer> {
        match &self.find_peer {
            Some(find_peer) => find_peer(extensions),
            None => extensions.get::<Peer>().copied(),
        }
    }

    /// Finds the address by which a client is limited, from the peer's address and the request's header fields.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use tollgate::http::ClientAddress;
    /// let peer: IpAddr = "2001:db8:1:2::7".parse()?;
    /// let client = ClientAddress::new().find(Some(peer), &http::HeaderMap::new())?;
    /// assert_eq!(client.to_string(), "2001:db8:1:2::"); // its /64
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find<P: Into<Peer>>(
        &self,
        peer: Option<P>,
        headers: &HeaderMap,
    ) -> Result<IpAddr, ClientError> {
        let client = self.find_exact(peer.map(Into::into), headers)?;
        Ok(match client {
            IpAddr::V6(address) => client_network(address, self.ipv6_prefix),
            IpAddr::V4(_) => client,
        })
    }

    /// Finds the client's own address: not its network, and the IPv4 address if a translator forwards for it.
    fn find_exact(&self, peer: Option<Peer>, headers: &HeaderMap) -> Result<IpAddr, ClientError> {
        let client = match peer.ok_or(ClientError::NoPeer)? {
            Peer::Unix if !self.trusts_unix => return Err(ClientError::UntrustedUnixPeer),
            Peer::Unix => self.forwarded_by(Peer::Unix, headers)?,
            Peer::Address(peer) => {
                let peer = peer.to_canonical();
                let is_proxy = !self.trusted.is_empty() && self.trusts(peer);
                if is_proxy { self.forwarded_by(peer.into(), headers)? } else { peer }
            }
        };
        Ok(self.translated_back(client))
    }

    #[inline(never)]
    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Debug for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAddress")
            .field("trusted", &self.trusted)
            .field("trusts_unix", &self.trusts_unix)
            .field("forwarding", &self.forwarding)
            .field("hops", &self.hops)
            .field("proxies_may_ask", &self.proxies_may_ask)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .field("translators", &self.translators)
            .finish_non_exhaustive()
    }
}
