//! Ends of files, empty reads, errors, blocks, reloads, and what passes through.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tollgate::io::{
    ThrottleError, ThrottledBody, ThrottledReader, ThrottledStream, ThrottledWriter,
};
use tollgate::{IdFormat, Limits};

use super::endless::{Client, KINDS, Kind, run_client};
use super::threads::Woken;
use super::*;
use crate::virtual_time::{Task, run};

/// Runs one future to its end, on the manual clock.
fn finish<T>(world: &World, future: impl Future<Output = T>) -> T {
    run(world, vec![Task::new(future)]).pop().unwrap().3
}

/// A reader and writer that counts its calls, and fails.
#[derive(Debug, Default)]
struct Failing {
    calls: Vec<&'static str>,
}

impl Failing {
    fn fail<T>(&mut self, call: &'static str) -> Poll<io::Result<T>> {
        self.calls.push(call);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, call)))
    }
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.fail("read")
    }
}

impl AsyncWrite for Failing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fail("write")
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fail("flush")
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fail("shutdown")
    }
}

#[test]
fn whole_files_arrive_with_their_ends() {
    let bench = Bench::new(100, 1000);
    let file: Vec<u8> = (0..1050_u32).map(|at| at as u8).collect();
    let (read, written) = finish(&bench.world, async {
        let mut read = Vec::new();
        bench.throttle().reader(&file[..]).read_to_end(&mut read).await.unwrap();
        let mut writer = bench.throttle().writer(Vec::new());
        writer.write_all(&file).await.unwrap();
        writer.flush().await.unwrap();
        writer.shutdown().await.unwrap();
        (read, writer.into_inner())
    });
    assert!(read == file && written == file);
    // 2,000 bytes came after the burst, the last 50 of them in a place for 100.
    assert_eq!(bench.world.now_ns(), 2_050_000_000);
    bench.world.advance(Duration::from_millis(100));
    assert_eq!(bench.left(), 100);
}

/// The bytes that came after the first slice waited for a whole slice, though the bucket had units for them.
#[test]
fn a_burst_passes_to_its_last_byte() {
    for burst in [600, 1000, 1023, 10_000] {
        let data = Bytes::from(vec![1; burst]);
        let of_kind = |kind| {
            let bench = Bench::new(burst as u64, 10);
            finish(&bench.world, async {
                match kind {
                    Kind::Reader => {
                        let mut read = vec![0; burst];
                        bench.throttle().reader(&data[..]).read_exact(&mut read).await.map(drop)
                    }
                    Kind::Writer => bench.throttle().writer(Vec::new()).write_all(&data).await,
                    Kind::Body => {
                        let frames = Items(vec![Frame::data(data.clone())]);
                        let body = bench.throttle().body(StreamBody::new(frames));
                        assert_eq!(body.collect().await.unwrap().to_bytes(), data);
                        Ok(())
                    }
                    Kind::Stream => {
                        let mut stream = bench.throttle().stream(Results(vec![Ok(data.clone())]));
                        while let Some(part) = next(&mut stream).await {
                            assert!(!part.unwrap().is_empty());
                        }
                        Ok(())
                    }
                }
                .unwrap();
            });
            bench.world.now_ns()
        };
        assert_eq!(KINDS.map(of_kind), [0; 4], "{burst} bytes");
    }
}

/// They waited for a place of 512 bytes.
#[test]
fn last_bytes_wait_for_themselves_alone() {
    for (rate, more) in [(100, 1), (100, 40), (1_000, 300), (10_000, 500)] {
        let bench = Bench::new(1024, rate);
        let data = Bytes::from(vec![1; 1024 + more as usize]);
        finish(&bench.world, async {
            let body = bench.throttle().body(http_body_util::Full::new(data.clone()));
            assert_eq!(body.collect().await.unwrap().to_bytes(), data);
        });
        assert_eq!(bench.world.now_ns(), more * 1_000_000_000 / rate, "{more} at {rate}");
    }
}

#[test]
fn empty_reads_and_writes_cost_nothing() {
    let bench = Bench::new(10, 10);
    assert!(bench.bytes.spend("id", 10).unwrap().allowed());
    finish(&bench.world, async {
        assert_eq!(bench.throttle().reader(&b"abc"[..]).read(&mut []).await.unwrap(), 0);
        assert_eq!(bench.throttle().writer(Vec::new()).write(&[]).await.unwrap(), 0);
        let empty = Frame::data(Bytes::new());
        let mut body = bench.throttle().body(StreamBody::new(Items(vec![empty])));
        assert!(body.frame().await.unwrap().unwrap().into_data().unwrap().is_empty());
        assert!(body.frame().await.is_none());
    });
    assert_eq!(bench.world.now_ns(), 0);
}

