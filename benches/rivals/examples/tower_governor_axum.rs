use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 20 requests at once, then one every 100 ms, for each address.
    let config = GovernorConfigBuilder::default()
        .per_millisecond(100)
        .burst_size(20)
        .use_headers()
        .finish()
        .ok_or("a period and a burst above 0")?;
    let limiter = config.limiter().clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(60));
            limiter.retain_recent();
        }
    });
    let app =
        Router::new().route("/", get(|| async { "hello\n" })).layer(GovernorLayer::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
