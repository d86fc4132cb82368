//! Defines the operations of a run. A node is an index, modulo the number of nodes.
//!
//! An operation for a new form of call is a variant here, an arm in `World::apply`, and a function
//! in `calls.rs` that says what the call does to the oracle's [`Bucket`](super::bucket::Bucket).

use tollgate::batch::MemberMode;
use tollgate::reload::CarryOver;

#[allow(unused_imports, reason = "`call` is for lists that are pasted")]
pub(crate) use super::call::{BatchCall, Call, ONE, call};
use super::spec::{List, Spec};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Moves the clock of the store and the nodes forward.
    Advance(u64),
    /// Moves it back, but not behind the last sweep, reload, restore, or end of a block, a text or an override. Not where
    /// leases are.
    Back(u64),
    /// Moves it to the next end of an override, plus this time.
    ToEnd(i64),
    One(usize, Way, Kind, Call),
    Batch(usize, Way, BatchCall, List<(Call, MemberMode)>),
    Explain(usize, Call),
    /// Spends as many units as there are.
    UpTo(usize, Call),
    /// Leaves the cost in the bucket.
    Drain(usize, Call),
    /// Spends an estimate that is settled at once as this cost.
    Settled(usize, Call, u64),
    /// Reserves with at most this wait in ns, and cancels at once if it says so.
    Reserved(usize, Call, u64, bool),
    /// Blocks an id for this number of ns: node, limit, id.
    Block(usize, usize, usize, u64),
    Unblock(usize, usize, usize),
    /// Reloads the limits of one node, or of all.
    Reload(Spec, (CarryOver, Option<usize>)),
    /// Sweeps about this number of cells.
    Sweep(usize, usize),
    Enable(usize, bool),
    /// Gives the leases of one node back, or of all.
    GiveBack(Option<usize>),
    /// Writes a snapshot of a node.
    Snapshot(usize),
    /// Replaces a node by one restored from the last snapshot. The node's leases are lost.
    Restore(Spec, (CarryOver, usize)),
}

/// The form of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A future that is ready at its first poll.
    Async,
    Blocking,
    /// A future that is dropped before its first poll.
    Dropped,
}

/// A call for one bucket. Refunds and resets have no blocking form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Spend,
    Check,
    Refund,
    Reset,
}
