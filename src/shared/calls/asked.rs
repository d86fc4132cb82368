//! A batch of which some members are asked of the store, without borrowed parts.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::batch::prepared::Trial;
use crate::limiter::batch::{INLINE_MEMBERS, MemberMode, Prepared};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::Receipt;
use crate::shared::calls::kept::{DecidedBatch, MemberCharge};
use crate::shared::calls::lease::LeasedMember;
use crate::shared::calls::outage::{decide_without, end_outage};
use crate::shared::calls::taken::TakenFromLease;
use crate::shared::protocol::decide::{DecidedMember, decide_found, decide_found_one, denied_by};
use crate::shared::protocol::denials::{Denials, Marks};
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::outage::Policy;
use crate::shared::protocol::{Found, SharedMode, SharedStore, StoreMember};
use crate::store::key::Key;

/// One member of a decided batch, as it is counted.
pub(super) struct Counted {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    burst: u64,
    pub(super) cost: u64,
    leave: u64,
    pub(super) factor: Factor,
    pub(super) mode: MemberMode,
    pub(super) trial: Trial,
    pub(super) position: usize,
    pub(super) decision: Decision,
    /// Whether the node's lease has answered: how much of its burst the bucket has left is not known then.
    pub(super) is_leased: bool,
    /// The limit, if the call keeps it.
    pub(super) limit: Option<Limit>,
}

/// A batch that the store decides. Its local members, and those that leases of this node have answered, are charged already.
pub(crate) struct AskedBatch {
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) locals: Vec<Counted>,
    pub(super) claims: LocalCharges,
    /// The members that the store knows, in the order of `members`.
    pub(super) shared: SmallVec<[Counted; 1]>,
    pub(super) members: Arc<[StoreMember]>,
    /// Those of them whose limits are leased, by position in `members`.
    pub(super) leased: Vec<(usize, LeasedMember)>,
    /// What decides each of them if the store does not.
    pub(super) policies: SmallVec<[Policy; 1]>,
    pub(super) call: SharedCall,
    pub(super) passed: Passed,
    /// The marks with which the node keeps a denial of the batch. `None`: it keeps none.
    pub(super) keeping: Option<Keeping>,
}

/// When a batch was sent, and the marks of its buckets then.
pub(super) struct Keeping {
    pub(super) sent_ns: u64,
    pub(super) marks: Marks,
}

/// The charges of the local members, and the units that members have taken from leases, each with its member's position.
/// They are given back when this is dropped before it is told to keep them: also if the store's thread ends before it has
/// asked.
pub(super) struct LocalCharges {
    receipt: Option<Box<Receipt>>,
    taken: Vec<(usize, TakenFromLease)>,
    is_kept: bool,
}

impl LocalCharges {
    pub(super) fn new(receipt: Option<Receipt>) -> LocalCharges {
        LocalCharges { receipt: receipt.map(Box::new), taken: Vec::new(), is_kept: false }
    }

    pub(super) fn add(&mut self, position: usize, taken: TakenFromLease) {
        self.taken.push((position, taken));
    }

    /// Takes the charge of a member.
    pub(super) fn take(&mut self, position: usize) -> Option<MemberCharge> {
        let own = self.receipt.as_mut().and_then(|receipt| receipt.take_member(position));
        if let Some(receipt) = own {
            return Some(MemberCharge::Here(Box::new(receipt)));
        }
        let at = self.taken.iter().position(|(of, _)| *of == position)?;
        Some(MemberCharge::FromLease(Box::new(self.taken.swap_remove(at).1)))
    }
}

impl Drop for LocalCharges {
    fn drop(&mut self) {
        if !self.is_kept {
            self.taken.iter().for_each(|(_, taken)| taken.give_back());
            self.receipt.iter().for_each(|receipt| receipt.give_back_all());
        }
    }
}

