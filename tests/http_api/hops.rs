//! Clients in the proxies' own networks, chains whose length is given, and IPv4 addresses within IPv6.
#![cfg(feature = "http")]

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::http::{ClientAddress, ClientError, Forwarding, Peer, SetupError};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is no address"))
}

fn chain(name: &'static str, lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(line).unwrap());
    }
    headers
}

fn found(clients: &ClientAddress, peer: &str, headers: &HeaderMap) -> String {
    let found = clients.find(Some(ip(peer)), headers);
    let by_lines = clients.find_by(Some(ip(peer)), |name| headers.get_all(name));
    assert_eq!(by_lines, found, "{peer}: {headers:?}");
    found.map_or_else(|error| error.to_string(), |address| address.to_string())
}

/// The client 10.9.9.9 is in the network of the proxy, 10.0.0.1, and invents entries before its own address.
#[cfg(feature = "tower")]
#[test]
fn client_in_proxys_network_keeps_its_bucket() {
    use http::{Request, Response, StatusCode};
    use std::{convert::Infallible, time::Duration};
    use tollgate::http::{RateLimitLayer, Rule, extract};
    use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    use tower::{Layer, ServiceExt, service_fn};

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let allowed_of_60 = |clients: ClientAddress| {
        let limit = Limit::new(25, 1, Duration::from_secs(60)).unwrap();
        let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit).unwrap();
        let limiter = Limiter::with_options(limits.build(), Clock::manual().0).unwrap();
        let rule = Rule::new(limiter.limit("PerClient").unwrap(), extract::client(clients));
        let layer = RateLimitLayer::builder(&limiter).rule(rule).build().unwrap();
        let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
        let ask = |invented: u8| {
            let field = format!("203.0.113.{invented}, 10.9.9.9");
            let mut request = Request::get("/").header("x-forwarded-for", field).body(()).unwrap();
            request.extensions_mut().insert(Peer::Address(ip("10.0.0.1")));
            let Ok(response) = runtime.block_on(layer.layer(inner).oneshot(request));
            response.status() == StatusCode::OK
        };
        (0..60).filter(|n| ask(*n)).count()
    };
    let trust = |network| ClientAddress::new().trust([network], Forwarding::XForwardedFor).unwrap();
    assert_eq!(allowed_of_60(trust("10.0.0.0/8")), 60, "the trap that the guide names");
    assert_eq!(allowed_of_60(trust("10.0.0.0/8").trusted_hops(1).unwrap()), 25);
    assert_eq!(allowed_of_60(trust("10.0.0.1")), 25, "the proxy's own address");
}

