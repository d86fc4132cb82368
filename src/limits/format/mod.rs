//! The formats of ids: converts the id of a call or a file to bytes in normal form, and back to text.

mod address;
#[cfg(feature = "boulder")]
mod boulder;
#[cfg(all(test, feature = "boulder"))]
mod boulder_tests;
#[cfg(feature = "boulder")]
mod domain;
#[cfg(feature = "boulder")]
mod network;
mod parts;
#[cfg(feature = "boulder")]
mod reserved;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hint::black_box;
use std::io::Write as _;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::limits::{Id, IdFormat, shown};

#[cfg(feature = "boulder")]
pub(super) use boulder::is_address;
pub(crate) use parts::{address_of, is_account, is_composite, name_of, registered_domain};

/// The longest id of the format `string`.
pub(crate) const STRING_MAX_BYTES: usize = 1024;

/// The bytes of an account's number and the longest name, rounded up to whole words.
const SCRATCH_BYTES: usize = 264;

/// Room on the stack for an id in normal form. Only an id of the format `string` that is made of other types and text may
/// need the heap. Unused bytes are not touched.
pub(crate) type Scratch = SmallVec<[u8; SCRATCH_BYTES]>;

/// The origin of an id. A request's id is converted to normal form; an override's must be in it.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    Request,
    Override {
        /// Whether addresses in reserved blocks are refused.
        public_only: bool,
    },
}

/// The part of an id after the account's number, or the whole id of a format without an account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    IpAddress,
    RegId,
    #[cfg(feature = "boulder")]
    Boulder(boulder::BoulderPart),
}

/// The parts of a format's ids.
#[derive(Clone, Copy)]
struct Shape {
    /// Whether an account's number comes first. It may be the whole id.
    is_composite: bool,
    part: Part,
}

/// Returns the id of a request in normal form: in `scratch`, or as it was given.
///
/// Allocates for names that are not ASCII and for sets given as text only, and where [`Scratch`] is too short.
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

/// Passes to `then` the bytes of an id whose normal form needs no [`Scratch`]: text, a number or an address under the
/// format of that type, and a number with a short text under `string`. Other ids are without bytes.
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
        Id::Number(number) if format == IdFormat::RegId => then.with(&number.to_be_bytes()),
        Id::Address(IpAddr::V4(address)) if format == IdFormat::IpAddress => {
            then.with(&address.octets())
        }
        Id::Address(IpAddr::V6(address)) if format == IdFormat::IpAddress => {
            // Without the barrier, the compiler copies the octets in pieces of 2 to 8 bytes. The hash reads them in
            // words of 8, and a processor cannot forward several small stores to one load: it waits for all of them.
            let octets = black_box(address.to_bits()).to_be_bytes();
            let (prefix, v4) = octets.split_at(IPV4_MAPPED.len());
            // Each of a length that is known here.
            if *prefix == IPV4_MAPPED { then.with(v4) } else { then.with(&octets) }
        }
        Id::NumberAndText(number, text)
            if format == IdFormat::String && text.len() <= PAIR_TEXT_MAX_BYTES =>
        {
            then.with(pair_as_text(number, text, &mut [0; _]))
        }
        _ => then.without(),
    }
}

/// The longest text of a pair that [`with_plain_bytes`] takes.
const PAIR_TEXT_MAX_BYTES: usize = 64;
/// The digits of the largest number.
const DIGITS: usize = 20;

/// Writes a pair as the formatter does, `number:text`.
#[inline(never)]
fn pair_as_text<'b>(
    mut number: u64,
    text: &str,
    buffer: &'b mut [u8; DIGITS + 1 + PAIR_TEXT_MAX_BYTES],
) -> &'b [u8] {
    let end = DIGITS + 1 + text.len();
    buffer[DIGITS] = b':';
    buffer[DIGITS + 1..end].copy_from_slice(text.as_bytes());
    let mut start = DIGITS;
    loop {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[start..end];
        }
    }
}

