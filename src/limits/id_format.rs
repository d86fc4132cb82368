//! `IdFormat`: the format of a limit's ids.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::limits::id::FIELDS_MAX;
use crate::limits::{names, shown};

/// The format of a limit's ids. Limits files and `Display` use the name in backquotes. A format of two or three fields
/// has their names, joined by colons, such as `integer:string`: see [`tuple`](IdFormat::tuple).
///
/// | format | takes | its text, in files and in requests |
/// |---|---|---|
/// | `string` | text; also numbers, addresses and UUIDs, as their text; a number and a field, as `7:alice` | itself |
/// | `integer` | every integer, of any width | `-5` |
/// | `regId` | integers from 0 to 2^64 - 1 | `12345678` |
/// | `ipAddress` | addresses | `192.0.2.1`, `2001:db8::1` |
/// | `bytes` | bytes, UUIDs | `00ff7f` |
/// | `uuid` | UUIDs, 16 bytes, `u128` | `67e55044-10b1-426f-9247-bb680e5fe0c8` |
/// | `integer:string` | pairs of an integer and text | `7:alice` |
///
/// # Example
///
/// ```
/// use tollgate::{IdFormat, Limits};
///
/// let limits = Limits::builder()
///     .limit("PerClient", IdFormat::IpAddress, None)?
///     .limit("PerUser", "integer:string".parse()?, None)?
///     .build();
/// assert!(limits.limit_for("PerClient", "2001:DB8::1").is_ok());
/// assert!(limits.limit_for("PerClient", "localhost").unwrap_err().is_invalid_id());
/// assert!(limits.limit_for("PerUser", (7, "alice")).is_ok());
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
    /// `integer`: an integer from -2^127 to 2^128 - 1 in decimal. One number is one id, whatever its type.
    Integer,
    /// `bytes`: 1 to 1024 bytes. Their text has two hexadecimal digits for each.
    Bytes,
    /// `uuid`: 16 bytes. Their text has hyphens; a request's may be without.
    Uuid,
    /// Two or three fields, each with a format.
    Tuple(TupleFormat),
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

/// The formats of two or three fields. Made by [`IdFormat::tuple`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TupleFormat {
    parts: [Part; FIELDS_MAX],
    len: u8,
}

/// The format of a field; or of the whole id, if it has one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    String,
    IpAddress,
    RegId,
    Integer,
    Bytes,
    Uuid,
    #[cfg(feature = "boulder")]
    Boulder(BoulderPart),
}

/// The parts that need the feature `boulder`.
#[cfg(feature = "boulder")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BoulderPart {
    Ipv6RangeCidr,
    IdentValue,
    DomainOrCidr,
    Domain,
    FqdnSet,
}

/// The parts of a format's ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One(Part),
    /// An account's number, alone or with the part.
    #[cfg_attr(
        not(feature = "boulder"),
        allow(dead_code, reason = "Boulder's formats have accounts")
    )]
    Composite(Part),
    Tuple(TupleFormat),
}

