//! Counters of the races that the loom models must reach. Outside of loom all of it compiles to nothing.

/// A place that a race has to reach.
#[cfg_attr(not(tollgate_loom), allow(dead_code, reason = "some are of what stands for a table"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Race {
    /// A swap that met another's word.
    SwapLost,
    /// A decision that the floor made later than the caller's clock.
    FloorUsed,
    /// An insert that found the key, once it held the lock.
    InsertLost,
    /// A charge taken back.
    RolledBack,
    /// A charge taken back from beneath another's.
    RolledBackBeneath,
    /// A carried word that met one that was there.
    SeededBefore,
    /// A look that met a word on its way.
    LookedAtMoved,
    /// A scan that met a word which had not arrived where it goes.
    ScannedMoving,
    /// An insert that was broken off.
    Poisoned,
    /// A cell that was never charged and was not carried.
    UnchargedDropped,
    /// A cell that was full and was dropped where it was.
    Evicted,
    /// A migration that another had begun.
    StartLost,
    /// A chunk that another had carried.
    HelpedTwice,
    /// A migration that was completed.
    Completed,
    /// A charge to the shared bucket that was taken back.
    SharedRolledBack,
    /// A bucket that was full by its limit, and was kept for the factor it may have been charged with.
    KeptByFactor,
    /// A place that was given up while another was behind it.
    VacatedBeneath,
    /// A place that was given back once those behind it were given up.
    VacatedLater,
    /// A place that was left to the thread that was about others.
    CancelLeftToAnother,
    /// A shard that a caller found with words under older limits.
    ShardRenewed,
    /// A word that went on in a later slot, in the units of other numbers.
    Renumbered,
    /// A word of which a reload left nothing.
    NothingLeft,
    /// A reader's record that another thread had left.
    RecordTakenOver,
    /// A call that found the limits changed while it went on, and began again.
    Outdated,
    /// A change of a bin of blocks that met another.
    BlockSwapLost,
    /// Blocks that were over and were dropped.
    EndedBlocksDropped,
}

#[cfg(not(all(test, tollgate_loom)))]
#[inline(always)]
pub(crate) fn hit(_: Race) {}

#[cfg(all(test, tollgate_loom))]
mod counted {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::Race;

    // One test is one thread of the system: loom runs its own threads on it in turns.
    thread_local! {
        static HITS: RefCell<HashMap<Race, u64>> = RefCell::default();
    }

    /// Counts that a race was reached.
    pub(crate) fn hit(race: Race) {
        HITS.with_borrow_mut(|hits| *hits.entry(race).or_default() += 1);
    }

    /// Returns how often this test has reached a race.
    pub(crate) fn count(race: Race) -> u64 {
        HITS.with_borrow(|hits| hits.get(&race).copied().unwrap_or(0))
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use counted::{count, hit};