/// Returns the id of an override in normal form. The text must follow every rule of its format, because an id that is not
/// in normal form would never match. `public_only` refuses addresses in reserved blocks.
#[cfg_attr(not(feature = "yaml"), allow(dead_code, reason = "only files have these ids"))]
pub(crate) fn encode_override<'s>(
    format: IdFormat,
    text: &'s str,
    public_only: bool,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    encode_from(format, Id::Text(text), Origin::Override { public_only }, scratch)
}

pub(super) fn encode_from<'s>(
    format: IdFormat,
    id: Id<'s>,
    origin: Origin,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8], Error> {
    let Some(shape @ Shape { is_composite, part }) = Shape::new(format) else {
        return encode_string(id, scratch);
    };
    scratch.clear();
    let done = match id {
        Id::Text(text) if is_composite => push_composite(part, text, origin, scratch),
        Id::Text(text) => push_part(part, text, origin, scratch),
        Id::Number(number) if is_composite || part == Part::RegId => {
            scratch.extend_from_slice(&number.to_be_bytes());
            Ok(())
        }
        Id::NumberAndText(number, text) if is_composite => {
            scratch.extend_from_slice(&number.to_be_bytes());
            push_part(part, text, origin, scratch).map_err(|why| of_part(part, text, &why))
        }
        Id::Address(address) if !is_composite => {
            push_address(part, address, scratch).ok_or_else(|| wrong_type(shape))
        }
        Id::NumberAndAddress(number, address) if is_composite => {
            scratch.extend_from_slice(&number.to_be_bytes());
            push_address(part, address, scratch).ok_or_else(|| wrong_type(shape))
        }
        #[cfg(feature = "boulder")]
        Id::Set(set) if !is_composite && part == boulder::FQDN_SET => {
            scratch.extend_from_slice(set.hash());
            Ok(())
        }
        #[cfg(feature = "boulder")]
        Id::NumberAndSet(number, set) if is_composite && part == boulder::FQDN_SET => {
            scratch.extend_from_slice(&number.to_be_bytes());
            scratch.extend_from_slice(set.hash());
            Ok(())
        }
        _ => Err(wrong_type(shape)),
    };
    match done {
        Ok(()) => Ok(scratch),
        Err(why) => Err(refusal(format, id, &why)),
    }
}

/// Returns an id in normal form as text, which a request may give again, except for the hash of a set.
pub(crate) fn decode(format: IdFormat, id: &[u8]) -> String {
    let Some(Shape { is_composite, part }) = Shape::new(format) else {
        return String::from_utf8_lossy(id).into_owned();
    };
    if is_composite && let Some((number, rest)) = id.split_first_chunk() {
        let number = u64::from_be_bytes(*number);
        return match rest {
            [] => number.to_string(),
            _ => format!("{number}:{}", decode_part(part, rest)),
        };
    }
    decode_part(part, id)
}

/// Returns the account's part of a composite id, if the id has another part.
#[inline]
pub(crate) fn account_of(format: IdFormat, id: &[u8]) -> Option<&[u8]> {
    let (account, rest) = id.split_at_checked(size_of::<u64>())?;
    (Shape::new(format).is_some_and(|shape| shape.is_composite) && !rest.is_empty())
        .then_some(account)
}

impl Shape {
    /// Returns the parts of a format's ids; `None` for `string`, whose ids are text in any form.
    #[inline]
    const fn new(format: IdFormat) -> Option<Shape> {
        let part = match format {
            IdFormat::String => return None,
            IdFormat::IpAddress => Part::IpAddress,
            IdFormat::RegId => Part::RegId,
            #[cfg(feature = "boulder")]
            other => {
                let (is_composite, part) = boulder::parts_of(other);
                return Some(Shape { is_composite, part });
            }
        };
        Some(Shape { is_composite: false, part })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::IpAddress => "ipAddress",
            Part::RegId => "regId",
            #[cfg(feature = "boulder")]
            Part::Boulder(part) => part.name(),
        })
    }
}

