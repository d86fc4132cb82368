//! Finds a client's address in the header types of other frameworks.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::chain::X_FORWARDED_FOR;
use super::{ClientAddress, Forwarding};
use crate::http::{ClientError, Peer};

impl ClientAddress {
    /// Finds the address by which a client is limited, like [`find`](ClientAddress::find), for a framework with header
    /// types of its own. `lines` returns the values of all lines of the field with the given name, in their order. It is
    /// called only if the peer is a trusted proxy. The call then copies the lines.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tollgate::http::{ClientAddress, Forwarding};
    ///
    /// let request_headers = [("host", "example.com"), ("x-forwarded-for", "6.6.6.6, 192.0.2.7")];
    /// let lines = |name: &str| {
    ///     let name = name.to_owned();
    ///     request_headers.into_iter().filter(move |field| field.0 == name).map(|field| field.1)
    /// };
    ///
    /// let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::XForwardedFor)?;
    /// let proxy = SocketAddr::from(([10, 0, 0, 1], 443));
    /// assert_eq!(clients.find_by(Some(proxy), lines)?.to_string(), "192.0.2.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find_by<P, I>(
        &self,
        peer: Option<P>,
        lines: impl FnOnce(&str) -> I,
    ) -> Result<IpAddr, ClientError>
    where
        P: Into<Peer>,
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let peer = peer.map(Into::into);
        let mut headers = HeaderMap::new();
        if peer.is_some_and(|peer| self.trusts_peer(peer)) {
            let name = self.field();
            for line in lines(name.as_str()) {
                // The rightmost line counts. If one were left out, a line that the client wrote could take its place.
                // Does not fail: a map limits the number of its names, and here is one.
                headers
                    .try_append(&name, valid(line.as_ref()))
                    .map_err(|_| ClientError::TooManyHops)?;
            }
        }
        self.find(peer, &headers)
    }

    fn trusts_peer(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unix => self.trusts_unix,
            Peer::Address(address) => self.trusts(address.to_canonical()),
        }
    }

    /// Returns the field in which the proxies give the client's address.
    fn field(&self) -> HeaderName {
        match &self.forwarding {
            Forwarding::Forwarded => FORWARDED,
            Forwarding::XForwardedFor => X_FORWARDED_FOR,
            Forwarding::Header(name) => name.clone(),
        }
    }
}
/// Returns the line, with a `-`, which no address has, for each byte that a field value cannot have. Its commas stay, because
/// [`trusted_hops`](ClientAddress::trusted_hops) counts entries.
fn valid(line: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(line).unwrap_or_else(|_| {
        let valid =
            |&byte: &u8| if byte == b'\t' || (byte >= b' ' && byte != 0x7f) { byte } else { b'-' };
        let line: Vec<u8> = line.iter().map(valid).collect();
        HeaderValue::from_bytes(&line).unwrap_or(HeaderValue::from_static("-"))
    })
}
