//! A small API with one route for each of four algorithms, and a page to try them.
//!
//!     cargo run --release --example axum --features tower -- --listen 127.0.0.1:3000
//!
//! `/api/NAME` spends one unit of that limit; `/together` spends one unit of each limit, or none. Three routes have no
//! limit: `/` is the page, `/limits` lists the units that remain for the client, and `/health` answers `ok`. A path after
//! the options replaces the built-in file of limits.

#[path = "axum/api.rs"]
mod api;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::net::TcpListener;
use tollgate::sweep::SweepOptions;
use tollgate::{Limiter, Limits};

const LIMITS: &str = include_str!("axum/limits.yml");

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("axum: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let args = args()?;
    let limits = match args.limits {
        Some(path) => Limits::from_yaml_files(path, None)?,
        None => Limits::from_yaml(LIMITS)?,
    };
    let limiter = Limiter::new(limits);
    // Drops full buckets, until the end of this scope.
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;
    let app = api::app(&limiter)?;
    let listener = TcpListener::bind(args.listen).await?;
    // Polled once, so that the handler of ctrl-c is there before the first client.
    let mut end = Box::pin(interrupted());
    tokio::select! { biased; () = &mut end => {} () = std::future::ready(()) => {} }
    // For port 0 this shows the port that the system has chosen.
    println!("listening on http://{}", listener.local_addr()?);
    // Without connect info no request has a client address, and every limited request is a 500.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(end).await?;
    println!("stopped");
    Ok(())
}

/// Ends on ctrl-c. The server then accepts no connection, and answers the requests that it has.
async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("ctrl-c ends the server at once: {error}");
        std::future::pending::<()>().await;
    }
}

struct Args {
    listen: SocketAddr,
    limits: Option<PathBuf>,
}

fn args() -> Result<Args, String> {
    let mut args = Args { listen: (Ipv4Addr::LOCALHOST, 3000).into(), limits: None };
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        if word == "--listen" {
            let value = given.next().ok_or("--listen needs an address and a port")?;
            args.listen = value.parse().map_err(|_| format!("{value} is no address and port"))?;
        } else if word.starts_with('-') || args.limits.is_some() {
            return Err(format!("unexpected {word}; usage: [--listen ADDRESS:PORT] [LIMITS.yml]"));
        } else {
            args.limits = Some(word.into());
        }
    }
    Ok(args)
}