#[test]
fn errors_of_inner_streams_are_passed_on() {
    let bench = Bench::new(10, 10);
    finish(&bench.world, async {
        let mut reader = bench.throttle().reader(Failing::default());
        let error = reader.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::BrokenPipe, "read".into()));
        // A write through a reader passes.
        assert_eq!(reader.write(b"x").await.unwrap_err().to_string(), "write");
        let mut writer = bench.throttle().writer(Failing::default());
        assert_eq!(writer.write(b"abc").await.unwrap_err().to_string(), "write");
        assert_eq!(writer.flush().await.unwrap_err().to_string(), "flush");
        assert_eq!(writer.shutdown().await.unwrap_err().to_string(), "shutdown");
        assert_eq!(writer.read(&mut [0; 4]).await.unwrap_err().to_string(), "read");
        assert_eq!(writer.into_inner().calls, ["write", "flush", "shutdown", "read"]);
        let failing = Results(vec![Err(io::Error::other("broken"))]);
        let mut stream = bench.throttle().stream(failing);
        let error = next(&mut stream).await.unwrap().unwrap_err();
        assert!(matches!(&error, ThrottleError::Inner(inner) if inner.to_string() == "broken"));
        assert_eq!(error.to_string(), "broken");
        assert!(next(&mut stream).await.is_none());
    });
    assert_eq!(bench.left(), 10, "nothing has moved");
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// The items of a stream, the last one first.
struct Results(Vec<io::Result<Bytes>>);

impl Stream for Results {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop())
    }
}

/// The frames of a body, the last one first.
struct Items(Vec<Frame<Bytes>>);

impl Stream for Items {
    type Item = io::Result<Frame<Bytes>>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

#[test]
fn frames_are_split_and_trailers_pass() {
    let bench = Bench::new(10, 10);
    let mut trailers = axum::http::HeaderMap::new();
    trailers.insert("sum", "25".parse().unwrap());
    let frames = vec![Frame::trailers(trailers), Frame::data(Bytes::from(vec![1; 25]))];
    finish(&bench.world, async {
        let mut body = bench.throttle().body(StreamBody::new(Items(frames)));
        let mut sizes = Vec::new();
        loop {
            match body.frame().await.unwrap().unwrap().into_data() {
                Ok(data) => sizes.push((data.len(), bench.world.now_ns() / 1_000_000)),
                Err(frame) => break assert!(frame.is_trailers()),
            }
        }
        assert_eq!(sizes, [(10, 0), (10, 1000), (5, 2000)]);
        assert!(body.frame().await.is_none());
    });
    let held = bench.throttle().body(http_body_util::Full::from("answer"));
    assert_eq!(held.size_hint().exact(), Some(6));
    assert!(!held.is_end_stream());
}

#[test]
fn blocked_ids_get_an_error() {
    let bench = Bench::new(10, 10);
    bench.bytes.block("id", Duration::from_secs(60)).unwrap();
    finish(&bench.world, async {
        let mut reader = bench.throttle().reader(&b"abc"[..]);
        let error = reader.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "blocked: the block of the id ends in 60s");
        assert_eq!(
            bench.throttle().writer(Vec::new()).write(b"abc").await.unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        let mut stream = bench.throttle().stream(Results(vec![Ok("abc".into())]));
        let error = next(&mut stream).await.unwrap().unwrap_err();
        assert!(matches!(&error, ThrottleError::Limit(limit) if limit.is_blocked()));
        assert!(error.to_string().starts_with("the limit on bytes: blocked"), "{error}");
        bench.bytes.unblock("id").unwrap();
        // Nothing is lost by the error.
        assert_eq!(next(&mut stream).await.unwrap().unwrap(), "abc");
        assert_eq!(reader.read(&mut [0; 4]).await.unwrap(), 3);
    });
}

#[test]
fn other_algorithms_are_refused_at_construction() {
    let second = Duration::from_secs(1);
    for limit in support::limits_of_all(10, second).into_iter().skip(1) {
        let bytes = KeyedLimit::new("Bytes", limit).unwrap();
        let error = Throttle::new(bytes, "id", tokio::time::sleep).unwrap_err();
        assert!(error.is_without_places(), "{error}");
        assert!(error.to_string().contains("only gcra has"), "{error}");
    }
    let limit = Limit::new(10, 10, second).unwrap();
    let numbered = Limits::builder().limit("Bytes", IdFormat::Integer, limit).unwrap().build();
    let bytes = Limiter::new(numbered).limit("Bytes").unwrap();
    assert!(Throttle::new(bytes, "no number", tokio::time::sleep).is_err());
}

/// Moves bytes for a second after each reload.
#[test]
fn reloads_change_rate_and_lift_limit() {
    for kind in KINDS {
        let bench = Bench::new(100, 1000);
        let log = Log::default();
        let moved = |seconds: u64| {
            log.borrow_mut().clear();
            let client = Client { kind, chunk: 10, pauses: (0, 0), seed: 1 };
            let until_ns = bench.world.now_ns() + seconds * 1_000_000_000;
            run(&bench.world, vec![Task::new(run_client((&bench, &log), client, 0, until_ns))]);
            log.borrow().iter().map(|&(_, _, bytes)| bytes).sum::<u64>()
        };
        let first = moved(1);
        assert!(first.abs_diff(1100) <= 100, "{kind:?}: {first}");
        let limit = Limit::new(100, 5000, Duration::from_secs(1)).unwrap();
        bench.limiter.reload(support::limits(&[("Bytes", limit)])).unwrap();
        let later = moved(1);
        assert!(later.abs_diff(5000) <= 200, "{kind:?}: {later}");
    }
    // A lifted limit costs no time at all.
    let bench = Bench::new(10, 10);
    let limit = Limit::new(10, 10, Duration::from_secs(1)).unwrap();
    let builder = Limits::builder().limit("Bytes", IdFormat::String, limit).unwrap();
    let lifted = builder.override_id("Bytes", "id", None).unwrap().build();
    let mut reader = bench.throttle().reader(tokio::io::repeat(7).take(100_000));
    bench.limiter.reload(lifted).unwrap();
    finish(&bench.world, async {
        assert_eq!(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.unwrap(), 100_000);
    });
    assert_eq!(bench.world.now_ns(), 0);
}

/// A place that was not used for long is not used on top of the bucket that has filled since.
#[test]
fn forgotten_places_are_taken_anew() {
    let bench = Bench::new(1000, 1000);
    let mut readers: Vec<_> =
        (0..20).map(|_| bench.throttle().reader(tokio::io::repeat(7))).collect();
    let mut buffer = [0; 1000];
    let mut poll = |reader: &mut ThrottledReader<tokio::io::Repeat, World>| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut buffer = ReadBuf::new(&mut buffer);
        let polled = Pin::new(reader).poll_read(&mut context, &mut buffer);
        assert!(polled.is_pending() == buffer.filled().is_empty());
        buffer.filled().len() as u64
    };
    let first: u64 = readers.iter_mut().map(&mut poll).sum();
    assert_eq!(first, 512, "one slice");
    bench.world.advance(Duration::from_secs(3600));
    let later: u64 = readers.iter_mut().map(&mut poll).sum();
    assert!(later <= 1000, "{later}");
    drop(readers);
    bench.world.advance(Duration::from_secs(1));
    assert_eq!(bench.left(), 1000);
}