impl IdFormat {
    /// All formats of one field, and Boulder's, with their names.
    pub(crate) const ALL: &'static [(&'static str, IdFormat)] = &[
        ("string", IdFormat::String),
        ("ipAddress", IdFormat::IpAddress),
        ("regId", IdFormat::RegId),
        ("integer", IdFormat::Integer),
        ("bytes", IdFormat::Bytes),
        ("uuid", IdFormat::Uuid),
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

    /// Returns the format of ids of two or three fields. Its ids are pairs and triples, such as `(7, "alice")`; as text,
    /// the fields joined by colons. In all fields but the last, a colon is written `\:` and a backslash `\\`.
    ///
    /// Ids are told apart by the length of each field: `("ab", "c")` is another id than `("a", "bc")`. All fields
    /// together have at most 1,024 bytes in normal form. `regId` with one of Boulder's formats is the format of that name
    /// if there is one, such as `regId:identValue`.
    ///
    /// # Errors
    ///
    /// [`is_invalid_limit`](Error::is_invalid_limit) for another number of fields, and for a field that is itself a tuple
    /// or begins with an account's number.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::IdFormat;
    ///
    /// let format = IdFormat::tuple(&[IdFormat::Integer, IdFormat::String])?;
    /// assert_eq!(format.to_string(), "integer:string");
    /// assert_eq!("integer:string".parse::<IdFormat>()?, format);
    /// assert!(IdFormat::tuple(&[IdFormat::Integer]).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn tuple(formats: &[IdFormat]) -> Result<IdFormat, Error> {
        if !(2..=FIELDS_MAX).contains(&formats.len()) {
            let why = format!("a tuple of {} fields: 2 or 3 are allowed", formats.len());
            return Err(Error::new(ErrorKind::Limit, why));
        }
        let mut tuple = TupleFormat { parts: [Part::String; FIELDS_MAX], len: formats.len() as u8 };
        for (part, format) in tuple.parts.iter_mut().zip(formats) {
            let Shape::One(one) = format.shape() else {
                let why =
                    format!("the format {format} in a tuple: a format of one field is allowed");
                return Err(Error::new(ErrorKind::Limit, why));
            };
            *part = one;
        }
        let name = IdFormat::Tuple(tuple).to_string();
        Ok(IdFormat::named(&name).unwrap_or(IdFormat::Tuple(tuple)))
    }

    /// Returns the format of [`ALL`](IdFormat::ALL) with this name.
    fn named(name: &str) -> Option<IdFormat> {
        IdFormat::ALL.iter().find(|(known, _)| *known == name).map(|&(_, format)| format)
    }

    /// Returns the parts of the format's ids.
    #[inline]
    pub(super) const fn shape(self) -> Shape {
        match self {
            IdFormat::String => Shape::One(Part::String),
            IdFormat::IpAddress => Shape::One(Part::IpAddress),
            IdFormat::RegId => Shape::One(Part::RegId),
            IdFormat::Integer => Shape::One(Part::Integer),
            IdFormat::Bytes => Shape::One(Part::Bytes),
            IdFormat::Uuid => Shape::One(Part::Uuid),
            IdFormat::Tuple(tuple) => Shape::Tuple(tuple),
            #[cfg(feature = "boulder")]
            IdFormat::Ipv6RangeCidr => Shape::One(Part::Boulder(BoulderPart::Ipv6RangeCidr)),
            #[cfg(feature = "boulder")]
            IdFormat::IdentValue => Shape::One(Part::Boulder(BoulderPart::IdentValue)),
            #[cfg(feature = "boulder")]
            IdFormat::DomainOrCidr => Shape::One(Part::Boulder(BoulderPart::DomainOrCidr)),
            #[cfg(feature = "boulder")]
            IdFormat::FqdnSet => Shape::One(Part::Boulder(BoulderPart::FqdnSet)),
            #[cfg(feature = "boulder")]
            IdFormat::RegIdIdentValue => Shape::Composite(Part::Boulder(BoulderPart::IdentValue)),
            #[cfg(feature = "boulder")]
            IdFormat::RegIdDomainOrCidr => {
                Shape::Composite(Part::Boulder(BoulderPart::DomainOrCidr))
            }
            #[cfg(feature = "boulder")]
            IdFormat::RegIdDomain => Shape::Composite(Part::Boulder(BoulderPart::Domain)),
            #[cfg(feature = "boulder")]
            IdFormat::RegIdFqdnSet => Shape::Composite(Part::Boulder(BoulderPart::FqdnSet)),
        }
    }
}

/// For warnings.
#[cfg(any(feature = "yaml", feature = "serde"))]
impl IdFormat {
    /// Returns whether ids of the format have text that nothing checks.
    pub(crate) fn has_free_text(self) -> bool {
        self.has_part(Part::String)
    }

    /// Returns whether ids of the format have a name that counts as its registered domain.
    #[cfg(feature = "boulder")]
    pub(crate) fn has_domain(self) -> bool {
        self.has_part(Part::Boulder(BoulderPart::DomainOrCidr))
    }

    fn has_part(self, wanted: Part) -> bool {
        match self.shape() {
            Shape::One(part) | Shape::Composite(part) => part == wanted,
            Shape::Tuple(tuple) => tuple.parts().contains(&wanted),
        }
    }
}

