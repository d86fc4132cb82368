//! Where the state of one bucket lives: an atomic word, and the only compare-and-swap loop on it.

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
    /// returns what `step` said then, and the word that it was put to.
    ///
    /// The loop repeats only when another caller's step was stored in between: somebody always gets
    /// through, so it is lock-free, and each repeat is paid for by an admission, refund or reset.
    #[inline]
    pub(crate) fn update<T>(&self, mut step: impl FnMut(u64) -> (Option<u64>, T)) -> (u64, T) {
        let mut word = self.load();
        loop {
            let (new, said) = step(word);
            let Some(new) = new else {
                return (word, said);
            };
            debug_assert!(new != 0 && new >> 63 == 0, "a word is never 0 and leaves its top bit clear");
            // Relaxed, both: as in `load`. A spurious failure only repeats the step.
            match self.0.compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (word, said),
                Err(current) => word = current,
            }
        }
    }
}
