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

/// Streams beside each other, and what the cancelled ones do.
struct Cancels {
    /// The burst, in milliseconds of the rate. A slice is 4 of them.
    burst_ms: u64,
    stay: u64,
    go: u64,
    /// Whether the cancelled ones are there from the start, and are all cancelled at one time.
    at_once: bool,
    max_life_ns: u64,
}

/// Streams that never pause are cancelled, at random moments or many at once. What they leave, others move, to the last byte.
#[test]
fn cancels_alone_lose_no_byte() {
    let second = 1_000_000_000;
    let cases = [
        (40, 10, 200, false, second / 20),
        (40, 10, 200, false, 5 * second),
        (4, 10, 200, false, second),
        (8, 50, 50, true, second),
        (40, 10, 190, true, second),
        (40, 1, 99, true, second),
    ];
    let end_ns = 10 * second;
    for (case, (burst_ms, stay, go, at_once, max_life_ns)) in cases.into_iter().enumerate() {
        let cancels = Cancels { burst_ms, stay, go, at_once, max_life_ns };
        for seed in 0..full_size(1, 60) {
            let mut random = Random(seed);
            let rate = 200_000;
            let bench = Bench::new(rate * cancels.burst_ms / 1000, rate);
            let (log, world) = (Log::default(), &bench.world);
            let together_ns = random.within(second, 9 * second);
            let tasks = (0..cancels.stay + cancels.go).map(|number| {
                let chunk = [1, 7, 1024, 65_536, 1 << 20][random.below(5) as usize];
                let client = Client { chunk, ..any_client(&mut random, (0, 0)) };
                let stays = number % ((cancels.stay + cancels.go) / cancels.stay) == 0;
                let from_ns = if stays || cancels.at_once { 0 } else { random.below(end_ns) };
                let life_ns = match (stays, cancels.at_once) {
                    (true, _) => end_ns,
                    (false, true) => together_ns,
                    (false, false) => random.below(cancels.max_life_ns),
                };
                let (bench, log) = (&bench, &log);
                Task::new(async move {
                    world.sleep_for(Duration::from_nanos(from_ns)).await;
                    let runs = run_client((bench, log), client, number as usize, end_ns + 1);
                    until(world, (from_ns + life_ns).min(end_ns), runs).await
                })
            });
            let tasks = tasks.collect();
            run(world, tasks);
            assert_bound(&bench, &log);
            let moved: u64 = log.borrow().iter().map(|&(_, _, bytes)| bytes).sum();
            assert_eq!(world.now_ns(), end_ns);
            let all = bench.burst + 10 * rate;
            assert_eq!(moved + bench.left(), all, "case {case}, seed {seed}: {moved} have moved");
        }
    }
}

/// Clients come, pause and are cancelled at random moments. Ten others take what they leave, but for what lapses in pauses.
#[test]
fn pauses_and_cancels_lose_little() {
    for seed in 0..full_size(20, 500) {
        let mut random = Random(seed);
        let rate = [20_000, 100_000, 1_000_000][random.below(3) as usize];
        let bench = Bench::new(rate / 25 * random.within(1, 3), rate);
        let (log, end_ns) = (Log::default(), 10_000_000_000);
        // What the last of them leaves can be used until the end.
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
        let wanted = bench.burst + bench.rate * 10;
        let lacks = wanted - sum - bench.left();
        // 1.01 % in the worst of 500 seeds: a stream that pauses does not use the time of the place that it has begun.
        assert!(lacks * 1000 <= wanted * 15, "seed {seed}: {sum} of {wanted}");
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
