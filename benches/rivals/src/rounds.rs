//! Keys, and rounds of calls in which the limiters take turns.

use std::sync::Barrier;
use std::time::Instant;

use crate::limiters::Contender;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    SpendString,
    SpendU64,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::SpendString => "spend string",
            Work::SpendU64 => "spend u64",
        }
    }
}

/// Keys such as `6:3141592653`, all in one buffer, and the order in which they are called.
pub struct Keys {
    text: String,
    /// The number of each call's key, drawn uniformly.
    order: Vec<u32>,
    count: usize,
}

/// The bytes of a key.
const KEY_LEN: usize = 12;

impl Keys {
    pub fn new(count: usize, calls: usize) -> Keys {
        let mut text = String::with_capacity(count * KEY_LEN);
        for i in 0..count {
            text.push_str(&format!("6:{:010}", 3_141_592_653 + i as u64));
        }
        // A xorshift generator: the order has to be the same in each round, not unpredictable.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let order = (0..calls).map(|_| (draw() % count as u64) as u32).collect();
        Keys { text, order, count }
    }

    pub fn text(&self, i: u32) -> &str {
        let at = i as usize * KEY_LEN;
        &self.text[at..at + KEY_LEN]
    }

    pub fn number(&self, i: u32) -> u64 {
        3_141_592_653 + u64::from(i)
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

/// The median time of a call for each contender, over interleaved rounds, after one that fills them.
pub fn median_ns<const N: usize>(
    contenders: &mut [Box<dyn Contender>; N],
    keys: &Keys,
    work: Work,
    threads: usize,
    rounds: usize,
) -> [f64; N] {
    for contender in contenders.iter() {
        let all: Vec<u32> = (0..keys.count() as u32).collect();
        assert_eq!(contender.spend_all(keys, work, &all), keys.count(), "new keys are admitted");
    }
    let mut times = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let at = (round + turn) % N;
            times[at].push(round_ns(&*contenders[at], keys, work, threads));
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

/// The time of a call in one round: wall time over the calls of all threads.
fn round_ns(contender: &dyn Contender, keys: &Keys, work: Work, threads: usize) -> f64 {
    let barrier = Barrier::new(threads + 1);
    let parts: Vec<&[u32]> = keys.order.chunks(keys.order.len().div_ceil(threads)).collect();
    let seconds = std::thread::scope(|scope| {
        let barrier = &barrier;
        let workers: Vec<_> = parts
            .iter()
            .map(|part| {
                scope.spawn(move || {
                    barrier.wait();
                    let started = Instant::now();
                    let admitted = contender.spend_all(keys, work, part);
                    assert_eq!(admitted, part.len(), "a limit this wide admits every call");
                    started.elapsed().as_secs_f64()
                })
            })
            .collect();
        barrier.wait();
        // The slowest thread's own time: a thread that starts late on a busy machine is not counted twice.
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(0.0, f64::max)
    });
    seconds * 1e9 / keys.order.len() as f64
}
