//! An axum service behind nginx, with limits by address, by API key and for a route: `docs/http.md`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::extract::{ConnectInfo, MatchedPath};
use axum::http::{HeaderName, header::CONTENT_TYPE};
use axum::{Router, routing::get, routing::post};
use tollgate::http::{ClientAddress, Forwarding, RateLimitLayer, Rule, extract};
use tollgate::sweep::SweepOptions;
use tollgate::watch::WatchOptions;
use tollgate::{Limiter, LimiterOptions, Limits};

/// A client that never sends the rest of its request must not keep the buckets from their file.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:3000".into());
    let file = args.next().unwrap_or("examples/http_nginx.yml".into());
    let buckets = args.next().unwrap_or("buckets".into());

    // The buckets of the last run, if there are any.
    let (limits, options) = (Limits::from_yaml_files(&file, None)?, LimiterOptions::default());
    let options = options.counting(true);
    let limiter = if Path::new(&buckets).exists() {
        Limiter::restore(limits, options, &buckets)?.0
    } else {
        Limiter::with_options(limits, options)?
    };
    let sweeper = limiter.start_sweeper(SweepOptions::default())?;
    let reloaded = WatchOptions::default().on_reload(|reloaded| {
        if let Err(error) = reloaded {
            eprintln!("the old limits stay: {error}");
        }
    });
    let watcher = limiter.watch(&file, None, reloaded)?;

    // One proxy, at this address: the client is the last entry of the field.
    let clients = ClientAddress::new()
        .peer_in::<ConnectInfo<SocketAddr>>()
        .trust(["127.0.0.1"], Forwarding::XForwardedFor)?
        .trusted_hops(1)?;
    let key = extract::header_if_present(HeaderName::from_static("x-api-key"));
    let per_client = Rule::new(limiter.limit("PerClient")?, extract::client(clients.clone()));
    let per_key = Rule::new(limiter.limit("PerKey")?, key);
    let login = Rule::new(limiter.limit("Login")?, extract::client(clients))
        .route(MatchedPath::as_str, "/api/login");
    let layer = RateLimitLayer::builder(&limiter);
    let layer = layer.rule(per_client).rule(per_key).rule(login).build()?;

    let api = Router::new()
        .route("/login", post(|| async { "welcome\n" }))
        .route("/search", get(|| async { "found\n" }));
    let counts = limiter.clone();
    let metrics = move || {
        let page = counts.prometheus();
        async { ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page) }
    };
    let app = Router::new()
        .nest("/api", api)
        .route_layer(layer)
        .route("/health", get(|| async { "ok\n" })) // after the layer, so these have no limit
        .route("/metrics", get(metrics));

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, service).with_graceful_shutdown(stopped());
    tokio::select! {
        served = served.into_future() => served?, // all requests are answered
        () = async { stopped().await; tokio::time::sleep(PATIENCE).await } => {}
    }

    // The threads end, and the buckets are written.
    drop((watcher, sweeper));
    limiter.snapshot(&buckets)?;
    Ok(())
}

/// Waits for SIGTERM, with which systemd, Docker and Kubernetes end a program, or for Ctrl-C.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}
