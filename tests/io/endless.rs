//! Streams without an end, and tasks that move their bytes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reader,
    Writer,
    Body,
    Stream,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Reader, Kind::Writer, Kind::Body, Kind::Stream];

/// What a client does.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    pub(crate) chunk: usize,
    /// The chance, of 100, that the inner stream is not ready, and that the client pauses before the next chunk.
    pub(crate) pauses: (u64, u64),
    pub(crate) seed: u64,
}

/// A stream without an end, which is sometimes not ready for up to 20 ms.
pub(crate) struct Endless {
    chunk: Bytes,
    pauses: u64,
    random: Random,
    world: World,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Endless {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.sleep.is_none() && self.random.chance(self.pauses, 100) {
            let time = Duration::from_micros(self.random.below(20_000));
            self.sleep = Some(Box::pin(self.world.sleep_for(time)));
        }
        if let Some(sleep) = &mut self.sleep {
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_ready(context));
        let room = buffer.remaining();
        buffer.initialize_unfilled();
        buffer.advance(room);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_ready(context));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.poll_ready(context));
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

impl Stream for Endless {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        ready!(self.poll_ready(context));
        Poll::Ready(Some(Ok(self.chunk.clone())))
    }
}

/// Moves chunks until `until_ns`, and logs them as those of stream `number`.
pub(crate) async fn run_client(
    (bench, log): (&Bench, &Log),
    client: Client,
    number: usize,
    until_ns: u64,
) {
    let Client { kind, chunk, pauses, seed } = client;
    let mut random = Random(seed);
    let (throttle, world) = (bench.throttle(), &bench.world);
    let endless = || Endless {
        chunk: vec![7; chunk].into(),
        pauses: pauses.0,
        random: Random(seed + 1),
        world: world.clone(),
        sleep: None,
    };
    let (mut reader, mut writer) = (throttle.reader(endless()), throttle.writer(endless()));
    let (mut body, mut stream) = (throttle.body(endless()), throttle.stream(endless()));
    let mut buffer = vec![0; chunk];
    while world.now_ns() < until_ns {
        // Of a chunk that is read or written in parts, the rest comes next.
        let mut left = chunk;
        while left > 0 {
            let moved = match kind {
                Kind::Reader => reader.read(&mut buffer[..left]).await.unwrap(),
                Kind::Writer => writer.write(&buffer[..left]).await.unwrap(),
                Kind::Body => body.frame().await.unwrap().unwrap().into_data().unwrap().len(),
                Kind::Stream => {
                    let next = poll_fn(|context| Pin::new(&mut stream).poll_next(context));
                    next.await.unwrap().unwrap().len()
                }
            };
            log.borrow_mut().push((world.now_ns(), number, moved as u64));
            left -= moved;
            if world.now_ns() >= until_ns {
                return;
            }
            if random.chance(pauses.1, 100) {
                world.sleep_for(Duration::from_micros(random.below(30_000))).await;
            }
        }
    }
}

/// Runs a future until it is ready, or until a time.
pub(crate) async fn until<T>(
    world: &World,
    until_ns: u64,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = Box::pin(future);
    let left = Duration::from_nanos(until_ns.saturating_sub(world.now_ns()));
    let mut end = Box::pin(world.sleep_for(left));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    })
    .await
}
