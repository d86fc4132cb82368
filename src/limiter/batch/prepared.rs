//! Looks up the keys and the limits of a batch's members.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::core::spent::Spent;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::member::{Member, MemberMode};
use crate::limiter::handle::KeyedLimit;
use crate::limits::{Applying, Leave, Scratch, decode, encode};
use crate::store::StoreKey;
use crate::store::key::KeyRef;
use crate::util::fault::{self, Fault};

/// The number of members that are kept on the stack; a larger batch allocates.
pub(crate) const INLINE_MEMBERS: usize = 8;

/// A member whose key and limit are known.
pub(crate) struct Prepared<'a> {
    pub(crate) key: StoreKey<'a>,
    pub(crate) limit: Cow<'a, Limit>,
    pub(crate) handle: &'a KeyedLimit,
    /// The cost that is charged; 0 for a demand above the burst of a limit in shadow mode.
    pub(crate) cost: u64,
    /// The units that the bucket must have left; 0 as `cost`.
    pub(crate) leave: u64,
    pub(crate) factor: Factor,
    pub(crate) mode: MemberMode,
    /// The position in the caller's batch.
    pub(crate) position: usize,
    pub(crate) trial: Trial,
    pub(crate) decision: Decision,
    /// The member's charge, until it is returned.
    pub(crate) spent: Option<Spent>,
    /// Whether the shadow bucket was charged as well.
    pub(crate) is_in_shadow: bool,
}

/// How a member's limit is tried: its denials are counted, but deny no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// The limit is enforced.
    Nothing,
    /// The limit is in shadow mode. `is_above`: the cost is above the burst.
    ShadowMode { is_above: bool },
    /// The limit is enforced, and has a shadow limit beside it. `percent`: the part of the shadow limit's burst that the member
    /// must leave; 0: the units that it must leave of the enforced limit.
    ShadowBeside { percent: u8 },
}

/// The members that a limit applies to, sorted by key: by the limit's index, then by the id's bytes. Every batch
/// charges in this order. So if the buckets have the units for one of two equal batches at the same time, one is
/// allowed.
pub(crate) type PreparedMembers<'a> = SmallVec<[Prepared<'a>; INLINE_MEMBERS]>;

/// What a batch is prepared for.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    /// Returns the part of a member's demand that may not be above the burst, else the batch is an error.
    demand: fn(Demand) -> Demand,
    may_charge: bool,
}

pub(crate) const OF_SPEND: Needs = Needs { demand: |demand| demand, may_charge: true };
pub(crate) const OF_CHECK: Needs = Needs { may_charge: false, ..OF_SPEND };
pub(crate) const OF_REFUND: Needs = Needs { demand: |demand| demand.cost.into(), may_charge: true };
pub(crate) const OF_RESET: Needs = Needs { demand: |_| Demand::NOTHING, may_charge: true };

impl Trial {
    pub(crate) fn is_beside(self) -> bool {
        matches!(self, Trial::ShadowBeside { .. })
    }
}

impl Prepared<'_> {
    pub(crate) fn is_in_shadow_mode(&self) -> bool {
        matches!(self.trial, Trial::ShadowMode { .. })
    }

    pub(crate) fn demand(&self) -> Demand {
        Demand { cost: self.cost, leave: self.leave }
    }

    /// Whether only the store knows the member's bucket.
    pub(crate) fn is_shared(&self, view: LimitsView<'_>) -> bool {
        view.generation.limits.entry(self.key.key.limit).is_shared()
    }

    /// Whether the member takes permits.
    pub(crate) fn is_of_permits(&self) -> bool {
        self.limit.rule().is_concurrency()
    }

    /// Whether the member can deny the batch.
    pub(crate) fn can_deny(&self) -> bool {
        self.mode != MemberMode::SpendOnly && !self.is_in_shadow_mode()
    }

    /// Whether the member is charged if the batch is allowed and the bucket has the units.
    pub(crate) fn is_to_be_charged(&self) -> bool {
        self.mode != MemberMode::CheckOnly && self.cost > 0 && !self.decision.blocked()
    }

    /// The member's own decision, as callers see it.
    pub(crate) fn shown_decision(&self) -> Decision {
        match self.is_in_shadow_mode() {
            true => self.decision.in_shadow(),
            false => self.decision.for_member(self.position),
        }
    }
}

