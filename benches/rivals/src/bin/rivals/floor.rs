//! The floor: the least work that a spend consists of, in a bare loop.

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rivals::keys::Keys;

use crate::contenders::Contender;
use crate::work::{Answer, Work};

/// Hashes the key twice, reads the clock, and swaps the word of one random cell, or only reads it.
struct Floor<const READS: bool, const NUMBERS: bool, const LATE: bool> {
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

/// Makes the floor. With `late` it reads the clock after the cell's word, not before.
pub(crate) fn floor(work: Work, keys: usize, late: bool) -> Box<dyn Contender> {
    if late { floor_with_clock::<true>(work, keys) } else { floor_with_clock::<false>(work, keys) }
}

fn floor_with_clock<const LATE: bool>(work: Work, keys: usize) -> Box<dyn Contender> {
    match work {
        Work::SpendString | Work::Many16String => Box::new(Floor::<false, false, LATE>::new(keys)),
        Work::SpendU64 => Box::new(Floor::<false, true, LATE>::new(keys)),
        Work::DeniedString => Box::new(Floor::<true, false, LATE>::new(keys)),
    }
}

/// The number of cells of a table for `keys` keys that is at most three quarters full.
fn cells_for(keys: usize) -> usize {
    (keys * 4).div_ceil(3).next_power_of_two()
}

impl<const READS: bool, const NUMBERS: bool, const LATE: bool> Floor<READS, NUMBERS, LATE> {
    fn new(keys: usize) -> Self {
        // Each cell is written once, so that no round touches a fresh page.
        let cells = (0..cells_for(keys)).map(|_| Cell(AtomicU64::new(1))).collect();
        let hashers = [ahash::RandomState::new(), ahash::RandomState::new()];
        Floor { cells, hashers, clock: Clock::system() }
    }

    #[inline(always)]
    fn hashes(&self, keys: &Keys, i: u32) -> [u64; 2] {
        self.hashers.each_ref().map(|state| {
            let mut hasher = state.build_hasher();
            if NUMBERS {
                hasher.write_u64(keys.number(i));
            } else {
                hasher.write(keys.text(i).as_bytes());
            }
            hasher.finish()
        })
    }

    /// Returns a value that depends on all reads, so that the compiler keeps them.
    #[inline(always)]
    fn touch(&self, [first, second]: [u64; 2]) -> u64 {
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

impl<const READS: bool, const NUMBERS: bool, const LATE: bool> Contender
    for Floor<READS, NUMBERS, LATE>
{
    fn call_all(&self, keys: &Keys, order: &[u32], _: Answer) -> usize {
        let all = order.iter().fold(0, |all, &i| all ^ self.touch(self.hashes(keys, i)));
        black_box(all);
        order.len()
    }
}

impl Clock {
    fn system() -> Clock {
        const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let trusted = std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc");
        if cfg!(target_arch = "x86_64") && trusted {
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
