//! Runs rounds of calls in which the contenders take turns.

use std::sync::Barrier;
use std::time::Instant;

use rivals::keys::Keys;

use crate::contenders::Contender;
use crate::work::Answer;

/// The calls of a round, the same for every contender.
pub(crate) struct Rounds<'a> {
    pub(crate) keys: &'a Keys,
    /// The number of each call's key.
    pub(crate) order: &'a [u32],
    /// The expected answer of every call.
    pub(crate) wanted: Answer,
    /// The number of rounds.
    pub(crate) count: usize,
}

impl Rounds<'_> {
    /// Makes every key known by one call, which every limiter must allow.
    pub(crate) fn fill(&self, contenders: &[Box<dyn Contender>]) {
        let all: Vec<u32> = self.keys.all().collect();
        for contender in contenders {
            let allowed = contender.call_all(self.keys, &all, Answer::Allowed);
            assert_eq!(allowed, all.len(), "new keys are allowed");
        }
    }

    /// Measures the median time of a call for each contender.
    pub(crate) fn median_ns<const N: usize>(
        &self,
        contenders: &[Box<dyn Contender>; N],
        threads: usize,
    ) -> [f64; N] {
        let mut times = [const { Vec::new() }; N];
        for round in 0..self.count {
            for turn in 0..N {
                let at = (round + turn) % N;
                times[at].push(self.round_ns(&*contenders[at], threads));
            }
        }
        times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }

    /// Measures the time of a call in one round: wall time over the calls of all threads.
    fn round_ns(&self, contender: &dyn Contender, threads: usize) -> f64 {
        let barrier = &Barrier::new(threads + 1);
        let part_len = self.order.len().div_ceil(threads);
        let seconds = std::thread::scope(|scope| {
            let start = |part: &'_ [u32]| {
                barrier.wait();
                let started = Instant::now();
                let right = contender.call_all(self.keys, part, self.wanted);
                let seconds = started.elapsed().as_secs_f64();
                assert_eq!(right, part.len(), "every call is answered as it has to be");
                seconds
            };
            let parts = self.order.chunks(part_len);
            let workers: Vec<_> = parts.map(|part| scope.spawn(move || start(part))).collect();
            barrier.wait();
            // The slowest thread. Each measures itself, so that a late start on a busy machine does not count.
            workers.into_iter().map(|worker| worker.join().unwrap()).fold(0.0, f64::max)
        });
        seconds * 1e9 / self.order.len() as f64
    }
}
