//! Plants faults in the code for the loom models. Outside of loom this compiles to nothing.
//!
//! Each fault breaks one rule. A model's twin runs the same code with one fault active, and must fail.

/// A fault that a twin plants. Each variant says what the code does while the fault is active.
#[cfg_attr(
    not(tollgate_loom),
    allow(dead_code, reason = "loom's stand-in for a DashMap uses some")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A cell's new word is stored, not compared and swapped.
    StoreForSwap,
    /// A decision on the word 0 ignores the eviction time floor.
    NoFloor,
    /// A sweep decides which cells to drop before it holds the shelf's lock.
    SweepBeforeLock,
    /// An insert does not look for its key again once it holds the lock.
    InsertBlindly,
    /// A batch charges its members in the caller's order, not in the order of their keys.
    CallersOrder,
    /// A node gives a lease up, and its calls can still spend it.
    LeaseTakenByLoad,
    /// Units that a batch gives back come to any lease of the bucket, not only to the one that they are from.
    UnitsBackToAnyLease,
    /// A denied batch does not return its charges.
    NoReturn,
    /// Permits go back to any word of their key, not only to one of their epoch.
    ReleaseOfAnyEpoch,
    /// A charge is returned to a bucket whose limit has changed since.
    ReturnByOldLimit,
    /// `Cell::update` reads and swaps the word without ordering.
    UpdateRelaxed,
    /// `Cell::word` reads without ordering.
    WordRelaxed,
    /// Neither the key of a slot nor the freeze of its cell orders the tag that was set before.
    TagUnpublished,
    /// A shard's pointer is read without ordering.
    ViewRelaxed,
    /// A segment is published without ordering.
    PublishRelaxed,
    /// A migration is completed without ordering.
    CompleteRelaxed,
    /// The frontier is read and moved without ordering.
    FrontierRelaxed,
    /// A sweep evicts a cell by a store, not by a swap.
    EvictByStore,
    /// A migrated word replaces a smaller one in the target cell.
    SeedByMax,
    /// New keys may take the slots that the cells still to migrate need.
    NoRoomForMoved,
    /// A sealed segment grants a claim.
    ClaimSealed,
    /// A successor is sized before claims on the old segment have ended.
    NoSeal,
    /// A successor is sized as if the old segment had no cells.
    SizedByFew,
    /// A search that ends at a vacant slot of the old segment leaves the slot open for inserts.
    AbsentWithoutClosing,
    /// A helper leaves a half-made insert in the old segment as it is.
    NoPoison,
    /// An insert that finds its key in the segment keeps its claim.
    ClaimLeaked,
    /// A slot's limit tag is stored even if another call has set it.
    TagByStore,
    /// A reserved block is taken without ordering.
    TakeBlockRelaxed,
    /// A reserved block is put back without ordering.
    PutBlockRelaxed,
    /// Each call that meets a dead cell releases its place, not only the call that ended it.
    EveryoneReleases,
    /// A migration is completed after its first chunk.
    CompleteEarly,
    /// A place is reserved by a load and a store.
    CapUnreserved,
    /// A place of a limit's own part is reserved by a load and a store.
    PartUnreserved,
    /// A new cell's place stays in the room of the caller's tag, although another call has set the cell's tag.
    PlaceNotMoved,
    /// The high half of a slot is stored, not swapped.
    TakeByStore,
    /// A call trusts a word in the old segment without checking that the migration still runs.
    OldWordUnchecked,
    /// A helper passes the dead cell of a key and seeds a second one.
    SeedPassesDead,
    /// A migration begins while the one before still runs.
    StartWhileMoving,
    /// A reader enters a call without a fence.
    ReaderUnfenced,
    /// The freeing thread looks for readers without a fence.
    NoBarrier,
    /// A thread that is in a call enters another, which ends first.
    EnterNested,
    /// A reader enters its next call without releasing its last one.
    EnterRelaxed,
    /// A thread takes over a reader's record without ordering.
    RecordRelaxed,
    /// The freeing thread looks for readers before it fixes the set of retired items to free.
    LooksTooEarly,
    /// A retired item is pushed by a store.
    PushByStore,
    /// A segment is retired before it is unlinked.
    RetireLinked,
    /// The new cell of an untracked key starts without the overflow bucket's debt.
    ForgetShared,
    /// A charge of the overflow bucket leaves no note of its key.
    ChargeUnnoted,
    /// A call that has charged the overflow bucket does not look for the key's own cell again.
    NoSecondLook,
    /// The two sides of the overflow bucket have no fence.
    NoFence,
    /// A bucket counts as full a millisecond before its algorithm says so.
    FullEarly,
    /// An override's bucket counts as full by the default limit.
    FullByDefault,
    /// A factor is recorded after the charge that uses it.
    FactorNotedLate,
    /// A factor is not recorded.
    FactorNotNoted,
    /// New limits are published without ordering.
    PublishedRelaxed,
    /// A cell that another call has frozen is migrated without a search for a later cell of its key.
    MigrateUnchecked,
    /// A call with an older clock freezes a cell of a later limit if it has no charge yet.
    UnchargedUnchecked,
    /// A sweep evicts a cell that a word is about to be moved to.
    EvictAwaited,
    /// A call ends a cell whose word has moved without checking that the word has arrived.
    EndUnlooked,
    /// A renumbered word moves to a slot that is not the key's next.
    NextNotFirst,
    /// A reload skips shards that have no segment yet.
    RenewSkipsEmpty,
    /// A sweep does not check which limits a word is counted in.
    SweepByOldLimits,
    /// A cancel returns its place even if another place is behind it.
    RefundForCancel,
    /// A cancel changes the word or the list of vacant places and looks at the other without a fence.
    VacantUnfenced,
    /// A cancel does not look for vacant places that have become the last ones.
    VacantNotLookedFor,
    /// A batch keeps a place that is granted later than those that it has taken before.
    BatchPlacesApart,
    /// A call with new limits charges a cell whose word is still under the old ones.
    ChargeBeforeRenewal,
    /// A scan leaves out words that have moved.
    ScanSkipsMoved,
    /// A scan reads the slots of a segment from the first to the last, and not in the order of each key's search.
    ScanInOrder,
    /// A shadow limit is checked first and charged afterwards.
    ShadowByCheck,
    /// A bin of blocks is stored, not swapped.
    BlockByStore,
    /// A bin of blocks is published without ordering.
    BlockRelaxed,
    /// A block is subtracted from the count while it is still listed.
    BlockDiscountedEarly,
    /// Of two blocks of a key the later one stays, not the longer one.
    LaterBlockStays,
}

/// Returns whether this test has planted the fault.
#[cfg(not(all(test, tollgate_loom)))]
#[inline(always)]
pub(crate) fn active(_: Fault) -> bool {
    false
}

#[cfg(all(test, tollgate_loom))]
mod planted {
    use std::cell::Cell;

    use super::Fault;

    // A thread local: a test runs on one system thread, on which loom runs the model's threads in turns.
    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    pub(crate) fn active(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }

    /// Plants a fault in this test; `None` removes it.
    pub(crate) fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use planted::{active, plant};
