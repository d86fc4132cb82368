//! Tests the formats: rows, every type with every format, and properties.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn request(format: IdFormat, id: Id<'_>) -> Result<String, Error> {
    let mut scratch = Scratch::new();
    encode(format, id, &mut scratch).map(|bytes| decode(format, bytes))
}

fn stored(format: IdFormat, text: &str, public_only: bool) -> Result<String, Error> {
    let mut scratch = Scratch::new();
    encode_override(format, text, public_only, &mut scratch).map(|bytes| decode(format, bytes))
}

#[test]
fn text_ids_keep_bytes_others_are_written_out() {
    let format = IdFormat::String;
    let mapped = IpAddr::V6(Ipv4Addr::new(9, 9, 9, 9).to_ipv6_mapped());
    for (id, text) in [
        (Id::Text(" A:b\u{fc} "), " A:b\u{fc} "),
        (Id::Number(u64::MAX), "18446744073709551615"),
        (Id::Address(mapped), "9.9.9.9"),
        (Id::NumberAndText(7, ""), "7:"),
        (Id::NumberAndText(7, "x:y"), "7:x:y"),
        (Id::NumberAndAddress(7, mapped), "7:9.9.9.9"),
        (Id::NumberAndAddress(7, Ipv6Addr::LOCALHOST.into()), "7:::1"),
    ] {
        assert_eq!(request(format, id).unwrap(), text);
    }
    let longest = "x".repeat(1024);
    assert_eq!(request(format, Id::Text(&longest)).unwrap(), longest);
    assert_eq!(request(format, Id::NumberAndText(1, &longest[2..])).unwrap().len(), 1024);
    let too_long = "x".repeat(1025);
    for id in [Id::Text(""), Id::Text(&too_long), Id::NumberAndText(1, &longest[1..])] {
        let error = request(format, id).unwrap_err();
        assert!(error.to_string().ends_with("must be text of 1 to 1024 bytes"), "{error}");
    }
}

#[test]
fn plain_numbers_and_addresses_are_normalised() {
    for (format, text, normal) in [
        (IdFormat::RegId, "007", "7"),
        (IdFormat::RegId, "0", "0"),
        (IdFormat::RegId, "18446744073709551615", "18446744073709551615"),
        (IdFormat::IpAddress, "2602:80A:6000:0::1", "2602:80a:6000::1"),
        (IdFormat::IpAddress, "::ffff:10.0.0.1", "10.0.0.1"),
        (IdFormat::IpAddress, "::1", "::1"),
    ] {
        assert_eq!(request(format, Id::Text(text)).unwrap(), normal, "{text}");
    }
    for text in ["", "+5", "-5", "0x10", "1_000", " 5", "5 ", "18446744073709551616", "\u{0665}"] {
        let error = request(IdFormat::RegId, Id::Text(text)).unwrap_err();
        assert!(error.to_string().contains("must be an ACME registration Id"), "{error}");
    }
    for text in ["", " 1.2.3.4", "1.2.3.4/32", "01.2.3.4", "fe80::1%eth0", "[::1]", "localhost"] {
        let error = request(IdFormat::IpAddress, Id::Text(text)).unwrap_err();
        assert!(error.to_string().contains("must be an IP address"), "{error}");
    }
    let error = stored(IdFormat::RegId, "007", false).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid regId \"007\": must be in canonical form, \"7\", or it would never match"
    );
    assert_eq!(stored(IdFormat::RegId, "0", true).unwrap(), "0");
    assert_eq!(stored(IdFormat::IpAddress, "10.0.0.5", false).unwrap(), "10.0.0.5");
}

#[test]
fn an_error_shows_a_short_and_escaped_id() {
    let text = format!("\u{1b}[31m\n{}", "\u{fc}".repeat(5000));
    let error = request(IdFormat::IpAddress, Id::Text(&text)).unwrap_err().to_string();
    assert!(error.starts_with("invalid ipAddress \"\\u{1b}[31m\\n\u{fc}"), "{error}");
    assert!(error.ends_with("\"...: must be an IP address"), "{error}");
    assert!(error.chars().count() < 130, "{error}");
    assert!(!error.chars().any(char::is_control), "{error}");
}

#[test]
fn only_a_composite_id_has_an_account() {
    assert_eq!(account_of(IdFormat::String, b"123456789"), None);
    assert_eq!(account_of(IdFormat::IpAddress, &[0; 16]), None);
}

fn any_format() -> impl Strategy<Value = IdFormat> {
    (0..IdFormat::ALL.len()).prop_map(|i| IdFormat::ALL[i].1)
}

fn any_id_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{0,21}(:.{0,20})?",
        "([0-9]{1,5}:)?(\\*\\.)?([a-zA-Z0-9-]{1,8}\\.){0,4}(com|co\\.uk|github\\.io|de|ck)\\.?",
        "([0-9]{1,5}:)?([a-z\u{e0}-\u{17f}\u{5d0}-\u{5ea}\u{4e00}-\u{4e20}\u{1f600}-\u{1f610}]{1,6}\\.){1,3}(com|\u{4e2d}\u{56fd})",
        "([0-9]{1,5}:)?xn--[a-z0-9-]{1,12}\\.com",
        any::<IpAddr>().prop_map(|address| address.to_string()),
        (any::<u64>(), any::<IpAddr>()).prop_map(|(number, address)| format!("{number}:{address}")),
        (any::<IpAddr>(), 0..140_u8).prop_map(|(address, bits)| format!("{address}/{bits}")),
        "[0-9a-fA-F:]{0,40}(/[0-9]{1,3})?",
        "[0-9.]{0,16}",
    ]
}

