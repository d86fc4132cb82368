//! The two steps of a batch: looking at all its members, and charging them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{MemberMode, Prepared, can_deny, is_tried, strictest};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::store::Outdated;
use crate::util::fault::{self, Fault};

/// What a batch is told, and when.
pub(super) struct Told {
    pub(super) decision: Decision,
    pub(super) now_ns: u64,
}

pub(super) fn spend(view: LimitsView<'_>, members: &mut [Prepared<'_>]) -> Result<Told, Outdated> {
    let now_ns = look(view, members)?;
    let decision = strictest(members, can_deny);
    if !decision.allowed() {
        return Ok(Told { decision, now_ns });
    }
    // Charging renews the members' decisions: what they say now is what was stored.
    charge_all(view, members, now_ns)?;
    Ok(Told { decision: strictest(members, can_deny), now_ns })
}

/// Reads the clock, once, and the words of all members, and decides for each; writes nothing. Returns
/// the time. The lines of all their cells are fetched before the first is read.
pub(super) fn look(view: LimitsView<'_>, members: &mut [Prepared<'_>]) -> Result<u64, Outdated> {
    for member in members.iter() {
        view.inner.store.prefetch(member.key.fingerprint);
    }
    let now_ns = view.inner.clock.now_ns();
    for member in members {
        let (key, limit, cost) = (&member.key, &*member.limit, member.cost);
        member.decision = match view.blocked_ns(key, now_ns) {
            Some(left_ns) => view.denied_by_block(key, limit, cost, now_ns, left_ns)?,
            None => view.look(key, now_ns, |word, at_ns| limit.rule().spend(word, at_ns, cost))?,
        };
    }
    Ok(now_ns)
}

/// Charges the check-and-spend members in order, then those that fit of the ones that deny nobody. If
/// one of the former is denied, or the limits have changed, whatever was charged is taken back.
fn charge_all(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
    now_ns: u64,
) -> Result<(), Outdated> {
    for charged in [MemberMode::CheckAndSpend, MemberMode::SpendOnly] {
        for at in 0..members.len() {
            let member = &mut members[at];
            let mode = match member.mode {
                MemberMode::CheckAndSpend if is_tried(member) => MemberMode::SpendOnly,
                mode => mode,
            };
            if mode != charged || member.cost == 0 || member.decision.blocked() {
                continue;
            }
            let charged = charge(view, member, now_ns);
            let is_denied = mode == MemberMode::CheckAndSpend && !member.decision.allowed();
            if charged.is_err() || is_denied {
                roll_back(view, members);
                return charged;
            }
        }
    }
    Ok(())
}

/// Charges one member if its cost is still there, and keeps what was charged.
fn charge(view: LimitsView<'_>, member: &mut Prepared<'_>, now_ns: u64) -> Result<(), Outdated> {
    let ask = |word, now_ns| member.limit.rule().spend(word, now_ns, member.cost);
    let spent = view.charge_reversibly(&member.key, &member.limit, now_ns, ask)?;
    member.decision = spent.decision;
    member.spent = Some(spent);
    Ok(())
}

/// Takes the members' charges back, the last one first. Where another has charged since, the clock is
/// read anew: what has refilled behind a charge is not given back.
fn roll_back(view: LimitsView<'_>, members: &mut [Prepared<'_>]) {
    members.iter_mut().rev().for_each(|member| roll_back_one(view, member));
}

fn roll_back_one(view: LimitsView<'_>, member: &mut Prepared<'_>) {
    // Once: if this panics nothing more is taken back of it.
    let Some(spent) = member.spent.take() else { return };
    if fault::active(Fault::NoRollBack) {
        return;
    }
    if fault::active(Fault::RefundForRollBack) {
        let now_ns = view.inner.clock.now_ns();
        let _ = view.refund(&member.key, &member.limit, member.cost, now_ns);
        return;
    }
    if view.roll_back(&member.key, &member.limit, &spent).is_ok() {
        return;
    }
    // The word is under new limits by now, and so is what it was charged.
    let (key, limit) = (&member.key, &member.limit);
    view.inner.with_view(|now| now.roll_back_after_reload(view, key, limit, &spent));
}

/// Calls `call`, which may charge members. If it panics, in a rule, a clock or a subscriber of the caller's own,
/// whatever was charged is taken back.
pub(super) fn undone_on_panic<'a, R>(
    view: LimitsView<'_>,
    members: &mut [Prepared<'a>],
    call: impl FnOnce(&mut [Prepared<'a>]) -> Result<R, Outdated>,
) -> Result<R, Outdated> {
    let mut charged = UndoneOnPanic { view, members, has_returned: false };
    let result = call(charged.members);
    charged.has_returned = true;
    result
}

struct UndoneOnPanic<'t, 'm, 'a> {
    view: LimitsView<'t>,
    members: &'m mut [Prepared<'a>],
    has_returned: bool,
}

impl Drop for UndoneOnPanic<'_, '_, '_> {
    fn drop(&mut self) {
        if self.has_returned {
            return;
        }
        for member in self.members.iter_mut().rev() {
            // A second panic while the first unwinds would end the process: that member stays charged.
            let _ = catch_unwind(AssertUnwindSafe(|| roll_back_one(self.view, member)));
        }
    }
}
