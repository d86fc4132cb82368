//! Where the cells are: the seam between limits and memory.

mod exact;
mod shelf;

pub(crate) use exact::Exact;

use crate::cell::Cell;
use crate::key::{Key, KeyRef};

/// Keeps a cell for each key. It knows keys and words, and no limits: what is full it is told.
///
/// A full cell may go at any time, by [`sweep`](Store::sweep) alone, and carries nothing. What comes
/// back in its place starts at the word 0, and a decision on the word 0 is made no earlier than the
/// store's floor: the latest time at which anything was swept. So a caller with an older clock cannot
/// spend again what was spent before the sweep.
pub(crate) trait Store {
    /// Shows `visit` the cell of `key`, if there is one. While it looks, the cell stays.
    fn find<R>(&self, key: KeyRef<'_>, visit: impl FnOnce(&Cell) -> R) -> Option<R>;

    /// Shows `visit` the cell of `key`, a new one if there is none. While it looks, the cell stays.
    fn find_or_insert<R>(&self, key: KeyRef<'_>, visit: impl Fn(&Cell) -> R) -> R;

    /// The latest time at which anything was swept, as far as it matters for a cell that the caller
    /// has in hand, or has just not found.
    fn floor_ns(&self) -> u64;

    /// Looks at the next cells, about `cells` of them, and drops those whose word `is_full` at
    /// `now_ns`. Goes on where the last call ended.
    fn sweep(&self, cells: usize, now_ns: u64, is_full: impl Fn(KeyRef<'_>, u64) -> bool) -> Swept;

    /// How many cells there are, and the bytes of memory they take.
    fn size(&self) -> Size;

    /// Calls `visit` with every key. No cell may be visited from within.
    fn for_each_key(&self, visit: impl FnMut(&Key));
}

/// What one bounded step of a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Cells that were looked at.
    pub looked_at: usize,
    /// Cells that were full and were dropped.
    pub dropped: usize,
    /// Whether the step reached the end of the table: the next one starts over.
    pub finished: bool,
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
}