/// Whether the text is a set's hash, from which its members cannot be read back.
fn is_hash(format: IdFormat, bytes: &[u8]) -> bool {
    match format {
        #[cfg(feature = "boulder")]
        IdFormat::FqdnSet => true,
        #[cfg(feature = "boulder")]
        IdFormat::RegIdFqdnSet => bytes.len() > 8,
        _ => bytes.is_empty(),
    }
}

/// Whether an override's id is a name below the registered domain that a call with the name counts as.
#[cfg_attr(not(feature = "boulder"), allow(unused_variables, reason = "no such format"))]
fn is_below_domain(format: IdFormat, given: &[u8], call: &[u8]) -> bool {
    match format {
        #[cfg(feature = "boulder")]
        IdFormat::DomainOrCidr => given.ends_with(&[b".", call].concat()),
        #[cfg(feature = "boulder")]
        IdFormat::RegIdDomainOrCidr => {
            given[..8] == call[..8] && given.ends_with(&[b".", &call[8..]].concat())
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn encoding_never_panics_and_normal_forms_stay(format in any_format(), text in any_id_text()) {
        let mut scratch = Scratch::new();
        if let Ok(bytes) = encode(format, Id::Text(&text), &mut scratch) {
            let shown = decode(format, bytes);
            if !is_hash(format, bytes) {
                let mut again = Scratch::new();
                let twice = encode(format, Id::Text(&shown), &mut again).map(<[u8]>::to_vec);
                prop_assert_eq!(twice.unwrap(), bytes, "{} shown as {}", text, shown);
            }
        }
    }

    #[test]
    fn files_may_have_what_a_request_becomes(
        format in any_format(),
        text in any_id_text(),
        public_only: bool,
    ) {
        let mut scratch = Scratch::new();
        // An override may also be for a network, which no call has.
        if let Ok(bytes) = encode_override(format, &text, public_only, &mut scratch)
            && !is_network(format, bytes)
        {
            let mut again = Scratch::new();
            let call = encode(format, Id::Text(&text), &mut again).unwrap();
            prop_assert!(call == bytes || is_below_domain(format, bytes, call), "{}", text);
        }
    }

    #[test]
    fn a_typed_id_is_its_text(number: u64, address: IpAddr) {
        for (_, format) in IdFormat::ALL {
            for id in [Id::Number(number), Id::Address(address), Id::NumberAndAddress(number, address)] {
                if let Ok(shown) = request(*format, id) {
                    let text = id.to_string();
                    if *format != IdFormat::String {
                        prop_assert_eq!(request(*format, Id::Text(&text)).unwrap(), shown);
                    }
                }
            }
        }
    }

    #[test]
    fn decoding_never_panics(format in any_format(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        decode(format, &bytes);
        account_of(format, &bytes);
    }
}

/// Numbers about which their digits become more.
const ENDS: &[u64] = &[0, 9, 10, 99, 100, 999, 1_000, u64::MAX];

proptest! {
    #[test]
    fn plain_bytes_are_the_normal_form(
        number in prop_oneof![any::<u64>(), 0..1_000_u64, proptest::sample::select(ENDS)],
        text in "[ -~]{0,80}",
        octets in any::<[u8; 16]>(),
        is_mapped in any::<bool>(),
    ) {
        let mut octets = octets;
        if is_mapped {
            octets[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        }
        let addresses = [IpAddr::from(octets), IpAddr::from([octets[0], octets[1], 7, 7])];
        let ids = [
            Id::Text(&text),
            Id::Number(number),
            Id::Address(addresses[0]),
            Id::Address(addresses[1]),
            Id::NumberAndText(number, &text),
            Id::NumberAndAddress(number, addresses[0]),
        ];
        let mut plain = 0;
        let pairs = [IdFormat::RegId, IdFormat::Integer, IdFormat::Bytes].map(|first| {
            IdFormat::tuple(&[first, IdFormat::String]).expect("two fields")
        });
        for format in IdFormat::ALL.iter().map(|&(_, format)| format).chain(pairs) {
            for id in ids {
                let Some(bytes) = with_plain_bytes(format, &id, <[u8]>::to_vec) else { continue };
                let mut scratch = Scratch::new();
                let encoded = encode(format, id, &mut scratch).expect("plain ids are valid");
                prop_assert_eq!(&bytes[..], encoded, "{:?} {:?}", format, id);
                plain += 1;
            }
        }
        // The number under two formats, both addresses, the text unless it is empty, and the pair unless its text is long: under
        // `string`, and unless it is empty under both tuples of a number.
        let (some, short) = (usize::from(!text.is_empty()), usize::from(text.len() <= 64));
        let expected = 4 + some + short + 2 * some * short;
        prop_assert_eq!(plain, expected);
    }
}
