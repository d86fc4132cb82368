//! Numbers that are the same in each run.

/// A xorshift generator: an order has to be the same in each round and for all, not unpredictable.
pub struct Random(u64);

impl Random {
    /// The `stream`-th sequence; each thread takes one of its own.
    pub fn new(stream: u64) -> Random {
        // An odd number times the golden ratio's bits is never the state 0, at which it would stay.
        Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * stream + 1))
    }

    /// Uniform from 0 to `count - 1`.
    pub fn below(&mut self, count: usize) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as u32
    }

    /// So many of them.
    pub fn order(mut self, calls: usize, count: usize) -> Vec<u32> {
        (0..calls).map(|_| self.below(count)).collect()
    }
}