/// The form of a call that the store may have to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedCall {
    /// Whether the members are charged and counted. A check does neither.
    pub(super) spends: bool,
    /// Whether it is the call of a handle for one bucket: its decision then also has the figures of a limit in shadow mode.
    pub(super) is_of_one: bool,
    /// Whether the caller wants each member's decision, and may return the charges later.
    pub(crate) keeps: bool,
    /// Whether the caller holds all charges, so that members may take permits.
    pub(super) holds: bool,
}

impl SharedCall {
    pub(crate) const SPEND: SharedCall =
        SharedCall { spends: true, is_of_one: false, keeps: false, holds: false };
    pub(super) const CHECK: SharedCall = SharedCall { spends: false, ..SharedCall::SPEND };

    pub(crate) const fn keeping(self) -> SharedCall {
        SharedCall { keeps: true, ..self }
    }

    pub(crate) const fn holding(self) -> SharedCall {
        SharedCall { holds: true, ..self.keeping() }
    }

    pub(super) const fn of_one(self) -> SharedCall {
        SharedCall { is_of_one: true, ..self }
    }
}

impl Counted {
    pub(super) fn new(member: &Prepared<'_>, call: SharedCall) -> Counted {
        Counted {
            handle: member.handle.clone(),
            key: Key::new(member.key.key),
            burst: member.limit.burst(),
            cost: member.cost,
            leave: member.leave,
            factor: member.factor,
            mode: member.mode,
            trial: member.trial,
            position: member.position,
            decision: member.decision,
            is_leased: false,
            limit: call.keeps.then(|| (*member.limit).clone()),
        }
    }

    /// Makes a member that the node's lease has answered.
    pub(super) fn by_lease(member: &Prepared<'_>, call: SharedCall) -> Counted {
        Counted { is_leased: true, ..Counted::new(member, call) }
    }

    pub(super) fn is_in_shadow_mode(&self) -> bool {
        matches!(self.trial, Trial::ShadowMode { .. })
    }

    fn can_deny(&self) -> bool {
        self.mode != MemberMode::SpendOnly && !self.is_in_shadow_mode()
    }

    /// Counts the member of an allowed batch, or the one that denied it. Returns whether a shadow limit beside its limit was
    /// charged.
    fn count(&self, is_denied: bool) -> bool {
        let (handle, decision) = (&self.handle, &self.decision);
        let inner = &*handle.limiter.inner;
        let key = self.key.as_ref();
        let would_deny = match self.trial {
            Trial::Nothing => false,
            Trial::ShadowMode { is_above } => is_above || !decision.allowed(),
            // A shadow limit tries other numbers, and has no blocks.
            Trial::ShadowBeside { .. } if decision.blocked() => false,
            Trial::ShadowBeside { percent } => {
                let demand = (Demand { cost: self.cost, leave: self.leave }, percent);
                let (spends, now_ns) = (self.mode != MemberMode::CheckOnly, inner.clock.now_ns());
                inner.in_shadow_leaving(key, self.factor, demand, spends, now_ns)
            }
        };
        handle.note_shadow(would_deny && self.mode != MemberMode::SpendOnly);
        let is_in_shadow = self.trial.is_beside() && !would_deny && !decision.blocked();
        let Some(stripes) = &handle.stripes else { return is_in_shadow };
        if self.is_leased {
            stripes.count_by_lease(true);
        }
        if is_denied {
            handle.count_denied(stripes, key.id, decision, inner.clock.now_ns());
            return is_in_shadow;
        }
        // The cost of a spend-only member may not fit: then it is neither allowed nor denied.
        if self.mode != MemberMode::SpendOnly || decision.allowed() {
            let is_charged = self.mode != MemberMode::CheckOnly && decision.allowed();
            let figures = if self.is_leased { &Decision::UNLIMITED } else { decision };
            stripes.count_allowed(figures, self.burst, if is_charged { self.cost } else { 0 });
        }
        is_in_shadow
    }
}

