//! A charge of a bucket in the store, whose units its caller may return, settle or refund later.
//!
//! Each of these is a task of the store, which goes on if nobody waits for it.

use std::cmp::Ordering;

use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::shared::calls::change::{Answer, ChangedBucket, InStore, Placed};
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::store::key::Key;

/// A charge of a bucket in the store.
#[derive(Clone)]
pub(crate) struct ChargedInStore {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    /// The limit of the charge, without the caller's factor.
    pub(super) limit: Limit,
    /// The caller's factor.
    pub(super) factor: Factor,
    /// The units of the call, also if nothing was charged.
    pub(super) cost: u64,
    /// `None`: nothing was charged. A limit in shadow mode charges nothing for a call that it would deny.
    pub(super) mark: Option<ChargeMark>,
    /// The word that a reservation has written.
    pub(super) reserved: Option<u64>,
    /// The end of the override that applied, in ns of the limiter's clock.
    pub(super) ends_ns: Option<u64>,
}

impl ChargedInStore {
    /// Reads the limiter's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.handle.limiter.inner.clock.now_ns()
    }

    /// Begins to cancel a reservation.
    pub(crate) fn begin_cancel(&self) {
        match self.reserved {
            Some(word) => self.begin(Step::Cancel { units: self.cost, word }),
            None => self.begin_return(),
        }
    }

    /// Begins to return all units of the charge.
    pub(crate) fn begin_return(&self) {
        if let Some(charge) = self.mark {
            self.begin(Step::Return { units: self.cost, charge });
        }
    }

    /// Begins a step that returns units, if the limit of the charge still applies.
    fn begin(&self, step: Step) {
        if self.mark.is_some()
            && let Ok(Some(place)) = self.place_now()
            && self.is_of(&place.member)
        {
            self.run(place, step);
        }
    }

    /// Runs a step that no caller waits for.
    fn run(&self, InStore { store, member, .. }: InStore, step: Step) {
        let (handle, by) = (self.handle.clone(), store.clone());
        store.run(Box::pin(async move {
            // Asked here and not before: nobody waits for it, so it is never too late.
            let change = BucketChange { member, step };
            let reply = by.change([change.clone()].into());
            if handle.changed(&*by, change, reply).await.is_err() {
                handle.tally.count_error();
            }
        }));
    }

    /// Begins to replace the estimate by the actual cost. Returns where the decision will come; `None` if no limit applies now.
    pub(super) fn settle(&self, actual: u64) -> Result<Option<Answer<Decision>>, Error> {
        let Some(place) = self.place_now()? else { return Ok(None) };
        let (step, is_shadow) = (self.settlement(&place, actual), place.terms.is_shadow);
        let settled = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            let decision = changed.inspect_err(|_| handle.tally.count_error())?.check();
            Ok(if is_shadow { decision.in_shadow() } else { decision })
        };
        Ok(Some(self.handle.change(place, step, settled)))
    }

    /// Returns the step that replaces the estimate by the actual cost.
    fn settlement(&self, place: &InStore, actual: u64) -> Step {
        let (InStore { member, terms, .. }, cost) = (place, self.cost);
        // A limit in shadow mode that would have denied the estimate charges nothing of the call.
        let owes_none = terms.is_shadow && cost > 0 && self.mark.is_none();
        match (actual.cmp(&cost), self.mark) {
            (Ordering::Less, Some(charge)) if self.is_of(member) => {
                Step::Return { units: cost - actual, charge }
            }
            (Ordering::Greater, _) if !owes_none => {
                Step::Owe { units: actual - cost, max_debt: terms.max_debt }
            }
            _ => Step::Look,
        }
    }

    /// Whether the limit of the charge still applies.
    fn is_of(&self, member: &StoreMember) -> bool {
        let has_ended = self.ends_ns.is_some_and(|ends_ns| ends_ns <= self.now_ns());
        !has_ended && *member.own_limit() == self.limit
    }

    /// Returns the bucket by the limit that applies now. `None`: no limit applies, it is local, or the limiter is off.
    fn place_now(&self) -> Result<Placed, Error> {
        if !self.handle.limiter.inner.is_enabled() {
            return Ok(None);
        }
        self.handle.place_of(self.key.as_ref().id, 0, self.factor)
    }
}

impl KeyedLimit {
    /// Returns when the override of an id ends, in ns of the limiter's clock.
    pub(super) fn override_end_ns(&self, id: &[u8]) -> Option<u64> {
        self.limiter.inner.with_view(|view| {
            let limits = &view.generation.limits;
            let applies = limits.entry(self.index).limit_for(id, view.limits_now_ns());
            Ok(applies.and_then(|(_, tag)| limits.end_ns(tag)))
        })
    }
}
