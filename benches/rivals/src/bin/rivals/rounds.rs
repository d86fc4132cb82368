//! Runs rounds of calls in which the contenders take turns.

use std::collections::BTreeMap;
use std::sync::Barrier;

use rivals::random::Random;
use rivals::work::{Contender, Contenders, Setup, Who};

/// The times of a call in nanoseconds: the median of each contender.
pub(crate) type Medians = BTreeMap<Who, f64>;

/// Makes every key known by one call, which every limiter must allow.
pub(crate) fn fill(contenders: &[Contender], setup: Setup) {
    let all: Vec<u32> = (0..setup.keys as u32).collect();
    for contender in contenders {
        let allowed = contender.call(&all).allowed;
        // The floor allows none if calls are to be denied.
        assert!(allowed == all.len() || contender.who == Who::Floor, "new keys are allowed");
    }
}

/// Measures calls of known keys, in this order.
pub(crate) fn of_known(
    contenders: &[Contender],
    setup: Setup,
    order: &[u32],
    threads: usize,
    rounds: usize,
) -> Medians {
    let mut times = Times::default();
    for round in 0..rounds {
        for contender in turns(contenders, round) {
            times.add(contender.who, round_ns(contender, setup, order, threads));
        }
    }
    times.medians()
}

/// Measures the first calls of all keys: each round has new limiters.
pub(crate) fn of_new(contenders: &Contenders, setup: Setup, rounds: usize) -> Medians {
    let order = Random::new(0).shuffled(setup.keys);
    let mut times = Times::default();
    for round in 0..rounds {
        for contender in turns(&contenders(), round).filter(|one| one.who != Who::Floor) {
            times.add(contender.who, round_ns(contender, setup, &order, 1));
        }
    }
    times.medians()
}

/// Returns all contenders. The one that begins changes from round to round.
fn turns(contenders: &[Contender], round: usize) -> impl Iterator<Item = &Contender> {
    let first = round % contenders.len();
    contenders[first..].iter().chain(&contenders[..first])
}

/// Measures the time of a call in one round: the time of the slowest thread over the calls of all threads.
fn round_ns(contender: &Contender, setup: Setup, order: &[u32], threads: usize) -> f64 {
    let barrier = &Barrier::new(threads);
    let start = |part: &'_ [u32]| {
        barrier.wait();
        // Each thread measures itself, so that a late start on a busy machine does not count.
        let round = contender.call(part);
        let is_bare = setup.work.is_layer() && contender.who == Who::Floor;
        let allowed = if setup.is_allowed() || is_bare { part.len() } else { 0 };
        let who = contender.who;
        assert_eq!(round.allowed, allowed, "{who:?} answers every call as it has to");
        round.time
    };
    let slowest = std::thread::scope(|scope| {
        let parts = order.chunks(order.len().div_ceil(threads));
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || start(part))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).max()
    });
    slowest.unwrap_or_default().as_secs_f64() * 1e9 / order.len() as f64
}

#[derive(Default)]
struct Times(BTreeMap<Who, Vec<f64>>);

impl Times {
    fn add(&mut self, who: Who, ns: f64) {
        self.0.entry(who).or_default().push(ns);
    }

    fn medians(self) -> Medians {
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        self.0.into_iter().map(|(who, times)| (who, median(times))).collect()
    }
}