/// Prepares the members that a limit applies to, and adds them to `prepared`, which is empty: it is too large to be moved.
pub(crate) fn prepare_all<'a>(
    limiter: &'a Limiter,
    members: impl Iterator<Item = &'a Member<'a>>,
    view: LimitsView<'a>,
    scratches: &'a mut [Scratch],
    needs: Needs,
    prepared: &mut PreparedMembers<'a>,
) -> Result<(), Error> {
    for ((position, member), scratch) in members.enumerate().zip(scratches) {
        member.handle.check_limiter(limiter)?;
        let Some(member) = prepare(view, (position, member), scratch, needs.may_charge)? else {
            continue;
        };
        let demand = (needs.demand)(member.demand());
        if demand.needed() > member.limit.burst() {
            member.handle.tally.count_error();
            return Err(member.limit.cost_error(demand, Some(member.handle.name())));
        }
        prepared.push(member);
    }
    if !fault::active(Fault::CallersOrder) {
        prepared.sort_unstable_by_key(|member| member.key.key);
    }
    for pair in prepared.windows(2) {
        if pair[0].key.key == pair[1].key.key {
            let handle = pair[1].handle;
            let (name, id) = (handle.name(), decode(handle.format, pair[1].key.key.id));
            let text = format!("the bucket {name}:{id} is named twice in the batch");
            return Err(Error::new(ErrorKind::Batch, text));
        }
    }
    Ok(())
}

/// Prepares one member; `None` if no limit applies.
fn prepare<'a>(
    view: LimitsView<'a>,
    (position, member): (usize, &Member<'a>),
    scratch: &'a mut Scratch,
    may_charge: bool,
) -> Result<Option<Prepared<'a>>, Error> {
    let Member { handle, id, cost, terms, factor, .. } = *member;
    let mode = terms.mode();
    let id = encode(handle.format, id, scratch).inspect_err(|_| handle.tally.count_error())?;
    let key = KeyRef { limit: handle.index, id };
    let applies = view.generation.limits.applying(key, view.limits_now_ns());
    let Some(Applying { key, entry, limit, tag }) = applies else { return Ok(None) };
    let limit = if factor == Factor::ONE {
        handle.with_set_max(limit, tag)
    } else {
        let may_charge = may_charge && mode != MemberMode::CheckOnly;
        let scaled = view.scaled(key.limit, limit, factor, may_charge);
        match scaled.inspect_err(|_| handle.tally.count_error())? {
            Some(limit) => Cow::Owned(limit),
            None => return Ok(None),
        }
    };
    let (leave, percent) = match terms.leave() {
        Leave::Units(leave) => (leave, 0),
        Leave::Floor(name) => {
            let of_limit = view.generation.limits.entry(handle.index);
            let floor = of_limit.floor(name.text()).inspect_err(|_| handle.tally.count_error())?;
            (floor.units_of(limit.burst()), floor.percent())
        }
    };
    let trial = match entry.is_shadow() {
        true => Trial::ShadowMode { is_above: Demand { cost, leave }.needed() > limit.burst() },
        false if entry.shadow_beside(tag).is_some() => Trial::ShadowBeside { percent },
        false => Trial::Nothing,
    };
    let is_above = trial == (Trial::ShadowMode { is_above: true });
    let Demand { cost, leave } = if is_above { Demand::NOTHING } else { Demand { cost, leave } };
    Ok(Some(Prepared {
        key: view.store_key(key, tag),
        limit,
        handle,
        cost,
        leave,
        factor,
        mode,
        position,
        trial,
        decision: Decision::UNLIMITED,
        spent: None,
        is_in_shadow: false,
    }))
}

/// Returns the strictest decision of the members that `counts` selects; of equal ones the last in the caller's order.
pub(crate) fn strictest(
    members: &[Prepared<'_>],
    counts: impl Fn(&Prepared<'_>) -> bool,
) -> Decision {
    let strictest = members
        .iter()
        .filter(|member| counts(member))
        .max_by(|a, b| a.decision.cmp_strictness(&b.decision).then(a.position.cmp(&b.position)));
    strictest.map_or(Decision::UNLIMITED, |member| member.decision.for_member(member.position))
}
