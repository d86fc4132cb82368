//! Tests ids of several fields, and the formats of integers, bytes and UUIDs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::limits::WideInteger;

fn normal(format: IdFormat, id: Id<'_>) -> Result<Vec<u8>, Error> {
    encode(format, id, &mut Scratch::new()).map(<[u8]>::to_vec)
}

fn shown_as(format: &str, id: Id<'_>) -> Result<String, String> {
    let format: IdFormat = format.parse().unwrap();
    normal(format, id).map(|bytes| decode(format, &bytes)).map_err(|why| why.to_string())
}

#[test]
fn every_natural_type_is_an_id() {
    let (text, bytes) = (String::from("alice"), vec![0, 255]);
    let peer: SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
    let uuid = 0x67e5504410b1426f9247bb680e5fe0c8_u128;
    for (format, id, expected) in [
        ("string", Id::from("alice"), "alice"),
        ("string", Id::from(&"alice"), "alice"),
        ("string", Id::from(&text), "alice"),
        ("string", Id::from(&Cow::Borrowed("alice")), "alice"),
        ("string", Id::from(&Box::<str>::from("alice")), "alice"),
        ("string", Id::from(&Arc::<str>::from("alice")), "alice"),
        ("string", Id::from(&Rc::<str>::from("alice")), "alice"),
        ("string", Id::from(-5), "-5"),
        ("string", Id::from(u128::MAX), "340282366920938463463374607431768211455"),
        ("string", Id::from(uuid.to_be_bytes()), "67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ("string", Id::from((7_u128, "alice")), "7:alice"),
        ("string", Id::from((-7, "alice")), "-7:alice"),
        ("string", Id::from((7_i128, peer)), "7:192.0.2.1"),
        ("integer", Id::from(7_u8), "7"),
        ("integer", Id::from(7_u16), "7"),
        ("integer", Id::from(&7_u32), "7"),
        ("integer", Id::from(7_usize), "7"),
        ("integer", Id::from(NonZero::<u64>::MAX), "18446744073709551615"),
        ("integer", Id::from(-7_i8), "-7"),
        ("integer", Id::from(-7_i16), "-7"),
        ("integer", Id::from(i64::MIN), "-9223372036854775808"),
        ("integer", Id::from(-7_isize), "-7"),
        ("integer", Id::from(i128::MIN), "-170141183460469231731687303715884105728"),
        ("integer", Id::from("007"), "7"),
        ("regId", Id::from(7_i32), "7"),
        ("regId", Id::from(7_i128), "7"),
        ("ipAddress", Id::from(peer), "192.0.2.1"),
        ("ipAddress", Id::from(&Ipv4Addr::LOCALHOST), "127.0.0.1"),
        ("bytes", Id::from(&bytes), "00ff"),
        ("bytes", Id::from(&bytes[..]), "00ff"),
        ("bytes", Id::from(&[0, 255]), "00ff"),
        ("bytes", Id::from([1; 16]), "01010101010101010101010101010101"),
        ("uuid", Id::from(&uuid.to_be_bytes()), "67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ("uuid", Id::from(uuid), "67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ("uuid", Id::from(5_u128), "00000000-0000-0000-0000-000000000005"),
        ("string:string", Id::from((&text, "x")), "alice:x"),
        ("integer:string", Id::from((7_u32, &text)), "7:alice"),
        ("integer:ipAddress", Id::from((7, peer)), "7:192.0.2.1"),
        (
            "uuid:integer:bytes",
            Id::from((uuid, -1, &bytes)),
            "67e55044-10b1-426f-9247-bb680e5fe0c8:-1:00ff",
        ),
        ("ipAddress:string", Id::from((Ipv4Addr::LOCALHOST, "a:b")), "127.0.0.1:a:b"),
        ("string:string:string", Id::from(("a:b", r"c\", ":")), r"a\:b:c\\::"),
    ] {
        assert_eq!(shown_as(format, id).as_deref(), Ok(expected), "{format} of {id:?}");
    }
}

#[cfg(feature = "uuid")]
#[test]
fn a_uuid_is_its_bytes_and_its_text() {
    let uuid = uuid::Uuid::from_u128(0x67e5504410b1426f9247bb680e5fe0c8);
    assert_eq!(Id::from(uuid), Id::from(uuid.into_bytes()));
    assert_eq!(Id::from(&uuid), Id::from(uuid));
    assert_eq!(Id::from(uuid).to_string(), uuid.to_string());
    let text = uuid.to_string();
    assert_eq!(
        normal(IdFormat::Uuid, uuid.into()).unwrap(),
        normal(IdFormat::Uuid, Id::from(&text)).unwrap()
    );
}

#[test]
fn one_number_is_one_id_whatever_its_type() {
    let ids = [Id::from(7_u8), Id::from(7_i64), Id::from(7_u128), Id::from(7_i128), Id::from("7")];
    for format in [IdFormat::Integer, IdFormat::RegId, IdFormat::String] {
        let all: Vec<Vec<u8>> = ids.iter().map(|id| normal(format, *id).unwrap()).collect();
        assert!(all.iter().all(|bytes| *bytes == all[0]), "{format}");
    }
}

#[test]
fn an_error_names_both_types() {
    for (format, id, expected) in [
        (
            "ipAddress",
            Id::from(42),
            r#"invalid ipAddress "42": must be an IP address, not a number"#,
        ),
        (
            "uuid",
            Id::from(42),
            "must be a UUID: 16 bytes, or 32 hexadecimal digits with or without hyphens, not a number",
        ),
        ("uuid", Id::from(-1_i128), "hyphens, not an integer"),
        ("uuid", Id::from(b"short"), "hyphens, not bytes"),
        (
            "integer",
            Id::from(b"short"),
            r#"invalid integer "73686f7274": must be an integer of at most 128 bits in decimal, not bytes"#,
        ),
        ("string", Id::from(b"short"), "must be text of 1 to 1024 bytes, not bytes"),
        ("string", Id::from(("a", "b")), "must be text of 1 to 1024 bytes, not text and text"),
        ("bytes", Id::from(7), "two hexadecimal digits for each, not a number"),
        (
            "bytes",
            Id::from(b""),
            r#"invalid bytes "": must be 1 to 1024 bytes, or two hexadecimal digits for each"#,
        ),
        (
            "regId",
            Id::from(-7),
            "must be an ACME registration Id, a number from 0 to 18446744073709551615 in decimal",
        ),
        ("regId", Id::from(Ipv4Addr::LOCALHOST), "in decimal, not an IPv4 address"),
        (
            "integer:string",
            Id::from(7),
            r#"invalid integer:string "7": must be 2 fields, not a number"#,
        ),
        (
            "integer:string",
            Id::from((1, 2, 3)),
            "must be 2 fields, not a number and a number and a number",
        ),
        (
            "integer:string",
            Id::from(("a", "b")),
            r#"invalid integer:string "a:b": integer "a": must be an integer of at most 128 bits in decimal"#,
        ),
        (
            "string:ipAddress",
            Id::from(("a", 7)),
            r#"ipAddress "7": must be an IP address, not a number"#,
        ),
        ("string:string", Id::from(("", "b")), r#"string "": must be text of 1 to 1024 bytes"#),
        (
            "string:string",
            Id::from("ab"),
            r"must be 2 fields, joined by ':'; in all but the last, ':' is written '\:' and '\' '\\'",
        ),
        ("string:string", Id::from(r"a\b:c"), r"is written '\:' and '\' '\\'"),
    ] {
        let error = shown_as(format, id).unwrap_err();
        assert!(error.ends_with(expected), "{error}");
    }
    let half = "x".repeat(512);
    let error = shown_as("string:string", Id::from((&half, &half))).unwrap_err();
    assert!(error.ends_with("must have at most 1024 bytes in normal form"), "{error}");
    assert!(shown_as("string:string", Id::from((&half[2..], &half))).is_ok());
}

#[test]
fn an_error_names_the_part_at_fault() {
    let error = shown_as("string", Id::from((7, b"short"))).unwrap_err();
    assert!(error.ends_with("must be text of 1 to 1024 bytes, not bytes"), "{error}");
    #[cfg(feature = "boulder")]
    assert_eq!(
        shown_as("regId:identValue", Id::from((-7, "example.com"))).unwrap_err(),
        "invalid regId:identValue \"-7:example.com\": regId \"-7\": must be an ACME registration Id, \
         a number from 0 to 18446744073709551615 in decimal"
    );
}

#[test]
fn known_ids_of_several_fields_need_no_heap() {
    let format = IdFormat::tuple(&[IdFormat::Uuid, IdFormat::String, IdFormat::IpAddress]).unwrap();
    let mut scratch = Scratch::new();
    let name = "x".repeat(200);
    encode(format, Id::from(([7; 16], &name, Ipv4Addr::LOCALHOST)), &mut scratch).unwrap();
    assert!(!scratch.spilled());
}

fn any_integer() -> impl Strategy<Value = WideInteger> {
    prop_oneof![
        any::<u128>().prop_map(WideInteger::from),
        any::<i128>().prop_map(WideInteger::from),
        (-3..3_i128).prop_map(WideInteger::from),
        any::<u64>().prop_map(|number| WideInteger::from(u128::from(number))),
    ]
}

/// A field that owns its value.
#[derive(Clone, Debug)]
enum Owned {
    Text(String),
    Integer(WideInteger),
    Address(IpAddr),
    Bytes(Vec<u8>),
    Uuid([u8; 16]),
}

impl Owned {
    fn field(&self) -> IdField<'_> {
        match self {
            Owned::Text(text) => text.into(),
            Owned::Integer(number) => IdField::Integer(*number),
            Owned::Address(address) => address.into(),
            Owned::Bytes(bytes) => bytes.into(),
            Owned::Uuid(bytes) => IdField::Uuid(*bytes),
        }
    }

    fn format(&self) -> IdFormat {
        match self {
            Owned::Text(_) => IdFormat::String,
            Owned::Integer(_) => IdFormat::Integer,
            Owned::Address(_) => IdFormat::IpAddress,
            Owned::Bytes(_) => IdFormat::Bytes,
            Owned::Uuid(_) => IdFormat::Uuid,
        }
    }
}

fn any_field() -> impl Strategy<Value = Owned> {
    prop_oneof![
        "[ab:\\\\]{1,4}".prop_map(Owned::Text),
        any_integer().prop_map(Owned::Integer),
        any::<IpAddr>().prop_map(|address| Owned::Address(address.to_canonical())),
        prop::collection::vec(any::<u8>(), 1..20).prop_map(Owned::Bytes),
        any::<[u8; 16]>().prop_map(Owned::Uuid),
    ]
}

proptest! {
    /// The text of an id is the same id, and a file may have it.
    #[test]
    fn tuples_are_read_back_from_their_text(fields in prop::collection::vec(any_field(), 1..4)) {
        let formats: Vec<IdFormat> = fields.iter().map(Owned::format).collect();
        let (format, id) = match &fields[..] {
            [only] => (formats[0], Id::from(only.field())),
            [first, second] => (IdFormat::tuple(&formats).unwrap(), Id::Pair(first.field(), second.field())),
            [first, second, third] => (
                IdFormat::tuple(&formats).unwrap(),
                Id::Triple(first.field(), second.field(), third.field()),
            ),
            _ => unreachable!("one to three"),
        };
        let bytes = normal(format, id).unwrap();
        let text = decode(format, &bytes);
        prop_assert_eq!(&text, &id.to_string());
        prop_assert_eq!(&normal(format, Id::Text(&text)).unwrap(), &bytes);
        let mut scratch = Scratch::new();
        prop_assert_eq!(encode_override(format, &text, false, &mut scratch).unwrap(), &bytes[..]);
        let plain = with_plain_bytes(format, &id, <[u8]>::to_vec);
        prop_assert_eq!(plain.clone().unwrap_or_else(|| bytes.clone()), bytes);
    }

    /// No two ids of a format have the same normal form or the same text.
    #[test]
    fn tuples_never_collide(ids in prop::collection::vec(("[ab:\\\\]{1,3}", "[ab:\\\\]{1,3}", "[ab:\\\\]{1,3}"), 2..50)) {
        let format: IdFormat = "string:string:string".parse().unwrap();
        let (mut by_bytes, mut by_text) = (HashMap::new(), HashMap::new());
        for fields @ (first, second, third) in &ids {
            let bytes = normal(format, Id::from((first, second, third))).unwrap();
            let text = decode(format, &bytes);
            prop_assert_eq!(*by_bytes.entry(bytes).or_insert(fields), fields);
            prop_assert_eq!(*by_text.entry(text).or_insert(fields), fields);
        }
    }

    #[test]
    fn any_bytes_are_shown(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for format in ["integer", "bytes", "uuid", "integer:string", "string:bytes:uuid"] {
            decode(format.parse().unwrap(), &bytes);
        }
    }
}
