//! `Id`: an id as a caller gives it.

mod convert;
mod field;
mod joined;

use std::fmt;
use std::net::IpAddr;

use smallvec::{SmallVec, smallvec};

#[cfg(feature = "boulder")]
use crate::limits::IdentifierSet;

pub use field::{IdField, WideInteger};
pub(crate) use joined::{escaped, split_first};

/// An id in its natural type: text, an integer, an address, bytes, a UUID; or a pair or a triple of those.
///
/// Calls take any type that converts into an `Id`. The conversion neither formats nor allocates, and owned text, such as
/// a `String`, is passed by reference. The [format](crate::IdFormat) of the limit says which types it takes; another type
/// is an error. The guide has [a page on ids](crate::docs::ids).
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
///
/// # Example: a struct as an id
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tollgate::{Id, IdFormat, Limit, Limiter, Limits};
///
/// struct Caller {
///     tenant: u32,
///     user: String,
///     address: IpAddr,
/// }
///
/// impl<'a> From<&'a Caller> for Id<'a> {
///     fn from(caller: &'a Caller) -> Id<'a> {
///         Id::from((caller.tenant, &caller.user, caller.address))
///     }
/// }
///
/// let format: IdFormat = "integer:string:ipAddress".parse()?;
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerCaller", format, limit)?.build());
/// let caller = Caller { tenant: 7, user: "alice".into(), address: [192, 0, 2, 1].into() };
/// assert!(limiter.limit("PerCaller")?.spend(&caller, 1)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Id<'a> {
    /// Text, parsed and normalised by the limit's format.
    Text(&'a str),
    /// A number from 0 to 2^64 - 1.
    Number(u64),
    /// An integer of another range.
    Integer(WideInteger),
    /// An address. An IPv4-mapped IPv6 address stands for the IPv4 address.
    Address(IpAddr),
    /// Bytes.
    Bytes(&'a [u8]),
    /// The 16 bytes of a UUID.
    Uuid([u8; 16]),
    /// A number and text: an account's, with a domain, a user, an address.
    NumberAndText(u64, &'a str),
    /// A number and an address.
    NumberAndAddress(u64, IpAddr),
    /// Any other two fields.
    Pair(IdField<'a>, IdField<'a>),
    /// Three fields.
    Triple(IdField<'a>, IdField<'a>, IdField<'a>),
    /// A set of identifiers.
    #[cfg(feature = "boulder")]
    Set(&'a IdentifierSet),
    /// An account's number and a set of identifiers.
    #[cfg(feature = "boulder")]
    NumberAndSet(u64, &'a IdentifierSet),
}

/// The most fields of an id.
pub(crate) const FIELDS_MAX: usize = 3;

impl<'a> Id<'a> {
    /// Returns the fields of the id.
    #[inline]
    pub(crate) fn fields(&self) -> SmallVec<[IdField<'a>; FIELDS_MAX]> {
        match *self {
            Id::Text(text) => smallvec![IdField::Text(text)],
            Id::Number(number) => smallvec![IdField::Number(number)],
            Id::Integer(number) => smallvec![IdField::Integer(number)],
            Id::Address(address) => smallvec![IdField::Address(address)],
            Id::Bytes(bytes) => smallvec![IdField::Bytes(bytes)],
            Id::Uuid(bytes) => smallvec![IdField::Uuid(bytes)],
            Id::NumberAndText(number, text) => {
                smallvec![IdField::Number(number), IdField::Text(text)]
            }
            Id::NumberAndAddress(number, address) => {
                smallvec![IdField::Number(number), IdField::Address(address)]
            }
            Id::Pair(first, second) => smallvec![first, second],
            Id::Triple(first, second, third) => smallvec![first, second, third],
            #[cfg(feature = "boulder")]
            Id::Set(set) => smallvec![IdField::Set(set)],
            #[cfg(feature = "boulder")]
            Id::NumberAndSet(number, set) => smallvec![IdField::Number(number), IdField::Set(set)],
        }
    }
}

/// Writes the id as the caller gave it: its fields, joined by colons. In all fields but the last, a colon is written `\:`
/// and a backslash `\\`. The id may come from a client: escape it before you print it on a terminal.
impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        let Some((last, others)) = fields.split_last() else { return Ok(()) };
        for field in others {
            write!(f, "{}:", escaped(&field.to_string()))?;
        }
        write!(f, "{last}")
    }
}
