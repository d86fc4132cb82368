//! A copy at 1 MB/s, 64 KiB at once, with Tollgate. All that one id moves shares the limit.

use std::time::Duration;

use tollgate::io::Throttle;
use tollgate::{KeyedLimit, Limit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = [7; 200_000];
    let limit = Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?;
    let bytes = KeyedLimit::new("BytesPerClient", limit)?;
    let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    let mut reader = throttle.reader(&file[..]);
    assert_eq!(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await?, 200_000);
    Ok(())
}
