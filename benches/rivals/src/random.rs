//! Pseudo-random numbers that are the same in each run.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

/// A generator. An order must be the same in each round and for all limiters, not unpredictable.
pub struct Random(SmallRng);

/// How often each key is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spread {
    /// All keys alike.
    Uniform,
    /// The nth of the commonest keys as often as 1/n^0.99 says, as in YCSB.
    Zipf,
}

const ZIPF_EXPONENT: f64 = 0.99;
/// A prime above every number of keys: multiplied by it, neighbours in the order of frequency are no neighbours in memory.
const PRIME: u64 = 2_147_483_647;

impl Random {
    /// Makes the generator of one sequence; each thread uses a different one.
    pub fn new(stream: u64) -> Random {
        Random(SmallRng::seed_from_u64(stream))
    }

    /// Uniform from 0 to `count - 1`.
    pub fn below(&mut self, count: usize) -> u32 {
        self.0.random_range(0..count as u32)
    }

    /// Returns `calls` numbers below `count`.
    pub fn order(mut self, calls: usize, count: usize) -> Vec<u32> {
        (0..calls).map(|_| self.below(count)).collect()
    }

    /// Returns `calls` numbers below `count`, with this spread.
    pub fn order_with(mut self, spread: Spread, calls: usize, count: usize) -> Vec<u32> {
        match spread {
            Spread::Uniform => self.order(calls, count),
            Spread::Zipf => {
                let zipf = Zipf::new(count as f64, ZIPF_EXPONENT).expect("there are keys");
                let of_rank = |rank: f64| (rank as u64 * PRIME % count as u64) as u32;
                (0..calls).map(|_| of_rank(self.0.sample(zipf))).collect()
            }
        }
    }

    /// Returns all numbers below `count`, each once.
    pub fn shuffled(mut self, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count as u32).collect();
        all.shuffle(&mut self.0);
        all
    }
}
