//! Defines the operations of a run.

use tollgate::batch::MemberMode;
use tollgate::reload::CarryOver;

#[allow(unused_imports, reason = "`call` is for lists that are pasted")]
pub(crate) use super::call::{BatchCall, Call, ONE, call};
use super::spec::{List, Spec};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Moves the clock forward.
    Advance(u64),
    /// Moves the clock back, but not behind the last sweep, reload, restore or end of an override.
    Back(u64),
    /// Moves the clock to the next end of an override, plus this time.
    ToEnd(i64),
    Spend(Call),
    Check(Call),
    Refund(Call),
    Reset(Call),
    SpendUpTo(Call),
    /// Leaves the cost in the bucket.
    Drain(Call),
    SpendMany {
        limit: usize,
        ids: List<usize>,
        cost: u64,
    },
    Batch(BatchCall, List<(Call, MemberMode)>),
    /// A batch that is denied when it has charged these members.
    Denied(List<(Call, MemberMode)>),
    /// Reserves with at most this wait in ns.
    Reserve(Call, u64),
    /// Cancels one of the open charges if it is a reservation: its index, modulo their number.
    Cancel(usize),
    /// Reserves a batch with at most this wait in ns.
    ReserveBatch(List<Call>, u64),
    /// Cancels one of the reservations of batches.
    CancelBatch(usize),
    /// Turns one of the reservations of batches into a receipt.
    KeepBatch(usize),
    /// Turns an open reservation into a receipt.
    Keep(usize),
    /// Spends an estimate and keeps its receipt.
    Charge(Call),
    /// Settles one of the open charges if it is a receipt.
    Settle(usize, u64),
    /// Spends a batch of estimates and keeps its receipt.
    ChargeBatch(List<(Call, MemberMode)>),
    /// Settles all members of one of the receipts of batches.
    SettleBatch(usize, u64),
    /// Settles the member at a position of one of the receipts of batches.
    SettleMember(usize, usize, u64),
    /// Drops one of the receipts of batches.
    DropBatch(usize),
    /// Takes permits and keeps them.
    Acquire(Call),
    CheckPermits(Call),
    /// Gives held permits back.
    Release(usize),
    /// Sets the most permits of a limit.
    SetMax(usize, u64),
    /// Blocks an id for this number of ns.
    Block(usize, usize, u64),
    Unblock(usize, usize),
    Reload(Spec, CarryOver),
    /// Sweeps about this number of cells.
    Sweep(usize),
    SweepAll,
    Enable(bool),
    /// Writes a snapshot.
    Snapshot,
    /// Replaces the limiter by one restored from the last snapshot.
    Restore(Spec, CarryOver),
}
