//! Readers, writers, bodies and streams that move no more bytes than a limit allows.
//!
//! The units of the limit are bytes, and its algorithm is gcra. A [`Throttle`] is a limit and an id; all that it throttles,
//! and all that other throttles with the same id throttle, share the id's bucket. [Bandwidth](crate::docs::bandwidth) has
//! programs and the fine print.
//!
//! # Example
//!
//! ```
//! # #[cfg(not(tollgate_loom))] {
//! use std::time::Duration;
//! use tokio::io::AsyncReadExt;
//! use tollgate::io::Throttle;
//! use tollgate::{KeyedLimit, Limit};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let limit = Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?; // 64 KiB at once, then 1 MB/s
//! let bytes = KeyedLimit::new("BytesPerClient", limit)?;
//! let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
//! let mut download = throttle.reader(&[7; 70_000][..]);
//! let mut all = Vec::new();
//! download.read_to_end(&mut all).await?; // takes about 4 ms
//! assert_eq!(all.len(), 70_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod error;
mod meter;
mod reader;
mod slice;
mod stream;
mod throttle;
mod writer;

pub use body::ThrottledBody;
pub use error::ThrottleError;
pub use reader::ThrottledReader;
pub use stream::ThrottledStream;
pub use throttle::{Sleeper, Throttle};
pub use writer::ThrottledWriter;
