//! Holds the state of one bucket: an atomic word, and every compare-and-swap on it. `Cell::update` is the loop that most
//! calls use; the fast path of a spend has a separate loop around `live_word` and `swap_live`.

use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// A bucket's word. The word 0 is a bucket that was never charged; no rule writes 0.
///
/// The top bit marks a frozen cell, in the lock-free table and of a bucket that untracked keys share. A frozen cell
/// stays frozen: its word moves to another cell, or the cell is dead.
#[derive(Debug)]
pub(crate) struct Cell(AtomicU64);

/// The mark of a frozen cell.
const FROZEN: u64 = 1 << 63;

/// The word of a cell, and whether the cell is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Word {
    /// The current word.
    Live(u64),
    /// The word at the time of the freeze. 0: the cell is dead, nothing is left of it.
    Frozen(u64),
}

impl Word {
    #[inline(always)]
    fn from_bits(bits: u64) -> Word {
        if bits & FROZEN == 0 { Word::Live(bits) } else { Word::Frozen(bits & !FROZEN) }
    }
}

impl Cell {
    /// Makes the cell of a bucket that was never charged.
    pub(crate) fn new() -> Cell {
        Cell(AtomicU64::new(0))
    }

    /// Returns the current word of a cell that is not frozen.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        // Relaxed: the word publishes nothing but itself. One location has one modification order, and a call that
        // decides on a stale word writes by a compare-and-swap that fails.
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `step` with the word, and stores the word that it returns by a swap, again until a swap succeeds or
    /// `step` returns no word. Returns the word of the last call and the second value that `step` returned for it.
    ///
    /// The loop repeats only if another call's swap came in between. So it is lock-free: some call always succeeds,
    /// and each repeat is due to another call's admission, refund or reset.
    #[inline(always)]
    pub(crate) fn update<T>(&self, mut step: impl FnMut(u64) -> (Option<u64>, T)) -> (u64, T) {
        // Acquire: pairs with the Release below. A call that reads another call's charge then reads a clock that
        // is a number in memory no earlier than that call did.
        let mut word = self.0.load(relaxed_if(Fault::UpdateRelaxed, Ordering::Acquire));
        loop {
            let (new, result) = step(word);
            let Some(new) = new else {
                return (word, result);
            };
            match self.swap(word, new) {
                Ok(()) => return (word, result),
                Err(current) => word = current,
            }
        }
    }

    /// Stores `new` if the cell's bits are still `word`; else returns the bits. It may fail without a reason.
    #[inline(always)]
    fn swap(&self, word: u64, new: u64) -> Result<(), u64> {
        debug_assert!(new != 0, "a word is never 0");
        if fault::active(Fault::StoreForSwap) {
            self.0.store(new, Ordering::Relaxed);
            return Ok(());
        }
        // Release: publishes what the caller has recorded before its charge, such as its factor, for a sweep that reads the word
        // (model `spend_with_factor_vs_sweep`), and its reading of the clock, for the pair in `update`.
        // Acquire on failure: as there.
        let (stored, lost) = (
            relaxed_if(Fault::UpdateRelaxed, Ordering::Release),
            relaxed_if(Fault::UpdateRelaxed, Ordering::Acquire),
        );
        self.0.compare_exchange_weak(word, new, stored, lost).map(|_| ()).inspect_err(|_| {
            coverage::hit(Race::SwapLost);
        })
    }
}

/// Operations on cells that can freeze.
impl Cell {
    /// Returns the word, live or frozen.
    #[inline(always)]
    pub(crate) fn word(&self) -> Word {
        // Acquire: pairs with `freeze` and `evict`: a call that meets a frozen cell must see what happened before the
        // freeze: the shard's new pointer, or the raised eviction time floor. Pairs with the first Release of `update`
        // as well: the caller sees what was written beside the cell before its first word.
        Word::from_bits(self.0.load(relaxed_if(Fault::WordRelaxed, Ordering::Acquire)))
    }

