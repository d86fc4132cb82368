//! The copy of `bandwidth_tollgate.rs` with async-speed-limit. All clones of the limiter share it.

use async_speed_limit::Limiter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = [7; 200_000];
    let limiter = <Limiter>::new(1_000_000.0);
    let mut reader = limiter.limit(&file[..]);
    assert_eq!(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await?, 200_000);
    Ok(())
}
