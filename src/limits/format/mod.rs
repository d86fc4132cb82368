//! The formats of ids: converts the id of a call or a file to bytes in normal form, and back to text.
//!
//! The bytes of one field are in [`part`]. An id of a tuple has the bytes of its fields, one after the other. Each field but
//! the last has its length in front, in two bytes.

mod address;
#[cfg(feature = "boulder")]
mod boulder;
#[cfg(all(test, feature = "boulder"))]
mod boulder_tests;
mod cidr;
mod digits;
#[cfg(feature = "boulder")]
mod domain;
#[cfg(feature = "boulder")]
mod network;
mod pair;
mod part;
mod parts;
#[cfg(feature = "boulder")]
mod reserved;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tuple_tests;
mod wanted;

use std::hint::black_box;
use std::io::Write as _;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::limits::id::{IdField, escaped, split_first};
use crate::limits::id_format::{Part, Shape, TupleFormat};
use crate::limits::{Id, IdFormat, shown};

use self::pair::{IN_TEXT_MAX_BYTES, NUMBERED_MAX_BYTES, PAIR_TEXT_MAX_BYTES, pair_as_text};

#[cfg(feature = "boulder")]
pub(super) use boulder::is_address;
#[cfg(feature = "snapshot")]
pub(crate) use cidr::is_network_text;
pub(crate) use cidr::{NetworkId, family_and_bits, is_network};
pub(crate) use pair::NumberedText;
pub(crate) use parts::{address_of, is_account, is_composite, name_of, registered_domain};

/// The longest id of the format `string`.
pub(crate) const STRING_MAX_BYTES: usize = 1024;

/// The bytes of an account's number and the longest name, rounded up to whole words.
const SCRATCH_BYTES: usize = 264;

/// Room on the stack for an id in normal form. Only long bytes, and long text beside another field, may need the heap.
/// Unused bytes are not touched.
pub(crate) type Scratch = SmallVec<[u8; SCRATCH_BYTES]>;

/// The origin of an id. A request may spell an id in several ways. The text of an override in a file, or of a network in code,
/// must be in canonical form.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    Request,
    Override {
        /// Whether addresses in reserved blocks are refused.
        public_only: bool,
    },
}

/// Returns the id of a request in normal form: in `scratch`, or as it was given.
///
/// Allocates for names that are not ASCII, for sets and bytes that are given as text, for a tuple's text with a backslash
/// before its last field, and where [`Scratch`] is too short.
#[inline]
pub(crate) fn encode<'s>(
    format: IdFormat,
    id: Id<'s>,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    encode_from(format, id, Origin::Request, scratch)
}

/// The first octets of an IPv4-mapped IPv6 address, which stands for the IPv4 address.
const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Takes the bytes of an id. Closures would do the same, but they cannot have `#[inline(always)]`.
pub(crate) trait WithBytes<R> {
    fn with(self, id: &[u8]) -> R;

    /// Takes an id under a tuple of a number and `string`.
    #[inline(always)]
    fn with_pair(self, pair: NumberedText<'_>) -> R
    where
        Self: Sized,
    {
        self.with(pair.write(&mut [0; NUMBERED_MAX_BYTES]))
    }

    /// Takes an id whose bytes have to be computed first.
    fn without(self) -> R;
}

/// Calls a closure, if there are bytes.
struct ByClosure<F>(F);

impl<R, F: FnOnce(&[u8]) -> R> WithBytes<Option<R>> for ByClosure<F> {
    #[inline(always)]
    fn with(self, id: &[u8]) -> Option<R> {
        Some(self.0(id))
    }

