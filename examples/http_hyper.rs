//! A hyper server whose clients are limited by their address: `docs/http.md`.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tollgate::http::{ClientAddress, Peer, RateLimitLayer, Rule, extract};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::ServiceBuilder;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let rule = Rule::new(limiter.limit("PerClient")?, extract::client(ClientAddress::new()));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        // hyper puts no peer into its requests: the service of each connection does.
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer::from(peer));
                request
            })
            .layer(layer.clone())
            .service_fn(hello);
        tokio::spawn(async move {
            let service = TowerToHyperService::new(service);
            let connection = Builder::new(TokioExecutor::new());
            if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
