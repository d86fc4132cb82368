//! The floor: the least work that a spend consists of.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Hashes a key twice, reads the clock, and swaps the word of one random cell, or only reads it.
pub(crate) struct Floor {
    cells: Vec<Cell>,
    hashers: [ahash::RandomState; 2],
    clock: Clock,
}

/// A cell as large as one of Tollgate's table: two of them share a cache line.
#[repr(align(32))]
struct Cell(AtomicU64);

const _: () = assert!(size_of::<Cell>() == 32);

/// The clock that `tollgate::Clock::system` chooses, by the same rule.
enum Clock {
    /// With the length of a tick in 2^-64 ns.
    Counter {
        counter: quanta::Clock,
        origin: u64,
        tick_parts: u64,
    },
    Instant(Instant),
}

/// The number of cells of a table for `keys` keys that is at most three quarters full.
fn cells_for(keys: usize) -> usize {
    (keys * 4).div_ceil(3).next_power_of_two()
}

impl Floor {
    pub(crate) fn new(keys: usize) -> Floor {
        // Each cell is written once, so that no round touches a fresh page.
        let cells = (0..cells_for(keys)).map(|_| Cell(AtomicU64::new(1))).collect();
        let hashers = [ahash::RandomState::new(), ahash::RandomState::new()];
        Floor { cells, hashers, clock: Clock::system() }
    }

    /// Returns a value that depends on all reads, so that the compiler keeps them. With `READS` no word is written, with
    /// `LATE` the clock is read after the word.
    #[inline(always)]
    pub(crate) fn touch<const READS: bool, const LATE: bool>(&self, key: &impl Hash) -> u64 {
        let [first, second] = self.hashers.each_ref().map(|hasher| hasher.hash_one(key));
        let early_ns = if LATE { 0 } else { self.clock.now_ns() };
        let cell = &self.cells[first as usize & (self.cells.len() - 1)].0;
        // Relaxed, like the rest: the word publishes nothing but itself.
        let mut word = cell.load(Ordering::Relaxed);
        let now_ns = if LATE { self.clock.now_ns() } else { early_ns };
        if READS {
            return word ^ now_ns ^ second;
        }
        let new = now_ns ^ second;
        // Like a limiter, a failed swap is repeated. Bounded by the calls of the other thread, one of which succeeds
        // each time.
        while let Err(changed) =
            cell.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed)
        {
            word = changed;
        }
        new
    }
}

impl Clock {
    fn system() -> Clock {
        if cfg!(target_arch = "x86_64") && crate::machine::clock_source() == "tsc" {
            let counter = quanta::Clock::new();
            let origin = counter.raw();
            let tick_parts = counter.delta_as_nanos(0, 1 << 63).checked_mul(2);
            let tick_parts = tick_parts.expect("more than a tick a nanosecond");
            return Clock::Counter { counter, origin, tick_parts };
        }
        Clock::Instant(Instant::now())
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        match self {
            Clock::Counter { counter, origin, tick_parts } => {
                let ticks = counter.raw().saturating_sub(*origin);
                ((u128::from(ticks) * u128::from(*tick_parts)) >> 64) as u64
            }
            Clock::Instant(origin) => origin.elapsed().as_nanos() as u64,
        }
    }
}