/// Returns the mode of a member for the store.
pub(super) fn shared_mode(member: &Prepared<'_>, spends: bool) -> SharedMode {
    match (member.can_deny(), member.mode == MemberMode::CheckOnly || !spends) {
        (true, true) => SharedMode::CheckOnly,
        (false, true) => SharedMode::LookOnly,
        (true, false) => SharedMode::CheckAndSpend,
        (false, false) => SharedMode::SpendOnly,
    }
}

impl AskedBatch {
    /// Decides the batch by the store's answer, gives the local charges back if it does not allow the batch, and counts.
    pub(super) fn decide_by(
        mut self: Box<Self>,
        answer: Result<Found, Error>,
    ) -> Result<DecidedBatch, Error> {
        drop(std::mem::take(&mut self.passed));
        let found = match answer {
            Ok(found) => found,
            Err(error) if error.is_undecided() => return Ok(self.decide_undecided(&error)),
            Err(error) => return Err(self.failed(error)),
        };
        self.note_answer(&found);
        if let Some(first) = self.shared.first() {
            end_outage(&first.handle);
        }
        match self.figures(&found) {
            Ok(decision) => {
                let decision = self.taken_instead(&decision).unwrap_or(decision);
                Ok(self.finished(decision, Some(found)))
            }
            Err(error) => {
                self.store.count_unknown_text(&error);
                Err(self.failed(error))
            }
        }
    }

    /// Takes the units of the one member that the store has denied from a lease of this node. Of calls that are sent together
    /// one gets a lease, and the store may have none left for the others.
    fn taken_instead(&mut self, denial: &Decision) -> Option<Decision> {
        let [(_, leased)] = &*self.leased else { return None };
        let [StoreMember { mode: SharedMode::CheckAndSpend, cost, .. }] = &*self.members else {
            return None;
        };
        if denial.allowed() || denial.blocked() {
            return None;
        }
        let (decision, taken) = leased.take_instead(*cost)?;
        let mut member = self.shared.pop()?;
        self.claims.add(member.position, taken);
        (member.decision, member.is_leased) = (decision, true);
        self.locals.push(member);
        Some(self.strictest_of(std::iter::empty()))
    }

    /// Counts a batch that is not decided.
    fn failed(&self, error: Error) -> Error {
        self.shared.iter().for_each(|member| member.handle.tally.count_error());
        error
    }

    /// Keeps the charges of an allowed batch, counts the batch, and makes its result. `found`: the store's answer.
    fn finished(mut self, decision: Decision, found: Option<Found>) -> DecidedBatch {
        self.claims.is_kept = decision.allowed();
        if self.call.spends {
            self.count(&decision);
        }
        self.decided(decision, found)
    }

    pub(super) fn denials(&self) -> Option<&Denials> {
        self.shared.first()?.handle.limiter.inner.part()?.denials.as_ref()
    }

    /// Keeps the texts of a denial of the store, and those that a charge has left.
    fn note_answer(&self, found: &Found) {
        let Some(denials) = self.denials() else { return };
        // The next call finds another bucket if this one got a lease, or gave units up.
        let are_as_found = match found.denied {
            Some(_) => self.leased.iter().all(|(_, leased)| leased.leaves_no_units()),
            None => self.leased.is_empty(),
        };
        match &self.keeping {
            Some(keeping) if are_as_found => {
                let answered_ns = self.shared[0].handle.limiter.inner.clock.now_ns();
                denials.keep(&self.members, found, &keeping.marks, (keeping.sent_ns, answered_ns));
            }
            Some(_) if found.denied.is_some() => {}
            _ => self.members.iter().for_each(|member| denials.forget(&member.key)),
        }
    }

    /// Decides a batch by the texts of an earlier denial, which deny it as well.
    pub(super) fn decide_by_denial(mut self, found: Found) -> Result<DecidedBatch, Error> {
        let decision = self.figures(&found)?;
        if self.call.spends {
            let denier = self.shared.iter().find(|it| Some(it.position) == decision.denied_by());
            if let Some(stripes) = denier.and_then(|denier| denier.handle.stripes.as_ref()) {
                stripes.count_by_lease(false);
            }
        }
        Ok(self.finished(decision, Some(found)))
    }