    #[inline(always)]
    fn without(self) -> Option<R> {
        None
    }
}

/// Passes the bytes of an id to a closure: see [`visit_plain_bytes`].
#[inline(always)]
pub(crate) fn with_plain_bytes<R>(
    format: IdFormat,
    id: &Id<'_>,
    then: impl FnOnce(&[u8]) -> R,
) -> Option<R> {
    visit_plain_bytes(format, id, ByClosure(then))
}

/// Passes to `then` the bytes of an id whose normal form needs no [`Scratch`]: text, a number, an address, bytes or a UUID
/// under the format of that type, and a number with a short text under `string` or under a tuple of both. For other ids
/// it calls `without`.
///
/// The type of the id is known where this is compiled, so one arm is left.
#[inline(always)]
pub(crate) fn visit_plain_bytes<R>(format: IdFormat, id: &Id<'_>, then: impl WithBytes<R>) -> R {
    match *id {
        Id::Text(text)
            if format == IdFormat::String && (1..=STRING_MAX_BYTES).contains(&text.len()) =>
        {
            then.with(text.as_bytes())
        }
        Id::Number(number) if matches!(format, IdFormat::RegId | IdFormat::Integer) => {
            then.with(&number.to_be_bytes())
        }
        Id::Uuid(bytes) if format == IdFormat::Uuid => then.with(&bytes),
        Id::Bytes(bytes)
            if format == IdFormat::Bytes && (1..=STRING_MAX_BYTES).contains(&bytes.len()) =>
        {
            then.with(bytes)
        }
        Id::Address(IpAddr::V4(address)) if format == IdFormat::IpAddress => {
            then.with(&address.octets())
        }
        Id::Address(IpAddr::V6(address)) if format == IdFormat::IpAddress => {
            // Without the barrier, the compiler copies the octets in pieces of 2 to 8 bytes. The hash reads them in
            // words of 8, and a processor cannot forward several small stores to one load: it waits for all of them.
            let octets = black_box(address.to_bits()).to_be_bytes();
            let (prefix, v4) = octets.split_at(IPV4_MAPPED.len());
            // Each call gets a slice whose length the compiler knows.
            if *prefix == IPV4_MAPPED { then.with(v4) } else { then.with(&octets) }
        }
        Id::NumberAndText(number, text)
            if format == IdFormat::String && text.len() <= PAIR_TEXT_MAX_BYTES =>
        {
            then.with(pair_as_text(number, text, &mut [0; IN_TEXT_MAX_BYTES]))
        }
        Id::NumberAndText(number, text) => match NumberedText::new(format, number, text) {
            Some(pair) => then.with_pair(pair),
            None => then.without(),
        },
        _ => then.without(),
    }
}

/// Returns the id of an override in normal form. The text must be in canonical form, so that a search of the file finds it.
/// `public_only` refuses addresses in reserved blocks.
pub(crate) fn encode_override<'s>(
    format: IdFormat,
    text: &'s str,
    public_only: bool,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    encode_from(format, Id::Text(text), Origin::Override { public_only }, scratch)
}

/// Returns in normal form the id of an override that code gives: an id as in a request, or the text of a network.
pub(crate) fn encode_id_or_network<'s>(
    format: IdFormat,
    id: Id<'s>,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    match id {
        Id::Text(text) if format == IdFormat::IpAddress && text.contains('/') => {
            encode_override(format, text, false, scratch)
        }
        _ => encode(format, id, scratch),
    }
}

