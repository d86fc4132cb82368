//! The rate of one stream and of many, and their shares.

use super::endless::{Client, KINDS, Kind, run_client};
use super::*;
use crate::virtual_time::{Task, run};

const SECONDS: u64 = 10;

/// Runs `count` clients of a kind for ten seconds, and returns the bytes of each.
fn bytes_of_clients(bench: &Bench, count: usize, kind: Kind, chunk: usize) -> Vec<u64> {
    let log = Log::default();
    let until_ns = SECONDS * 1_000_000_000;
    let tasks = (0..count).map(|number| {
        let client = Client { kind, chunk, pauses: (0, 0), seed: number as u64 };
        Task::new(run_client((bench, &log), client, number, until_ns))
    });
    run(&bench.world, tasks.collect());
    assert_bound(bench, &log);
    let mut bytes = vec![0; count];
    for &(at_ns, number, moved) in log.borrow().iter().filter(|(at_ns, ..)| *at_ns <= until_ns) {
        assert!(moved > 0, "at {at_ns}");
        bytes[number] += moved;
    }
    bytes
}

/// A small chunk is tried at a lower rate: each byte of it is a poll.
fn bench_for(chunk: usize) -> Bench {
    let rate = if chunk < 1000 { 100_000 } else { 1_000_000 };
    Bench::new(rate / 25, rate)
}

fn assert_rate(kind: Kind) {
    for chunk in [1, 7, 1024, 64 * 1024, 1024 * 1024] {
        for count in [1, 100] {
            let bench = bench_for(chunk);
            if count > 1 {
                // Else the first stream takes the whole burst.
                assert!(bench.bytes.spend("id", bench.burst).unwrap().allowed());
            }
            let bytes = bytes_of_clients(&bench, count, kind, chunk);
            let (sum, wanted) = (bytes.iter().sum::<u64>(), bench.rate * SECONDS);
            let at = format!("{kind:?}, {count} of {chunk} bytes: {sum} of {wanted}");
            assert!(sum.abs_diff(wanted) * 100 <= wanted, "{at}");
            let mean = sum / count as u64;
            let is_fair = |&of: &u64| of.abs_diff(mean) * 10 <= mean;
            assert!(bytes.iter().all(is_fair), "{at}: {bytes:?}");
        }
    }
}

#[test]
fn readers_keep_rate_and_share() {
    assert_rate(Kind::Reader);
}

#[test]
fn writers_keep_rate_and_share() {
    assert_rate(Kind::Writer);
}

#[test]
fn bodies_keep_rate_and_share() {
    assert_rate(Kind::Body);
}

#[test]
fn streams_keep_rate_and_share() {
    assert_rate(Kind::Stream);
}

/// A slice is at most a megabyte here, less than 4 ms of the rate.
#[test]
fn fast_limits_keep_rate_and_share() {
    for (kind, chunk) in [(Kind::Reader, 256 * 1024), (Kind::Stream, 64 * 1024)] {
        for count in [1, 100] {
            let bench = Bench::new(4_000_000, 500_000_000);
            assert!(bench.bytes.spend("id", bench.burst).unwrap().allowed());
            let bytes = bytes_of_clients(&bench, count, kind, chunk);
            let (sum, wanted) = (bytes.iter().sum::<u64>(), bench.rate * SECONDS);
            assert!(sum.abs_diff(wanted) * 100 <= wanted, "{kind:?}, {count}: {sum} of {wanted}");
            let mean = sum / count as u64;
            assert!(bytes.iter().all(|of| of.abs_diff(mean) * 10 <= mean), "{kind:?}: {bytes:?}");
        }
    }
}

/// Streams of all kinds and of all chunks beside each other.
#[test]
fn different_streams_have_equal_shares() {
    let bench = Bench::new(40_000, 1_000_000);
    let (log, until_ns) = (Log::default(), SECONDS * 1_000_000_000);
    assert!(bench.bytes.spend("id", bench.burst).unwrap().allowed());
    let tasks = (0..100).map(|number| {
        let (kind, chunk) = (KINDS[number % 4], [7, 1024, 65_536, 1 << 20][number / 4 % 4]);
        let client = Client { kind, chunk, pauses: (0, 0), seed: number as u64 };
        Task::new(run_client((&bench, &log), client, number, until_ns))
    });
    run(&bench.world, tasks.collect());
    assert_bound(&bench, &log);
    let mut bytes = vec![0; 100];
    log.borrow().iter().for_each(|&(_, number, moved)| bytes[number] += moved);
    let mean = bytes.iter().sum::<u64>() / 100;
    assert!(bytes.iter().all(|of| of.abs_diff(mean) * 10 <= mean), "{bytes:?}");
}
