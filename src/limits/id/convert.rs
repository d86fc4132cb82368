//! Conversions from natural types to [`Id`] and [`IdField`].

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use super::{Id, IdField};
#[cfg(feature = "boulder")]
use crate::limits::IdentifierSet;

/// Converts a type to a field, and to an id of one field.
macro_rules! convert {
    ($($(#[$cfg:meta])? $type:ty, $given:pat => $field:expr;)+) => {$(
        $(#[$cfg])?
        impl<'a> From<$type> for IdField<'a> {
            #[inline(always)]
            fn from($given: $type) -> IdField<'a> {
                $field
            }
        }

        $(#[$cfg])?
        impl<'a> From<$type> for Id<'a> {
            #[inline(always)]
            fn from(given: $type) -> Id<'a> {
                Id::from(IdField::from(given))
            }
        }
    )+};
}

convert! {
    &'a str, text => IdField::Text(text);
    &'a &str, text => IdField::Text(text);
    &'a String, text => IdField::Text(text);
    &'a Cow<'_, str>, text => IdField::Text(text);
    &'a Box<str>, text => IdField::Text(text);
    &'a Rc<str>, text => IdField::Text(text);
    &'a Arc<str>, text => IdField::Text(text);

    &'a [u8], bytes => IdField::Bytes(bytes);
    &'a Vec<u8>, bytes => IdField::Bytes(bytes);
    // Only an array by value is a UUID. A reference to an array is bytes, whatever its length: see below.
    [u8; 16], bytes => IdField::Uuid(bytes);
    #[cfg(feature = "uuid")]
    uuid::Uuid, uuid => IdField::Uuid(uuid.into_bytes());
    #[cfg(feature = "uuid")]
    &uuid::Uuid, uuid => IdField::Uuid(uuid.into_bytes());

    IpAddr, address => IdField::Address(address);
    Ipv4Addr, address => IdField::Address(IpAddr::V4(address));
    Ipv6Addr, address => IdField::Address(IpAddr::V6(address));
    &IpAddr, address => IdField::Address(*address);
    &Ipv4Addr, address => IdField::Address(IpAddr::V4(*address));
    &Ipv6Addr, address => IdField::Address(IpAddr::V6(*address));
    SocketAddr, peer => IdField::Address(peer.ip());
    SocketAddrV4, peer => IdField::Address(IpAddr::V4(*peer.ip()));
    SocketAddrV6, peer => IdField::Address(IpAddr::V6(*peer.ip()));

    #[cfg(feature = "boulder")]
    &'a IdentifierSet, set => IdField::Set(set);
}

impl<'a, const N: usize> From<&'a [u8; N]> for IdField<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8; N]) -> IdField<'a> {
        IdField::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Id<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8; N]) -> Id<'a> {
        Id::Bytes(bytes)
    }
}

/// Converts integers, their references and their non-zero forms.
macro_rules! convert_integers {
    ($($integer:ty, $number:ident => $field:expr;)+) => {$(
        convert! {
            $integer, $number => $field;
            &$integer, number => IdField::from(*number);
            NonZero<$integer>, number => IdField::from(number.get());
        }
    )+};
}

convert_integers! {
    u8, number => IdField::Number(number.into());
    u16, number => IdField::Number(number.into());
    u32, number => IdField::Number(number.into());
    u64, number => IdField::Number(number);
    usize, number => IdField::Number(number as u64); // A `usize` has at most 64 bits on every target of Rust.
    u128, number => IdField::Integer(number.into());
    i8, number => signed(number.into());
    i16, number => signed(number.into());
    i32, number => signed(number.into());
    i64, number => signed(number);
    isize, number => signed(number as i64); // As for `usize`.
    i128, number => IdField::Integer(number.into());
}

#[inline(always)]
fn signed<'a>(number: i64) -> IdField<'a> {
    match u64::try_from(number) {
        Ok(number) => IdField::Number(number),
        Err(_) => IdField::Integer(i128::from(number).into()),
    }
}

impl<'a> From<IdField<'a>> for Id<'a> {
    #[inline(always)]
    fn from(field: IdField<'a>) -> Id<'a> {
        match field {
            IdField::Text(text) => Id::Text(text),
            IdField::Number(number) => Id::Number(number),
            IdField::Integer(number) => Id::Integer(number),
            IdField::Address(address) => Id::Address(address),
            IdField::Bytes(bytes) => Id::Bytes(bytes),
            IdField::Uuid(bytes) => Id::Uuid(bytes),
            #[cfg(feature = "boulder")]
            IdField::Set(set) => Id::Set(set),
        }
    }
}

impl<'a, A, B> From<(A, B)> for Id<'a>
where
    IdField<'a>: From<A> + From<B>,
{
    #[inline(always)]
    fn from((first, second): (A, B)) -> Id<'a> {
        match (IdField::from(first), IdField::from(second)) {
            (IdField::Number(number), IdField::Text(text)) => Id::NumberAndText(number, text),
            (IdField::Number(number), IdField::Address(address)) => {
                Id::NumberAndAddress(number, address)
            }
            #[cfg(feature = "boulder")]
            (IdField::Number(number), IdField::Set(set)) => Id::NumberAndSet(number, set),
            (first, second) => Id::Pair(first, second),
        }
    }
}

impl<'a, A, B, C> From<(A, B, C)> for Id<'a>
where
    IdField<'a>: From<A> + From<B> + From<C>,
{
    #[inline(always)]
    fn from((first, second, third): (A, B, C)) -> Id<'a> {
        Id::Triple(first.into(), second.into(), third.into())
    }
}
