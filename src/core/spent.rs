//! The result of a charge: the decision, and all that a later rollback of the charge needs.

use crate::algorithm::{Charge, Outcome};
use crate::core::ledger::LedgerMark;
use crate::decision::Decision;

/// The result of a spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) decision: Decision,
    pub(crate) charge: Option<Charge>,
    pub(crate) to: ChargedTo,
    /// The rollback ledger's entry of the bucket, read before the charge.
    pub(crate) ledger_mark: LedgerMark,
    /// Whether `charge` is a part of the call's charge: the rest stays, and counts as granted at the same time.
    pub(crate) is_part: bool,
    /// If `charge` was converted to another limit: the words of the bucket below this one show that nothing of the
    /// charge was rounded or cut. The charge is rolled back from such a word alone.
    pub(crate) converted_below: Option<u64>,
}

/// The bucket that was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedTo {
    OwnCell,
    /// The bucket that the limit's untracked keys share.
    Shared,
    Nothing,
}

impl Spent {
    pub(super) fn new(outcome: Outcome, before: u64, now_ns: u64, to: ChargedTo) -> Spent {
        let charge = outcome.word.map(|after| Charge::new(before, after, now_ns));
        let ledger_mark = LedgerMark::default();
        let (is_part, converted_below) = (false, None);
        Spent { decision: outcome.decision, charge, to, ledger_mark, is_part, converted_below }
    }

    pub(crate) fn nothing(decision: Decision) -> Spent {
        Spent {
            decision,
            charge: None,
            to: ChargedTo::Nothing,
            ledger_mark: LedgerMark::default(),
            is_part: false,
            converted_below: None,
        }
    }
}