/// A stream that waits is woken when a place before its own is left, and moves there.
#[test]
fn last_stream_takes_place_left() {
    let bench = Bench::new(512, 1024);
    let mut readers: Vec<_> =
        (0..4).map(|_| Box::pin(bench.throttle().reader(tokio::io::repeat(7)))).collect();
    let flags: Vec<_> = (0..4).map(|_| Arc::new(Woken::default())).collect();
    let poll = |reader: &mut Pin<Box<ThrottledReader<tokio::io::Repeat, World>>>, at: usize| {
        let waker = flags[at].clone().into();
        let mut buffer = [0; 512];
        let mut buffer = ReadBuf::new(&mut buffer);
        let polled = reader.as_mut().poll_read(&mut Context::from_waker(&waker), &mut buffer);
        assert!(polled.is_pending() == buffer.filled().is_empty());
        buffer.filled().len()
    };
    // The first one has the burst; the places of the others are granted after 0.5 s, 1 s and 1.5 s.
    let mut moved: Vec<_> =
        readers.iter_mut().enumerate().map(|(at, reader)| poll(reader, at)).collect();
    assert_eq!(moved, [512, 0, 0, 0]);
    drop(readers.remove(1));
    let woken = || flags.iter().map(|flag| flag.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    assert_eq!(woken(), [false, false, false, true]);
    assert_eq!(poll(&mut readers[2], 3), 0);
    // No place is vacant any more, so no other stream is woken.
    assert_eq!(woken(), [false, false, false, true]);
    bench.world.advance(Duration::from_millis(500));
    moved = readers.iter_mut().enumerate().map(|(at, reader)| poll(reader, at)).collect();
    assert_eq!(moved, [0, 0, 512], "the last one, at the time of the second one");
    bench.world.advance(Duration::from_millis(500));
    assert_eq!(poll(&mut readers[1], 2), 512);
}

/// A stream that has ended, and still exists, has left the places that it did not use.
#[test]
fn ended_streams_leave_their_places() {
    let bench = Bench::new(8000, 1_000_000);
    // A slice has 4,000 bytes; each stream moves ten of them.
    let mut moved = 0;
    let mut has_moved = |kind: Kind| {
        moved += 10;
        assert_eq!(bench.left(), 8000 - moved, "{kind:?}");
    };
    finish(&bench.world, async {
        let mut reader = bench.throttle().reader(&b"ten bytes!"[..]);
        assert_eq!(reader.read(&mut [0; 100]).await.unwrap(), 10);
        assert_eq!(bench.left(), 4000);
        assert_eq!(reader.read(&mut [0; 100]).await.unwrap(), 0);
        has_moved(Kind::Reader);
        let mut writer = bench.throttle().writer(Vec::new());
        writer.write_all(b"ten bytes!").await.unwrap();
        assert_eq!(bench.left(), 3990);
        writer.shutdown().await.unwrap();
        has_moved(Kind::Writer);
        let frames = Items(vec![Frame::data(Bytes::from("ten bytes!"))]);
        let mut body = bench.throttle().body(StreamBody::new(frames));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ten bytes!");
        assert_eq!(bench.left(), 3980);
        assert!(body.frame().await.is_none());
        has_moved(Kind::Body);
        let mut stream = bench.throttle().stream(Results(vec![Ok(Bytes::from("ten bytes!"))]));
        assert_eq!(next(&mut stream).await.unwrap().unwrap(), "ten bytes!");
        assert_eq!(bench.left(), 3970);
        assert!(next(&mut stream).await.is_none());
        has_moved(Kind::Stream);
    });
}

/// A stream that has failed, or is not ready, leaves its places.
#[test]
fn failed_streams_leave_their_places() {
    let bench = Bench::new(8000, 1_000_000);
    finish(&bench.world, async {
        let mut reader = bench.throttle().reader(Failing::default());
        assert!(reader.read(&mut [0; 4]).await.is_err());
        assert_eq!(bench.left(), 8000, "a reader");
        let mut writer = bench.throttle().writer(Failing::default());
        assert!(writer.write(b"abc").await.is_err());
        assert_eq!(bench.left(), 8000, "a writer");
        let mut stream = bench
            .throttle()
            .stream(Results(vec![Err(io::Error::other("broken")), Ok(Bytes::from("ten bytes!"))]));
        assert_eq!(next(&mut stream).await.unwrap().unwrap(), "ten bytes!");
        assert!(next(&mut stream).await.unwrap().is_err());
        assert_eq!(bench.left(), 7990, "a stream");
        let (mut one, other) = tokio::io::duplex(1);
        let mut other = bench.throttle().writer(bench.throttle().reader(other));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut buffer = [0; 4];
        let mut buffer = ReadBuf::new(&mut buffer);
        assert!(Pin::new(&mut other).poll_read(&mut context, &mut buffer).is_pending());
        assert_eq!(bench.left(), 7990, "a reader without bytes");
        assert_eq!(other.write(b"a").await.unwrap(), 1);
        assert!(Pin::new(&mut other).poll_write(&mut context, b"b").is_pending());
        assert_eq!(bench.left(), 7989, "a writer without room");
        assert_eq!(one.read(&mut [0; 4]).await.unwrap(), 1);
    });
}

#[test]
fn hints_count_what_is_held() {
    let bench = Bench::new(4, 1000);
    finish(&bench.world, async {
        let mut body = bench.throttle().body(http_body_util::Full::from("answer"));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(6), false));
        body.frame().await.unwrap().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
        body.frame().await.unwrap().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    });
}

