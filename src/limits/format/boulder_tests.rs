//! Tests the formats of Boulder's limits by Boulder's own rows, and where we differ on purpose.

use serde_json::Value;

use super::*;
use crate::limits::IdentifierSet;
use crate::limits::names::BOULDER;

fn request<'a>(format: IdFormat, id: impl Into<Id<'a>>) -> Result<String, Error> {
    let mut scratch = Scratch::new();
    encode(format, id.into(), &mut scratch).map(|bytes| decode(format, bytes))
}

fn stored(format: IdFormat, text: &str) -> Result<String, Error> {
    let mut scratch = Scratch::new();
    encode_override(format, text, true, &mut scratch).map(|bytes| decode(format, bytes))
}

/// Rows that we refuse and Boulder accepts, or the other way round.
const DELIBERATE: &[(&str, &str, &str)] = &[
    (
        "CertificatesPerDomainPerAccount",
        "007",
        "an account's number has no leading zeros: it would never match",
    ),
    (
        "FailedAuthorizationsPerDomainPerAccount",
        "123:2602:80a:6000::1",
        "an id splits at its first colon alone",
    ),
    (
        "CertificatesPerDomainPerAccount",
        "123:2602:80a:6000::",
        "an id splits at its first colon alone",
    ),
];

#[test]
fn rows_of_boulders_ids_match_or_are_deliberate() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/vectors/boulder_ids.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        // Written to stderr directly, because the test runner hides the output of a passing test.
        writeln!(
            std::io::stderr(),
            "MISSING VECTORS: {path} cannot be read, so Boulder's ids were NOT compared"
        )
        .unwrap();
        return;
    };
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.len(), 83);
    let mut deliberate = Vec::new();
    for row in &rows {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        let (limit, id) = (field("limit"), field("id"));
        // Boulder numbers its names from 1.
        let at = BOULDER.iter().position(|(name, _)| *name == limit).unwrap();
        let given = stored(BOULDER[at].1, id);
        if DELIBERATE.iter().any(|&(name, text, _)| (name, text) == (limit, id)) {
            assert_ne!(given.is_ok(), row["valid"].as_bool().unwrap(), "{limit} {id}: {given:?}");
            deliberate.push((limit, id));
            continue;
        }
        match row["valid"].as_bool().unwrap() {
            true => {
                let (number, text) = field("override_map_key").split_once(':').unwrap();
                assert_eq!((at + 1).to_string(), number);
                assert_eq!(given.unwrap(), text, "{limit} {id}");
            }
            false => {
                let error = given.unwrap_err().to_string();
                let wanted = field("test_err_substring").to_lowercase();
                assert!(
                    error.to_lowercase().contains(&wanted),
                    "{limit} {id}: {error}, not {wanted}"
                );
                assert!(error.contains(&format!("{:?}", id)), "{limit} {id}: {error}");
            }
        }
    }
    deliberate.sort_unstable();
    let mut listed: Vec<_> = DELIBERATE.iter().map(|&(limit, id, _)| (limit, id)).collect();
    listed.sort_unstable();
    assert_eq!(deliberate, listed);
}

