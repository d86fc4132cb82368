//! What the loom models switch and count in the real code. Outside of them all of it is nothing.
//!
//! A model is worth what it reaches: each counts the races it names, and has a twin, the same code with
//! one rule broken, that must fail.

/// A rule that a twin breaks.
#[cfg_attr(not(tollgate_loom), allow(dead_code, reason = "some are of what stands for a table"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A word is stored, not swapped.
    StoreForSwap,
    /// A decision on a fresh cell is made at the caller's time, however old.
    NoFloor,
    /// A sweep decides before it holds the lock.
    SweepBeforeLock,
    /// An insert does not look again once it holds the lock.
    InsertBlindly,
    /// A batch charges its members in the order in which they were given.
    CallersOrder,
    /// A denied batch leaves its charges.
    NoTakeBack,
    /// A denied batch gives its charges back as a refund would.
    RefundForTakeBack,
    /// Taking back pairs with nothing: the word is read and swapped without ordering.
    TakeBackRelaxed,
    /// A word is looked at without ordering.
    WordRelaxed,
    /// A cell goes without ordering.
    FreezeRelaxed,
    /// A shard's pointer is read without ordering.
    ViewRelaxed,
    /// A segment is published without ordering.
    PublishRelaxed,
    /// A migration is completed without ordering.
    CompleteRelaxed,
    /// The frontier is read and moved without ordering.
    FrontierRelaxed,
    /// A cell is buried by a store.
    BuryByStore,
    /// A carried word is put in if it is larger than what is there.
    SeedByMax,
    /// Fresh keys may take the room of those that are carried.
    NoRoomForMoved,
    /// A claim is granted though the number of claims is being used.
    ClaimSealed,
    /// The number of claims is used though it may rise.
    NoSeal,
    /// A successor is sized as if few cells were there.
    SizedByFew,
    /// A key that is not found in the old segment may still be inserted there.
    AbsentWithoutClosing,
    /// A half insert in the old segment is left alone.
    NoPoison,
    /// An insert that finds its key there keeps its claim.
    ClaimLeaked,
    /// A note is stored, whatever another has noted meanwhile.
    NoteByStore,
    /// Everyone who meets a dropped cell gives its place back.
    EveryoneReleases,
    /// A migration is completed with the first chunk.
    CompleteEarly,
    /// A place is reserved by a load and a store.
    CapUnreserved,
    /// The high half of a slot is stored, not swapped.
    TakeByStore,
    /// A word in the old segment is taken for what is, though the migration may be over.
    OldWordUnchecked,
    /// A carried word passes the buried cell of its key, and gets another.
    SeedPassesBuried,
    /// A migration begins before the last one is over.
    StartWhileMoving,
    /// A reader goes into a call without a fence.
    ReaderUnfenced,
    /// Who frees looks for readers without a fence.
    NoBarrier,
    /// A reader goes into its next call without saying that it has done with the last.
    EnterRelaxed,
    /// A reader's record is taken over without ordering.
    RecordRelaxed,
    /// Readers are looked for before it is settled for which of what was unlinked.
    LooksTooEarly,
    /// A retired thing is pushed by a store.
    PushByStore,
    /// A segment is retired before it is unlinked.
    RetireLinked,
    /// A newcomer's own bucket starts without the shared one's debt.
    ForgetShared,
    /// A newcomer does not look for its own bucket after it has charged the shared one.
    NoSecondLook,
    /// The two looks of the shared bucket are not fenced.
    NoFence,
    /// A bucket is taken for full a millisecond before its algorithm says so.
    FullEarly,
    /// Whether a bucket is full is asked of the default's numbers, not of its override's.
    FullByDefault,
    /// A factor is noted after the charge that it was used for.
    FactorNotedLate,
    /// A factor is not noted.
    FactorNotNoted,
    /// New limits are published without ordering.
    PublishedRelaxed,
    /// A cell that was gone is carried without a look for a later one of its key.
    CarriedUnlooked,
    /// A sweep drops a slot that a word is on its way to.
    BuryAwaited,
    /// A cell whose word is on its way is ended though the word has not come anywhere.
    EndUnlooked,
    /// A word goes on in another slot than the key's next.
    NextNotFirst,
    /// A reload leaves shards alone that have no segment yet.
    RenewSkipsEmpty,
    /// A sweep does not ask which limits a word is of.
    SweepByOldLimits,
    /// A place is given up as by a refund, whoever is behind it.
    RefundForCancel,
    /// Of two places that are given up at once, neither sees the other's.
    VacateUnlocked,
    /// A thread that has given places up does not look whether another has come meanwhile.
    CancelsNotLookedForAgain,
    /// What was estimated too much is given back as by a refund.
    RefundForSettle,
    /// What is taken back from beneath others is not counted.
    LoweringNotCounted,
    /// A refund or a reset is not counted.
    RefundNotCounted,
    /// A call with new limits charges a cell that still has a word under the old ones.
    ChargeBeforeRenewal,
    /// A scan leaves out words that have moved on.
    ScanSkipsMoved,
    /// A shadow is asked what it would say, and charged afterwards.
    ShadowByCheck,
    /// A bin of blocks is stored, not swapped.
    BlockByStore,
    /// A bin of blocks is published without ordering.
    BlockRelaxed,
    /// A block is no longer counted, and listed still.
    BlockDiscountedEarly,
    /// Of two blocks the later one stays.
    LaterBlockStays,
}