pub(super) fn encode_from<'s>(
    format: IdFormat,
    id: Id<'s>,
    origin: Origin,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    scratch.clear();
    let done = match (format.shape(), id) {
        (Shape::One(Part::String), Id::Text(text)) => match string(text) {
            Ok(()) => return Ok(text.as_bytes()),
            Err(why) => Err(why),
        },
        (Shape::One(Part::IpAddress), Id::Text(text)) if text.contains('/') => match origin {
            Origin::Override { public_only } => cidr::parse(text, public_only)
                .map(|network| scratch.extend_from_slice(network.as_bytes())),
            Origin::Request => Err(wanted::wanted(Part::IpAddress)),
        },
        (Shape::One(part), id) => match *id.fields() {
            [field] => part.push(field, origin, scratch),
            // A number with another field under `string` is the text that Boulder writes.
            [number @ (IdField::Number(_) | IdField::Integer(_)), field]
                if part == Part::String =>
            {
                push_numbered(number, field, scratch)
            }
            _ => Err(wrong_type(format, &id)),
        },
        (Shape::Composite(part), Id::Text(text)) => push_composite(part, text, origin, scratch),
        (Shape::Composite(part), id) => match *id.fields() {
            [account] => Part::RegId.push(account, origin, scratch),
            [account, field] => push_part(Part::RegId, account, origin, scratch)
                .and_then(|()| push_part(part, field, origin, scratch)),
            _ => Err(wrong_type(format, &id)),
        },
        (Shape::Tuple(tuple), Id::Text(text)) => push_joined(&tuple, text, origin, scratch),
        (Shape::Tuple(tuple), id) => {
            let fields = id.fields();
            match fields.len() == tuple.parts().len() {
                true => push_fields(&tuple, &fields, origin, scratch),
                false => Err(wrong_type(format, &id)),
            }
        }
    };
    match done {
        Ok(()) => Ok(scratch),
        Err(why) => Err(refusal(format, id, &why)),
    }
}

/// Returns an id in normal form as text, which a request may give again, except for the hash of a set.
pub(crate) fn decode(format: IdFormat, id: &[u8]) -> String {
    decode_with(format, id, Part::decode)
}

/// Like [`decode`], as a file has it: the networks of `domainOrCIDR` without their prefix length.
#[cfg(feature = "serde")]
pub(crate) fn decode_for_file(format: IdFormat, id: &[u8]) -> String {
    decode_with(format, id, Part::decode_for_file)
}

fn decode_with(format: IdFormat, id: &[u8], decode: fn(Part, &[u8]) -> String) -> String {
    match format.shape() {
        Shape::One(part) => decode(part, id),
        Shape::Composite(part) => match id.split_first_chunk() {
            Some((number, [])) => u64::from_be_bytes(*number).to_string(),
            Some((number, rest)) => {
                format!("{}:{}", u64::from_be_bytes(*number), decode(part, rest))
            }
            None => decode(part, id),
        },
        Shape::Tuple(tuple) => decode_fields(&tuple, id, decode),
    }
}

/// Returns the account's part of a composite id, if the id has another part.
#[inline]
pub(crate) fn account_of(format: IdFormat, id: &[u8]) -> Option<&[u8]> {
    let (account, rest) = id.split_at_checked(size_of::<u64>())?;
    (is_composite(format) && !rest.is_empty()).then_some(account)
}

/// Checks a text under `string`.
fn string(text: &str) -> Result<(), String> {
    match (1..=STRING_MAX_BYTES).contains(&text.len()) {
        true => Ok(()),
        false => Err(wanted::wanted(Part::String)),
    }
}

/// Appends the text of `format_args!`, under `string`.
fn push_written(scratch: &mut Scratch, text: std::fmt::Arguments<'_>) -> Result<(), String> {
    let start = scratch.len();
    match scratch.write_fmt(text) {
        Ok(()) if (1..=STRING_MAX_BYTES).contains(&(scratch.len() - start)) => Ok(()),
        _ => Err(wanted::wanted(Part::String)),
    }
}

/// Appends a number, a colon, and the text of a field.
fn push_numbered(
    number: IdField<'_>,
    field: IdField<'_>,
    scratch: &mut Scratch,
) -> Result<(), String> {
    match field {
        IdField::Address(address) => {
            push_written(scratch, format_args!("{number}:{}", address.to_canonical()))
        }
        IdField::Bytes(_) => Err(wanted::wrong_type(Part::String, &field)),
        _ => push_written(scratch, format_args!("{number}:{field}")),
    }
}

/// Appends an account's number, and the part after the first colon if there is one.
fn push_composite(
    part: Part,
    text: &str,
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let (number, rest) = match text.split_once(':') {
        Some((number, rest)) => (number, Some(rest)),
        None => (text, None),
    };
    push_part(Part::RegId, IdField::Text(number), origin, scratch)?;
    rest.map_or(Ok(()), |rest| push_part(part, IdField::Text(rest), origin, scratch))
}

