//! The result of a batch of which the store was asked: its decision, and for callers that keep them the members' own
//! decisions and charges.

use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::reserve::Receipt;
use crate::shared::calls::charged::ChargedInStore;
use crate::shared::calls::taken::TakenFromLease;

/// A decided batch. It has members only if the call keeps them.
pub(crate) struct DecidedBatch {
    pub(crate) decision: Decision,
    pub(crate) members: Vec<DecidedMember>,
}

impl DecidedBatch {
    /// The result while the limiter is off.
    pub(super) const UNLIMITED: DecidedBatch =
        DecidedBatch { decision: Decision::UNLIMITED, members: Vec::new() };
}

/// One member of a batch, to which a limit applies.
pub(crate) struct DecidedMember {
    pub(crate) position: usize,
    /// The member's own decision; of a limit in shadow mode, the one that it shows.
    pub(crate) decision: Decision,
    /// The limit and the member's own decision; `None` for a limit in shadow mode.
    pub(crate) shown: Option<(Decision, Limit)>,
    pub(crate) charge: Option<MemberCharge>,
}

/// Where a member's units were charged.
pub(crate) enum MemberCharge {
    Here(Box<Receipt>),
    InStore(Box<ChargedInStore>),
    FromLease(Box<TakenFromLease>),
}

impl MemberCharge {
    /// Begins to give all units back.
    pub(crate) fn give_back(&self) {
        match self {
            MemberCharge::Here(receipt) => receipt.give_back_all(),
            MemberCharge::InStore(charge) => charge.begin_return(),
            MemberCharge::FromLease(taken) => taken.give_back(),
        }
    }
}

/// A decided batch that its caller has not got yet. If the caller has gone away, the charges are given back.
pub(super) struct Unclaimed(Option<DecidedBatch>);

impl Unclaimed {
    pub(super) fn new(decided: DecidedBatch) -> Unclaimed {
        Unclaimed(Some(decided))
    }

    pub(super) fn claim(mut self) -> DecidedBatch {
        self.0.take().unwrap_or(DecidedBatch::UNLIMITED)
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let members = self.0.iter().flat_map(|decided| &decided.members);
        members.filter_map(|member| member.charge.as_ref()).for_each(MemberCharge::give_back);
    }
}
