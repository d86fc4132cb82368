//! Where the state of one bucket lives: an atomic word, and the only compare-and-swap loop on it.

use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// A bucket's word. 0 is a bucket that was never charged; nobody writes 0.
///
/// In a table whose cells move, the word's top bit says that this cell is gone, for good: what it held
/// then has moved on, or was full and was dropped, which leaves 0.
#[derive(Debug)]
pub(crate) struct Cell(AtomicU64);

/// The mark of a cell that is gone.
const GONE: u64 = 1 << 63;

/// What a cell of a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Word {
    /// The word as it is.
    Live(u64),
    /// The word as it was when the cell went. 0: nothing is left of it.
    Gone(u64),
}

impl Word {
    #[inline(always)]
    fn of_bits(bits: u64) -> Word {
        if bits & GONE == 0 { Word::Live(bits) } else { Word::Gone(bits & !GONE) }
    }
}

impl Cell {
    /// A bucket that was never charged.
    pub(crate) fn new() -> Cell {
        Cell(AtomicU64::new(0))
    }

    /// The word as it is now.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        // Relaxed: the word publishes nothing but itself. One location has one modification order,
        // and whoever decides on a stale word writes by a compare-and-swap that fails.
        self.0.load(Ordering::Relaxed)
    }

    /// Puts to `step` the word, until the word that `step` asks for is stored or it asks for none;
    /// returns the word that it was put to last, and what it said then.
    ///
    /// The loop repeats only when another caller's step was stored in between: somebody always gets
    /// through, so it is lock-free, and each repeat is paid for by an admission, refund or reset.
    #[inline(always)]
    pub(crate) fn update<T>(&self, mut step: impl FnMut(u64) -> (Option<u64>, T)) -> (u64, T) {
        // Acquire: pairs with the Release below. A batch that takes its charge back reads the clock in
        // `step`, after it saw another's charge, and without the pair could get a time before that
        // charge's own: it would give back too much (model `roll_back_vs_spend`).
        let mut word = self.0.load(relaxed_if(Fault::RollBackRelaxed, Ordering::Acquire));
        loop {
            let (new, said) = step(word);
            let Some(new) = new else {
                return (word, said);
            };
            debug_assert!(new != 0, "a word is never 0");
            if fault::active(Fault::StoreForSwap) {
                self.0.store(new, Ordering::Relaxed);
                return (word, said);
            }
            // Release: publishes the reading of the clock that `step` made, for the pair above.
            // Acquire on failure: as above. A spurious failure only repeats the step.
            let (stored, lost) = (
                relaxed_if(Fault::RollBackRelaxed, Ordering::Release),
                relaxed_if(Fault::RollBackRelaxed, Ordering::Acquire),
            );
            match self.0.compare_exchange_weak(word, new, stored, lost) {
                Ok(_) => return (word, said),
                Err(current) => {
                    coverage::hit(Race::SwapLost);
                    word = current;
                }
            }
        }
    }
}

/// What only a table whose cells move asks.
impl Cell {
    /// The word, or that it is gone.
    #[inline(always)]
    pub(crate) fn word(&self) -> Word {
        // Acquire: pairs with `freeze` and `bury`: who meets a cell that is gone must find what was done
        // before: the shard's new pointer, or the raised floor. With the first Release of `update`: what
        // was written beside the cell before its first word.
        Word::of_bits(self.0.load(relaxed_if(Fault::WordRelaxed, Ordering::Acquire)))
    }

    /// As [`update`](Cell::update), unless the cell is gone; returns whether it was there.
    #[inline(always)]
    pub(crate) fn update_live(&self, mut step: impl FnMut(u64) -> Option<u64>) -> bool {
        let (_, is_live) = self.update(|bits| match Word::of_bits(bits) {
            Word::Live(word) => {
                let new = step(word);
                debug_assert!(new.is_none_or(|new| new & GONE == 0), "a word's top bit is clear");
                (new, true)
            }
            Word::Gone(_) => (None, false),
        });
        is_live
    }

    /// Makes the cell go, to carry its word elsewhere; returns the word, and whether this call did it.
    pub(crate) fn freeze(&self) -> (u64, bool) {
        if let Word::Gone(word) = self.word() {
            return (word, false);
        }
        // Release: pairs with `word`: who meets the mark finds the shard's new pointer. Acquire: pairs
        // with the first Release of `update`: the numbers beside the cell belong to the word.
        let bits = self.0.fetch_or(GONE, relaxed_if(Fault::FreezeRelaxed, Ordering::AcqRel));
        (bits & !GONE, bits & GONE == 0)
    }

    /// Makes the cell go, with nothing left, if its word is still `full`; returns whether it was.
    pub(crate) fn bury(&self, full: u64) -> bool {
        if fault::active(Fault::BuryByStore) {
            self.0.store(GONE, Ordering::Release);
            return true;
        }
        // Release: pairs with `word`: who meets the mark finds the floor that the caller has raised.
        // Relaxed on failure: the word is not used.
        self.0.compare_exchange(full, GONE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Ends a cell that is gone with this word, once the word is elsewhere or nothing is left of it. Returns
    /// whether this call did it: of all that try one does.
    pub(crate) fn bury_moved(&self, moved: u64) -> bool {
        // Release: pairs with `word`: who finds nothing left here finds the cell that the word went on in.
        // Relaxed on failure: the word is not used.
        let (was, order) = (GONE | moved, Ordering::Release);
        self.0.compare_exchange(was, GONE, order, Ordering::Relaxed).is_ok()
    }

    /// Gives a new cell the word that was carried to it, unless it has one.
    pub(crate) fn seed(&self, word: u64) {
        debug_assert!(word != 0 && word & GONE == 0, "a word that was carried: {word}");
        if fault::active(Fault::SeedByMax) {
            // Max ignores that the target may have been refunded since.
            let _ = self.0.fetch_max(word, Ordering::Release);
            return;
        }
        // Release: pairs with `word`: who sees the word sees the numbers that were carried along.
        // Relaxed on failure: another has seeded it, and the word is not used.
        let seeded = self.0.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
        if seeded.is_err() {
            coverage::hit(Race::SeededBefore);
        }
    }
}

/// `order`, or Relaxed in the twin that lacks it.
#[inline(always)]
fn relaxed_if(fault: Fault, order: Ordering) -> Ordering {
    if fault::active(fault) { Ordering::Relaxed } else { order }
}
