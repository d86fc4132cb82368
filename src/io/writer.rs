//! Throttles a writer.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::error::of_io;
use crate::io::meter::Meter;
use crate::io::throttle::{Sleeper, Throttle};

impl<T: Sleeper> Throttle<T> {
    /// Throttles what is written to `writer`. Reads pass.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// let mut upload = throttle.writer(Vec::new());
    /// upload.write_all(b"a file").await?;
    /// assert_eq!(upload.into_inner(), b"a file");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writer<W>(&self, writer: W) -> ThrottledWriter<W, T> {
        ThrottledWriter { inner: writer, meter: Meter::new(self.clone()) }
    }
}

pin_project! {
    /// Writes no more bytes than a limit allows; reads pass. Made by [`Throttle::writer`](crate::io::Throttle::writer), which
    /// has an example.
    ///
    /// A write takes at most the burst of the limit, and returns their number. If the limit grants no place, it fails: with
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if the id is blocked. Flush and shutdown pass.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(4, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use tokio::io::AsyncWriteExt;
    /// use tollgate::io::ThrottledWriter;
    ///
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// let mut upload: ThrottledWriter<_, _> = throttle.writer(Vec::new());
    /// assert_eq!(upload.write(b"a file").await?, 4, "the burst");
    /// upload.write_all(b"le").await?;
    /// assert_eq!(upload.into_inner(), b"a file");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ThrottledWriter<W, T: Sleeper> {
        #[pin]
        inner: W,
        meter: Meter<T>,
    }
}

impl<W, T: Sleeper> ThrottledWriter<W, T> {
    /// Returns the inner writer.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// assert_eq!(throttle.writer(vec![1, 2]).into_inner(), [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: AsyncWrite, T: Sleeper> AsyncWrite for ThrottledWriter<W, T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        if bytes.is_empty() {
            return this.inner.poll_write(context, bytes);
        }
        let may = ready!(this.meter.poll_bytes(context, bytes.len() as u64)).map_err(of_io)?;
        let polled = this.inner.poll_write(context, &bytes[..may as usize]);
        match &polled {
            Poll::Ready(Ok(written)) => this.meter.spend(*written as u64),
            Poll::Ready(Err(_)) | Poll::Pending => this.meter.give_back(),
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        this.meter.give_back();
        this.inner.poll_shutdown(context)
    }
}

impl<W: AsyncRead, T: Sleeper> AsyncRead for ThrottledWriter<W, T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().inner.poll_read(context, buffer)
    }
}

impl<W: fmt::Debug, T: Sleeper> fmt::Debug for ThrottledWriter<W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledWriter").field("inner", &self.inner).finish_non_exhaustive()
    }
}
