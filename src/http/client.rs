//! Who a client is: the address that it is limited by.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use http::header::FORWARDED;
use http::{Extensions, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};

use crate::http::SetupError;
use crate::http::forwarded::{FromRight, parse_forwarded_element, parse_forwarded_for_entry, trim};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Entries that are looked at, empty ones included: more proxies than anyone has in a row.
const HOPS_MAX: usize = 256;

/// The /64 is what one customer gets at least.
const IPV6_PREFIX_DEFAULT: u8 = 64;
/// Coarser than this is a provider, not a client.
const IPV6_PREFIX_MIN: u8 = 32;

/// IPv4 in IPv6 for translators (RFC 6052): the address of an IPv4 client.
const NAT64_PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
const MAPPED_BITS: u8 = 96;

/// The address of the connection's other end, as an extension of the request: for servers that put none
/// there themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The field in which the user's proxies say whom they forward for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// Why it is not known who a client is. It is never answered with a bucket that many clients share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The request does not say who its peer is: the server was not set up to tell.
    NoPeer,
    /// A trusted proxy did not say whom it forwards for.
    NoForwarding {
        /// The proxy.
        proxy: IpAddr,
    },
    /// What a trusted proxy wrote is no address.
    NoAddress {
        /// The proxy.
        proxy: IpAddr,
    },
    /// More than 256 entries, all of trusted proxies.
    TooManyHops,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoPeer => f.write_str(
                "the request has no peer address: serve with connect info, or insert tollgate::http::Peer",
            ),
            ClientError::NoForwarding { proxy } => {
                write!(f, "the trusted proxy {proxy} does not say whom it forwards for")
            }
            ClientError::NoAddress { proxy } => {
                write!(f, "what the trusted proxy {proxy} says of its client is no address")
            }
            ClientError::TooManyHops => {
                write!(f, "more than {HOPS_MAX} hops, all of trusted proxies")
            }
        }
    }
}

impl std::error::Error for ClientError {}

type PeerOf = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// Finds the address that a client is limited by.
///
/// It is the peer's, unless the peer is a proxy that the user [trusts](ClientAddress::trust): then it is
/// the rightmost address in the proxies' field that is not trusted itself. What a client writes into
/// such a field is to the left of that, and is never looked at.
///
/// An IPv4 address in IPv6 (`::ffff:192.0.2.1`, or behind a translator `64:ff9b::192.0.2.1`) is the IPv4
/// address; any other IPv6 address stands for its /64, or another prefix. Zones are no addresses.
///
/// # Example: behind one's own proxies
///
/// ```
/// use http::HeaderMap;
/// use tollgate::http::{ClientAddress, Forwarding};
///
/// let clients = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor)?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 192.0.2.7".parse()?);
/// let proxy = Some([10, 0, 0, 1].into());
/// assert_eq!(clients.find(proxy, &headers)?.to_string(), "192.0.2.7");
/// let stranger = Some([203, 0, 113, 5].into());
/// assert_eq!(clients.find(stranger, &headers)?.to_string(), "203.0.113.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientAddress {
    peer_of: Option<PeerOf>,
    trusted: Arc<[IpNet]>,
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
            forwarding: Forwarding::XForwardedFor,
            proxies_may_ask: false,
            ipv6_prefix: IPV6_PREFIX_DEFAULT,
        }
    }

    /// Trusts the proxies in these networks, such as `10.0.0.0/8` or `192.0.2.1`, to say in this field
    /// whom they forward for. The other field is not read: a proxy that writes one lets through what a
    /// client writes in the other. Called again, it replaces what was said before.
    ///
    /// # Errors
    ///
    /// A text is no network and no address; or the network is all there is, which would let
    /// every client choose its address.
    pub fn trust<'n>(
        self,
        networks: impl IntoIterator<Item = &'n str>,
        forwarding: Forwarding,
    ) -> Result<ClientAddress, SetupError> {
        let trusted = networks.into_iter().map(network).collect::<Result<Arc<[_]>, _>>()?;
        Ok(ClientAddress { trusted, forwarding, ..self })
    }

    /// Lets trusted proxies ask for themselves, such as a load balancer that looks whether the server
    /// is well: a request of theirs without the field, or with nothing in it, is their own, and counts
    /// for their address. Without this it is an error, because a proxy that forgets the field would put
    /// all its clients into one bucket.
    pub fn proxies_may_ask(self) -> ClientAddress {
        ClientAddress { proxies_may_ask: true, ..self }
    }

    /// The bits of an IPv6 address by which clients are told apart: 32 to 128, and 64 by default.
    ///
    /// # Errors
    ///
    /// Any other number.
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
        self.peer_by(|extensions| extensions.get::<T>().map(|peer| peer.ip()))
    }

    /// Takes the peer's address from a request's extensions: for tonic, `TcpConnectInfo`'s
    /// `remote_addr`.
    pub fn peer_by(
        self,
        peer_of: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> ClientAddress {
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
            None => extensions.get::<Peer>().map(|peer| peer.0.ip()),
        };
        self.find(peer, headers)
    }

    /// The address by which a client is limited that connects from `peer` with these fields.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn find(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<IpAddr, ClientError> {
        let peer = peer.ok_or(ClientError::NoPeer)?.to_canonical();
        let client = if self.trusts(peer) { self.forwarded_by(peer, headers)? } else { peer };
        Ok(self.bucket_of(client))
    }

    /// Whom the trusted `peer` forwards for: the first from the right that is not trusted; if all
    /// are, the leftmost.
    fn forwarded_by(&self, peer: IpAddr, headers: &HeaderMap) -> Result<IpAddr, ClientError> {
        type Parse = fn(&[u8]) -> Option<IpAddr>;
        let (name, parse): (_, Parse) = match self.forwarding {
            Forwarding::Forwarded => (FORWARDED, parse_forwarded_element),
            Forwarding::XForwardedFor => (X_FORWARDED_FOR, parse_forwarded_for_entry),
        };
        let lines = headers.get_all(name).iter().rev();
        let entries = lines.flat_map(|line| FromRight::new(line.as_bytes(), b','));
        // Everything from here on was written by `proxy`, which is trusted.
        let (mut proxy, mut seen) = (peer, false);
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
                return Ok(address);
            }
            (proxy, seen) = (address, true);
        }
        if seen || self.proxies_may_ask {
            Ok(proxy)
        } else {
            Err(ClientError::NoForwarding { proxy })
        }
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

/// A network as a user writes it; one of mapped addresses is one of IPv4.
fn network(text: &str) -> Result<IpNet, SetupError> {
    let invalid = |why: &str| {
        let shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
        SetupError::new(format!("invalid trusted network \"{shown}\": {why}"))
    };
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().map_err(|_| invalid("an address or a CIDR is allowed"))?,
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
            .field("forwarding", &self.forwarding)
            .field("proxies_may_ask", &self.proxies_may_ask)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}