/// A place that a race has to reach.
#[cfg_attr(not(tollgate_loom), allow(dead_code, reason = "some are of what stands for a table"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A swap that met another's word.
    SwapLost,
    /// A decision that the floor made later than the caller's clock.
    FloorUsed,
    /// An insert that found the key, once it held the lock.
    InsertLost,
    /// A charge taken back.
    TakenBack,
    /// A charge taken back from beneath another's.
    TakenBackBeneath,
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
    Buried,
    /// A migration that another had begun.
    StartLost,
    /// A chunk that another had carried.
    HelpedTwice,
    /// A migration that was completed.
    Completed,
    /// A charge to the shared bucket that was taken back.
    SharedTakenBack,
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
    /// A cell of which a reload left nothing.
    CarriedNowhere,
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
mod off {
    use super::{Fault, Place};

    #[inline(always)]
    pub(crate) fn broken(_: Fault) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn reached(_: Place) {}
}
#[cfg(not(all(test, tollgate_loom)))]
pub(crate) use off::{broken, reached};

#[cfg(all(test, tollgate_loom))]
mod on {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;

    use super::{Fault, Place};

    // One test is one thread of the system's: loom runs its own threads on it in turns.
    thread_local! {
        static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
        static REACHED: RefCell<HashMap<Place, u64>> = RefCell::default();
    }

    pub(crate) fn broken(fault: Fault) -> bool {
        BROKEN.get() == Some(fault)
    }

    pub(crate) fn reached(place: Place) {
        REACHED.with_borrow_mut(|reached| *reached.entry(place).or_default() += 1);
    }

    /// Breaks a rule in this test.
    pub(crate) fn break_rule(fault: Option<Fault>) {
        BROKEN.set(fault);
    }

    /// How often a place was reached in this test.
    pub(crate) fn count(place: Place) -> u64 {
        REACHED.with_borrow(|reached| reached.get(&place).copied().unwrap_or(0))
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use on::{break_rule, broken, count, reached};

/// The work that a call does for the table beside its own, counted in tests of this crate.
#[cfg(all(test, feature = "boulder", not(tollgate_loom)))]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local! {
        static CELLS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a slot that this thread has carried to another segment, or a word that it has moved within one.
    pub(crate) fn count_cell() {
        CELLS.set(CELLS.get() + 1);
    }

    /// How many this thread has counted since it asked last.
    pub(crate) fn take_cells() -> u64 {
        CELLS.take()
    }
}

#[cfg(not(all(test, feature = "boulder", not(tollgate_loom))))]
pub(crate) mod work {
    #[inline(always)]
    pub(crate) fn count_cell() {}
}
