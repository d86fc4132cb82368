//! The copy of `bandwidth_tollgate.rs` with rama. All clones of the limiter share it.

use rama_net::stream::layer::{ThrottleMode, ThrottledIo};
use rama_utils::rate::{Rate, RateLimiter};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = [7; 200_000];
    let limiter = RateLimiter::new(Rate::per_sec(1_000_000), 64 * 1024);
    let mode = ThrottleMode::shared(limiter);
    let mut reader = ThrottledIo::new(&file[..]).with_read_mode(mode);
    assert_eq!(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await?, 200_000);
    Ok(())
}
