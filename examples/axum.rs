//! A small API that tollgate limits, with a page to try it on.
//!
//!     cargo run --release --example axum --features tower -- --listen 127.0.0.1:8080
//!
//! `/` is the page, `/limits` the limits as JSON, and `/health` says `ok`; none of them is limited.
//! `POST /spend/NAME` spends one unit of that limit, `POST /spend-all` one of each, or none.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use axum::extract::ConnectInfo;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Html;
use axum::routing::{get, post};
use axum::{Router, serve};
use tokio::net::TcpListener;
use tollgate::http::{
    ClientAddress, Fields, RateLimitLayer, Reset, Rule, SetupError, Style, extract,
};
use tollgate::{Limiter, Limits, SweepOptions};

const PAGE: &str = include_str!("axum/page.html");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (listen, limits) = args()?;
    let limiter = Limiter::new(Limits::from_yaml_files(limits, None)?);
    // Drops the buckets of clients that are gone, until the end of this scope.
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;
    let app = app(&limiter)?;
    let listener = TcpListener::bind(listen).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    // Without connect info a client's address is not known, and every limited request is a 500.
    serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

fn app(limiter: &Limiter) -> Result<Router, Box<dyn Error>> {
    let names: Vec<String> = limiter.limits().names().map(Into::into).collect();
    let limits = describe(limiter, &names)?;
    let json = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let mut app = Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/health", get(|| async { "ok\n" }))
        .route("/limits", get(move || async move { (json, limits.clone()) }));
    for name in &names {
        let spend = post(|| async { "ok\n" }).layer(layer(limiter, std::slice::from_ref(name))?);
        app = app.route(&format!("/spend/{name}"), spend);
    }
    Ok(app.route("/spend-all", post(|| async { "ok\n" }).layer(layer(limiter, &names)?)))
}

/// All there is to limiting a service: which limits, whom they count for, and what responses say.
fn layer(limiter: &Limiter, names: &[String]) -> Result<RateLimitLayer, SetupError> {
    // Behind a proxy: `.trust(["10.0.0.0/8"], Forwarding::XForwardedFor)`.
    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let fields = Fields::new([Style::Ietf, Style::XRateLimit(Reset::Delta)])?;
    let mut layer = RateLimitLayer::builder(limiter).fields(fields);
    for name in names {
        layer = layer.rule(Rule::new(limiter.limit(name)?, extract::client(clients.clone())));
    }
    layer.build()
}

/// The limits as the page wants them.
fn describe(limiter: &Limiter, names: &[String]) -> Result<String, Box<dyn Error>> {
    let mut all = Vec::new();
    for name in names {
        if let Some(limit) = limiter.limits().numbers(name, Ipv4Addr::LOCALHOST)? {
            let (burst, count) = (limit.burst(), limit.count());
            let period = format!("{:?}", limit.period());
            all.push(serde_json::json!({
                "name": name, "burst": burst, "count": count, "period": period,
            }));
        }
    }
    Ok(serde_json::to_string(&all)?)
}

/// Where to listen, and the file of limits.
fn args() -> Result<(SocketAddr, PathBuf), String> {
    let mut limits = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/axum/limits.yml").into();
    let mut listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} wants a value"))?;
        match &*name {
            "--listen" => {
                listen = value.parse().map_err(|_| format!("{value} is no address and port"))?;
            }
            "--limits" => limits = value.into(),
            _ => return Err(format!("unknown {name}: --listen and --limits are known")),
        }
    }
    Ok((listen, limits))
}
