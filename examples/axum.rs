//! A small API that tollgate limits by four algorithms, with a page to try them on.
//!
//!     cargo run --release --example axum --features tower -- --listen 127.0.0.1:3000
//!
//! `/api/NAME` spends one unit of that limit, `/together` one of each, or none. `/` is the page, `/limits`
//! what remains to the one who asks, and `/health` says `ok`: these three are not limited. A path after
//! the options is another file of limits than the one that is built in.

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
    // Drops the buckets of clients that are gone, until the end of this scope.
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;
    let app = api::app(&limiter)?;
    let listener = TcpListener::bind(args.listen).await?;
    // Of port 0, this is the one that was free.
    println!("listening on http://{}", listener.local_addr()?);
    // Without connect info a client's address is not known, and every limited request is a 500.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(interrupted()).await?;
    println!("stopped");
    Ok(())
}

/// Comes when ctrl-c does: no connection is taken then, and calls that are under way are answered.
async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("ctrl-c will end this at once: {error}");
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
            let value = given.next().ok_or("--listen wants an address and a port")?;
            args.listen = value.parse().map_err(|_| format!("{value} is no address and port"))?;
        } else if word.starts_with('-') || args.limits.is_some() {
            return Err(format!("{word} is too much: [--listen ADDRESS:PORT] [LIMITS.yml]"));
        } else {
            args.limits = Some(word.into());
        }
    }
    Ok(args)
}
