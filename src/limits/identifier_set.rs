//! Sets of identifiers as one id, regardless of their order.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::limits::format;
use crate::limits::format::{Origin, Scratch};
use crate::limits::{Id, IdFormat};

/// A set of domain names and addresses as one id: the SHA-256 of its members in Boulder's order.
///
/// It is hashed once, when it is made, and not in calls. Order, case and duplicates do not matter: names become
/// lower-case ASCII, addresses canonical text. Its text is 64 hex digits.
///
/// # Example: one set, written twice
///
/// ```
/// use tollgate::limits::IdentifierSet;
///
/// let set = IdentifierSet::new(["example.net", "EXAMPLE.com"])?;
/// assert_eq!(set, IdentifierSet::new(["example.com", "example.net", "example.net"])?);
/// assert_eq!(set.to_string(), "f01cb09359ea414a5af7dfe1874e786bcf724605354eefd9df979bc995563cae");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdentifierSet([u8; 32]);

impl IdentifierSet {
    /// Makes the set of `identifiers`, each a domain name or an address.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] if an identifier is neither, or if there are none.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::IdentifierSet;
    /// assert!(IdentifierSet::new(["example.com", "192.0.2.7"]).is_ok());
    /// assert!(IdentifierSet::new(["not a name"]).unwrap_err().is_invalid_id());
    /// assert!(IdentifierSet::new([]).is_err(), "a set has a member");
    /// ```
    pub fn new<'a>(identifiers: impl IntoIterator<Item = &'a str>) -> Result<IdentifierSet, Error> {
        IdentifierSet::read(identifiers, Origin::Request)
    }

    /// Makes the set of `identifiers` by the rules for their origin.
    pub(in crate::limits) fn read<'a>(
        identifiers: impl IntoIterator<Item = &'a str>,
        origin: Origin,
    ) -> Result<IdentifierSet, Error> {
        let mut members = Vec::new();
        for identifier in identifiers {
            let mut scratch = Scratch::new();
            let id = Id::Text(identifier);
            let bytes = format::encode_from(IdFormat::IdentValue, id, origin, &mut scratch)?;
            // The order of the hash: names before addresses, each by the bytes of their text.
            members.push((format::is_address(bytes), format::decode(IdFormat::IdentValue, bytes)));
        }
        if members.is_empty() {
            return Err(Error::new(
                ErrorKind::Id,
                "invalid identifier set: must have one domain name or IP address at least",
            ));
        }
        members.sort_unstable();
        members.dedup();
        let mut hash = Sha256::new();
        for (i, (_, text)) in members.iter().enumerate() {
            if i > 0 {
                hash.update(b",");
            }
            hash.update(text);
        }
        Ok(IdentifierSet(hash.finalize().into()))
    }

    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for IdentifierSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for IdentifierSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentifierSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(identifiers: &[&str]) -> String {
        IdentifierSet::new(identifiers.iter().copied()).unwrap().to_string()
    }

    #[test]
    fn hashes_are_boulders() {
        for (identifiers, golden) in [
            (
                &["example.com"][..],
                "a379a6f6eeafb9a55e378c118034e2751e682fab9f2d30ab13d2125586ce1947",
            ),
            (
                &["example.com", "example.net"],
                "f01cb09359ea414a5af7dfe1874e786bcf724605354eefd9df979bc995563cae",
            ),
            (
                &["example.com", "example.net", "example.org"],
                "394e82811f52e2da38b970afdb21c9bc9af81060939c690183c00fce37408738",
            ),
            (
                &["example.co.uk", "example.cn"],
                "7c956936126b492845ddb48f4d220034509e7c0ad54ed2c1ba2650406846d9c3",
            ),
            (
                &["2602:80a:6000::1", "9.9.9.9", "example.com"],
                "443ecefabd97835434b96f88c40d1a4d18d018a327f68d752724b0c77a5d751b",
            ),
            (
                &["example.net", "5.6.7.8", "2001:db8::1"],
                "dd178f66c6de501bbcdbe78182c078011623e62b1474d6812bae6e39140ab284",
            ),
        ] {
            assert_eq!(hash(identifiers), golden, "{identifiers:?}");
        }
    }

    #[test]
    fn order_case_duplicates_and_spelling_do_not_matter() {
        let golden = hash(&["example.com", "xn--bcher-kva.de", "9.9.9.9", "2602:80a:6000::1"]);
        let other = hash(&[
            "2602:080A:6000:0::1",
            "::ffff:9.9.9.9",
            "9.9.9.9",
            "B\u{fc}cher.de.",
            "EXAMPLE.com",
            "example.com",
        ]);
        assert_eq!(golden, other);
        assert_ne!(golden, hash(&["example.com", "9.9.9.9", "2602:80a:6000::1"]));
    }

    #[test]
    fn each_member_is_a_name_or_an_address() {
        assert!(IdentifierSet::new([]).unwrap_err().is_invalid_id());
        for bad in ["", " example.com", "example", "1.2.3.4/32", "example.com,example.net"] {
            let error = IdentifierSet::new(["example.com", bad]).unwrap_err();
            assert!(
                error.is_invalid_id() && error.to_string().contains(&format!("{bad:?}")),
                "{error}"
            );
        }
    }
}
