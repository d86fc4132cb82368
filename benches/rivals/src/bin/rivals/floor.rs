//! The floor: the least that a check of a key can be made of, in a bare loop.

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

/// As large as a cell of Tollgate's table: two of them share a cache line.
#[repr(align(32))]
struct Cell(AtomicU64);

const _: () = assert!(size_of::<Cell>() == 32);

/// The source of time that `tollgate::Clock::system` takes, by the same rule.
enum Clock {
    /// With the parts of a nanosecond in a tick, 2^64 to one.
    Counter {
        counter: quanta::Clock,
        origin: u64,
        tick_parts: u64,
    },
    Instant(Instant),
}

/// `late`: the clock is read with the cell in hand, not before it is looked at.
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

/// The cells of a table that holds so many keys and is at most three quarters full.
fn cells_for(keys: usize) -> usize {
    (keys * 4).div_ceil(3).next_power_of_two()
}

impl<const READS: bool, const NUMBERS: bool, const LATE: bool> Floor<READS, NUMBERS, LATE> {
    fn new(keys: usize) -> Self {
        // Written once each, so that no round meets a fresh page.
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

    /// Returns something of all that was read, so that none of it can be left out.
    #[inline(always)]
    fn touch(&self, [first, second]: [u64; 2]) -> u64 {
        let early_ns = if LATE { 0 } else { self.clock.now_ns() };
        let cell = &self.cells[first as usize & (self.cells.len() - 1)].0;
        // Relaxed, all of them: the word publishes nothing but itself.
        let mut word = cell.load(Ordering::Relaxed);
        let now_ns = if LATE { self.clock.now_ns() } else { early_ns };
        if READS {
            return word ^ now_ns ^ second;
        }
        let new = now_ns ^ second;
        // As in a limiter, a swap that another thread's made fail is made again. Bounded by the calls
        // of the other thread, each of which lets one through.
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
