//! The result of a charge: the decision, and the data that a later return of its units needs.

use crate::algorithm::Outcome;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::rule::Rule;
use crate::decision::Decision;

/// The result of a spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) decision: Decision,
    pub(crate) charge: Option<Charge>,
    pub(crate) to: ChargedTo,
}

/// A charge that was stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// The word that the charge wrote.
    pub(crate) word: u64,
    /// The time of the charge.
    pub(crate) now_ns: u64,
    pub(crate) mark: ChargeMark,
}

/// The bucket that was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedTo {
    OwnCell,
    /// The bucket that the limit's untracked keys share.
    Overflow,
    Nothing,
}

impl Spent {
    /// Records the outcome of a charge by `rule` at `at_ns`. The decision's figures count from `now_ns`, the call's own
    /// reading of the clock, which may be earlier.
    pub(crate) fn new(
        rule: &Rule,
        outcome: Outcome,
        (at_ns, now_ns): (u64, u64),
        to: ChargedTo,
    ) -> Spent {
        let mark = |word| Charge { word, now_ns: at_ns, mark: rule.charge_mark(word) };
        let decision = outcome.decision.seen_earlier(at_ns - now_ns);
        Spent { decision, charge: outcome.word.map(mark), to }
    }

    pub(crate) fn nothing(decision: Decision) -> Spent {
        Spent { decision, charge: None, to: ChargedTo::Nothing }
    }
}
