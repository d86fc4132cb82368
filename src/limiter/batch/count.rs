//! Counts the members of a decided batch, and repeats the batch on their shadows.

use crate::core::state::LimiterState;
use crate::decision::Decision;
use crate::limiter::batch::member::MemberMode;
use crate::limiter::batch::prepared::{Prepared, Trial};
use crate::limiter::handle::Call;

/// Counts each member of a batch that got `decision`, and charges the shadows. Of a denied batch only the member that
/// denied it is counted, and only its shadow is asked.
pub(crate) fn count(
    inner: &LimiterState,
    members: &mut [Prepared<'_>],
    decision: &Decision,
    now_ns: u64,
) {
    let denied_by = decision.denied_by();
    for member in members {
        if denied_by.is_some_and(|position| position != member.position) {
            continue;
        }
        let handle = member.handle;
        let would_deny = would_deny(inner, member, now_ns);
        handle.note_shadow(would_deny && member.mode != MemberMode::SpendOnly);
        member.is_in_shadow = member.trial.is_beside() && !would_deny;
        let Some(stripes) = &handle.stripes else { continue };
        let is_charged = member.spent.as_ref().is_some_and(|spent| spent.decision.allowed());
        match denied_by {
            Some(_) => handle.count_denied(stripes, member.key.key.id, decision, now_ns),
            // The cost did not fit, and the batch was allowed without it: neither allowed nor denied.
            None if member.mode == MemberMode::SpendOnly && !member.decision.allowed() => {}
            None => {
                let cost = if is_charged { member.cost } else { 0 };
                stripes.count_allowed(&member.decision, member.limit.burst(), cost);
            }
        }
    }
}

/// Whether the limit that is tried would have denied the member. Charges the shadow bucket if it would not.
fn would_deny(inner: &LimiterState, member: &Prepared<'_>, now_ns: u64) -> bool {
    match member.trial {
        Trial::Nothing => false,
        Trial::ShadowMode { is_above } => is_above || !member.decision.allowed(),
        // A shadow limit tries other numbers, and has no blocks.
        Trial::ShadowBeside { .. } if member.decision.blocked() => false,
        Trial::ShadowBeside { percent } => {
            let (key, spends) = (member.key.key, member.mode != MemberMode::CheckOnly);
            let demand = (member.demand(), percent);
            inner.in_shadow_leaving(key, member.factor, demand, spends, now_ns)
        }
    }
}

/// Repeats a member's refund or reset on its shadow bucket.
pub(crate) fn give_to_shadow(inner: &LimiterState, member: &Prepared<'_>, call: Call, now_ns: u64) {
    if member.trial.is_beside() && member.mode != MemberMode::CheckOnly {
        inner.in_shadow(member.key.key, member.factor, call, now_ns);
    }
}
