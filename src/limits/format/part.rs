//! One field of an id: its bytes in normal form, and its text.

use super::address::{decode_address, push_octets};
use super::wanted::{wanted, wrong_type};
use super::{Origin, STRING_MAX_BYTES, Scratch, address, cidr, digits, push_written, string};
use crate::limits::id::{IdField, WideInteger};
use crate::limits::id_format::Part;

impl Part {
    /// Appends the normal form of a field.
    #[inline]
    pub(super) fn push(
        self,
        field: IdField<'_>,
        origin: Origin,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        match (self, field) {
            (_, IdField::Text(text)) => return self.push_text(text, origin, scratch),
            (Part::RegId | Part::Integer, IdField::Number(number)) => {
                scratch.extend_from_slice(&number.to_be_bytes());
            }
            (Part::RegId, IdField::Integer(number)) => {
                let number = number.as_u64().ok_or_else(|| wanted(self))?;
                scratch.extend_from_slice(&number.to_be_bytes());
            }
            (Part::Integer, IdField::Integer(number)) => push_integer(number, scratch),
            (Part::String, IdField::Address(address)) => {
                push_written(scratch, format_args!("{}", address.to_canonical()))?;
            }
            (Part::String, IdField::Number(_) | IdField::Integer(_) | IdField::Uuid(_)) => {
                push_written(scratch, format_args!("{field}"))?;
            }
            (Part::Bytes, IdField::Bytes(bytes))
                if (1..=STRING_MAX_BYTES).contains(&bytes.len()) =>
            {
                scratch.extend_from_slice(bytes);
            }
            (Part::Bytes, IdField::Bytes(_)) => return Err(wanted(self)),
            (Part::Bytes | Part::Uuid, IdField::Uuid(bytes)) => scratch.extend_from_slice(&bytes),
            (Part::Uuid, IdField::Bytes(bytes)) if bytes.len() == 16 => {
                scratch.extend_from_slice(bytes);
            }
            (Part::Uuid, IdField::Integer(number)) if number.as_u128().is_some() => {
                scratch.extend_from_slice(&number.magnitude());
            }
            (Part::IpAddress, IdField::Address(address)) => {
                push_octets(address.to_canonical(), scratch);
            }
            #[cfg(feature = "boulder")]
            (Part::String, IdField::Set(set)) => push_written(scratch, format_args!("{set}"))?,
            #[cfg(feature = "boulder")]
            (Part::Boulder(part), IdField::Address(address)) => {
                part.push_address(address, scratch).ok_or_else(|| wrong_type(self, &field))?
            }
            #[cfg(feature = "boulder")]
            (super::boulder::FQDN_SET, IdField::Set(set)) => scratch.extend_from_slice(set.hash()),
            _ => return Err(wrong_type(self, &field)),
        }
        Ok(())
    }

    /// Appends the normal form of a field that is given as text.
    fn push_text(self, text: &str, origin: Origin, scratch: &mut Scratch) -> Result<(), String> {
        match self {
            Part::String => {
                string(text)?;
                scratch.extend_from_slice(text.as_bytes());
            }
            Part::IpAddress => push_octets(address::parse(text, origin)?, scratch),
            Part::RegId => {
                let number = digits::parse_reg_id(text, origin)?;
                scratch.extend_from_slice(&number.to_be_bytes());
            }
            Part::Integer => push_integer(digits::parse_integer(text, origin)?, scratch),
            Part::Bytes => scratch.extend_from_slice(&digits::parse_bytes(text, origin)?),
            Part::Uuid => scratch.extend_from_slice(&digits::parse_uuid(text, origin)?),
            #[cfg(feature = "boulder")]
            Part::Boulder(part) => part.push(text, origin, scratch)?,
        }
        Ok(())
    }

    /// Returns the text of a field in normal form. A set's text is its hash; bytes that are no valid field are shown in
    /// the same way.
    pub(super) fn decode(self, bytes: &[u8]) -> String {
        let text = match self {
            Part::String => Some(String::from_utf8_lossy(bytes).into_owned()),
            Part::IpAddress => {
                decode_address(bytes).map(|it| it.to_string()).or_else(|| cidr::decode(bytes))
            }
            Part::RegId => {
                bytes.try_into().ok().map(|number| u64::from_be_bytes(number).to_string())
            }
            Part::Integer => decode_integer(bytes).map(|number| match number.as_u64() {
                Some(number) => number.to_string(),
                None => number.to_string(),
            }),
            Part::Bytes => None,
            Part::Uuid => bytes.try_into().ok().map(|bytes| IdField::Uuid(bytes).to_string()),
            #[cfg(feature = "boulder")]
            Part::Boulder(part) => part.decode(bytes),
        };
        text.unwrap_or_else(|| IdField::Bytes(bytes).to_string())
    }
}

#[cfg(feature = "serde")]
impl Part {
    /// Like [`decode`](Part::decode), as a file has it.
    pub(super) fn decode_for_file(self, bytes: &[u8]) -> String {
        let text = self.decode(bytes);
        #[cfg(feature = "boulder")]
        if self == Part::Boulder(crate::limits::id_format::BoulderPart::DomainOrCidr)
            && let Some((base, _)) = text.split_once('/')
        {
            return base.to_owned();
        }
        text
    }
}

/// Appends an integer: 8 bytes from 0 to 2^64 - 1, as under `regId`; else its sign in one byte and its magnitude in 16.
fn push_integer(number: WideInteger, scratch: &mut Scratch) {
    match number.as_u64() {
        Some(number) => scratch.extend_from_slice(&number.to_be_bytes()),
        None => {
            scratch.push(number.is_negative().into());
            scratch.extend_from_slice(&number.magnitude());
        }
    }
}

fn decode_integer(bytes: &[u8]) -> Option<WideInteger> {
    if let Ok(number) = bytes.try_into() {
        return Some(u128::from(u64::from_be_bytes(number)).into());
    }
    let (sign, magnitude) = bytes.split_first()?;
    let magnitude = magnitude.try_into().ok()?;
    match sign {
        0 => Some(u128::from_be_bytes(magnitude).into()),
        _ => Some(WideInteger::negative(magnitude)),
    }
}
