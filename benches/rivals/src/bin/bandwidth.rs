//! Measures what throttling adds to a read of a chunk, at a limit that never waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_speed_limit::Limiter as SpeedLimiter;
use clap::Parser;
use comfy_table::Table;
use governor::state::StreamRateLimitExt;
use governor::{Quota, RateLimiter};
use nix::time::{ClockId, clock_gettime};
use rivals::machine;
use tokio::io::{AsyncRead, ReadBuf};
use tollgate::io::Throttle;
use tollgate::{KeyedLimit, Limit};

/// Nanoseconds of the processor per chunk: the throttled readers of Tollgate and async-speed-limit, and governor's throttled
/// stream of chunks, which counts items and not bytes.
#[derive(Parser)]
struct Args {
    /// Rounds of each contender; the figure is their median.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Chunks a round.
    #[arg(long, default_value_t = 500_000)]
    chunks: usize,
}

const SIZES: [usize; 2] = [1024, 64 * 1024];

/// A reader and stream that costs nothing: it leaves the buffer as it is.
struct Free(usize);

impl AsyncRead for Free {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The buffer is initialised, so this writes nothing.
        buffer.initialize_unfilled();
        buffer.advance(buffer.remaining());
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

fn reads(mut reader: impl AsyncRead + Unpin, chunks: usize, size: usize) -> f64 {
    let mut buffer = vec![0; size];
    let mut context = Context::from_waker(Waker::noop());
    ns_per_chunk(chunks, size, |left| {
        let mut buffer = ReadBuf::new(&mut buffer[..left]);
        let polled = Pin::new(&mut reader).poll_read(&mut context, &mut buffer);
        assert!(matches!(polled, Poll::Ready(Ok(()))), "the limit never waits");
        buffer.filled().len()
    })
}

fn items(
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

fn main() {
    let args = Args::parse();
    println!("{}", machine::description());
    let second = Duration::from_secs(1);
    // 1 GB/s, the largest rate in bytes, and a burst that no run uses up.
    let limit = Limit::new(1 << 52, 1_000_000_000, second).expect("a limit");
    let bytes = KeyedLimit::new("Bytes", limit).expect("a name");
    let throttle = Throttle::new(bytes, "alice", tokio::time::sleep).expect("gcra");
    let speed = <SpeedLimiter>::new(1e15);
    let quota = Quota::per_second(u32::MAX.try_into().expect("not 0"));
    let items_limit = RateLimiter::direct(quota);
    let names = ["nothing", "tollgate", "async-speed-limit", "governor, items"];
    let mut table = Table::new();
    table.set_header(
        ["reader"]
            .into_iter()
            .map(String::from)
            .chain(SIZES.map(|size| format!("ns a chunk of {} KiB", size / 1024))),
    );
    let mut rows = names.map(|name| vec![name.to_owned()]);
    for size in SIZES {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..args.rounds {
            times[0].push(reads(Free(size), args.chunks, size));
            times[1].push(reads(throttle.reader(Free(size)), args.chunks, size));
            times[2].push(reads(speed.clone().limit(Free(size)), args.chunks, size));
            times[3].push(items(Free(size).ratelimit_stream(&items_limit), args.chunks, size));
        }
        for (row, mut times) in rows.iter_mut().zip(times) {
            times.sort_by(f64::total_cmp);
            row.push(format!("{:.1}", times[times.len() / 2]));
        }
    }
    table.add_rows(rows);
    println!("{table}");
}