#[test]
fn hops_count_entries_from_the_right() {
    let too_few = |count: usize, hops: u8| {
        format!(
            "the field of the trusted proxy 10.0.0.1 has {count} addresses, and {hops} hops are trusted"
        )
    };
    let no_address = "what the trusted proxy 10.0.0.1 says of its client is no address";
    let no_other = "what the trusted proxy 10.0.0.2 says of its client is no address";
    let nobody = "the trusted proxy 10.0.0.1 does not say whom it forwards for";
    let (two, three) = (too_few(1, 2), too_few(2, 3));
    let table: &[(&str, u8, &[&str], &str)] = &[
        ("one proxy", 1, &["203.0.113.5"], "203.0.113.5"),
        ("a client of the proxy's network", 1, &["6.6.6.6, 10.9.9.9"], "10.9.9.9"),
        ("two lines", 1, &["6.6.6.6", "203.0.113.5"], "203.0.113.5"),
        ("empty elements", 1, &["6.6.6.6, 203.0.113.5, ,"], "203.0.113.5"),
        ("two proxies", 2, &["6.6.6.6, 203.0.113.5, 10.0.0.2"], "203.0.113.5"),
        ("a second proxy elsewhere", 2, &["6.6.6.6, 203.0.113.5, 198.51.100.1"], "203.0.113.5"),
        ("a proxy without an address", 2, &["203.0.113.5, unknown"], "203.0.113.5"),
        ("over two lines", 2, &["6.6.6.6, 203.0.113.5", "10.0.0.2"], "203.0.113.5"),
        ("IPv6", 2, &["2001:db8:1:2::7, 10.0.0.2"], "2001:db8:1:2::"),
        ("past a proxy", 2, &["203.0.113.5"], &two),
        ("past a proxy, empty elements", 2, &[",, 203.0.113.5 ,"], &two),
        ("past one of three", 3, &["203.0.113.5, 10.0.0.2"], &three),
        ("nonsense at the place", 1, &["203.0.113.5, unknown"], no_address),
        ("nonsense of another proxy", 2, &["unknown, 10.0.0.2"], no_other),
        ("no field", 1, &[], nobody),
        ("an empty field", 2, &[" , "], nobody),
    ];
    for (what, hops, field, expected) in table {
        let clients = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor);
        let clients = clients.unwrap().trusted_hops(*hops).unwrap();
        assert_eq!(
            found(&clients, "10.0.0.1", &chain("x-forwarded-for", field)),
            *expected,
            "{what}"
        );
        let stranger = found(&clients, "203.0.113.9", &chain("x-forwarded-for", field));
        assert_eq!(stranger, "203.0.113.9", "{what}, from a peer that is no proxy");
    }
    let forwarded = ClientAddress::new().trust(["10.0.0.1"], Forwarding::Forwarded).unwrap();
    let field = chain("forwarded", &["for=6.6.6.6, for=10.0.0.1, for=_proxy"]);
    assert_eq!(found(&forwarded.trusted_hops(2).unwrap(), "10.0.0.1", &field), "10.0.0.1");

    let unix = ClientAddress::new().trust(["unix:"], Forwarding::XForwardedFor).unwrap();
    let unix = unix.trusted_hops(1).unwrap();
    let field = chain("x-forwarded-for", &["6.6.6.6, 203.0.113.5"]);
    assert_eq!(unix.find(Some(Peer::Unix), &field), Ok(ip("203.0.113.5")));
    assert_eq!(
        unix.clone().proxies_may_ask().find(Some(Peer::Unix), &HeaderMap::new()),
        Ok(ip("127.0.0.1"))
    );

    // 255 hops of 256 entries: the count does not overflow.
    let clients = ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    let field = chain("x-forwarded-for", &[&vec!["10.0.0.7"; 256].join(",")]);
    assert_eq!(found(&clients, "10.0.0.1", &field), "10.0.0.7");
    assert_eq!(found(&clients.trusted_hops(255).unwrap(), "10.0.0.1", &field), "10.0.0.7");
}

#[test]
fn short_chain_tells_client_no_address() {
    let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::XForwardedFor).unwrap();
    let clients = clients.trusted_hops(2).unwrap();
    let field = chain("x-forwarded-for", &["203.0.113.5"]);
    let error = clients.find(Some(ip("10.0.0.1")), &field).unwrap_err();
    let proxy = Peer::Address(ip("10.0.0.1"));
    assert_eq!(error, ClientError::TooFewHops { proxy, count: 1, hops: 2 });
    assert_eq!(error.for_clients(), "the server could not handle this request");
}

fn error_of(made: Result<ClientAddress, SetupError>) -> String {
    made.unwrap_err().to_string()
}

#[test]
fn hops_need_a_chain_of_trusted_proxies() {
    let trusted = |forwarding| ClientAddress::new().trust(["10.0.0.1"], forwarding).unwrap();
    assert_eq!(
        error_of(trusted(Forwarding::XForwardedFor).trusted_hops(0)),
        "invalid trusted_hops(0): 1 to 255 are allowed"
    );
    assert_eq!(
        error_of(ClientAddress::new().trusted_hops(1)),
        "invalid trusted_hops(1): no proxy is trusted, so call trust(networks, field) first"
    );
    let real_ip = Forwarding::Header(HeaderName::from_static("x-real-ip"));
    assert_eq!(
        error_of(trusted(real_ip.clone()).trusted_hops(1)),
        "invalid trusted_hops(1): the field has one address; Forwarded and X-Forwarded-For are allowed"
    );
    // `trust` removes the count, so that no later field goes with it.
    let again = trusted(Forwarding::XForwardedFor).trusted_hops(2).unwrap();
    let again = again.trust(["10.0.0.1"], real_ip).unwrap();
    assert_eq!(found(&again, "10.0.0.1", &chain("x-real-ip", &["203.0.113.5"])), "203.0.113.5");
    let again = again.trust(["10.0.0.1"], Forwarding::XForwardedFor).unwrap();
    assert_eq!(
        found(&again, "10.0.0.1", &chain("x-forwarded-for", &["203.0.113.5"])),
        "203.0.113.5"
    );
}

