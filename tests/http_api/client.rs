//! Client addresses: clients cannot choose theirs, and an unknown one is an error, not an overflow bucket.
#![cfg(feature = "http")]

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use tollgate::http::{ClientAddress, ClientError, Forwarding, Peer};

const XFF: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is no address"))
}

fn lines(name: &'static str, lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(line).unwrap());
    }
    headers
}

fn behind(forwarding: Forwarding) -> ClientAddress {
    let networks = ["10.0.0.0/8", "192.168.1.1", "2001:db8:ffff::/48", "::ffff:172.16.0.0/108"];
    ClientAddress::new().trust(networks, forwarding).unwrap()
}

/// Returns the address for which a request from `peer` counts, or the error's text.
fn found(clients: &ClientAddress, peer: &str, headers: &HeaderMap) -> String {
    let found = clients.find(Some(ip(peer)), headers);
    let by_lines = clients.find_by(Some(ip(peer)), |name| headers.get_all(name));
    assert_eq!(by_lines, found, "{peer}: {headers:?}");
    match found {
        Ok(address) => address.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn lines_are_read_from_trusted_peers_only() {
    let clients = behind(Forwarding::XForwardedFor);
    let stranger = clients.find_by(Some(ip("203.0.113.5")), |_| -> [&str; 1] { panic!("is read") });
    assert_eq!(stranger, Ok(ip("203.0.113.5")));
    let no_peer = clients.find_by(None::<IpAddr>, |_| -> [&str; 1] { panic!("is read") });
    assert_eq!(no_peer, Err(ClientError::NoPeer));
    let unix = clients.find_by(Some(Peer::Unix), |_| -> [&str; 1] { panic!("is read") });
    assert_eq!(unix, Err(ClientError::UntrustedUnixPeer));

    for (forwarding, name, line) in [
        (Forwarding::XForwardedFor, XFF, "203.0.113.5"),
        (Forwarding::Forwarded, FORWARDED, "for=203.0.113.5"),
        (Forwarding::Header(HeaderName::from_static("x-real-ip")), "x-real-ip", "203.0.113.5"),
    ] {
        let clients = ClientAddress::new().trust(["unix:", "::ffff:10.0.0.1"], forwarding).unwrap();
        for peer in [Peer::Unix, ip("10.0.0.1").into(), ip("::ffff:10.0.0.1").into()] {
            let mut asked = String::new();
            let found = clients.find_by(Some(peer), |name| {
                name.clone_into(&mut asked);
                [line.as_bytes().to_vec()]
            });
            assert_eq!((found, asked.as_str()), (Ok(ip("203.0.113.5")), name), "{peer}");
        }
    }
}

#[test]
fn unwritable_lines_are_no_address() {
    let clients = behind(Forwarding::XForwardedFor);
    let proxy = Peer::from(ip("10.0.0.1"));
    // The last line counts. If it were left out, the client's own line would be read.
    for last in [&b"203.0.113.5\n"[..], b"\0", b"203.0.113.5\r\nx: y", b"\x7f"] {
        let found = clients.find_by(Some(proxy), |_| [b"6.6.6.6", last]);
        assert_eq!(found, Err(ClientError::NoAddress { proxy }), "{last:?}");
    }
    // Its entries are counted.
    let two = clients.clone().trusted_hops(2).unwrap();
    let lines = [&b"6.6.6.6"[..], b"\x7f, 203.0.113.5, 10.0.0.2"];
    assert_eq!(two.find_by(Some(proxy), |_| lines), Ok(ip("203.0.113.5")));
    let many = clients.find_by(Some(proxy), |_| vec!["10.0.0.9"; 40_000]);
    assert_eq!(many, Err(ClientError::TooManyHops));
}

#[test]
fn x_forwarded_for_counts_trusted_proxies_from_right() {
    let no_address = "what the trusted proxy 10.0.0.1 says of its client is no address";
    let nobody = "the trusted proxy 10.0.0.1 does not say whom it forwards for";
    let table: &[(&str, &str, &[&str], &str)] = &[
        // The case, the peer, the field's lines, the address or the error.
        ("no proxy, no field", "203.0.113.5", &[], "203.0.113.5"),
        ("forged, no proxy", "203.0.113.5", &["6.6.6.6"], "203.0.113.5"),
        ("forged as a proxy, no proxy", "203.0.113.5", &["6.6.6.6, 10.0.0.1"], "203.0.113.5"),
        ("one proxy", "10.0.0.1", &["203.0.113.5"], "203.0.113.5"),
        ("forged, one proxy", "10.0.0.1", &["6.6.6.6, 203.0.113.5"], "203.0.113.5"),
        ("forged nonsense, one proxy", "10.0.0.1", &["\"(, ;=x, 203.0.113.5"], "203.0.113.5"),
        ("two proxies", "10.0.0.1", &["6.6.6.6, 203.0.113.5, 192.168.1.1"], "203.0.113.5"),
        ("two lines", "10.0.0.1", &["6.6.6.6", "203.0.113.5, 10.9.9.9"], "203.0.113.5"),
        ("two lines, the client's last", "10.0.0.1", &["203.0.113.5", "6.6.6.6"], "6.6.6.6"),
        ("the same twice", "10.0.0.1", &["203.0.113.5, 203.0.113.5"], "203.0.113.5"),
        ("all trusted", "10.0.0.1", &["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
        ("a port", "10.0.0.1", &["203.0.113.5:4711"], "203.0.113.5"),
        ("no spaces, a tab", "10.0.0.1", &["6.6.6.6,\t203.0.113.5"], "203.0.113.5"),
        ("IPv6", "10.0.0.1", &["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::"),
        ("IPv6 in brackets", "10.0.0.1", &["[2001:db8:1:2::5]"], "2001:db8:1:2::"),
        ("IPv6 with a port", "10.0.0.1", &["[2001:db8:1:2::5]:4711"], "2001:db8:1:2::"),
        ("mapped", "10.0.0.1", &["::ffff:203.0.113.5"], "203.0.113.5"),
        ("mapped in hex", "10.0.0.1", &["::ffff:cb00:7105"], "203.0.113.5"),
        ("mapped proxy in the field", "10.0.0.1", &["203.0.113.5, ::ffff:10.0.0.2"], "203.0.113.5"),
        ("mapped peer", "::ffff:10.0.0.1", &["203.0.113.5"], "203.0.113.5"),
        ("peer of a mapped network", "172.16.5.5", &["203.0.113.5"], "203.0.113.5"),
        ("IPv6 proxy", "2001:db8:ffff::9", &["203.0.113.5"], "203.0.113.5"),
        ("empty elements", "10.0.0.1", &[" , 203.0.113.5,, ,"], "203.0.113.5"),
        ("empty line last", "10.0.0.1", &["203.0.113.5", ""], "203.0.113.5"),
        ("no field", "10.0.0.1", &[], nobody),
        ("empty field", "10.0.0.1", &[""], nobody),
        ("commas", "10.0.0.1", &[",,, ,"], nobody),
        ("unknown", "10.0.0.1", &["203.0.113.5, unknown"], no_address),
        ("made up", "10.0.0.1", &["_hidden"], no_address),
        ("a name", "10.0.0.1", &["client.example"], no_address),
        ("a zone", "10.0.0.1", &["fe80::1%eth0"], no_address),
        ("a space between", "10.0.0.1", &["6.6.6.6 203.0.113.5"], no_address),
        ("octal", "10.0.0.1", &["0203.0.113.5"], no_address),
    ];
    let clients = behind(Forwarding::XForwardedFor);
    for (what, peer, field, expected) in table {
        assert_eq!(found(&clients, peer, &lines(XFF, field)), *expected, "{what}");
        // The field that this proxy does not write has no effect.
        let mut both = lines(XFF, field);
        both.extend(lines(FORWARDED, &["for=6.6.6.6"]));
        assert_eq!(found(&clients, peer, &both), *expected, "{what}, and the other field");
    }
}

#[test]
fn forwarded_counts_trusted_proxies_from_the_right() {
    let no_address = "what the trusted proxy 10.0.0.1 says of its client is no address";
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("forged, no proxy", "203.0.113.5", &["for=6.6.6.6"], "203.0.113.5"),
        ("one proxy", "10.0.0.1", &["for=203.0.113.5;proto=https;by=10.0.0.1"], "203.0.113.5"),
        ("forged, one proxy", "10.0.0.1", &["for=6.6.6.6, for=203.0.113.5"], "203.0.113.5"),
        ("two proxies", "10.0.0.1", &["for=203.0.113.5, for=10.3.3.3"], "203.0.113.5"),
        ("two lines", "10.0.0.1", &["for=6.6.6.6", "for=203.0.113.5"], "203.0.113.5"),
        ("IPv6", "10.0.0.1", &["For=\"[2001:db8:1:2::5]:4711\""], "2001:db8:1:2::"),
        ("an open quote", "10.0.0.1", &["for=\"6.6.6.6, for=203.0.113.5"], "203.0.113.5"),
        ("an open quote, escaped", "10.0.0.1", &["for=\"\\, for=203.0.113.5"], "203.0.113.5"),
        (
            "a comma in the host",
            "10.0.0.1",
            &["for=203.0.113.5;host=\"x, for=6.6.6.6\""],
            "203.0.113.5",
        ),
        (
            "a quote in the host",
            "10.0.0.1",
            &["for=203.0.113.5;host=\"x\\\", for=6.6.6.6\""],
            "203.0.113.5",
        ),
        ("no for", "10.0.0.1", &["for=203.0.113.5, proto=https"], no_address),
        ("for twice", "10.0.0.1", &["for=6.6.6.6;for=203.0.113.5"], no_address),
        ("unknown", "10.0.0.1", &["for=unknown"], no_address),
        ("made up", "10.0.0.1", &["for=\"_gazonk\""], no_address),
        ("IPv6 without brackets", "10.0.0.1", &["for=\"2001:db8::1\""], no_address),
        ("an address alone", "10.0.0.1", &["203.0.113.5"], no_address),
    ];
    let clients = behind(Forwarding::Forwarded);
    for (what, peer, field, expected) in table {
        assert_eq!(found(&clients, peer, &lines(FORWARDED, field)), *expected, "{what}");
    }
}

#[test]
fn hundred_hops_are_read_while_trusted() {
    let clients = behind(Forwarding::XForwardedFor);
    let forged = vec!["6.6.6.6"; 100].join(", ");
    assert_eq!(found(&clients, "10.0.0.1", &lines(XFF, &[&forged, "203.0.113.5"])), "203.0.113.5");
    let ours = vec!["10.1.1.1"; 100].join(", ");
    let chain = format!("203.0.113.5, {ours}");
    assert_eq!(found(&clients, "10.0.0.1", &lines(XFF, &[&chain])), "203.0.113.5");
    for hops in [257, 300] {
        let endless = vec!["10.1.1.1"; hops].join(",");
        let error = clients.find(Some(ip("10.0.0.1")), &lines(XFF, &[&endless])).unwrap_err();
        assert_eq!(error, ClientError::TooManyHops);
    }
    // An error names the proxy that wrote the entry, not the peer.
    let error = clients.find(Some(ip("10.0.0.1")), &lines(XFF, &["me, 10.1.1.1"])).unwrap_err();
    assert_eq!(error, ClientError::NoAddress { proxy: ip("10.1.1.1").into() });
    let commas = ",".repeat(60_000);
    let error = clients.find(Some(ip("10.0.0.1")), &lines(XFF, &[&commas])).unwrap_err();
    assert_eq!(error, ClientError::TooManyHops);
}

#[test]
fn non_text_bytes_are_no_address_or_panic() {
    let clients = behind(Forwarding::XForwardedFor);
    let mut headers = HeaderMap::new();
    headers.append(XFF, HeaderValue::from_bytes(b"\xff\xfe, 203.0.113.5").unwrap());
    assert_eq!(found(&clients, "10.0.0.1", &headers), "203.0.113.5");
    headers.append(XFF, HeaderValue::from_bytes(b"\xff").unwrap());
    assert!(clients.find(Some(ip("10.0.0.1")), &headers).is_err());
}

#[test]
fn ipv6_counts_by_prefix_mapped_ipv4_as_ipv4() {
    let of = |clients: &ClientAddress, peer| found(clients, peer, &HeaderMap::new());
    let default = ClientAddress::new();
    for (peer, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("64:ff9b:0:0:0:1:c000:201", "64:ff9b::"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8::192.0.2.1", "2001:db8::"),
        ("::192.0.2.1", "::"),
        ("::1", "::"),
    ] {
        assert_eq!(of(&default, peer), expected, "{peer}");
    }
    for (bits, expected) in [
        (32, "2001:db8::"),
        (48, "2001:db8:1::"),
        (56, "2001:db8:1:200::"),
        (128, "2001:db8:1:2ff::6"),
    ] {
        let clients = ClientAddress::new().ipv6_prefix(bits).unwrap();
        assert_eq!(of(&clients, "2001:db8:1:2ff::6"), expected, "/{bits}");
        assert_eq!(of(&clients, "::ffff:192.0.2.1"), "192.0.2.1", "/{bits}");
    }
    for bits in [0, 31, 129] {
        let error = ClientAddress::new().ipv6_prefix(bits).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("invalid prefix of {bits} bits: 32 to 128 are allowed")
        );
    }
}

#[test]
fn proxy_is_a_client_only_if_configured() {
    let proxy = Some(ip("10.0.0.1"));
    let clients = behind(Forwarding::XForwardedFor);
    let error = clients.find(proxy, &HeaderMap::new()).unwrap_err();
    assert_eq!(error, ClientError::NoForwarding { proxy: ip("10.0.0.1").into() });
    assert_eq!(clients.proxies_may_ask().find(proxy, &HeaderMap::new()), Ok(ip("10.0.0.1")));
}

#[test]
fn peer_comes_from_server_and_missing_is_error() {
    let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let (headers, mut extensions) = (HeaderMap::new(), Extensions::new());
    let clients = ClientAddress::new();
    let error = clients.of(&headers, &extensions).unwrap_err();
    assert_eq!(error, ClientError::NoPeer);
    assert!(error.to_string().contains("serve with connect info"), "{error}");
    extensions.insert(Peer::from(address));
    assert_eq!(clients.of(&headers, &extensions), Ok(address.ip()));

    #[derive(Clone)]
    struct Connection(SocketAddr);
    impl std::ops::Deref for Connection {
        type Target = SocketAddr;
        fn deref(&self) -> &SocketAddr {
            &self.0
        }
    }
    let elsewhere = ClientAddress::new().peer_in::<Connection>();
    assert_eq!(elsewhere.of(&headers, &extensions), Err(ClientError::NoPeer));
    extensions.insert(Connection("192.0.2.9:80".parse().unwrap()));
    assert_eq!(elsewhere.of(&headers, &extensions), Ok(ip("192.0.2.9")));
}

#[test]
fn single_address_field_needs_a_trusted_peer() {
    let real_ip = Forwarding::Header(HeaderName::from_static("x-real-ip"));
    let clients = behind(real_ip.clone());
    let no_address = "what the trusted proxy 10.0.0.1 says of its client is no address";
    let missing = "the trusted proxy 10.0.0.1 does not say whom it forwards for";
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("forged, no proxy", "203.0.113.5", &["6.6.6.6"], "203.0.113.5"),
        ("a proxy", "10.0.0.1", &["203.0.113.5"], "203.0.113.5"),
        ("a port", "10.0.0.1", &["203.0.113.5:4711"], "203.0.113.5"),
        ("IPv6", "10.0.0.1", &["2001:db8:1:2::5"], "2001:db8:1:2::"),
        ("mapped", "10.0.0.1", &["::ffff:203.0.113.5"], "203.0.113.5"),
        ("a proxy's own address", "10.0.0.1", &["10.3.3.3"], "10.3.3.3"),
        ("missing", "10.0.0.1", &[], missing),
        ("empty", "10.0.0.1", &[" "], missing),
        // The proxy may have forwarded the client's own line, and no order tells which line is the proxy's.
        ("two lines", "10.0.0.1", &["6.6.6.6", "203.0.113.5"], no_address),
        ("a list", "10.0.0.1", &["6.6.6.6, 203.0.113.5"], no_address),
        ("a name", "10.0.0.1", &["client.example"], no_address),
    ];
    for (what, peer, field, expected) in table {
        let mut headers = lines("x-real-ip", field);
        // Other fields are not read.
        headers.extend(lines(XFF, &["6.6.6.6"]));
        headers.extend(lines(FORWARDED, &["for=6.6.6.6"]));
        assert_eq!(found(&clients, peer, &headers), *expected, "{what}");
    }
    let asks = behind(real_ip).proxies_may_ask();
    assert_eq!(found(&asks, "10.0.0.1", &HeaderMap::new()), "10.0.0.1");
}

#[test]
fn unix_socket_peer_must_be_a_trusted_proxy() {
    let forwarded = lines(XFF, &["6.6.6.6, 203.0.113.5, 10.0.0.7"]);
    let not_trusted = behind(Forwarding::XForwardedFor);
    let error = not_trusted.find(Some(Peer::Unix), &forwarded).unwrap_err();
    assert_eq!(error, ClientError::UntrustedUnixPeer);
    let trusted =
        ClientAddress::new().trust(["unix:", "10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    assert_eq!(trusted.find(Some(Peer::Unix), &forwarded), Ok(ip("203.0.113.5")));
    assert_eq!(found(&trusted, "203.0.113.9", &forwarded), "203.0.113.9", "networks still count");
    let error = trusted.find(Some(Peer::Unix), &HeaderMap::new()).unwrap_err();
    assert_eq!(error, ClientError::NoForwarding { proxy: Peer::Unix });
    let asks = trusted.clone().proxies_may_ask();
    assert_eq!(asks.find(Some(Peer::Unix), &HeaderMap::new()), Ok(ip("127.0.0.1")));

    let mut extensions = Extensions::new();
    extensions.insert(Peer::Unix);
    assert_eq!(trusted.of(&forwarded, &extensions), Ok(ip("203.0.113.5")));
    let alone = trusted.peer_by(|_| Some(Peer::Unix));
    assert_eq!(alone.of(&forwarded, &Extensions::new()), Ok(ip("203.0.113.5")));
    // A second call replaces the trusted networks, including `unix:`.
    let again = alone.trust(["10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    assert_eq!(again.of(&forwarded, &extensions), Err(ClientError::UntrustedUnixPeer));
}

#[test]
fn networks_that_are_none_or_everything_are_refused() {
    for (network, expected) in [
        ("", "invalid trusted network \"\": an address, a CIDR or unix: is allowed"),
        (
            "10.0.0.0/33",
            "invalid trusted network \"10.0.0.0/33\": an address, a CIDR or unix: is allowed",
        ),
        ("proxy\n", "invalid trusted network \"proxy\\n\": an address, a CIDR or unix: is allowed"),
        (
            "0.0.0.0/0",
            "invalid trusted network \"0.0.0.0/0\": not every address can be a trusted proxy's",
        ),
        ("::/0", "invalid trusted network \"::/0\": not every address can be a trusted proxy's"),
        (
            "::ffff:0.0.0.0/96",
            "invalid trusted network \"::ffff:0.0.0.0/96\": not every address can be a trusted proxy's",
        ),
    ] {
        let error = ClientAddress::new().trust([network], Forwarding::Forwarded).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
