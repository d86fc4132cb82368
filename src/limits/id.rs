//! `Id`: an id as a caller gives it. `IdFormat`: the format of a limit's ids.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(feature = "boulder")]
use crate::limits::IdentifierSet;

/// An id in its natural type: text, a number, an address or a set; or an account's number with one of text, address and
/// set.
///
/// Calls take any type that converts into an `Id`. The conversion neither formats nor allocates.
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
    /// An address. An IPv4-mapped IPv6 address stands for the IPv4 address.
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

macro_rules! id_from {
    ($($(#[$cfg:meta])? $type:ty, $given:pat => $id:expr;)+) => {$(
        $(#[$cfg])?
        impl<'a> From<$type> for Id<'a> {
            #[inline]
            fn from($given: $type) -> Id<'a> {
                $id
            }
        }
    )+};
}

id_from! {
    &'a str, text => Id::Text(text);
    &'a String, text => Id::Text(text);
    u64, number => Id::Number(number);
    IpAddr, address => Id::Address(address);
    Ipv4Addr, address => Id::Address(IpAddr::V4(address));
    Ipv6Addr, address => Id::Address(IpAddr::V6(address));
    (u64, &'a str), (number, text) => Id::NumberAndText(number, text);
    (u64, IpAddr), (number, address) => Id::NumberAndAddress(number, address);
    #[cfg(feature = "boulder")]
    &'a IdentifierSet, set => Id::Set(set);
    #[cfg(feature = "boulder")]
    (u64, &'a IdentifierSet), (number, set) => Id::NumberAndSet(number, set);
}

/// Writes the id as the caller gave it. The id may come from a client: escape it before you print it on a terminal.
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

/// The format of a limit's ids. Limits files and `Display` use the name in backquotes.
///
/// ```
/// use tollgate::{IdFormat, Limits};
///
/// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, None)?.build();
/// assert!(limits.limit_for("PerClient", "2001:DB8::1").is_ok());
/// assert!(limits.limit_for("PerClient", "localhost").unwrap_err().is_invalid_id());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdFormat {
    /// `string`: any text of 1 to 1024 bytes.
    String,
    /// `ipAddress`: an IPv4 or IPv6 address.
    IpAddress,
    /// `regId`: a number from 0 to 2^64 - 1 in decimal, such as an account's.
    RegId,
    /// `ipv6RangeCIDR`: an IPv6 network with a prefix of 48 bits. An address stands for its network.
    #[cfg(feature = "boulder")]
    Ipv6RangeCidr,
    /// `identValue`: a domain name or an address.
    #[cfg(feature = "boulder")]
    IdentValue,
    /// `domainOrCIDR`: the registered domain of a name, the /32 of an IPv4 address, or the /64 of an IPv6 address.
    #[cfg(feature = "boulder")]
    DomainOrCidr,
    /// `fqdnSet`: a set of domain names and addresses, separated by commas.
    #[cfg(feature = "boulder")]
    FqdnSet,
    /// `regId:identValue`: an account's number, alone or with an `identValue`.
    #[cfg(feature = "boulder")]
    RegIdIdentValue,
    /// `regId:domainOrCIDR`: an account's number, alone or with a `domainOrCIDR`.
    #[cfg(feature = "boulder")]
    RegIdDomainOrCidr,
    /// `regId:domain`: an account's number, alone or with a domain name.
    #[cfg(feature = "boulder")]
    RegIdDomain,
    /// `regId:fqdnSet`: an account's number, alone or with an `fqdnSet`.
    #[cfg(feature = "boulder")]
    RegIdFqdnSet,
}

impl IdFormat {
    /// All formats with their names.
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
