//! Faults that the loom models plant in the code: each breaks one rule. Outside of loom all of it compiles to nothing.
//!
//! A model has a twin, the same code with one fault active, that must fail.

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
    NoRollBack,
    /// A denied batch gives its charges back as a refund would.
    RefundForRollBack,
    /// Taking back pairs with nothing: the word is read and swapped without ordering.
    RollBackRelaxed,
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
    /// A store, not a swap, marks a cell dead.
    EvictByStore,
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
    /// A store, not a swap, sets a limit tag.
    TagByStore,
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
    /// A migrated word passes the dead cell of its key, and gets another.
    SeedPassesDead,
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
    /// A migration moves the word of a frozen cell without a look for a later cell of the key.
    MigrateUnchecked,
    /// A sweep drops a slot that a word is about to move to.
    EvictAwaited,
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

#[cfg(not(all(test, tollgate_loom)))]
#[inline(always)]
pub(crate) fn active(_: Fault) -> bool {
    false
}

#[cfg(all(test, tollgate_loom))]
mod planted {
    use std::cell::Cell;

    use super::Fault;

    // One test is one thread of the system: loom runs its own threads on it in turns.
    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    pub(crate) fn active(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }

    /// Plants a fault in this test, or removes the one that was planted.
    pub(crate) fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use planted::{active, plant};
