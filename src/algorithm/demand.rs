//! What a spend demands of a bucket.

/// The units of a spend: those that it charges, and those that the bucket must have left after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) cost: u64,
    pub(crate) leave: u64,
}

impl Demand {
    /// Nothing is charged or left.
    pub(crate) const NOTHING: Demand = Demand { cost: 0, leave: 0 };

    /// Returns the units that the bucket must have.
    #[inline]
    pub(crate) fn needed(self) -> u64 {
        self.cost.saturating_add(self.leave)
    }
}

/// The demand of a spend that may empty the bucket.
impl From<u64> for Demand {
    fn from(cost: u64) -> Demand {
        Demand { cost, leave: 0 }
    }
}
