//! A charge of a bucket in the store, whose units its caller may return, settle or refund later.
//!
//! Each of these is a task of the store, which goes on if nobody waits for it.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::factor::Factor;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::shared::calls::change::{AskedChange, ChangedBucket};
use crate::shared::protocol::change::Step;
use crate::shared::protocol::{SharedStore, StoreMember};
use crate::store::key::Key;

/// A charge of a bucket in the store.
#[derive(Clone)]
pub(crate) struct ChargedInStore {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) member: StoreMember,
    /// The caller's factor, which scaled the member's limit.
    pub(super) factor: Factor,
    pub(super) cost: u64,
    /// `None`: nothing was charged. A limit in shadow mode charges nothing for a call that it would deny.
    pub(super) mark: Option<ChargeMark>,
    /// The word that a reservation has written.
    pub(super) reserved: Option<u64>,
    /// The end of the override that applied, in ns of the limiter's clock.
    pub(super) ends_ns: Option<u64>,
}

/// Where the answer of a settlement will come, and whether its limit is in shadow mode.
pub(super) type AnswerOfSettlement = (oneshot::Receiver<Result<ChangedBucket, Error>>, bool);

/// The bucket of a charge, by the limit that applies now.
struct Place {
    member: StoreMember,
    /// The most units that a settlement may make the bucket owe.
    max_debt: u64,
    is_shadow: bool,
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
            self.run(place.member, step);
        }
    }

    /// Runs a step that no caller waits for.
    fn run(&self, member: StoreMember, step: Step) {
        let charge = self.clone();
        self.store.run(Box::pin(async move {
            // Made here and not before: nobody waits for it, so it is never too late.
            let asked = AskedChange::new(&*charge.store, member, step);
            match charge.handle.changed(&*charge.store, asked).await {
                Ok(_) => {}
                Err(_) => charge.handle.tally.count_error(),
            }
        }));
    }

    /// Begins to replace the estimate `cost` by the actual cost. Returns where the answer will come, and whether the limit is
    /// in shadow mode; `None` if no limit applies now.
    pub(super) fn settle(
        &self,
        cost: u64,
        actual: u64,
    ) -> Result<Option<AnswerOfSettlement>, Error> {
        let Some(place) = self.place_now()? else { return Ok(None) };
        let step = self.settlement(&place, cost, actual);
        let Place { member, is_shadow, .. } = place;
        let counted = |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            changed.inspect_err(|_| handle.tally.count_error())
        };
        Ok(Some((self.handle.change((self.store.clone(), member), step, counted), is_shadow)))
    }

    /// Returns the step that replaces the estimate `cost` by the actual cost.
    fn settlement(&self, place: &Place, cost: u64, actual: u64) -> Step {
        // A limit in shadow mode that would have denied the estimate charges nothing of the call.
        let owes_none = place.is_shadow && cost > 0 && self.mark.is_none();
        match (actual.cmp(&cost), self.mark) {
            (Ordering::Less, Some(charge)) if self.is_of(&place.member) => {
                Step::Return { units: cost - actual, charge }
            }
            (Ordering::Greater, _) if !owes_none => {
                Step::Owe { units: actual - cost, max_debt: place.max_debt }
            }
            _ => Step::Look,
        }
    }

    /// Whether the limit of the charge still applies.
    fn is_of(&self, member: &StoreMember) -> bool {
        let has_ended = self.ends_ns.is_some_and(|ends_ns| ends_ns <= self.now_ns());
        !has_ended && member.own_limit() == self.member.own_limit()
    }

    /// Returns the bucket by the limit that applies now. `None`: no limit applies, it is local, or the limiter is off.
    fn place_now(&self) -> Result<Option<Place>, Error> {
        let inner = &*self.handle.limiter.inner;
        if !inner.is_enabled() {
            return Ok(None);
        }
        let (id, index) = (self.key.as_ref().id, self.key.as_ref().limit);
        let Some((_, member)) = self.handle.place_of(id, 0, self.factor)? else {
            return Ok(None);
        };
        Ok(Some(inner.with_view(|view| {
            let entry = view.generation.limits.entry(index);
            let applies = entry.limit_for(id, view.limits_now_ns());
            Ok(Place {
                member: member.clone(),
                max_debt: applies.map_or(0, |(_, tag)| entry.max_debt_at(tag)),
                is_shadow: entry.is_shadow(),
            })
        })))
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
