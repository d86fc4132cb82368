//! Numbers, bytes and UUIDs in digits.
//!
//! A request may spell an id in several ways. A file has the canonical one, so that an id is found by searching for it.

use super::Origin;
use super::wanted::wanted;
use crate::limits::id::{IdField, WideInteger};
use crate::limits::id_format::Part;

/// Parses an account's number in decimal.
pub(super) fn parse_reg_id(text: &str, origin: Origin) -> Result<u64, String> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = text.parse().ok().filter(|_| is_decimal);
    let number = number.ok_or_else(|| wanted(Part::RegId))?;
    check_canonical(text, IdField::Number(number), origin)?;
    Ok(number)
}

/// Parses an integer in decimal.
pub(super) fn parse_integer(text: &str, origin: Origin) -> Result<WideInteger, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<WideInteger> = match digits.len() == text.len() {
        true => text.parse::<u128>().ok().map(WideInteger::from),
        false => text.parse::<i128>().ok().map(WideInteger::from),
    };
    let number = number.filter(|_| is_decimal).ok_or_else(|| wanted(Part::Integer))?;
    check_canonical(text, IdField::Integer(number), origin)?;
    Ok(number)
}

/// Parses bytes, two hexadecimal digits each.
pub(super) fn parse_bytes(text: &str, origin: Origin) -> Result<Vec<u8>, String> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| byte(*pair)).collect();
    let is_whole = rest.is_empty() && (1..=super::STRING_MAX_BYTES).contains(&pairs.len());
    let bytes = bytes.filter(|_| is_whole).ok_or_else(|| wanted(Part::Bytes))?;
    check_canonical(text, IdField::Bytes(&bytes), origin)?;
    Ok(bytes)
}

/// Parses a UUID: 32 hexadecimal digits, with hyphens in their places or without.
pub(super) fn parse_uuid(text: &str, origin: Origin) -> Result<[u8; 16], String> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let bytes = text.as_bytes();
    let mut digits = [0; 32];
    let mut given = bytes
        .iter()
        .enumerate()
        .filter(|(at, byte)| !(bytes.len() == 36 && HYPHENS.contains(at) && **byte == b'-'));
    digits.iter_mut().zip(&mut given).for_each(|(digit, (_, byte))| *digit = *byte);
    let is_whole = given.next().is_none();
    let mut uuid = [0; 16];
    for (to, pair) in uuid.iter_mut().zip(digits.as_chunks::<2>().0) {
        *to = byte(*pair).filter(|_| is_whole).ok_or_else(|| wanted(Part::Uuid))?;
    }
    check_canonical(text, IdField::Uuid(uuid), origin)?;
    Ok(uuid)
}

fn byte(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

/// Checks that a file's text is spelled as the field is shown.
fn check_canonical(text: &str, field: IdField<'_>, origin: Origin) -> Result<(), String> {
    match origin {
        Origin::Override { .. } if field.to_string() != text => {
            Err(format!("must be in canonical form, \"{field}\", or it would never match"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Origin = Origin::Override { public_only: false };

    #[test]
    fn integers_have_any_width_and_sign() {
        let parsed = |text: &str| parse_integer(text, Origin::Request).map(|it| it.to_string());
        for (text, number) in [
            ("0", "0"),
            ("-0", "0"),
            ("-007", "-7"),
            ("18446744073709551616", "18446744073709551616"),
            ("340282366920938463463374607431768211455", "340282366920938463463374607431768211455"),
            (
                "-170141183460469231731687303715884105728",
                "-170141183460469231731687303715884105728",
            ),
        ] {
            assert_eq!(parsed(text).unwrap(), number);
            assert_eq!(parse_integer(text, FILE).is_ok(), text == number);
        }
        for text in [
            "",
            "-",
            "+5",
            "--5",
            "5 ",
            "0x10",
            "1e3",
            "\u{0665}",
            "340282366920938463463374607431768211456",
            "-170141183460469231731687303715884105729",
        ] {
            assert_eq!(parsed(text).unwrap_err(), wanted(Part::Integer), "{text}");
        }
    }

    #[test]
    fn bytes_are_pairs_of_hexadecimal_digits() {
        assert_eq!(parse_bytes("00fF7f", Origin::Request).unwrap(), [0, 255, 127]);
        let why = parse_bytes("00fF7f", FILE).unwrap_err();
        assert_eq!(why, "must be in canonical form, \"00ff7f\", or it would never match");
        assert_eq!(parse_bytes(&"ab".repeat(1024), FILE).unwrap(), [0xab; 1024]);
        for text in ["", "0", "000", "0x00", "0g", " 00", "\u{e9}", &"00".repeat(1025)] {
            assert_eq!(parse_bytes(text, FILE).unwrap_err(), wanted(Part::Bytes), "{text}");
        }
    }

    #[test]
    fn uuids_may_omit_all_hyphens() {
        let text = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let bytes = 0x67e5504410b1426f9247bb680e5fe0c8_u128.to_be_bytes();
        for given in [text.to_owned(), text.replace('-', ""), text.to_uppercase()] {
            assert_eq!(parse_uuid(&given, Origin::Request).unwrap(), bytes, "{given}");
            assert_eq!(parse_uuid(&given, FILE).is_ok(), given == text, "{given}");
        }
        for wrong in [
            "",
            "67e55044",
            "67e5504410b1-426f-9247-bb680e5fe0c8",
            "67e55044-10b1-426f-9247-bb680e5fe0c",
            "67e55044-10b1-426f-9247-bb680e5fe0c8f",
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e5504-410b1-426f-9247-bb680e5fe0c8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "67e55044x10b1x426fx9247xbb680e5fe0c8",
        ] {
            assert_eq!(
                parse_uuid(wrong, Origin::Request).unwrap_err(),
                wanted(Part::Uuid),
                "{wrong}"
            );
        }
    }
}
