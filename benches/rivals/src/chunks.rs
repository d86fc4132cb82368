//! Measures the processor time of chunks that a throttled reader or stream delivers at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead, ReadBuf};

/// The sizes of the chunks, in bytes.
pub const SIZES: [usize; 3] = [1, 1024, 64 * 1024];

/// A reader and stream that costs nothing: it leaves the buffer as it is.
pub struct Free(pub usize);

impl AsyncRead for Free {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        #[allow(unsafe_code, reason = "a reader writes nothing but what it has read")]
        // SAFETY: `reads` has initialised the whole buffer, of which this may be a part that does not know it: rama's.
        unsafe {
            buffer.assume_init(room)
        };
        buffer.advance(room);
        Poll::Ready(Ok(()))
    }
}

impl futures_core::Stream for Free {
    type Item = usize;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<usize>> {
        Poll::Ready(Some(self.0))
    }
}

/// The processor time of this thread.
fn cpu_ns() -> u128 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of the thread");
    Duration::from(time).as_nanos()
}

/// Nanoseconds per chunk; each chunk must be ready at once and be delivered whole, in one read or in several.
fn ns_per_chunk(chunks: usize, size: usize, mut read: impl FnMut(usize) -> usize) -> f64 {
    let begun = cpu_ns();
    for _ in 0..chunks {
        let mut left = size;
        while left > 0 {
            left -= read(left);
        }
    }
    (cpu_ns() - begun) as f64 / chunks as f64
}

/// Nanoseconds per chunk of a reader.
pub fn reads(mut reader: impl AsyncRead + Unpin, chunks: usize, size: usize) -> f64 {
    let mut buffer = vec![0; size];
    let mut context = Context::from_waker(Waker::noop());
    ns_per_chunk(chunks, size, |left| {
        let mut buffer = ReadBuf::new(&mut buffer[..left]);
        let polled = Pin::new(&mut reader).poll_read(&mut context, &mut buffer);
        assert!(matches!(polled, Poll::Ready(Ok(()))), "the limit never waits");
        buffer.filled().len()
    })
}

/// Nanoseconds per chunk of a stream of sizes.
pub fn items(
    mut stream: impl futures_core::Stream<Item = usize> + Unpin,
    chunks: usize,
    size: usize,
) -> f64 {
    let mut context = Context::from_waker(Waker::noop());
    ns_per_chunk(chunks, size, |_| match Pin::new(&mut stream).poll_next(&mut context) {
        Poll::Ready(Some(bytes)) => bytes,
        _ => panic!("the limit never waits"),
    })
}
