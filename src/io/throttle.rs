//! Defines [`Throttle`], a limit and an id that streams share.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::core::waiters::Bucket;
use crate::io::slice::{Slice, Want};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::other_handles::needs_store;
use crate::limiter::reserve::ReserveError;
use crate::limits::{Id, Scratch};
use crate::store::key::{Key, KeyRef};

/// Makes the futures by which throttled streams wait. Any function from a [`Duration`] to a future is one, such as
/// `tokio::time::sleep`.
///
/// A stream is [`Send`] if the future is, and if what it throttles is.
///
/// # Example: the type of a throttled socket
///
/// ```
/// use std::time::Duration;
/// use tokio::{net::TcpStream, time::Sleep};
/// use tollgate::io::{Sleeper, Throttle, ThrottledReader, ThrottledWriter};
///
/// struct Tokio;
///
/// impl Sleeper for Tokio {
///     type Sleep = Sleep;
///
///     fn sleep(&self, time: Duration) -> Sleep {
///         tokio::time::sleep(time)
///     }
/// }
///
/// type Socket = ThrottledWriter<ThrottledReader<TcpStream, Tokio>, Tokio>;
///
/// fn throttled(socket: TcpStream, down: &Throttle<Tokio>, up: &Throttle<Tokio>) -> Socket {
///     up.writer(down.reader(socket))
/// }
/// # let _ = throttled;
/// ```
pub trait Sleeper {
    /// The future, which is ready when the time has passed.
    type Sleep: Future<Output = ()>;

    /// Returns a future that is ready once `time` has passed.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::{Duration, Instant};
    /// use tollgate::io::Sleeper;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let begun = Instant::now();
    /// Sleeper::sleep(&tokio::time::sleep, Duration::from_millis(5)).await;
    /// assert!(begun.elapsed() >= Duration::from_millis(5));
    /// # });
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn sleep(&self, time: Duration) -> Self::Sleep;
}

impl<F, S> Sleeper for F
where
    F: Fn(Duration) -> S,
    S: Future<Output = ()>,
{
    type Sleep = S;

    fn sleep(&self, time: Duration) -> S {
        self(time)
    }
}

/// Throttles readers, writers, bodies and streams by a limit whose units are bytes. All of them share the bucket of one id.
///
/// A clone is cheap, and shares the bucket as well.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::io::Throttle;
/// use tollgate::{KeyedLimit, Limit};
///
/// let bytes = KeyedLimit::new("BytesPerClient", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
/// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
/// let file = throttle.reader(tokio::io::empty());
/// let socket = throttle.writer(tokio::io::sink());
/// # let _ = (file, socket);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Throttle<T>(Arc<Parts<T>>);

struct Parts<T> {
    limit: KeyedLimit,
    key: Key,
    bucket: Bucket,
    sleeper: T,
}

impl<T: Sleeper> Throttle<T> {
    /// Makes a throttle for the bucket of `id`.
    ///
    /// # Errors
    ///
    /// [`ReserveError::NoPlaces`] if the limit is not one of gcra; [`ReserveError::Wrong`] if the id does not have the format
    /// of the limit, and if nodes share the limit.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::io::Throttle;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// let window = KeyedLimit::new("BytesPerClient", Limit::fixed_window(1000, Duration::from_secs(1))?)?;
    /// let error = Throttle::new(window, "alice", tokio::time::sleep).unwrap_err();
    /// assert!(error.is_without_places());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn new<'a>(
        limit: KeyedLimit,
        id: impl Into<Id<'a>>,
        sleeper: T,
    ) -> Result<Throttle<T>, ReserveError> {
        let mut scratch = Scratch::new();
        let id = limit.encoded(id.into(), &mut scratch)?;
        let key = Key::new(KeyRef { limit: limit.index, id });
        if limit.is_shared() {
            return Err(needs_store(limit.name()).into());
        }
        Slice::check(&limit, &key, limit.limiter.inner.clock.now_ns())?;
        let bucket = Bucket::new(&limit.limiter.inner, key.as_ref());
        Ok(Throttle(Arc::new(Parts { limit, key, bucket, sleeper })))
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.0.limit.limiter.inner.clock.now_ns()
    }

    /// Takes a place; `None` if the bytes may move freely.
    pub(super) fn take(&self, want: Want, now_ns: u64) -> Result<Option<Slice>, ReserveError> {
        Slice::take(&self.0.limit, &self.0.key, want, now_ns)
    }

    pub(super) fn bucket(&self) -> Bucket {
        self.0.bucket
    }

    /// Takes a place that another stream has left, if it is granted before `at_ns`.
    pub(super) fn take_earlier(&self, want: Want, at_ns: u64, now_ns: u64) -> Option<Slice> {
        let Parts { limit, key, .. } = &*self.0;
        if !Slice::is_any_vacant(limit, key) {
            return None;
        }
        // An error is for the poll that has no place.
        let slice = self.take(want, now_ns).ok().flatten()?;
        Some(slice).filter(|slice| slice.granted_at_ns() < at_ns)
    }

    /// Offers places that were left to a stream that waits.
    pub(super) fn offer_vacant(&self) {
        let Parts { limit, key, bucket, .. } = &*self.0;
        if Slice::is_any_vacant(limit, key) {
            bucket.wake_last();
        }
    }

    pub(super) fn sleep(&self, time: Duration) -> T::Sleep {
        self.0.sleeper.sleep(time)
    }
}

impl<T> Clone for Throttle<T> {
    fn clone(&self) -> Throttle<T> {
        Throttle(self.0.clone())
    }
}

impl<T> fmt::Debug for Throttle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("limit", &self.0.limit).finish_non_exhaustive()
    }
}
