//! The calls for one bucket.

use crate::algorithm::Outcome;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};

/// A call for one bucket, and its units.
///
/// The fast path is compiled for each kind of call: where it begins the variant is known, and its methods are inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Spend(u64),
    Check(u64),
    Refund(u64),
    Reset,
}

impl Call {
    /// Returns the units; a reset has none.
    #[inline(always)]
    pub(crate) fn cost(self) -> u64 {
        match self {
            Call::Spend(cost) | Call::Check(cost) | Call::Refund(cost) => cost,
            Call::Reset => 0,
        }
    }

    /// Returns the same call for another number of units.
    pub(crate) fn with_cost(self, cost: u64) -> Call {
        match self {
            Call::Spend(_) => Call::Spend(cost),
            Call::Check(_) => Call::Check(cost),
            Call::Refund(_) => Call::Refund(cost),
            Call::Reset => Call::Reset,
        }
    }

    /// Whether the bucket can deny the call. Refunds and resets are never denied by a block or counted.
    #[inline(always)]
    pub(crate) fn can_be_denied(self) -> bool {
        matches!(self, Call::Spend(_) | Call::Check(_))
    }

    #[inline(always)]
    pub(crate) fn is_spend(self) -> bool {
        matches!(self, Call::Spend(_))
    }

    /// Computes the new word and the decision from the bucket's word.
    pub(crate) fn outcome(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        let rule = limit.rule();
        match self {
            Call::Spend(cost) => rule.spend(word, now_ns, cost),
            Call::Check(cost) => Outcome { word: None, ..rule.spend(word, now_ns, cost) },
            Call::Refund(cost) => rule.refund(word, now_ns, cost),
            Call::Reset => rule.reset(word, now_ns),
        }
    }

    /// Decides the call for any key, by way of the store.
    pub(crate) fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        match self {
            // A spend of nothing is a check: no cell is made for it.
            Call::Check(_) | Call::Spend(0) => {
                view.look(key, now_ns, |word, now_ns| self.outcome(limit, word, now_ns))
            }
            Call::Spend(cost) => Ok(view.spend(key, limit, cost, now_ns)?.decision),
            Call::Refund(cost) => view.refund(key, limit, cost, now_ns),
            Call::Reset => view.reset(key, limit, now_ns),
        }
    }
}
