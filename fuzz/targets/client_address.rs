//! Reads the client's address from arbitrary header fields: the result is an address or an error, and never an address
//! that the client chose.
//!
//! The first byte chooses the field; each line of the rest is one value of it.
#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tollgate::http::{
    ClientAddress, Forwarding, parse_forwarded_element, parse_forwarded_for_entry,
};

/// For each field, the clients by the trusted network and by the number of proxies.
static CLIENTS: LazyLock<[(&str, [ClientAddress; 2]); 2]> = LazyLock::new(|| {
    [("x-forwarded-for", Forwarding::XForwardedFor), ("forwarded", Forwarding::Forwarded)].map(
        |(name, forwarding)| {
            let clients = ClientAddress::new().trust(["10.0.0.0/8"], forwarding);
            let clients = clients.expect("a network");
            let counted = clients.clone().trusted_hops(1).expect("a chain");
            (name, [clients, counted])
        },
    )
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, text)) = data.split_first() else { return };
    let (name, [clients, counted]) = &CLIENTS[usize::from(first) % CLIENTS.len()];
    let proxy = Some(IpAddr::from([10, 0, 0, 1]));
    let stranger = Some(IpAddr::from([192, 0, 2, 1]));
    let mut headers = HeaderMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let _ = parse_forwarded_element(line);
        let _ = parse_forwarded_for_entry(line);
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(*name, value);
        }
    }
    match clients.find(proxy, &headers) {
        Ok(IpAddr::V6(v6)) => {
            assert!(v6.to_ipv4_mapped().is_none(), "{v6}");
            assert_eq!(v6.to_bits() as u64, 0, "{v6} is no /64");
        }
        Ok(IpAddr::V4(_)) => {}
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 200 && !text.chars().any(char::is_control), "{text:?}");
        }
    }
    assert_eq!(clients.find(stranger, &headers), Ok(stranger.expect("an address")));
    // The entry that the proxy itself adds on the right decides, whatever is to its left. By a count it does also if the
    // client is in the proxies' network.
    for (clients, own) in
        [(clients, [203, 0, 113, 5]), (counted, [203, 0, 113, 5]), (counted, [10, 9, 9, 9])]
    {
        let expected = Ok(IpAddr::from(own));
        let own = IpAddr::from(own).to_string();
        let own = if *name == "forwarded" { format!("for={own}") } else { own };
        let mut appended = headers.clone();
        appended.append(*name, HeaderValue::from_str(&own).expect("an address"));
        assert_eq!(clients.find(proxy, &appended), expected);
        if let Some(last) = headers.get_all(*name).iter().next_back() {
            let line = [last.as_bytes(), b", ", own.as_bytes()].concat();
            let mut joined = HeaderMap::new();
            joined.append(*name, HeaderValue::from_bytes(&line).expect("two values and a comma"));
            assert_eq!(clients.find(proxy, &joined), expected);
        }
    }
});