#[test]
fn requests_get_boulders_bucket_keys() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let set = IdentifierSet::new(["example.org", "example.com"]).unwrap();
    let hash = "36b9d2294255745d0f491b3f04f6490de45cc7241f650ba58c3e4e61a2344efc";
    for (number, id, key) in [
        (1, Id::Address(address("1.2.3.4")), "1.2.3.4"),
        (1, Id::Address(address("2001:db8::1")), "2001:db8::1"),
        (2, Id::Address(address("2001:db8:abcd:12::1")), "2001:db8:abcd::/48"),
        (3, Id::Number(1337), "1337"),
        (5, Id::Text("www.example.com"), "example.com"),
        (5, Id::Address(address("5.6.7.8")), "5.6.7.8/32"),
        (5, Id::Address(address("2001:db8::1")), "2001:db8::/64"),
        (5, Id::Text("2001:db8::1"), "2001:db8::/64"),
        (5, Id::Text("co.uk"), "co.uk"),
        (6, Id::Number(1337), "1337"),
        (6, Id::NumberAndText(1337, "www.example.com"), "1337:example.com"),
        (6, Id::Text("1337:3fff:aaa:aaaa:aaaa:abad:ff1:cec0:ffee"), "1337:3fff:aaa:aaaa:aaaa::/64"),
        (4, Id::Text("1337:Example.COM."), "1337:example.com"),
        (4, Id::NumberAndAddress(7, address("::ffff:8.8.8.8")), "7:8.8.8.8"),
        (8, Id::Text("00123:2602:80A:6000::1"), "123:2602:80a:6000::1"),
        (7, Id::Set(&set), hash),
        (7, Id::Text("example.com,EXAMPLE.org,example.com"), hash),
    ] {
        let (_, format) = BOULDER[number - 1];
        assert_eq!(request(format, id).unwrap(), key, "{number}: {id}");
    }
    let per_account = IdFormat::RegIdFqdnSet;
    for id in [Id::NumberAndSet(9, &set), Id::NumberAndText(9, "example.org,example.com")] {
        assert_eq!(request(per_account, id).unwrap(), format!("9:{hash}"));
    }
    assert_eq!(
        request(IdFormat::RegIdDomain, (9, "www.example.com")).unwrap(),
        "9:www.example.com"
    );
    assert_eq!(request(IdFormat::String, (9, &set)).unwrap(), format!("9:{hash}"));
}

