//! Defines a connection's peer, and the reasons why a client's address is unknown.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::http::client::chain::HOPS_MAX;

/// The text of responses for a fault of the server's set-up.
pub(crate) const SERVER_ERROR: &str = "the server could not handle this request";

/// The other end of a connection. A server without an extension of its own for it can put this one into its
/// requests.
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
    /// A process on this machine, connected by a Unix socket, which has no address.
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

/// The reason why a client's address is unknown. Such a request never counts for a bucket that many clients share.
///
/// # Example
///
/// ```
/// use http::HeaderMap;
/// use tollgate::http::{ClientAddress, ClientError, Forwarding, Peer};
///
/// let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::XForwardedFor)?;
/// let proxy = Peer::Address([10, 0, 0, 1].into());
/// let error = clients.find(Some(proxy), &HeaderMap::new()).unwrap_err();
/// assert_eq!(error, ClientError::NoForwarding { proxy });
/// # Ok::<(), tollgate::http::SetupError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The request has no peer address: the server was not set up to provide it.
    NoPeer,
    /// The request came over a Unix socket, and such peers are not [trusted](crate::http::ClientAddress::trust).
    UntrustedUnixPeer,
    /// A trusted proxy did not give the client's address.
    NoForwarding {
        /// The proxy.
        proxy: Peer,
    },
    /// A trusted proxy wrote something other than an address.
    NoAddress {
        /// The proxy.
        proxy: Peer,
    },
    /// None of the last 256 entries of the field, empty ones included, is the client's.
    TooManyHops,
    /// The field has fewer entries than there are [trusted hops](crate::http::ClientAddress::trusted_hops): the request
    /// has not passed all proxies.
    TooFewHops {
        /// The proxy in front of the server.
        proxy: Peer,
        /// The number of entries.
        count: usize,
        /// The number of trusted hops.
        hops: u8,
    },
}

impl ClientError {
    /// Returns the text for the response: a sentence that tells nothing of the server's set-up. The text of `Display` is
    /// for the server's log.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::http::{ClientError, Peer};
    ///
    /// let error = ClientError::NoAddress { proxy: Peer::Address([10, 0, 0, 1].into()) };
    /// assert!(error.to_string().contains("10.0.0.1"));
    /// assert_eq!(error.for_clients(), "the server could not handle this request");
    /// ```
    pub fn for_clients(&self) -> String {
        SERVER_ERROR.into()
    }
}

impl fmt::Display for ClientError {
    /// Writes the text for the server's log, with the proxy's address.
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
                write!(f, "none of the last {HOPS_MAX} entries of the field is the client's")
            }
            ClientError::TooFewHops { proxy, count, hops } => write!(
                f,
                "the field of the trusted proxy {proxy} has {count} addresses, and {hops} hops are trusted"
            ),
        }
    }
}

impl std::error::Error for ClientError {}