impl TupleFormat {
    pub(super) fn parts(&self) -> &[Part] {
        self.parts.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Finds a format by its name, as limits files have it.
///
/// # Errors
///
/// [`is_invalid_limit`](Error::is_invalid_limit) for any other text.
impl FromStr for IdFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<IdFormat, Error> {
        if let Some(format) = IdFormat::named(name) {
            return Ok(format);
        }
        let one_field = |name: &str| {
            let format = IdFormat::named(name)?;
            matches!(format.shape(), Shape::One(_)).then_some(format)
        };
        let fields: Option<Vec<IdFormat>> = name.split(':').map(one_field).collect();
        if let Some(fields) = fields
            && (2..=FIELDS_MAX).contains(&fields.len())
        {
            return IdFormat::tuple(&fields);
        }
        let known: Vec<&str> = IdFormat::ALL.iter().map(|(name, _)| *name).collect();
        let hint = names::hint(name, known.iter().copied());
        let more = if cfg!(feature = "boulder") { "" } else { " (the feature boulder has more)" };
        let why = format!(
            "{}: {}, or 2 or 3 of them joined by ':', are allowed{more}{hint}",
            shown(name),
            known.join(", ")
        );
        Err(Error::new(ErrorKind::Limit, why))
    }
}

impl fmt::Display for IdFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let IdFormat::Tuple(tuple) = self {
            let names: Vec<&str> = tuple.parts().iter().map(|part| part.name()).collect();
            return f.write_str(&names.join(":"));
        }
        let named = IdFormat::ALL.iter().find(|(_, format)| format == self);
        f.write_str(named.map_or("unnamed", |(name, _)| name))
    }
}

impl Part {
    /// Returns the part's name: that of the format with this part alone, if there is one.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::String => "string",
            Part::IpAddress => "ipAddress",
            Part::RegId => "regId",
            Part::Integer => "integer",
            Part::Bytes => "bytes",
            Part::Uuid => "uuid",
            #[cfg(feature = "boulder")]
            Part::Boulder(part) => part.name(),
        }
    }
}

#[cfg(feature = "boulder")]
impl BoulderPart {
    fn name(self) -> &'static str {
        match self {
            BoulderPart::Ipv6RangeCidr => "ipv6RangeCIDR",
            BoulderPart::IdentValue => "identValue",
            BoulderPart::DomainOrCidr => "domainOrCIDR",
            BoulderPart::Domain => "domain",
            BoulderPart::FqdnSet => "fqdnSet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_found_by_its_name() {
        let fields: Vec<IdFormat> = IdFormat::ALL.iter().map(|&(_, format)| format).collect();
        for first in &fields {
            assert_eq!(first.to_string().parse::<IdFormat>().unwrap(), *first);
            for second in &fields {
                let pair = [*first, *second];
                let triple = [*first, *second, IdFormat::String];
                for formats in [&pair[..], &triple[..]] {
                    let is_allowed = pair.iter().all(|it| matches!(it.shape(), Shape::One(_)));
                    let tuple = IdFormat::tuple(formats);
                    assert_eq!(tuple.is_ok(), is_allowed, "{formats:?}");
                    if let Ok(tuple) = tuple {
                        assert_eq!(tuple.to_string().parse::<IdFormat>().unwrap(), tuple);
                    }
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_lists_what_is_allowed() {
        for name in ["", ":", "text", "string:", "string:string:string:string", "String", "a:b"] {
            let error = name.parse::<IdFormat>().unwrap_err();
            assert!(error.is_invalid_limit());
            let message = error.to_string();
            assert!(message.starts_with(&format!("{name:?}: string, ipAddress, ")), "{message}");
            assert!(message.contains("or 2 or 3 of them joined by ':', are allowed"), "{message}");
            let names_feature = message.contains("the feature boulder has more");
            assert_eq!(names_feature, !cfg!(feature = "boulder"), "{message}");
        }
        for few in [&[][..], &[IdFormat::String]] {
            let error = IdFormat::tuple(few).unwrap_err().to_string();
            assert!(error.ends_with("fields: 2 or 3 are allowed"), "{error}");
        }
    }

    #[cfg(feature = "boulder")]
    #[test]
    fn boulders_composites_keep_their_names() {
        let pair = IdFormat::tuple(&[IdFormat::RegId, IdFormat::IdentValue]).unwrap();
        assert_eq!(pair, IdFormat::RegIdIdentValue);
        let error = IdFormat::tuple(&[pair, IdFormat::String]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the format regId:identValue in a tuple: a format of one field is allowed"
        );
    }
}