#[test]
fn encodings_are_as_short_as_they_can_be() {
    let bytes = |format, text: &str| {
        let mut scratch = Scratch::new();
        encode(format, Id::Text(text), &mut scratch).unwrap().to_vec()
    };
    assert_eq!(bytes(IdFormat::IpAddress, "1.2.3.4"), [1, 2, 3, 4]);
    assert_eq!(bytes(IdFormat::RegId, "258"), [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(bytes(IdFormat::Ipv6RangeCidr, "2001:db8:1:2::3"), [0x20, 1, 0x0d, 0xb8, 0, 1]);
    assert_eq!(bytes(IdFormat::IdentValue, "1.2.3.4"), [4, 1, 2, 3, 4]);
    assert_eq!(bytes(IdFormat::IdentValue, "::1").len(), 17);
    assert_eq!(bytes(IdFormat::DomainOrCidr, "1.2.3.4"), [4, 1, 2, 3, 4]);
    assert_eq!(
        bytes(IdFormat::DomainOrCidr, "2001:db8:1:2::3"),
        [6, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2]
    );
    let id = bytes(IdFormat::RegIdIdentValue, "258:a.com");
    assert_eq!(id, *b"\0\0\0\0\0\0\x01\x02a.com");
    assert_eq!(account_of(IdFormat::RegIdIdentValue, &id), Some(&id[..8]));
    assert_eq!(account_of(IdFormat::RegIdIdentValue, &id[..8]), None);
    assert_eq!(bytes(IdFormat::RegIdIdentValue, "258"), id[..8]);
    assert_eq!(bytes(IdFormat::RegIdFqdnSet, "1:a.com").len(), 40);
}

#[test]
fn id_of_another_type_or_part_is_refused() {
    let set = IdentifierSet::new(["example.com"]).unwrap();
    let address = IpAddr::from([8, 8, 8, 8]);
    for (format, id, message) in [
        (
            IdFormat::IpAddress,
            Id::Number(42),
            "invalid ipAddress \"42\": must be an IP address, not a number",
        ),
        (
            IdFormat::IdentValue,
            Id::Number(42),
            "invalid identValue \"42\": must be a domain or an IP address, not a number",
        ),
        (
            IdFormat::Ipv6RangeCidr,
            Id::Address(address),
            "invalid ipv6RangeCIDR \"8.8.8.8\": must be an IPv6 address, \
             or an IPv6 CIDR range and then must be /48, not an IPv4 address",
        ),
        (
            IdFormat::RegIdDomain,
            Id::NumberAndAddress(1, address),
            "invalid regId:domain \"1:8.8.8.8\": domain \"8.8.8.8\": must be a domain, not an IPv4 address",
        ),
        (
            IdFormat::RegIdDomain,
            Id::Text("1:8.8.8.8"),
            "invalid regId:domain \"1:8.8.8.8\": domain \"8.8.8.8\": name does not end in a public suffix that ICANN knows",
        ),
        (
            IdFormat::RegIdIdentValue,
            Id::Text("12ea5:example.com"),
            "invalid regId:identValue \"12ea5:example.com\": regId \"12ea5\": must be an ACME registration Id, \
             a number from 0 to 18446744073709551615 in decimal",
        ),
        (
            IdFormat::RegIdIdentValue,
            Id::Text("5:examplecom"),
            "invalid regId:identValue \"5:examplecom\": identValue \"examplecom\": is neither a domain \
             (name needs at least one dot) nor an IP address",
        ),
        (
            IdFormat::FqdnSet,
            Id::Text("example.com, example.net"),
            "invalid fqdnSet \"example.com, example.net\": invalid identValue \" example.net\": is neither a domain \
             (name contains an invalid character, ' ') nor an IP address",
        ),
    ] {
        assert_eq!(request(format, id).unwrap_err().to_string(), message);
    }
    for (format, id) in [
        (IdFormat::RegId, Id::Set(&set)),
        (IdFormat::RegId, Id::NumberAndText(1, "2")),
        (IdFormat::FqdnSet, Id::Address(address)),
        (IdFormat::FqdnSet, Id::NumberAndSet(1, &set)),
        (IdFormat::RegIdFqdnSet, Id::Set(&set)),
        (IdFormat::RegIdIdentValue, Id::NumberAndSet(1, &set)),
        (IdFormat::RegIdIdentValue, Id::Text("1:")),
        (IdFormat::RegIdIdentValue, Id::Text(":example.com")),
        (IdFormat::RegIdIdentValue, Id::Text("")),
        (IdFormat::FqdnSet, Id::Text("")),
        (IdFormat::FqdnSet, Id::Text("example.com,")),
        (IdFormat::IdentValue, Id::Text("fe80::1%eth0")),
    ] {
        assert!(request(format, id).unwrap_err().is_invalid_id(), "{format} {id}");
    }
}

#[test]
fn override_error_says_what_it_should_be() {
    for (format, text, message) in [
        (
            IdFormat::DomainOrCidr,
            "8.8.8.8/32",
            "invalid domainOrCIDR \"8.8.8.8/32\": is neither a domain (name contains an invalid character, '/') \
             nor an IP address without a prefix length",
        ),
        (
            IdFormat::IdentValue,
            "2602:80a:6000::1%eth0",
            "invalid identValue \"2602:80a:6000::1%eth0\": is neither a domain (name contains an invalid character, ':') \
             nor an IP address without a zone",
        ),
        (
            IdFormat::RegIdIdentValue,
            "123:10.0.0.1",
            "invalid regId:identValue \"123:10.0.0.1\": identValue \"10.0.0.1\": is in a reserved address block, \
             10.0.0.0/8 (private use)",
        ),
        (
            IdFormat::RegIdDomainOrCidr,
            "007:example.com",
            "invalid regId:domainOrCIDR \"007:example.com\": regId \"007\": must be in canonical form, \"7\", or it would never match",
        ),
    ] {
        assert_eq!(stored(format, text).unwrap_err().to_string(), message);
    }
    for (format, text) in [
        (IdFormat::RegIdIdentValue, "123:8.8.8.8"),
        (IdFormat::RegIdIdentValue, "123:2602:80a:6000::1"),
        (IdFormat::RegIdDomain, "0:www.example.com"),
        (IdFormat::IdentValue, "*.example.com"),
        (IdFormat::DomainOrCidr, "github.io"),
    ] {
        assert_eq!(stored(format, text).unwrap(), text);
    }
    let mut scratch = Scratch::new();
    assert!(
        encode_override(IdFormat::FqdnSet, "10.0.0.1,example.com", false, &mut scratch).is_ok()
    );
    assert!(
        encode_override(IdFormat::FqdnSet, "10.0.0.1,example.com", true, &mut scratch).is_err()
    );
    assert!(encode_override(IdFormat::FqdnSet, "EXAMPLE.com", false, &mut scratch).is_err());
}
