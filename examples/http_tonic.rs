//! A tonic server whose clients are limited by their address: `docs/http.md`.

use std::time::Duration;

use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let clients = ClientAddress::new()
        .peer_by(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
    let rule = Rule::new(limiter.limit("PerClient")?, extract::client(clients));
    // A denial is RESOURCE_EXHAUSTED with `grpc-retry-pushback-ms`.
    let layer = RateLimitLayer::builder(&limiter).rule(rule).grpc().build()?;

    // Your own services: `.add_service(GreeterServer::new(Greeter))`. Without one, every call that is
    // let through is UNIMPLEMENTED.
    let services = Routes::default();
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let incoming = TcpIncoming::bind(address.parse()?)?;
    println!("listening on http://{}", incoming.local_addr()?);
    Server::builder().layer(layer).add_routes(services).serve_with_incoming(incoming).await?;
    Ok(())
}
