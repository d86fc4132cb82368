//! Ids as callers have them, and the formats that say how a limit's ids look.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(feature = "boulder")]
use crate::limits::IdentifierSet;

/// An id in its natural type: text, a number, an address, or an account's number and one of these.
///
/// Calls take anything that converts into it; nothing is formatted or allocated for it.
///
/// # Example
///
/// ```
/// use std::net::Ipv4Addr;
/// use tollgate::Id;
///
/// let ids = [Id::from("alice"), Id::from(42), Id::from(Ipv4Addr::LOCALHOST), Id::from((42, "example.com"))];
/// assert_eq!(format!("{} {} {} {}", ids[0], ids[1], ids[2], ids[3]), "alice 42 127.0.0.1 42:example.com");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Id<'a> {
    /// Text, parsed and normalised by the limit's format.
    Text(&'a str),
    /// A number, such as an account's.
    Number(u64),
    /// An address. An IPv4-mapped IPv6 address is the IPv4 address.
    Address(IpAddr),
    /// An account's number and text: a domain, a user, an address.
    NumberAndText(u64, &'a str),
    /// An account's number and an address.
    NumberAndAddress(u64, IpAddr),
    /// A set of identifiers.
    #[cfg(feature = "boulder")]
    Set(&'a IdentifierSet),
    /// An account's number and a set of identifiers.
    #[cfg(feature = "boulder")]
    NumberAndSet(u64, &'a IdentifierSet),
}

impl<'a> From<&'a str> for Id<'a> {
    #[inline]
    fn from(text: &'a str) -> Id<'a> {
        Id::Text(text)
    }
}

impl<'a> From<&'a String> for Id<'a> {
    #[inline]
    fn from(text: &'a String) -> Id<'a> {
        Id::Text(text)
    }
}

impl From<u64> for Id<'_> {
    #[inline]
    fn from(number: u64) -> Self {
        Id::Number(number)
    }
}

impl From<IpAddr> for Id<'_> {
    #[inline]
    fn from(address: IpAddr) -> Self {
        Id::Address(address)
    }
}

impl From<Ipv4Addr> for Id<'_> {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Id::Address(IpAddr::V4(address))
    }
}

impl From<Ipv6Addr> for Id<'_> {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Id::Address(IpAddr::V6(address))
    }
}

impl<'a> From<(u64, &'a str)> for Id<'a> {
    #[inline]
    fn from((number, text): (u64, &'a str)) -> Id<'a> {
        Id::NumberAndText(number, text)
    }
}

impl From<(u64, IpAddr)> for Id<'_> {
    #[inline]
    fn from((number, address): (u64, IpAddr)) -> Self {
        Id::NumberAndAddress(number, address)
    }
}

#[cfg(feature = "boulder")]
impl<'a> From<&'a IdentifierSet> for Id<'a> {
    #[inline]
    fn from(set: &'a IdentifierSet) -> Id<'a> {
        Id::Set(set)
    }
}

#[cfg(feature = "boulder")]
impl<'a> From<(u64, &'a IdentifierSet)> for Id<'a> {
    #[inline]
    fn from((number, set): (u64, &'a IdentifierSet)) -> Id<'a> {
        Id::NumberAndSet(number, set)
    }
}

/// The id as it is. It may come from a client: it is not to be shown on a terminal without escaping.
impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Text(text) => f.write_str(text),
            Id::Number(number) => write!(f, "{number}"),
            Id::Address(address) => write!(f, "{address}"),
            Id::NumberAndText(number, text) => write!(f, "{number}:{text}"),
            Id::NumberAndAddress(number, address) => write!(f, "{number}:{address}"),
            #[cfg(feature = "boulder")]
            Id::Set(set) => write!(f, "{set}"),
            #[cfg(feature = "boulder")]
            Id::NumberAndSet(number, set) => write!(f, "{number}:{set}"),
        }
    }
}

/// How the ids of a limit look. YAML names them as here, in `camelCase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdFormat {
    /// `string`: any text of 1 to 1024 bytes.
    String,
    /// `ipAddress`: an IPv4 or IPv6 address.
    IpAddress,
    /// `regId`: a number from 0 to 2^64 - 1 in decimal, such as an account's.
    RegId,
    /// `ipv6RangeCIDR`: an IPv6 network of 48 bits; an address stands for its network.
    #[cfg(feature = "boulder")]
    Ipv6RangeCidr,
    /// `identValue`: a domain name or an address.
    #[cfg(feature = "boulder")]
    IdentValue,
    /// `domainOrCIDR`: the registered domain of a name, or the /32 or /64 of an address.
    #[cfg(feature = "boulder")]
    DomainOrCidr,
    /// `fqdnSet`: a set of domain names and addresses, separated by commas.
    #[cfg(feature = "boulder")]
    FqdnSet,
    /// `regId:identValue`.
    #[cfg(feature = "boulder")]
    RegIdIdentValue,
    /// `regId:domainOrCIDR`.
    #[cfg(feature = "boulder")]
    RegIdDomainOrCidr,
    /// `regId:domain`: an account's number and a domain name.
    #[cfg(feature = "boulder")]
    RegIdDomain,
    /// `regId:fqdnSet`.
    #[cfg(feature = "boulder")]
    RegIdFqdnSet,
}

impl IdFormat {
    /// All formats and their names in YAML.
    pub(crate) const ALL: &'static [(&'static str, IdFormat)] = &[
        ("string", IdFormat::String),
        ("ipAddress", IdFormat::IpAddress),
        ("regId", IdFormat::RegId),
        #[cfg(feature = "boulder")]
        ("ipv6RangeCIDR", IdFormat::Ipv6RangeCidr),
        #[cfg(feature = "boulder")]
        ("identValue", IdFormat::IdentValue),
        #[cfg(feature = "boulder")]
        ("domainOrCIDR", IdFormat::DomainOrCidr),
        #[cfg(feature = "boulder")]
        ("fqdnSet", IdFormat::FqdnSet),
        #[cfg(feature = "boulder")]
        ("regId:identValue", IdFormat::RegIdIdentValue),
        #[cfg(feature = "boulder")]
        ("regId:domainOrCIDR", IdFormat::RegIdDomainOrCidr),
        #[cfg(feature = "boulder")]
        ("regId:domain", IdFormat::RegIdDomain),
        #[cfg(feature = "boulder")]
        ("regId:fqdnSet", IdFormat::RegIdFqdnSet),
    ];
}

impl fmt::Display for IdFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = IdFormat::ALL.iter().find(|(_, format)| format == self);
        f.write_str(named.map_or("unnamed", |(name, _)| name))
    }
}
