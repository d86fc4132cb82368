//! The calls for one bucket.

use std::cell::Cell;

use crate::algorithm::Outcome;
use crate::algorithm::demand::Demand;
use crate::core::at_cap::Owes;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};

/// A call for one bucket, and its units.
///
/// The fast path is compiled for each kind of call: where it begins the variant is known, and its methods are inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call<'d> {
    Spend(u64),
    Check(u64),
    Refund(u64),
    Reset,
    /// Spends as many of these units as there are.
    SpendUpTo(u64),
    /// Spends all units but these.
    Drain(u64),
    /// Spends units if others are left after it. The slow path decides it.
    SpendLeaving(&'d Demand),
    /// The check of a [`Call::SpendLeaving`].
    CheckLeaving(&'d Demand),
}

const _: () = assert!(size_of::<Call<'_>>() <= 16, "the fast path passes a call in two registers");

/// The decision of a call, and the units that it has charged or returned.
#[derive(Clone, Copy)]
pub(crate) struct Ran {
    pub(crate) decision: Decision,
    /// Of a [`Call::SpendUpTo`], the units that were charged; of another call, those that it charges if it is allowed.
    pub(crate) units: u64,
}

impl Ran {
    /// No limit applies.
    pub(super) fn unlimited(call: Call<'_>) -> Ran {
        Ran { decision: Decision::UNLIMITED, units: call.most() }
    }
}

impl<'d> Call<'d> {
    /// Makes a spend or a check that must leave units.
    pub(crate) fn leaving(demand: &'d Demand, spends: bool) -> Call<'d> {
        if spends { Call::SpendLeaving(demand) } else { Call::CheckLeaving(demand) }
    }
}

impl Call<'_> {
    /// Returns the units that the bucket must have, or that are returned; a reset has none.
    #[inline(always)]
    pub(crate) fn cost(self) -> u64 {
        match self {
            Call::Spend(cost) | Call::Check(cost) | Call::Refund(cost) => cost,
            Call::SpendUpTo(most) => most.min(1),
            Call::Reset | Call::Drain(_) => 0,
            Call::SpendLeaving(demand) | Call::CheckLeaving(demand) => demand.needed(),
        }
    }

    /// Returns the units that the call charges and those that it must leave.
    pub(crate) fn demand(self) -> Demand {
        match self {
            Call::SpendLeaving(demand) | Call::CheckLeaving(demand) => *demand,
            _ => self.cost().into(),
        }
    }

    /// Returns the units that are charged if no limit applies.
    pub(crate) fn most(self) -> u64 {
        match self {
            Call::SpendUpTo(most) => most,
            _ => self.demand().cost,
        }
    }

    /// Returns the same call for another number of units. It leaves none.
    pub(crate) fn with_cost(self, cost: u64) -> Self {
        match self {
            Call::Spend(_) | Call::SpendLeaving(_) => Call::Spend(cost),
            Call::Check(_) | Call::CheckLeaving(_) => Call::Check(cost),
            Call::Refund(_) => Call::Refund(cost),
            Call::Reset | Call::SpendUpTo(_) | Call::Drain(_) => self,
        }
    }

    /// Whether the bucket can deny the call. Refunds, resets and drains are never denied by a block or counted.
    #[inline(always)]
    pub(crate) fn can_be_denied(self) -> bool {
        !matches!(self, Call::Refund(_) | Call::Reset | Call::Drain(_))
    }

    /// Whether the call returns units to the bucket by hand.
    #[inline(always)]
    pub(crate) fn is_by_hand(self) -> bool {
        matches!(self, Call::Refund(1..) | Call::Reset)
    }

    #[inline(always)]
    pub(crate) fn is_spend(self) -> bool {
        matches!(self, Call::Spend(_) | Call::SpendUpTo(_) | Call::SpendLeaving(_))
    }

    /// Whether the call changes nothing.
    pub(crate) fn is_check(self) -> bool {
        matches!(self, Call::Check(_) | Call::CheckLeaving(_))
    }

    /// Computes the new word and the decision from the bucket's word.
    pub(crate) fn outcome(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        let rule = limit.rule();
        match self {
            Call::Spend(cost) => rule.spend(word, now_ns, cost),
            Call::Check(cost) => Outcome { word: None, ..rule.spend(word, now_ns, cost) },
            Call::Refund(cost) => rule.refund(word, now_ns, cost),
            Call::Reset => rule.reset(word, now_ns),
            Call::SpendUpTo(most) => rule.spend_up_to(word, now_ns, most.min(limit.burst())).1,
            Call::Drain(leave) => rule.drain(word, now_ns, leave),
            Call::SpendLeaving(demand) => rule.spend_leaving(word, now_ns, *demand),
            Call::CheckLeaving(demand) => {
                Outcome { word: None, ..rule.spend_leaving(word, now_ns, *demand) }
            }
        }
    }

    /// Decides the call for any key, by way of the store.
    pub(crate) fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Ran, Outdated> {
        let ask = |word, now_ns| self.outcome(limit, word, now_ns);
        let decision = match self {
            // A spend of nothing is a check: no cell is made for it.
            Call::Check(cost) => view.look(key, (limit, cost.into()), now_ns, ask)?,
            Call::Spend(0) | Call::SpendUpTo(0) => {
                view.look(key, (limit, Demand::NOTHING), now_ns, ask)?
            }
            Call::CheckLeaving(demand) | Call::SpendLeaving(demand @ Demand { cost: 0, .. }) => {
                view.look(key, (limit, *demand), now_ns, ask)?
            }
            Call::Spend(cost) => view.spend(key, limit, cost.into(), now_ns)?.decision,
            Call::SpendLeaving(demand) => view.spend(key, limit, *demand, now_ns)?.decision,
            Call::Refund(cost) => view.refund(key, limit, cost, now_ns)?,
            Call::Reset => view.reset(key, limit, now_ns)?,
            Call::SpendUpTo(most) => {
                // The rule is asked again for each word that another call has stored meanwhile.
                let (units, most) = (Cell::new(0), most.min(limit.burst()));
                let spent = view.charge(key, limit, (now_ns, Owes::OwnUnits), |word, now_ns| {
                    let (charged, outcome) = limit.rule().spend_up_to(word, now_ns, most);
                    units.set(charged);
                    outcome
                })?;
                let units = if spent.decision.allowed() { units.get() } else { 0 };
                return Ok(Ran { decision: spent.decision, units });
            }
            Call::Drain(_) => view.charge(key, limit, (now_ns, Owes::OwnUnits), ask)?.decision,
        };
        Ok(Ran { decision, units: self.most() })
    }
}
