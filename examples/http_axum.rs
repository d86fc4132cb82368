//! An axum server whose clients are limited by their address: `docs/http.md`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, extract::ConnectInfo, routing::get};
use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 20 requests at once, then 10 every second, for each address. Never more than 1,000 in an hour: Limit::at_most.
    let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let rule = Rule::new(limiter.limit("PerClient")?, extract::client(clients));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer)
        .route("/health", get(|| async { "ok\n" })); // after the layer, so it has no limit

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Without connect info no request has a peer address, and each of them is answered with a 500.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
