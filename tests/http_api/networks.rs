//! Overrides of networks behind the layer, whose id of an IPv6 client is the base address of its /64.
#![cfg(all(feature = "tower", feature = "yaml"))]

use std::convert::Infallible;
use std::net::IpAddr;

use http::{Request, Response};
use tollgate::http::{ClientAddress, Peer, RateLimitLayer, Rule, extract};
use tollgate::{Clock, Limiter, Limits};
use tower::{Layer, ServiceExt};

const FILE: &str = r#"
PerClient: {burst: 5, count: 1, period: 60s, id: ipAddress}
PerClient:10.0.0.0/8: {burst: 20, count: 1, period: 60s}
PerClient:2001:db8::/32: {burst: 30, count: 1, period: 60s}
PerClient:2001:db8:7::/48: {unlimited: true}
"#;

/// Returns what `RateLimit` says remains for a client.
fn ask(layer: &RateLimitLayer, client: &str) -> Option<String> {
    let mut request = Request::new(());
    request.extensions_mut().insert(Peer::from(client.parse::<IpAddr>().unwrap()));
    let service =
        tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(layer.layer(service).oneshot(request)).unwrap();
    assert_eq!(response.status(), 200);
    let said = response.headers().get("ratelimit")?.to_str().unwrap();
    said.split(';').find_map(|part| part.strip_prefix("r=")).map(str::to_owned)
}

#[test]
fn clients_have_the_override_of_their_network() {
    let limiter = Limiter::with_options(Limits::from_yaml(FILE).unwrap(), Clock::manual().0);
    let limiter = limiter.unwrap();
    let rule =
        Rule::new(limiter.limit("PerClient").unwrap(), extract::client(ClientAddress::new()));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).plain_text().build().unwrap();
    for (client, left) in [
        ("9.9.9.9", Some("4")),
        ("10.1.2.3", Some("19")),
        ("10.1.2.4", Some("19")),
        ("::ffff:10.1.2.4", Some("18")),
        ("2001:db8:1:2::7", Some("29")),
        ("2001:db8:1:2::8", Some("28")),
        ("2001:db8:1:3::8", Some("29")),
        ("2001:db8:7::1", None),
        ("2001:db9::1", Some("4")),
    ] {
        assert_eq!(ask(&layer, client).as_deref(), left, "{client}");
    }
}
