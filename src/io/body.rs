//! Throttles an HTTP body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::io::error::ThrottleError;
use crate::io::meter::Meter;
use crate::io::throttle::{Sleeper, Throttle};

impl<T: Sleeper> Throttle<T> {
    /// Throttles the data of an HTTP body. Trailers pass.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let limit = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use http_body_util::{BodyExt, Full};
    ///
    /// let throttle = Throttle::new(limit, "alice", tokio::time::sleep)?;
    /// let body = throttle.body(Full::from("an answer"));
    /// assert_eq!(body.collect().await?.to_bytes(), "an answer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn body<B>(&self, body: B) -> ThrottledBody<B, T> {
        ThrottledBody { inner: body, held: Bytes::new(), meter: Meter::new(self.clone()) }
    }
}

pin_project! {
    /// Delivers the data of a body as a limit allows. Made by [`Throttle::body`](crate::io::Throttle::body).
    ///
    /// Frames of data come in parts if the limit does not grant them as a whole; other frames pass.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let limit = KeyedLimit::new("Bytes", Limit::new(4, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use http_body_util::{BodyExt, Full};
    /// use tollgate::io::ThrottledBody;
    ///
    /// let throttle = Throttle::new(limit, "alice", tokio::time::sleep)?;
    /// let mut body: ThrottledBody<_, _> = throttle.body(Full::from("answer"));
    /// let first = body.frame().await.expect("a frame")?;
    /// assert_eq!(first.into_data().expect("data"), "answ", "the burst is 4");
    /// assert_eq!(body.collect().await?.to_bytes(), "er");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ThrottledBody<B, T: Sleeper> {
        #[pin]
        inner: B,
        // Data of the inner body that wait for their places.
        held: Bytes,
        meter: Meter<T>,
    }
}

impl<B: Body<Data = Bytes>, T: Sleeper> Body for ThrottledBody<B, T> {
    type Data = Bytes;
    type Error = ThrottleError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ThrottleError<B::Error>>>> {
        let mut this = self.project();
        if this.held.is_empty() {
            let polled = this.inner.as_mut().poll_frame(context);
            let Poll::Ready(Some(Ok(frame))) = polled else {
                this.meter.give_back();
                return polled.map_err(ThrottleError::Inner);
            };
            match frame.into_data() {
                Ok(data) if !data.is_empty() => *this.held = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let is_last = this.inner.is_end_stream();
        let part = ready!(this.meter.poll_part(context, this.held, is_last));
        Poll::Ready(Some(part.map(Frame::data).map_err(ThrottleError::Limit)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, held) = (self.inner.size_hint(), self.held.len() as u64);
        let mut hint = SizeHint::new();
        // An upper bound is never below the lower one.
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(inner.lower().saturating_add(held));
        hint
    }
}

impl<B: fmt::Debug, T: Sleeper> fmt::Debug for ThrottledBody<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("inner", &self.inner).finish_non_exhaustive()
    }
}
