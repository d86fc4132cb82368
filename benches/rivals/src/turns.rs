//! Measures two limiters in turns, with the same calls.

use std::time::Instant;

use tollgate::KeyedLimit;

use crate::keys::Keys;

/// The time of a call in each round, for each limiter.
#[derive(Default)]
pub struct Turns {
    ns: [Vec<f64>; 2],
}

impl Turns {
    /// Measures `rounds` more rounds of spends in this order for each limiter; the limiter that begins alternates.
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

    /// The median time of each limiter.
    pub fn medians(self) -> [f64; 2] {
        self.ns.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }
}

/// Measures the time of a call; every call must be allowed.
pub fn round_ns(handle: &KeyedLimit, keys: &Keys, order: &[u32]) -> f64 {
    let started = Instant::now();
    let is_allowed = |&&i: &&u32| handle.spend(keys.text(i), 1).is_ok_and(|d| d.allowed());
    let allowed = order.iter().filter(is_allowed).count();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(allowed, order.len(), "every call is allowed");
    seconds * 1e9 / order.len() as f64
}
