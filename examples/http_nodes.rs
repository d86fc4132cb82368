//! Two axum servers, each a node of its own, whose clients share one limit in Valkey or Redis: `docs/shared.md`.
//!
//!     cargo run --release --example http_nodes --features tower,valkey -- redis://127.0.0.1:6379

use std::net::SocketAddr;

use axum::{Router, extract::ConnectInfo, routing::get};
use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
use tollgate::limits::StoreOptions;
use tollgate::shared::Store;
use tollgate::{Limiter, LimiterOptions, Limits};

/// 20 requests at once, then 10 every second, for each address on both servers together.
const LIMITS: &str = "PerClient: {burst: 20, count: 10, period: 1s, id: ipAddress, shared: exact}";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1);
    let url = given.next().unwrap_or("redis://127.0.0.1:6379".into());
    let addresses: Vec<String> = given.collect();
    let addresses = match addresses.as_slice() {
        [] => vec!["127.0.0.1:3000".into(), "127.0.0.1:3001".into()],
        _ => addresses,
    };
    let mut nodes = Vec::new();
    for address in addresses {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("listening on http://{}", listener.local_addr()?);
        let app = node(&url)?.into_make_service_with_connect_info::<SocketAddr>();
        nodes.push(tokio::spawn(async move { axum::serve(listener, app).await }));
    }
    for node in nodes {
        node.await??;
    }
    Ok(())
}

/// Makes what one program would have: a connection to the store, a limiter and its layer.
fn node(url: &str) -> Result<Router, Box<dyn std::error::Error>> {
    let store = Store::connect(&StoreOptions::new(url)?)?;
    let options = LimiterOptions::default().store(store);
    let limiter = Limiter::with_options(Limits::from_yaml(LIMITS)?, options)?;
    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let rule = Rule::shared(limiter.shared("PerClient")?, extract::client(clients));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).build_shared()?;
    Ok(Router::new().route("/", get(|| async { "hello\n" })).layer(layer))
}
