//! Defines the calls that operations make.

/// A call for one bucket: the indices of limit and id, a cost, and a factor in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) limit: usize,
    pub(crate) id: usize,
    pub(crate) cost: u64,
    pub(crate) factor: u64,
}

/// The factor 1.
pub(crate) const ONE: u64 = 1_000_000;

/// Builds a call without a factor, for the lists of `cases.rs`.
#[allow(dead_code, reason = "for lists that are pasted")]
pub(crate) const fn call(limit: usize, id: usize, cost: u64) -> Call {
    Call { limit, id, cost, factor: ONE }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchCall {
    SpendAll,
    SpendEach,
    /// By estimates: the receipt keeps the permits.
    #[allow(dead_code, reason = "calls of several nodes keep no permits")]
    ChargeAll,
    CheckAll,
    RefundAll,
    ResetAll,
}
