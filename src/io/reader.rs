//! Throttles a reader.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::error::of_io;
use crate::io::meter::Meter;
use crate::io::throttle::{Sleeper, Throttle};

impl<T: Sleeper> Throttle<T> {
    /// Throttles what is read from `reader`. Writes pass.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// let mut download = throttle.reader(&b"a file"[..]);
    /// assert_eq!(tokio::io::copy(&mut download, &mut tokio::io::sink()).await?, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader<R>(&self, reader: R) -> ThrottledReader<R, T> {
        ThrottledReader { inner: reader, meter: Meter::new(self.clone()) }
    }
}

pin_project! {
    /// Reads no more bytes than a limit allows; writes pass. Made by [`Throttle::reader`](crate::io::Throttle::reader), which
    /// has an example.
    ///
    /// A read returns at most the burst of the limit. If the limit grants no place, it fails: with
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if the id is blocked.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use tokio::io::AsyncReadExt;
    /// use tollgate::io::ThrottledReader;
    ///
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// let mut download: ThrottledReader<_, _> = throttle.reader(&b"a file"[..]);
    /// let mut text = String::new();
    /// download.read_to_string(&mut text).await?;
    /// assert_eq!(text, "a file");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ThrottledReader<R, T: Sleeper> {
        #[pin]
        inner: R,
        meter: Meter<T>,
    }
}

impl<R, T: Sleeper> ThrottledReader<R, T> {
    /// Returns the inner reader. No byte that was read from it is lost.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit, io::Throttle};
    /// # let bytes = KeyedLimit::new("Bytes", Limit::new(64 * 1024, 1_000_000, Duration::from_secs(1))?)?;
    /// let throttle = Throttle::new(bytes, "alice", tokio::time::sleep)?;
    /// assert_eq!(throttle.reader(&b"a file"[..]).into_inner(), b"a file");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: AsyncRead, T: Sleeper> AsyncRead for ThrottledReader<R, T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let room = buffer.remaining();
        if room == 0 {
            return this.inner.poll_read(context, buffer);
        }
        let bytes = ready!(this.meter.poll_bytes(context, room as u64)).map_err(of_io)? as usize;
        let (polled, read) = if bytes >= room {
            let polled = this.inner.poll_read(context, buffer);
            (polled, room - buffer.remaining())
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(bytes));
            let polled = this.inner.poll_read(context, &mut part);
            let read = part.filled().len();
            buffer.advance(read);
            (polled, read)
        };
        this.meter.spend(read as u64);
        if read == 0 {
            // It has no bytes now, has ended, or has failed.
            this.meter.give_back();
        }
        polled
    }
}

impl<R: AsyncWrite, T: Sleeper> AsyncWrite for ThrottledReader<R, T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl<R: fmt::Debug, T: Sleeper> fmt::Debug for ThrottledReader<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledReader").field("inner", &self.inner).finish_non_exhaustive()
    }
}