/// Returns any id as text, with its address in canonical form.
#[inline]
fn encode_string<'s>(id: Id<'s>, scratch: &'s mut Scratch) -> Result<&'s [u8], Error> {
    scratch.clear();
    let written = match id {
        Id::Text(text) if (1..=STRING_MAX_BYTES).contains(&text.len()) => {
            return Ok(text.as_bytes());
        }
        Id::Text(_) => None,
        Id::Address(address) => write!(scratch, "{}", address.to_canonical()).ok(),
        Id::NumberAndAddress(number, address) => {
            write!(scratch, "{number}:{}", address.to_canonical()).ok()
        }
        _ => write!(scratch, "{id}").ok(),
    };
    match written {
        Some(()) if scratch.len() <= STRING_MAX_BYTES => Ok(scratch),
        _ => {
            let why = format!("must be text of 1 to {STRING_MAX_BYTES} bytes");
            Err(refusal(IdFormat::String, id, &why))
        }
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
    push_part(Part::RegId, number, origin, scratch)
        .map_err(|why| of_part(Part::RegId, number, &why))?;
    match rest {
        Some(rest) => {
            push_part(part, rest, origin, scratch).map_err(|why| of_part(part, rest, &why))
        }
        None => Ok(()),
    }
}

/// Appends a part that is given as text.
fn push_part(part: Part, text: &str, origin: Origin, scratch: &mut Scratch) -> Result<(), String> {
    match part {
        Part::IpAddress => push_octets(address::parse(text, origin)?, scratch),
        Part::RegId => scratch.extend_from_slice(&parse_reg_id(text, origin)?.to_be_bytes()),
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.push(text, origin, scratch)?,
    }
    Ok(())
}

/// Appends a part that is given as an address; `None` if the part is not of that type.
#[inline]
fn push_address(part: Part, address: IpAddr, scratch: &mut Scratch) -> Option<()> {
    match part {
        Part::IpAddress => push_octets(address.to_canonical(), scratch),
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.push_address(address, scratch)?,
        Part::RegId => return None,
    }
    Some(())
}

#[inline]
fn push_octets(address: IpAddr, scratch: &mut Scratch) {
    match address {
        IpAddr::V4(address) => scratch.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => scratch.extend_from_slice(&address.octets()),
    }
}

/// Parses an account's number in decimal. A file's has no leading zeros.
fn parse_reg_id(text: &str, origin: Origin) -> Result<u64, String> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = text.parse::<u64>().ok().filter(|_| is_decimal) else {
        return Err(wanted(Part::RegId).into());
    };
    if matches!(origin, Origin::Override { .. }) && text.len() > 1 && text.starts_with('0') {
        return Err(format!("must be in canonical form, \"{number}\", or it would never match"));
    }
    Ok(number)
}

fn decode_part(part: Part, id: &[u8]) -> String {
    let text = match part {
        Part::IpAddress => decode_address(id).map(|address| address.to_string()),
        Part::RegId => id.try_into().ok().map(|number| u64::from_be_bytes(number).to_string()),
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.decode(id),
    };
    // A set's text is its hash. Bytes that are no valid id are shown in the same way.
    text.unwrap_or_else(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn decode_address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
        _ => None,
    }
}

#[cold]
fn refusal(format: IdFormat, id: Id<'_>, why: &str) -> Error {
    let given = shown(&id.to_string());
    Error::new(ErrorKind::Id, format!("invalid {format} {given}: {why}"))
}

/// Says what a part must be, for an id of another type.
#[cold]
fn wanted(part: Part) -> &'static str {
    match part {
        Part::IpAddress => "must be an IP address",
        Part::RegId => {
            "must be an ACME registration Id, a number from 0 to 18446744073709551615 in decimal"
        }
        #[cfg(feature = "boulder")]
        Part::Boulder(part) => part.wanted(),
    }
}

#[cold]
fn wrong_type(shape: Shape) -> String {
    let wanted = wanted(shape.part);
    match shape.is_composite {
        true => format!("must be a regId, alone or with a second part that {wanted}"),
        false => wanted.into(),
    }
}

/// Says which part of a composite id was refused, and why.
#[cold]
fn of_part(part: Part, text: &str, why: &str) -> String {
    format!("{part} {}: {why}", shown(text))
}