/// A stream that another task polls now is woken there.
#[test]
fn task_of_last_poll_is_woken() {
    let bench = Bench::new(512, 1024);
    assert!(bench.bytes.spend("id", 512).unwrap().allowed());
    let mut readers = [(); 2].map(|()| Box::pin(bench.throttle().reader(tokio::io::repeat(7))));
    let flags: [Arc<Woken>; 3] = Default::default();
    for (reader, flag) in [(0, 0), (1, 1), (1, 2)] {
        let waker = flags[flag].clone().into();
        let mut buffer = [0; 512];
        let mut buffer = ReadBuf::new(&mut buffer);
        let context = &mut Context::from_waker(&waker);
        assert!(readers[reader].as_mut().poll_read(context, &mut buffer).is_pending());
    }
    let [first, _second] = readers;
    drop(first);
    assert_eq!(flags.map(|flag| flag.0.load(Ordering::Relaxed)), [false, false, true]);
}

#[test]
fn streams_are_send_if_their_parts_are() {
    fn is_send<T: Send>(_: fn(T)) {}
    type Tokio = fn(Duration) -> tokio::time::Sleep;
    is_send(|_: ThrottledReader<tokio::net::TcpStream, Tokio>| {});
    is_send(|_: ThrottledWriter<tokio::net::TcpStream, Tokio>| {});
    is_send(|_: ThrottledBody<http_body_util::Full<Bytes>, Tokio>| {});
    is_send(|_: ThrottledStream<Results, Tokio>| {});
    let _ = Kind::Reader;
}
