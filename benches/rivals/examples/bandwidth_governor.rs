//! The copy of `bandwidth_tollgate.rs` with governor, which counts chunks: of 1,000 bytes each.

use std::num::NonZeroU32;

use futures_util::{StreamExt, stream};
use governor::state::StreamRateLimitExt;
use governor::{Quota, RateLimiter};
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = [7; 200_000];
    let burst = NonZeroU32::new(64).unwrap();
    let quota = Quota::per_second(NonZeroU32::new(1_000).unwrap()).allow_burst(burst);
    let limiter = RateLimiter::direct(quota);
    let mut chunks = stream::iter(file.chunks(1_000)).ratelimit_stream(&limiter);
    let mut socket = tokio::io::sink();
    while let Some(chunk) = chunks.next().await {
        socket.write_all(chunk).await?;
    }
    Ok(())
}
