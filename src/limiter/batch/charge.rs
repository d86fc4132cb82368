//! Decides a batch: looks at all members, then charges them, and returns the charges if a member is denied.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::algorithm::demand::Demand;
use crate::core::returns::ReturnableCharge;
use crate::core::spent::Spent;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limiter::batch::prepared::{Prepared, strictest};
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// Decides and charges a batch; returns its decision and time.
pub(crate) fn spend(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
) -> Result<(Decision, u64), Outdated> {
    let now_ns = look(view, members, Looks::AtBuckets)?;
    let mut decision = strictest(members, |member| member.can_deny());
    if decision.allowed() {
        charge_all(view, members, now_ns)?;
        // Charging has replaced the members' decisions by those of the stored charges.
        decision = strictest(members, |member| member.can_deny());
    }
    Ok((decision, now_ns))
}

/// The state by which a member is decided before it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Its bucket alone. The charge makes room for a new bucket, or finds that there is none.
    AtBuckets,
    /// Also whether the table has room for its bucket, for a call that charges nothing.
    AtRoom,
}

/// Decides each member alone by its bucket's word, and writes nothing; returns the time. The clock is read once. The
/// cache lines of all cells are prefetched before the first is read.
pub(crate) fn look(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
    looks: Looks,
) -> Result<u64, Outdated> {
    for member in members.iter() {
        view.inner.store.prefetch(member.key.fingerprint);
    }
    let now_ns = view.inner.clock.now_ns();
    for member in members {
        let (key, limit, demand) = (&member.key, &*member.limit, member.demand());
        member.decision = match view.blocked_ns(key, now_ns) {
            Some(left_ns) => view.denied_by_block(key, limit, demand.needed(), now_ns, left_ns)?,
            None => {
                let ask = |word, at_ns| limit.rule().spend_leaving(word, at_ns, demand);
                if looks == Looks::AtRoom && member.is_to_be_charged() {
                    view.look(key, (limit, demand), now_ns, ask)?
                } else {
                    // Other rules are asked by `ask` alone.
                    let demand = if member.is_of_permits() { demand } else { Demand::NOTHING };
                    view.look_at_bucket(key, (limit, demand), now_ns, ask)?
                }
            }
        };
    }
    Ok(now_ns)
}

/// Takes the permits of members that can deny, then charges the others that can deny, then the other members whose buckets have
/// the units: each group in the order of `members`, which is that of their keys. Gives all charges back if a member that
/// can deny is denied, or if the limits have changed.
fn charge_all(
    view: LimitsView<'_>,
    members: &mut [Prepared<'_>],
    now_ns: u64,
) -> Result<(), Outdated> {
    let groups = [(true, true), (true, false), (false, true), (false, false)];
    for (can_deny, takes_permits) in groups {
        for at in 0..members.len() {
            let member = &mut members[at];
            let group = (member.can_deny(), member.is_of_permits());
            if group != (can_deny, takes_permits) || !member.is_to_be_charged() {
                continue;
            }
            let charged = charge(view, member, now_ns);
            let is_denied = can_deny && !member.decision.allowed();
            if charged.is_err() || is_denied {
                return_all(view, members);
                return charged;
            }
        }
    }
    Ok(())
}

/// Charges one member if its bucket still has the units, and remembers the charge.
fn charge(view: LimitsView<'_>, member: &mut Prepared<'_>, now_ns: u64) -> Result<(), Outdated> {
    let spent = view.spend(&member.key, &member.limit, member.demand(), now_ns)?;
    member.decision = spent.decision;
    member.spent = Some(spent);
    Ok(())
}

/// Gives the members' charges back, in the reverse order of their keys.
fn return_all(view: LimitsView<'_>, members: &mut [Prepared<'_>]) {
    members.iter_mut().rev().for_each(|member| return_one(view, member));
}

fn return_one(view: LimitsView<'_>, member: &mut Prepared<'_>) {
    // Taken first: if the return panics, it is not tried again.
    if let Some(spent) = member.spent.take() {
        return_charge(view, &member.key, member.cost, &spent);
    }
}

/// Returns a charge of `cost` units of a batch that is denied.
pub(crate) fn return_charge(view: LimitsView<'_>, key: &StoreKey<'_>, cost: u64, spent: &Spent) {
    if fault::active(Fault::NoReturn) {
        return;
    }
    if let Some(charged) = ReturnableCharge::new(view, key, *spent) {
        charged.give_back(view.inner, key.key, cost);
    }
}

/// Calls `call`, which may charge members. If it panics (in a custom algorithm, clock or subscriber), the charges are
/// returned.
pub(crate) fn returned_on_panic<'a, R>(
    view: LimitsView<'_>,
    members: &mut [Prepared<'a>],
    call: impl FnOnce(&mut [Prepared<'a>]) -> Result<R, Outdated>,
) -> Result<R, Outdated> {
    let mut charged = ReturnedOnPanic { view, members, has_returned: false };
    let result = call(charged.members);
    charged.has_returned = true;
    result
}

struct ReturnedOnPanic<'t, 'm, 'a> {
    view: LimitsView<'t>,
    members: &'m mut [Prepared<'a>],
    has_returned: bool,
}

impl Drop for ReturnedOnPanic<'_, '_, '_> {
    fn drop(&mut self) {
        if self.has_returned {
            return;
        }
        for member in self.members.iter_mut().rev() {
            // A second panic during unwinding would abort the process. A member whose return panics stays charged.
            let _ = catch_unwind(AssertUnwindSafe(|| return_one(self.view, member)));
        }
    }
}
