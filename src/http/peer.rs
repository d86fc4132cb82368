//! The other end of a connection, and why it is not known which client is there.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::http::client::HOPS_MAX;

/// The other end of a connection: as an extension of requests, for servers that put no other there.
///
/// # Example
///
/// ```
/// use std::net::SocketAddr;
/// use tollgate::http::Peer;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer::from(SocketAddr::from(([192, 0, 2, 1], 4711))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An address.
    Address(IpAddr),
    /// A process on this machine by way of a Unix socket, which has no address.
    Unix,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Peer {
        Peer::Address(address)
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer::Address(address.ip())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Unix => f.write_str("on a Unix socket"),
        }
    }
}

/// Why it is not known who a client is. It is never answered with a bucket that many clients share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The request does not say who its peer is: the server was not set up to tell.
    NoPeer,
    /// The request came over a Unix socket, and such peers are not [trusted](crate::http::ClientAddress::trust) to
    /// say whom they forward for.
    UntrustedUnixPeer,
    /// A trusted proxy did not say whom it forwards for.
    NoForwarding {
        /// The proxy.
        proxy: Peer,
    },
    /// What a trusted proxy wrote is no address.
    NoAddress {
        /// The proxy.
        proxy: Peer,
    },
    /// More than 256 entries, all of trusted proxies.
    TooManyHops,
}

impl ClientError {
    /// The text for the client, which is not told where the proxies are.
    #[cfg(feature = "tower")]
    pub(crate) fn for_clients(&self) -> String {
        match self {
            ClientError::NoForwarding { .. } => {
                "the proxy does not say whom it forwards for".into()
            }
            ClientError::NoAddress { .. } => {
                "what the proxy says of its client is no address".into()
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for ClientError {
    /// With the proxy's address, for the server's own log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoPeer => f.write_str(
                "the request has no peer address: serve with connect info, or insert tollgate::http::Peer",
            ),
            ClientError::UntrustedUnixPeer => f.write_str(
                "the peer is on a Unix socket, which has no address, and is not trusted: trust \"unix:\"",
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
