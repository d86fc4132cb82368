//! What can be done to a limiter.

use tollgate::batch::MemberMode;
use tollgate::reload::CarryOver;

use super::spec::{List, Spec};

/// A call for one bucket: places of the limit and the id, a cost, and a factor in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) limit: usize,
    pub(crate) id: usize,
    pub(crate) cost: u64,
    pub(crate) factor: u64,
}

/// A factor that changes nothing.
pub(crate) const ONE: u64 = 1_000_000;

/// Names as they are written in the lists of operations.
#[allow(dead_code, reason = "for lists that are pasted")]
pub(crate) const fn call(limit: usize, id: usize, cost: u64) -> Call {
    Call { limit, id, cost, factor: ONE }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// The clock goes on.
    Advance(u64),
    /// The clock goes back, but not behind the last sweep, reload, restore or end.
    Back(u64),
    /// The clock goes to the next end of an override, and this much further.
    ToEnd(i64),
    Spend(Call),
    Check(Call),
    Refund(Call),
    Reset(Call),
    SpendMany {
        limit: usize,
        ids: List<usize>,
        cost: u64,
    },
    Batch(BatchCall, List<(Call, MemberMode)>),
    /// A charge that is settled at once.
    Settled(Call, u64),
    /// Takes a place that comes within this number of ns.
    Reserve(Call, u64),
    /// Gives up one of the places that are held: its number, counted round.
    Cancel(usize),
    /// Makes a receipt of a place.
    Keep(usize),
    /// Charges with a receipt.
    Charge(Call),
    /// Settles one of the receipts that are held.
    Settle(usize, u64),
    /// Blocks an id, for this number of ns.
    Block(usize, usize, u64),
    Unblock(usize, usize),
    Reload(Spec, CarryOver),
    /// A step over about this number of cells.
    Sweep(usize),
    SweepAll,
    Enable(bool),
    /// Writes a file; a restore reads the last one.
    Snapshot,
    /// A new limiter of the last file takes over.
    Restore(Spec, CarryOver),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchCall {
    SpendAll,
    SpendEach,
    CheckAll,
    RefundAll,
    ResetAll,
}
