//! Counts the cells that a call moves besides its own, for this crate's tests. Elsewhere it compiles to nothing.

#[cfg(all(test, feature = "boulder", not(tollgate_loom)))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static CELLS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a slot that this thread has moved to another segment, or a word that it has moved within a segment.
    pub(crate) fn count_cell() {
        CELLS.set(CELLS.get() + 1);
    }

    /// Returns the cells that this thread has counted since the last call.
    pub(crate) fn take_cells() -> u64 {
        CELLS.take()
    }
}
#[cfg(all(test, feature = "boulder", not(tollgate_loom)))]
pub(crate) use counted::{count_cell, take_cells};

#[cfg(not(all(test, feature = "boulder", not(tollgate_loom))))]
#[inline(always)]
pub(crate) fn count_cell() {}
