//! Throttles a stream of bytes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::io::error::ThrottleError;
use crate::io::meter::Meter;
use crate::io::throttle::{Sleeper, Throttle};

impl<T: Sleeper> Throttle<T> {
    /// Throttles a stream whose items are `Result<Bytes, _>`.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let limit = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use futures_util::{StreamExt, stream};
    ///
    /// let throttle = Throttle::new(limit, "alice", tokio::time::sleep)?;
    /// let chunks = stream::iter([Ok::<_, std::io::Error>("a chunk".into())]);
    /// let mut chunks = throttle.stream(chunks);
    /// assert_eq!(chunks.next().await.expect("an item")?, "a chunk");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<S>(&self, stream: S) -> ThrottledStream<S, T> {
        ThrottledStream { inner: stream, held: Bytes::new(), meter: Meter::new(self.clone()) }
    }
}

pin_project! {
    /// Delivers the bytes of a stream as a limit allows. Made by [`Throttle::stream`](crate::io::Throttle::stream).
    ///
    /// Items come in parts if the limit does not grant them as a whole.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let limit = KeyedLimit::new("Bytes", Limit::new(4, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::io::ThrottledStream;
    ///
    /// let throttle = Throttle::new(limit, "alice", tokio::time::sleep)?;
    /// let chunks = stream::iter([Ok::<_, std::io::Error>("chunk".into())]);
    /// let mut chunks: ThrottledStream<_, _> = throttle.stream(chunks);
    /// assert_eq!(chunks.next().await.expect("an item")?, "chun", "the burst is 4");
    /// assert_eq!(chunks.next().await.expect("an item")?, "k");
    /// assert!(chunks.next().await.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ThrottledStream<S, T: Sleeper> {
        #[pin]
        inner: S,
        // Bytes of the inner stream that wait for their places.
        held: Bytes,
        meter: Meter<T>,
    }
}

impl<S, E, T> Stream for ThrottledStream<S, T>
where
    S: Stream<Item = Result<Bytes, E>>,
    T: Sleeper,
{
    type Item = Result<Bytes, ThrottleError<E>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if this.held.is_empty() {
            match this.inner.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(item))) if !item.is_empty() => *this.held = item,
                polled => {
                    this.meter.give_back();
                    return polled.map_err(ThrottleError::Inner);
                }
            }
        }
        let is_last = this.inner.size_hint().1 == Some(0);
        let part = ready!(this.meter.poll_part(context, this.held, is_last));
        Poll::Ready(Some(part.map_err(ThrottleError::Limit)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An item may come in several parts.
        let held = usize::from(!self.held.is_empty());
        (self.inner.size_hint().0.saturating_add(held), None)
    }
}

impl<S: fmt::Debug, T: Sleeper> fmt::Debug for ThrottledStream<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledStream").field("inner", &self.inner).finish_non_exhaustive()
    }
}
