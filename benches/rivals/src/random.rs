//! Pseudo-random numbers that are the same in each run.

/// A xorshift generator. An order must be the same in each round and for all limiters, not unpredictable.
pub struct Random(u64);

impl Random {
    /// Makes the generator of one sequence; each thread uses a different one.
    pub fn new(stream: u64) -> Random {
        // An odd number times the golden ratio's bits is never 0, the state that never changes.
        Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * stream + 1))
    }

    /// Uniform from 0 to `count - 1`.
    pub fn below(&mut self, count: usize) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as u32
    }

    /// Returns `calls` numbers below `count`.
    pub fn order(mut self, calls: usize, count: usize) -> Vec<u32> {
        (0..calls).map(|_| self.below(count)).collect()
    }
}
