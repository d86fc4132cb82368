//! Measures two limiters in turns, with the same calls.

use std::time::Instant;

use tollgate::KeyedLimit;

use crate::keys::Keys;

/// The mean time of a call in each round, in nanoseconds, for each limiter.
#[derive(Default)]
pub struct Turns {
    ns: [Vec<f64>; 2],
}

impl Turns {
    /// Measures `rounds` more rounds for each limiter. A round spends 1 for the key of each index in `order`. The
    /// limiter that begins alternates from round to round.
    pub fn measure(
        &mut self,
        handles: &[KeyedLimit; 2],
        keys: &Keys,
        order: &[u32],
        rounds: usize,
    ) {
        for round in 0..rounds {
            for turn in 0..handles.len() {
                let at = (round + turn) % handles.len();
                self.ns[at].push(round_ns(&handles[at], keys, order));
            }
        }
    }

    /// Returns the median of each limiter's times, in nanoseconds. With an even number of rounds, it is the upper of
    /// the two middle times.
    pub fn medians(self) -> [f64; 2] {
        self.ns.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }
}

/// Spends 1 for the key of each index in `order`, and returns the mean time of a call in nanoseconds.
///
/// # Panics
///
/// If a call fails or is denied.
pub fn round_ns(handle: &KeyedLimit, keys: &Keys, order: &[u32]) -> f64 {
    let started = Instant::now();
    let is_allowed = |&&i: &&u32| handle.spend(keys.text(i), 1).is_ok_and(|d| d.allowed());
    let allowed = order.iter().filter(is_allowed).count();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(allowed, order.len(), "calls were denied or failed");
    seconds * 1e9 / order.len() as f64
}
