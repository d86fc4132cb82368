//! Streams that pause, that are not ready, and that are cancelled: the bound, and that nothing is lost.

use super::endless::{Client, KINDS, run_client, until};
use super::*;
use crate::random::Random;
use crate::support::full_size;
use crate::virtual_time::{Task, run};

fn any_client(random: &mut Random, pauses: (u64, u64)) -> Client {
    let kind = KINDS[random.below(4) as usize];
    let chunk = [1, 7, 100, 1024, 65_536][random.below(5) as usize];
    Client { kind, chunk, pauses, seed: random.below(1 << 40) }
}

/// Clients come, pause and are cancelled at random moments. Ten others take all that they leave.
#[test]
fn cancelled_streams_lose_nothing() {
    for seed in 0..full_size(20, 500) {
        let mut random = Random(seed);
        let rate = [20_000, 100_000, 1_000_000][random.below(3) as usize];
        let bench = Bench::new(rate / 25 * random.within(1, 3), rate);
        let (log, end_ns) = (Log::default(), 10_000_000_000);
        // All that the last of them leaves can be used until the end.
        let last_ns = end_ns * 9 / 10;
        let world = &bench.world;
        let mut tasks = Vec::new();
        for number in 0..10 {
            let client = Client { chunk: 1024, ..any_client(&mut random, (0, 0)) };
            let log = &log;
            let stays = run_client((&bench, log), client, number, end_ns);
            tasks.push(Task::new(until(world, end_ns, stays)));
        }
        for number in 10..60 {
            let pauses = (random.below(30), random.below(30));
            let client = any_client(&mut random, pauses);
            let (from_ns, to_ns) = (random.below(last_ns), random.below(last_ns));
            let bench = &bench;
            let log = &log;
            tasks.push(Task::new(async move {
                world.sleep_for(Duration::from_nanos(from_ns)).await;
                let runs = run_client((bench, log), client, number, end_ns);
                until(world, to_ns.max(from_ns), runs).await
            }));
        }
        run(world, tasks);
        assert_bound(&bench, &log);
        let sum: u64 = log.borrow().iter().map(|&(_, _, bytes)| bytes).sum();
        let wanted = bench.rate * 10;
        let lacks = wanted.saturating_sub(sum);
        assert!(lacks * 100 <= wanted, "seed {seed}: {sum} of {wanted}");
        // All places are returned: the bucket is full after the time of a burst.
        let burst_time = Duration::from_secs(1) * bench.burst as u32 / bench.rate as u32;
        let reset_in = bench.bytes.check("id", 0).unwrap().reset_in();
        assert!(reset_in <= burst_time, "seed {seed}: {reset_in:?}");
        world.advance(burst_time);
        assert_eq!(bench.left(), bench.burst, "seed {seed}");
    }
}

/// Streams that pause with places in hand, which they may not use later on top of a full bucket.
#[test]
fn idle_streams_never_break_bound() {
    for seed in 0..full_size(30, 3000) {
        let mut random = Random(seed);
        let rate = [1000, 100_000, 1_000_000][random.below(3) as usize];
        let bench = Bench::new(random.within(1, rate / 10), rate);
        let log = Log::default();
        let tasks = (0..random.within(1, 8)).map(|number| {
            let pauses = (random.below(60), random.below(60));
            let client = any_client(&mut random, pauses);
            Task::new(run_client((&bench, &log), client, number as usize, 500_000_000))
        });
        let tasks = tasks.collect();
        run(&bench.world, tasks);
        assert_bound(&bench, &log);
    }
}
