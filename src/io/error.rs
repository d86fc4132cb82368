//! Defines [`ThrottleError`], and turns errors of reservations into those of readers and writers.

use std::error::Error;
use std::{fmt, io};

use crate::limiter::reserve::ReserveError;

/// Says why a throttled body or stream failed.
///
/// # Example
///
/// ```
/// # #[cfg(not(tollgate_loom))] {
/// use std::time::Duration;
/// use futures_util::{StreamExt, stream};
/// use tollgate::io::{Throttle, ThrottleError};
/// use tollgate::{KeyedLimit, Limit};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limit = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
/// let throttle = Throttle::new(limit.clone(), "mallory", tokio::time::sleep)?;
/// limit.block("mallory", Duration::from_secs(60))?;
/// let mut chunks = throttle.stream(stream::iter([Ok::<_, std::io::Error>("a chunk".into())]));
/// let error = chunks.next().await.expect("an item").unwrap_err();
/// assert!(matches!(error, ThrottleError::Limit(limit) if limit.is_blocked()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ThrottleError<E> {
    /// The inner body or stream has failed.
    Inner(E),
    /// The limit grants no place: the id is blocked, the table is full, or a reload has changed the limit's algorithm or
    /// made the limit shared. The bytes are not lost: the next poll asks again.
    Limit(ReserveError),
}

impl<E: fmt::Display> fmt::Display for ThrottleError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThrottleError::Inner(error) => error.fmt(f),
            ThrottleError::Limit(error) => write!(f, "the limit on bytes: {error}"),
        }
    }
}

impl<E: Error + 'static> Error for ThrottleError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ThrottleError::Inner(error) => error.source(),
            ThrottleError::Limit(error) => Some(error),
        }
    }
}

/// The error of a reader or a writer.
pub(super) fn of_io(error: ReserveError) -> io::Error {
    let kind = match &error {
        ReserveError::Blocked { .. } => io::ErrorKind::PermissionDenied,
        ReserveError::NoPlaces { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
