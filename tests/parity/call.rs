//! Defines the calls that operations make.

/// A call for one bucket: the indices of limit and id, a cost, a factor in millionths, and the units that a spend, a check or
/// a member of a batch must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) limit: usize,
    pub(crate) id: usize,
    pub(crate) cost: u64,
    pub(crate) factor: u64,
    pub(crate) leave: u64,
}

impl Call {
    /// The same call at a cost of 0, with nothing to leave.
    pub(crate) fn of_nothing(self) -> Call {
        Call { cost: 0, leave: 0, ..self }
    }

    /// The units that the bucket must have.
    pub(crate) fn needed(self) -> i128 {
        i128::from(self.cost) + i128::from(self.leave)
    }
}

/// What a call with the priority [`FLOOR`](crate::spec::FLOOR) must leave: the units of its limit's floor.
pub(crate) const OF_FLOOR: u64 = u64::MAX;

/// The factor 1.
pub(crate) const ONE: u64 = 1_000_000;

/// Builds a call without a factor.
pub(crate) const fn call(limit: usize, id: usize, cost: u64) -> Call {
    Call { limit, id, cost, factor: ONE, leave: 0 }
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
