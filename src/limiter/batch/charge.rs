//! Decides a batch: looks at all members, then charges them, and rolls the charges back if a member is denied.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::core::spent::Spent;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::batch::prepared::{Prepared, strictest};
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// Decides and charges a batch; returns its decision and time.
pub(in crate::limiter) fn spend(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
) -> Result<(Decision, u64), Outdated> {
    let now_ns = look(view, members)?;
    let mut decision = strictest(members, |member| member.can_deny());
    if decision.allowed() {
        charge_all(view, members, now_ns)?;
        // Charging has replaced the members' decisions by those of the stored charges.
        decision = strictest(members, |member| member.can_deny());
    }
    Ok((decision, now_ns))
}

/// Decides each member alone by its bucket's word, and writes nothing; returns the time. The clock is read once. The
/// cache lines of all cells are prefetched before the first is read.
pub(in crate::limiter) fn look(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
) -> Result<u64, Outdated> {
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

/// Charges the members that can deny, then the other members whose buckets have the units: each group in the order of
/// `members`, which is that of their keys. Rolls all charges back if a member that can deny is denied, or if the limits
/// have changed.
fn charge_all(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
    now_ns: u64,
) -> Result<(), Outdated> {
    for can_deny in [true, false] {
        for at in 0..members.len() {
            let member = &mut members[at];
            if member.can_deny() != can_deny || !member.is_to_be_charged() {
                continue;
            }
            let charged = charge(view, member, now_ns);
            let is_denied = can_deny && !member.decision.allowed();
            if charged.is_err() || is_denied {
                roll_back(view, members);
                return charged;
            }
        }
    }
    Ok(())
}

/// Charges one member if its bucket still has the units, and remembers the charge.
fn charge(view: LimitsView<'_>, member: &mut Prepared<'_>, now_ns: u64) -> Result<(), Outdated> {
    let ask = |word, now_ns| member.limit.rule().spend(word, now_ns, member.cost);
    let spent = view.charge_reversibly(&member.key, &member.limit, now_ns, ask)?;
    member.decision = spent.decision;
    member.spent = Some(spent);
    Ok(())
}

/// Rolls the members' charges back, in the reverse order of their keys. Where another caller has charged the bucket
/// since, the rollback reads the clock again: units that have refilled since the charge are not returned.
fn roll_back(view: LimitsView<'_>, members: &mut [Prepared<'_>]) {
    members.iter_mut().rev().for_each(|member| roll_back_one(view, member));
}

fn roll_back_one(view: LimitsView<'_>, member: &mut Prepared<'_>) {
    // Taken first: if the rollback panics, it is not tried again.
    if let Some(spent) = member.spent.take() {
        undo(view, &member.key, &member.limit, member.cost, &spent);
    }
}

/// Rolls a charge of `cost` units back.
pub(in crate::limiter) fn undo(
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    cost: u64,
    spent: &Spent,
) {
    if fault::active(Fault::NoRollBack) {
        return;
    }
    if fault::active(Fault::RefundForRollBack) {
        let now_ns = view.inner.clock.now_ns();
        let _ = view.refund(key, limit, cost, now_ns);
        return;
    }
    // Under the newest limits, if a reload has moved the word, and the charge in it, to them.
    view.inner.with_view(|now| now.roll_back(view.generation, key, limit, spent));
}

/// Calls `call`, which may charge members. If it panics (in a custom rule, clock or subscriber), the charges are rolled
/// back.
pub(in crate::limiter) fn undone_on_panic<'a, R>(
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
            // A second panic during unwinding would abort the process. A member whose rollback panics stays charged.
            let _ = catch_unwind(AssertUnwindSafe(|| roll_back_one(self.view, member)));
        }
    }
}
