//! Where the state of one bucket lives: an atomic word, and the only compare-and-swap loop on it.

use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// A bucket's word. 0 is a bucket that was never charged; nobody writes 0.
///
/// In a table whose cells move, the word's top bit marks the cell as frozen, for good. Its word has
/// moved or is about to, or is 0: then the cell is dead, because it was full and was dropped, or
/// had no charge.
#[derive(Debug)]
pub(crate) struct Cell(AtomicU64);

/// The mark of a frozen cell.
const FROZEN: u64 = 1 << 63;

/// What a cell of a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Word {
    /// The word as it is.
    Live(u64),
    /// The word at the time of the freeze. 0: the cell is dead.
    Frozen(u64),
}

impl Word {
    #[inline(always)]
    fn of_bits(bits: u64) -> Word {
        if bits & FROZEN == 0 { Word::Live(bits) } else { Word::Frozen(bits & !FROZEN) }
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
        // Acquire: pairs with the Release below. A batch that takes its charge back reads the clock
        // in `step`, after it saw another's charge, and without the pair could get a time before
        // that charge's own: it would give back too much (model `roll_back_vs_spend`).
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
    /// Reads the word with its mark.
    #[inline(always)]
    pub(crate) fn word(&self) -> Word {
        // Acquire: pairs with `freeze` and `evict`: a thread that finds a cell frozen must find the
        // shard's new pointer, or the raised eviction time floor. Pairs with the first Release of
        // `update` as well: the limit tag was set before.
        Word::of_bits(self.0.load(relaxed_if(Fault::WordRelaxed, Ordering::Acquire)))
    }

    /// Like [`update`](Cell::update), unless the cell is frozen. Returns whether it was live.
    #[inline(always)]
    pub(crate) fn update_live(&self, mut step: impl FnMut(u64) -> Option<u64>) -> bool {
        let (_, is_live) = self.update(|bits| match Word::of_bits(bits) {
            Word::Live(word) => {
                let new = step(word);
                debug_assert!(new.is_none_or(|new| new & FROZEN == 0), "a word's top bit is clear");
                (new, true)
            }
            Word::Frozen(_) => (None, false),
        });
        is_live
    }

    /// Freezes the cell, so that its word can move. Returns the word, and whether this call froze
    /// it.
    pub(crate) fn freeze(&self) -> (u64, bool) {
        if let Word::Frozen(word) = self.word() {
            return (word, false);
        }
        // Release: pairs with `word`: a thread that finds the mark finds the shard's new pointer.
        // Acquire: pairs with the first Release of `update`: the limit tag beside the cell belongs
        // to the word.
        let bits = self.0.fetch_or(FROZEN, relaxed_if(Fault::FreezeRelaxed, Ordering::AcqRel));
        (bits & !FROZEN, bits & FROZEN == 0)
    }

    /// Marks the cell dead if its word is still `full`. Returns whether it was.
    pub(crate) fn evict(&self, full: u64) -> bool {
        if fault::active(Fault::EvictByStore) {
            self.0.store(FROZEN, Ordering::Release);
            return true;
        }
        // Release: pairs with `word`: a thread that finds the mark finds the eviction time floor
        // that the caller has raised.
        // Relaxed on failure: the word is not used.
        self.0.compare_exchange(full, FROZEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Marks a cell dead that is frozen with this word, once the word is elsewhere or nothing is
    /// left of it. Of all calls that try, one succeeds. Returns whether this one did.
    pub(crate) fn evict_moved(&self, moved: u64) -> bool {
        // Release: pairs with `word`: a thread that finds the cell dead finds the cell to which the
        // word has moved.
        // Relaxed on failure: the word is not used.
        let (was, order) = (FROZEN | moved, Ordering::Release);
        self.0.compare_exchange(was, FROZEN, order, Ordering::Relaxed).is_ok()
    }

    /// Gives a new cell the word that moves to it, unless the cell has one.
    pub(crate) fn seed(&self, word: u64) {
        debug_assert!(word != 0 && word & FROZEN == 0, "a word that moves: {word}");
        if fault::active(Fault::SeedByMax) {
            // Max ignores that the target may have been refunded since.
            let _ = self.0.fetch_max(word, Ordering::Release);
            return;
        }
        // Release: pairs with `word`: a thread that sees the word sees its limit tag.
        // Relaxed on failure: another thread has seeded the cell, and the word is not used.
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