    /// Decides a batch that the store has not decided: by the policies of its shared members, or denies it for overload. Leases
    /// that were to go back with a call that was not sent stay.
    pub(super) fn decide_undecided(mut self, error: &Error) -> DecidedBatch {
        let decision = self.decide_without(error);
        if error.is_unsent() {
            self.leased.iter_mut().for_each(|(_, leased)| leased.not_sent());
        }
        if self.call.spends && error.is_store_outage() {
            self.count_without_store(&decision);
        }
        self.finished(decision, None)
    }

    /// Decides a batch of which no member has to be asked of the store: leases of this node have answered all of them.
    pub(super) fn decide_here(mut self) -> DecidedBatch {
        let decision = self.strictest_of(std::iter::empty());
        self.finished(decision, None)
    }

    /// Computes the figures of the batch's decision from the texts that the store found.
    fn figures(&mut self, found: &Found) -> Result<Decision, Error> {
        let mut decided = decide_found(&self.members, found)?;
        let units = |member: &DecidedMember| member.granted.map_or(0, |granted| granted.units);
        let is_leased = decided.iter().map(units).eq(found.leased.iter().copied());
        // The store grants no lease to a batch that it denies.
        if denied_by(&self.members, &decided) != found.denied
            || (found.denied.is_none() && !is_leased)
        {
            let text = "the store's script and this program decide differently; they are of different versions";
            return Err(Error::new(ErrorKind::Store, text));
        }
        for (at, leased) in &mut self.leased {
            if let Some(member) = leased.with_kept(&self.members[*at]) {
                decided[*at] = decide_found_one(&member, found, *at)?;
            }
            leased.answered(&decided[*at], found);
        }
        Ok(self.strictest_of(decided.into_iter().map(|decided| decided.decision)))
    }

    /// Decides the batch by the policies of its shared members.
    fn decide_without(&mut self, error: &Error) -> Decision {
        let Some(first) = self.shared.first() else { return Decision::UNLIMITED };
        let decided = decide_without(&first.handle, &self.members, &self.policies, error);
        let spends = self.call.spends;
        debug_assert!(spends || self.members.iter().all(|member| !member.mode.is_charged()));
        self.strictest_of(decided.into_iter())
    }

    /// Counts the shared members of a batch that their policies have decided, as [`count`](Self::count) does.
    fn count_without_store(&self, decision: &Decision) {
        for member in &self.shared {
            let is_counted =
                decision.denied_by().is_none_or(|position| position == member.position);
            if is_counted && member.mode != MemberMode::SpendOnly {
                member.handle.tally.count_without_store(member.decision.allowed());
            }
        }
    }

    /// Gives each shared member its decision, and returns that of the batch.
    fn strictest_of(&mut self, decisions: impl Iterator<Item = Decision>) -> Decision {
        for (member, decision) in self.shared.iter_mut().zip(decisions) {
            member.decision = decision;
        }
        if let ([member], true) = (&*self.shared, self.call.is_of_one)
            && member.is_in_shadow_mode()
        {
            return member.decision.in_shadow();
        }
        let members = self.locals.iter().chain(&self.shared).filter(|member| member.can_deny());
        let mut in_order: SmallVec<[_; INLINE_MEMBERS]> = members.collect();
        in_order.sort_unstable_by_key(|member| member.position);
        in_order.iter().fold(Decision::UNLIMITED, |strictest, member| {
            strictest.stricter(member.decision.for_member(member.position))
        })
    }

    fn count(&mut self, decision: &Decision) {
        for member in self.locals.iter().chain(&self.shared) {
            let is_in_shadow = match decision.denied_by() {
                None => member.count(false),
                Some(position) if position == member.position => member.count(true),
                Some(_) => false,
            };
            let mut claims = self.claims.receipt.iter_mut().flat_map(|it| it.claims_mut());
            if is_in_shadow
                && let Some(claim) = claims.find(|claim| claim.position() == member.position)
            {
                claim.is_in_shadow = true;
            }
        }
    }
}