/// Appends the fields of a tuple.
fn push_fields(
    tuple: &TupleFormat,
    fields: &[IdField<'_>],
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let mut parts = tuple.parts().iter().zip(fields).peekable();
    while let Some((&part, &field)) = parts.next() {
        match parts.peek() {
            Some(_) => push_with_length(part, field, origin, scratch)?,
            None => push_part(part, field, origin, scratch)?,
        }
    }
    check_length(scratch)
}

/// Appends the fields of a tuple that are given as one text.
fn push_joined(
    tuple: &TupleFormat,
    text: &str,
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let Some((last, others)) = tuple.parts().split_last() else { return Ok(()) };
    let mut rest = text;
    for &part in others {
        let Some((field, after)) = split_first(rest) else {
            return Err(format!(
                "must be {} fields, joined by ':'; in all but the last, ':' is written '\\:' and '\\' '\\\\'",
                others.len() + 1
            ));
        };
        push_with_length(part, IdField::Text(&field), origin, scratch)?;
        rest = after;
    }
    push_part(*last, IdField::Text(rest), origin, scratch)?;
    check_length(scratch)
}

/// Appends a field of a tuple that has another after it: the number of its bytes, and the bytes.
fn push_with_length(
    part: Part,
    field: IdField<'_>,
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let start = scratch.len();
    scratch.extend_from_slice(&[0; size_of::<u16>()]);
    let start_of_field = scratch.len();
    push_part(part, field, origin, scratch)?;
    // Every part has at most STRING_MAX_BYTES.
    let length = (scratch.len() - start_of_field) as u16;
    scratch[start..start_of_field].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn check_length(scratch: &Scratch) -> Result<(), String> {
    match scratch.len() <= STRING_MAX_BYTES {
        true => Ok(()),
        false => Err(format!("must have at most {STRING_MAX_BYTES} bytes in normal form")),
    }
}

/// Appends a part. An error says which.
fn push_part(
    part: Part,
    field: IdField<'_>,
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<(), String> {
    part.push(field, origin, scratch).map_err(|why| of_part(part, field, &why))
}

/// Returns the fields of a tuple in normal form as one text.
fn decode_fields(tuple: &TupleFormat, id: &[u8], decode: fn(Part, &[u8]) -> String) -> String {
    let mut text = String::new();
    let mut rest = id;
    let mut parts = tuple.parts().iter().peekable();
    while let Some(&part) = parts.next() {
        let split = rest.split_first_chunk().and_then(|(length, rest)| {
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
        });
        match split {
            Some((field, after)) if parts.peek().is_some() => {
                text += &escaped(&decode(part, field));
                text.push(':');
                rest = after;
            }
            _ => text += &decode(part, rest),
        }
    }
    text
}

#[cold]
fn refusal(format: IdFormat, id: Id<'_>, why: &str) -> Error {
    let given = shown(&id.to_string());
    Error::new(ErrorKind::Id, format!("invalid {format} {given}: {why}"))
}

/// Returns the message for an id that has other fields than the format.
#[cold]
fn wrong_type(format: IdFormat, id: &Id<'_>) -> String {
    let wanted = match format.shape() {
        Shape::One(part) => wanted::wanted(part),
        Shape::Composite(part) => {
            format!("must be a regId, alone or with a second part that {}", wanted::wanted(part))
        }
        Shape::Tuple(tuple) => format!("must be {} fields", tuple.parts().len()),
    };
    let fields: Vec<&str> = id.fields().iter().map(wanted::kind).collect();
    format!("{wanted}, not {}", fields.join(" and "))
}

/// Says which part of an id was refused, and why.
#[cold]
fn of_part(part: Part, field: IdField<'_>, why: &str) -> String {
    format!("{} {}: {why}", part.name(), shown(&field.to_string()))
}
