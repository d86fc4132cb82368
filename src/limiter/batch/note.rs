//! What is counted of a batch once it is decided, and what its members' shadows say.

use super::{Batch, MemberMode, Prepared};
use crate::core::state::SharedState;
use crate::decision::Decision;
use crate::limiter::handle::Call;

/// What is tried of a member's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Nothing,
    /// The limit itself: it denies nobody. `is_above`: it can never hold the cost, which is taken as 0.
    Itself {
        is_above: bool,
    },
    /// Other numbers beside it.
    Shadow,
}

impl Batch<'_> {
    /// Counts what a batch was told, each member for itself, and asks the shadows: those of all members if
    /// the batch was allowed, else that of the one that denied it.
    pub(super) fn note(
        &self,
        inner: &SharedState,
        members: &mut [Prepared<'_>],
        decision: &Decision,
        now_ns: u64,
    ) {
        let denied_by = decision.denied_by();
        for member in members {
            if denied_by.is_some_and(|position| position != member.position) {
                continue;
            }
            let handle = self.members[member.position].handle;
            let would_deny = self.would_deny(inner, member, now_ns);
            handle.note_shadow(would_deny && member.mode != MemberMode::SpendOnly);
            member.is_in_shadow = member.tried == Tried::Shadow && !would_deny;
            let Some(stripes) = &handle.stripes else { continue };
            let is_charged = member.spent.as_ref().is_some_and(|spent| spent.decision.allowed());
            match denied_by {
                Some(_) => handle.count_denied(stripes, member.key.key.id, decision, now_ns),
                // Left alone: neither allowed nor denied.
                None if member.mode == MemberMode::SpendOnly && !member.decision.allowed() => {}
                None => {
                    let cost = if is_charged { member.cost } else { 0 };
                    stripes.count_allowed(&member.decision, member.limit.burst(), cost);
                }
            }
        }
    }

    /// Whether what is tried of a member's limit says no.
    fn would_deny(&self, inner: &SharedState, member: &Prepared<'_>, now_ns: u64) -> bool {
        match member.tried {
            Tried::Nothing => false,
            // A shadow tries other numbers, and a block is none.
            Tried::Shadow if member.decision.blocked() => false,
            Tried::Itself { is_above } => is_above || !member.decision.allowed(),
            Tried::Shadow if member.mode == MemberMode::CheckOnly => {
                self.ask_shadow(inner, member, Call::Check(member.cost), now_ns)
            }
            Tried::Shadow => self.ask_shadow(inner, member, Call::Spend(member.cost), now_ns),
        }
    }

    /// Gives back to a member's shadow what was given back to it.
    pub(super) fn give_to_shadow(
        &self,
        inner: &SharedState,
        member: &Prepared<'_>,
        call: Call,
        now_ns: u64,
    ) {
        if member.tried == Tried::Shadow && member.mode != MemberMode::CheckOnly {
            // Whether anything was given back is not asked.
            self.ask_shadow(inner, member, call, now_ns);
        }
    }

    fn ask_shadow(
        &self,
        inner: &SharedState,
        member: &Prepared<'_>,
        call: Call,
        now_ns: u64,
    ) -> bool {
        let factor = self.members[member.position].factor;
        inner.in_shadow(member.key.key, factor, call, now_ns)
    }
}

/// Whether the member's limit only says that it would deny.
pub(super) fn is_tried(member: &Prepared<'_>) -> bool {
    matches!(member.tried, Tried::Itself { .. })
}

/// What a member is told.
pub(super) fn said_by(member: &Prepared<'_>) -> Decision {
    match is_tried(member) {
        true => member.decision.in_shadow(),
        false => member.decision.of_member(member.position),
    }
}
