//! Where the state of one bucket lives: an atomic word, and the only compare-and-swap loop on it.

use crate::probe::{Fault, Place, broken, reached};
use crate::sync::{AtomicU64, Ordering};

/// A bucket's word. 0 is a bucket that was never charged; nobody writes 0.
#[derive(Debug)]
pub(crate) struct Cell(AtomicU64);

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
    #[inline]
    pub(crate) fn update<T>(&self, mut step: impl FnMut(u64) -> (Option<u64>, T)) -> (u64, T) {
        // Acquire: pairs with the Release below. A batch that takes its charge back reads the clock in
        // `step`, after it saw another's charge, and without the pair could get a time before that
        // charge's own: it would give back too much (model `take_back_vs_spend`).
        let mut word = self.0.load(relaxed_in_twin(Ordering::Acquire));
        loop {
            let (new, said) = step(word);
            let Some(new) = new else {
                return (word, said);
            };
            debug_assert!(
                new != 0 && new >> 63 == 0,
                "a word is never 0 and leaves its top bit clear"
            );
            if broken(Fault::StoreForSwap) {
                self.0.store(new, Ordering::Relaxed);
                return (word, said);
            }
            // Release: publishes the reading of the clock that `step` made, for the pair above.
            // Acquire on failure: as above. A spurious failure only repeats the step.
            let (stored, lost) =
                (relaxed_in_twin(Ordering::Release), relaxed_in_twin(Ordering::Acquire));
            match self.0.compare_exchange_weak(word, new, stored, lost) {
                Ok(_) => return (word, said),
                Err(current) => {
                    reached(Place::SwapLost);
                    word = current;
                }
            }
        }
    }
}

/// `order`, or Relaxed in the twin that lacks it.
#[inline(always)]
fn relaxed_in_twin(order: Ordering) -> Ordering {
    if broken(Fault::TakeBackRelaxed) { Ordering::Relaxed } else { order }
}
