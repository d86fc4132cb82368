//! Counts the races that the loom models must reach. Outside of loom this compiles to nothing.

/// A race between threads that a model must reach at least once.
#[cfg_attr(
    not(tollgate_loom),
    allow(dead_code, reason = "loom's stand-in for a DashMap uses some")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Race {
    /// A swap failed because another call had changed the word.
    SwapLost,
    /// The eviction time floor moved a decision past the caller's clock.
    FloorUsed,
    /// An insert found its key when it held the lock, or in its slot.
    InsertLost,
    /// A place moved to the room of the tag that another call had set.
    PlaceMoved,
    /// Units of a charge were returned.
    Returned,
    /// Permits were given back.
    Released,
    /// A batch charged all its members on the fast path.
    KnownBatchCharged,
    /// A batch on the fast path was denied after it had charged a member.
    KnownBatchDenied,
    /// A cell moved after a batch on the fast path had charged another member.
    KnownBatchMoved,
    /// A seed found the target cell's word already set.
    SeededBefore,
    /// A look met a word that was being migrated.
    LookedAtMoved,
    /// A scan met a word that had not arrived in the successor yet.
    ScannedMoving,
    /// A scan met a key whose search goes on at the first slot of the segment.
    ScannedWrapped,
    /// A half-made insert was poisoned.
    Poisoned,
    /// A cell that was never charged was dropped, not migrated.
    UnchargedDropped,
    /// A sweep evicted a full cell.
    Evicted,
    /// A sweep evicted a full cell that was about to move to the successor.
    EvictedMoving,
    /// Another call had already begun the migration.
    StartLost,
    /// Another call had already migrated the same chunk.
    HelpedTwice,
    /// A migration was completed.
    Completed,
    /// A charge to the overflow bucket was undone.
    SharedRolledBack,
    /// A bucket that was full by its limit stayed because of a factor that it may have been charged with.
    KeptByFactor,
    /// A place was cancelled while another place was behind it.
    VacatedBeneath,
    /// A cancelled place went back once the charges behind it were undone.
    VacatedLater,
    /// Another call took a place that a batch had found for a member.
    PlaceTakenFirst,
    /// A call found a shard or a shelf with words under older limits.
    ShardRenewed,
    /// A word was converted to the units of another limit, in the table by a move to a later slot.
    Renumbered,
    /// A reload left nothing of a cell.
    NothingLeft,
    /// A thread took over a reader's record that another thread had left.
    RecordTakenOver,
    /// A call found that the limits had changed, and began again.
    Outdated,
    /// A change of a bin of blocks failed because another change came first.
    BlockSwapLost,
    /// Ended blocks were dropped.
    EndedBlocksDropped,
}

/// Counts that a race was reached.
#[cfg(not(all(test, tollgate_loom)))]
#[inline(always)]
pub(crate) fn hit(_: Race) {}

#[cfg(all(test, tollgate_loom))]
mod counted {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::Race;

    // A thread local: a test runs on one system thread, on which loom runs the model's threads in turns.
    thread_local! {
        static HITS: RefCell<HashMap<Race, u64>> = RefCell::default();
    }

    /// Counts that a race was reached.
    pub(crate) fn hit(race: Race) {
        HITS.with_borrow_mut(|hits| *hits.entry(race).or_default() += 1);
    }

    /// Returns how many times this test has reached a race.
    pub(crate) fn count(race: Race) -> u64 {
        HITS.with_borrow(|hits| hits.get(&race).copied().unwrap_or(0))
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use counted::{count, hit};