/// The addresses of RFC 6052, 2.4.
#[test]
fn translators_clients_are_their_ipv4_addresses() {
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b:1::/96", "64:ff9b:1::192.0.2.33"),
        ("64:ff9b:1::/48", "64:ff9b:1:c000:2:2100::"),
        // The bits after the IPv4 address have no meaning; nor have those after the prefix in its text.
        ("64:ff9b:1:5::7/48", "64:ff9b:1:c000:2:21ff:1:2"),
        ("64:ff9b:1:5:100::7/48", "64:ff9b:1:c000:2:2100::"),
    ] {
        let clients = ClientAddress::new().translated([prefix]).unwrap();
        assert_eq!(found(&clients, address, &HeaderMap::new()), "192.0.2.33", "{prefix}");
        let behind = clients.trust(["10.0.0.1"], Forwarding::XForwardedFor).unwrap();
        let field = chain("x-forwarded-for", &[address]);
        assert_eq!(found(&behind, "10.0.0.1", &field), "192.0.2.33", "{prefix}, behind a proxy");
    }
    let none = ClientAddress::new();
    assert_eq!(found(&none, "64:ff9b:1::192.0.2.33", &HeaderMap::new()), "64:ff9b:1::");
    let own = none.translated(["64:ff9b:1::/48", "64:ff9b:1::/96", "2001:db8::/32"]).unwrap();
    for (address, expected) in [
        ("64:ff9b:1::192.0.2.33", "192.0.2.33"), // the longest prefix
        ("64:ff9b::192.0.2.33", "192.0.2.33"),   // the well-known one is always there
        ("2001:db8:c000:221:100::", "2001:db8:c000:221::"), // bits 64 to 71: no translator's
        ("2001:db9:c000:221::", "2001:db9:c000:221::"),
    ] {
        assert_eq!(found(&own, address, &HeaderMap::new()), expected, "{address}");
    }
}

#[test]
fn prefixes_that_no_translator_has_are_refused() {
    for (prefix, expected) in [
        (
            "",
            "invalid translator's prefix \"\": an IPv6 network is allowed, such as 64:ff9b:1::/96",
        ),
        (
            "10.0.0.0/8",
            "invalid translator's prefix \"10.0.0.0/8\": an IPv6 network is allowed, such as 64:ff9b:1::/96",
        ),
        (
            "2001:db8::/33",
            "invalid translator's prefix \"2001:db8::/33\": 32, 40, 48, 56, 64 or 96 bits are allowed",
        ),
        (
            "2001:db8:1:2:100::/96",
            "invalid translator's prefix \"2001:db8:1:2:100::/96\": bits 64 to 71 must be 0",
        ),
    ] {
        assert_eq!(error_of(ClientAddress::new().translated([prefix])), expected);
    }
}

/// One IPv4 address has 65,536 networks of 64 bits under 6to4.
#[test]
fn client_of_6to4_counts_by_its_48() {
    for (prefix, expected) in [
        (32, "2002:c000::"),
        (48, "2002:c000:221::"),
        (64, "2002:c000:221::"),
        (128, "2002:c000:221::"),
    ] {
        let clients = ClientAddress::new().ipv6_prefix(prefix).unwrap();
        for address in ["2002:c000:221::1", "2002:c000:221:ffff::1", "2002:c000:221:5:6:7:8:9"] {
            assert_eq!(
                found(&clients, address, &HeaderMap::new()),
                expected,
                "/{prefix}: {address}"
            );
        }
    }
}