    /// Returns the word of a cell that is live, as the fast path's loop begins with it: see [`update`](Cell::update).
    #[inline(always)]
    pub(crate) fn live_word(&self) -> Option<u64> {
        // Relaxed: the search for the slot has acquired the tag beside the word. The caller computes the new word from
        // this one alone, and a return reads the word itself, by `update`.
        let bits = self.0.load(Ordering::Relaxed);
        (bits & FROZEN == 0).then_some(bits)
    }

    /// Stores `new` if the cell is live and its word is still `word`. Returns whether it did; it may fail without a reason.
    #[inline(always)]
    pub(crate) fn swap_live(&self, word: u64, new: u64) -> bool {
        debug_assert!(new & FROZEN == 0, "a word's top bit is clear");
        self.swap(word, new).is_ok()
    }

    /// Like [`update`](Cell::update), but leaves a frozen cell alone. Returns whether the cell was live.
    #[inline(always)]
    pub(crate) fn update_live(&self, mut step: impl FnMut(u64) -> Option<u64>) -> bool {
        let (_, is_live) = self.update(|bits| match Word::from_bits(bits) {
            Word::Live(word) => {
                let new = step(word);
                debug_assert!(new.is_none_or(|new| new & FROZEN == 0), "a word's top bit is clear");
                (new, true)
            }
            Word::Frozen(_) => (None, false),
        });
        is_live
    }

    /// Freezes the cell, so that its word can move. Returns the word, and whether this call froze the cell.
    pub(crate) fn freeze(&self) -> (u64, bool) {
        if let Word::Frozen(word) = self.word() {
            return (word, false);
        }
        // Release: pairs with `word`: a call that meets the mark finds the shard's new pointer. Acquire: pairs with the
        // first Release of `update`: the limit tag beside the cell belongs to the word.
        let bits = self.0.fetch_or(FROZEN, relaxed_if(Fault::TagUnpublished, Ordering::AcqRel));
        (bits & !FROZEN, bits & FROZEN == 0)
    }

    /// Makes the cell dead if its word is still `full`. Returns whether it was.
    pub(crate) fn evict(&self, full: u64) -> bool {
        if fault::active(Fault::EvictByStore) {
            self.0.store(FROZEN, Ordering::Release);
            return true;
        }
        // Release: pairs with `word`: a call that meets the mark finds the eviction time floor that the caller has
        // raised. Relaxed on failure: the word is not used.
        self.0.compare_exchange(full, FROZEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Makes a cell dead that is frozen with the word `moved`, once that word is in another cell or nothing is left of
    /// it. Returns whether this call did it: exactly one call does.
    pub(crate) fn end_moved(&self, moved: u64) -> bool {
        // Release: pairs with `word`: a call that finds the cell dead finds the cell that the word moved to. Relaxed on
        // failure: the word is not used.
        let (was, order) = (FROZEN | moved, Ordering::Release);
        self.0.compare_exchange(was, FROZEN, order, Ordering::Relaxed).is_ok()
    }

    /// Stores a migrated word in a new cell, unless the cell has a word.
    pub(crate) fn seed(&self, word: u64) {
        debug_assert!(word != 0 && word & FROZEN == 0, "a migrated word: {word}");
        if fault::active(Fault::SeedByMax) {
            // A maximum ignores that the target may have been refunded since.
            let _ = self.0.fetch_max(word, Ordering::Release);
            return;
        }
        // Release: pairs with `word`: a call that sees the word sees the limit tag that was written before it. Relaxed
        // on failure: another call has seeded the cell, and the word is not used.
        let seeded = self.0.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
        if seeded.is_err() {
            coverage::hit(Race::SeededBefore);
        }
    }
}

/// Returns `order`, or Relaxed in the twin that plants `fault`.
#[inline(always)]
fn relaxed_if(fault: Fault, order: Ordering) -> Ordering {
    if fault::active(fault) { Ordering::Relaxed } else { order }
}
