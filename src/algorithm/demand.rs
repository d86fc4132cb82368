//! A spend that must leave units in the bucket.

use crate::algorithm::Outcome;
use crate::algorithm::rule::Rule;

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

impl Rule {
    /// Charges `demand.cost` units if the bucket has them and those that it must leave. The caller has checked that they
    /// are together at most the largest cost.
    ///
    /// The rule is asked about all of them; if it allows that, it is asked for the word after the cost alone.
    pub(crate) fn spend_leaving(&self, word: u64, now_ns: u64, demand: Demand) -> Outcome {
        let Demand { cost, leave } = demand;
        if leave == 0 {
            return self.spend(word, now_ns, cost);
        }
        let with_rest = self.spend(word, now_ns, demand.needed());
        if !with_rest.decision.allowed() {
            return Outcome { word: None, ..with_rest };
        }
        let charged = self.spend(word, now_ns, cost);
        if !charged.decision.allowed() {
            return charged;
        }
        // The wait after an allowed call is that of the same call.
        let again = self.spend(charged.word.unwrap_or(word), now_ns, demand.needed()).decision;
        Outcome { decision: charged.decision.with_wait_of(&again), ..charged }
    }
}
