//! `IdField`: one field of an id. `WideInteger`: an integer that may need 128 bits.

use std::fmt;
use std::net::IpAddr;

#[cfg(feature = "boulder")]
use crate::limits::IdentifierSet;

/// One field of an id that is a pair or a triple. A field converts from the same types as an [`Id`](crate::Id) of one field.
///
/// # Example
///
/// ```
/// use tollgate::Id;
/// use tollgate::limits::IdField;
///
/// assert_eq!(Id::from(("acme", "alice")), Id::Pair(IdField::Text("acme"), IdField::Text("alice")));
/// assert_eq!(IdField::from(7_u32).to_string(), "7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdField<'a> {
    /// Text.
    Text(&'a str),
    /// A number from 0 to 2^64 - 1.
    Number(u64),
    /// A negative integer, or one of a 128-bit type.
    Integer(WideInteger),
    /// An address. An IPv4-mapped IPv6 address stands for the IPv4 address.
    Address(IpAddr),
    /// Bytes.
    Bytes(&'a [u8]),
    /// The 16 bytes of a UUID.
    Uuid([u8; 16]),
    /// A set of identifiers.
    #[cfg(feature = "boulder")]
    Set(&'a IdentifierSet),
}

/// An integer from -2^127 to 2^128 - 1.
///
/// # Example
///
/// ```
/// use tollgate::limits::WideInteger;
///
/// assert_eq!(WideInteger::from(-5_i128).to_string(), "-5");
/// assert_eq!(WideInteger::from(5_i128), WideInteger::from(5_u128));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WideInteger {
    /// In bytes, the most significant first: a `u128` would align each [`Id`](crate::Id) to 16 bytes.
    magnitude: [u8; 16],
    is_negative: bool,
}

impl WideInteger {
    /// Returns the number; `None` if it is negative or above 2^64 - 1.
    pub(crate) fn as_u64(self) -> Option<u64> {
        self.as_u128().and_then(|number| u64::try_from(number).ok())
    }

    /// Returns the number; `None` if it is negative.
    pub(crate) fn as_u128(self) -> Option<u128> {
        (!self.is_negative).then_some(u128::from_be_bytes(self.magnitude))
    }

    /// Returns the number without its sign, its most significant byte first.
    pub(crate) fn magnitude(self) -> [u8; 16] {
        self.magnitude
    }

    pub(crate) fn is_negative(self) -> bool {
        self.is_negative
    }

    /// Returns the negative number with this magnitude; 0 for the magnitude 0.
    pub(crate) fn negative(magnitude: [u8; 16]) -> WideInteger {
        WideInteger { magnitude, is_negative: magnitude != [0; 16] }
    }
}

impl From<u128> for WideInteger {
    #[inline]
    fn from(number: u128) -> WideInteger {
        WideInteger { magnitude: number.to_be_bytes(), is_negative: false }
    }
}

impl From<i128> for WideInteger {
    #[inline]
    fn from(number: i128) -> WideInteger {
        WideInteger {
            magnitude: number.unsigned_abs().to_be_bytes(),
            is_negative: number.is_negative(),
        }
    }
}

/// Writes the number in decimal.
impl fmt::Display for WideInteger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad_integral(!self.is_negative, "", &u128::from_be_bytes(self.magnitude).to_string())
    }
}

/// Writes the number in decimal.
impl fmt::Debug for WideInteger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the field as the caller gave it; bytes in hexadecimal digits. The field may come from a client: escape it
/// before you print it on a terminal.
impl fmt::Display for IdField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdField::Text(text) => f.write_str(text),
            IdField::Number(number) => write!(f, "{number}"),
            IdField::Integer(number) => write!(f, "{number}"),
            IdField::Address(address) => write!(f, "{address}"),
            IdField::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            IdField::Uuid(bytes) => write_uuid(*bytes, f),
            #[cfg(feature = "boulder")]
            IdField::Set(set) => write!(f, "{set}"),
        }
    }
}

/// Writes a UUID in lower case with hyphens.
fn write_uuid(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{hyphen}{byte:02x}")?;
    }
    Ok(())
}
