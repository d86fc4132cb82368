//! A charge of a bucket in the store, which its caller may roll back, settle or refund later.
//!
//! Each of these is a task of the store. The calls without I/O only begin it: its caller waits for nothing.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::algorithm::factor::Factor;
use crate::core::shared::reversible::ReversibleCharge;
use crate::core::shared::text::{SharedBucket, rule_time_ns};
use crate::core::shared::{SharedMember, SharedStore};
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::shared::change::Changed;
use crate::store::key::{Key, LimitTag};

/// How often a change is begun that no caller waits for. With the pauses between it takes about a hundred timeouts.
const MAX_TRIES: usize = 7;

/// The change that a settlement makes of a bucket, and a check of it at a cost of 0.
trait Settlement:
    Fn(&SharedMember, SharedBucket, u64) -> Changed<Decision> + Send + Sync + 'static
{
}

impl<F> Settlement for F where
    F: Fn(&SharedMember, SharedBucket, u64) -> Changed<Decision> + Send + Sync + 'static
{
}

/// A charge of a bucket in the store.
#[derive(Clone)]
pub(crate) struct ChargedInStore {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) member: SharedMember,
    /// The caller's factor, which scaled the member's limit.
    pub(super) factor: Factor,
    pub(super) cost: u64,
    /// Whether the units were charged. A limit in shadow mode charges nothing for a call that it would deny.
    pub(super) is_charged: bool,
    /// `None`: the charge cannot be rolled back.
    pub(super) reversible: Option<ReversibleCharge>,
    /// The limit at the charge: after a reload or the end of an override nothing is returned, as on one node.
    pub(super) applied: AppliedLimit,
}

/// A limit that applies to an id: a reload and the end of an override make it another one, also with the same numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedLimit {
    generation: u64,
    /// `None`: no limit applies.
    tag: Option<LimitTag>,
}

/// The bucket of a charge, by the limit that applies now.
struct Place {
    member: SharedMember,
    /// The most units that a settlement may make the bucket owe.
    max_debt: u64,
    is_shadow: bool,
    is_leased: bool,
}

impl ChargedInStore {
    /// Reads the limiter's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.handle.limiter.inner.clock.now_ns()
    }

    /// Begins to cancel a reservation.
    pub(crate) fn begin_cancel(&self) {
        self.begin(|charge, limits, bucket, unix_ns| {
            charge.reversible?.cancelled(limits, bucket, unix_ns, charge.cost)
        });
    }

    /// Begins to roll all of the charge back.
    pub(crate) fn begin_roll_back(&self) {
        self.begin(|charge, limits, bucket, unix_ns| {
            charge.reversible?.rolled_back(limits, bucket, unix_ns, (charge.cost, 0))
        });
    }

    fn begin(
        &self,
        change: impl Fn(&ChargedInStore, (&Limit, &Limit), SharedBucket, u64) -> Option<SharedBucket>
        + Copy
        + Send
        + Sync
        + 'static,
    ) {
        self.try_again_and_again(move |charge| {
            // After a reload the text's word is in the units of another limit: nothing comes back.
            let Place { member, is_leased, .. } = charge.place_now().ok()??;
            if charge.reversible.is_none() || !charge.is_of(&member) {
                return None;
            }
            let by = charge.clone();
            // A rollback sees the bucket by the limit without the factor, also the leases that have ended.
            let own = member.own_limit().clone();
            let scaled = member.limit.clone();
            let member = SharedMember { limit: own, unscaled: None, ..member };
            let step = move |member: &SharedMember, bucket: SharedBucket, unix_ns| {
                let limits = (&scaled, &member.limit);
                let changed = change(&by, limits, bucket, unix_ns);
                // Nodes can give leases of a window back only while it keeps its beginning.
                let keeps =
                    |new: &SharedBucket| limits.1.rule().keeps_window(bucket.word, new.word);
                (changed.filter(|new| !is_leased || keeps(new)), ())
            };
            Some((member, step))
        });
    }

    /// Begins to settle the estimate `cost`.
    pub(crate) fn begin_settle(&self, cost: u64, actual: u64) {
        self.try_again_and_again(move |charge| charge.settlement(cost, actual).ok()?);
    }

    /// Begins a change that no caller waits for, so that it may take its time: while other calls change the bucket again and
    /// again, it is made again after a pause, each time a longer one. `what` returns the bucket and its change by the limits of
    /// now; `None`: there is nothing to change.
    fn try_again_and_again<R, Step>(
        &self,
        what: impl Fn(&ChargedInStore) -> Option<(SharedMember, Step)> + Send + 'static,
    ) where
        R: Send,
        Step: Fn(&SharedMember, SharedBucket, u64) -> Changed<R> + Send + Sync + 'static,
    {
        let Some(first) = what(self) else { return };
        let charge = self.clone();
        self.store.run(Box::pin(async move {
            let (mut step, mut pause) = (Some(first), charge.store.patience());
            for tries in 1.. {
                let Some((member, step_now)) = step.take() else { return };
                match charge.handle.change_now(&*charge.store, member, step_now).await {
                    Ok(_) => return charge.handle.forget_denial(charge.key.as_ref().id),
                    Err(error) if error.is_contended() && tries < MAX_TRIES => {
                        charge.store.pause(pause).await;
                        pause = pause.saturating_mul(2);
                        step = what(&charge);
                    }
                    Err(_) => return charge.handle.tally.count_error(),
                }
            }
        }));
    }

    /// Replaces the estimate `cost` by the actual cost, and decides a check of the bucket at a cost of 0.
    pub(super) async fn settle(&self, cost: u64, actual: u64) -> Result<Decision, Error> {
        match self.settlement(cost, actual)? {
            Some((member, step)) => {
                let place = (self.store.clone(), member);
                self.handle.change(place, step, |_, changed| changed).await
            }
            None => Ok(Decision::UNLIMITED),
        }
    }

    /// Returns the bucket and its change. `None`: no limit applies, it is local, or the limiter is off.
    fn settlement(
        &self,
        cost: u64,
        actual: u64,
    ) -> Result<Option<(SharedMember, impl Settlement + use<>)>, Error> {
        let Some(Place { member, max_debt, is_shadow, .. }) = self.place_now()? else {
            return Ok(None);
        };
        // A limit in shadow mode that would have denied the estimate charges nothing of the call.
        let owes_none = is_shadow && cost > 0 && !self.is_charged;
        let reversible = self.reversible.filter(|_| self.is_of(&member));
        let step = move |member: &SharedMember, bucket: SharedBucket, unix_ns| {
            debug_assert!(member.unscaled.is_none(), "estimates have no factor");
            let limit = &member.limit;
            let now_ns = rule_time_ns(unix_ns);
            let new = match actual.cmp(&cost) {
                Ordering::Less => reversible
                    .and_then(|it| it.rolled_back((limit, limit), bucket, unix_ns, (cost, actual))),
                Ordering::Greater if !owes_none => {
                    let owed = limit.rule().owe(bucket.word, now_ns, actual - cost, max_debt);
                    owed.map(|word| SharedBucket { word, ..bucket })
                }
                Ordering::Equal | Ordering::Greater => None,
            };
            let word = new.unwrap_or(bucket).word;
            let decision = limit.rule().spend(word, now_ns, 0).decision;
            (new, if is_shadow { decision.in_shadow() } else { decision })
        };
        Ok(Some((member, step)))
    }

    /// Whether the bucket is in the units of the charge.
    fn is_of(&self, member: &SharedMember) -> bool {
        let now = self.handle.applied_limit(self.key.as_ref().id);
        member.limit == self.member.limit && self.applied == now
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
                is_leased: entry.sharing().lease().is_some(),
            })
        })))
    }
}

impl KeyedLimit {
    /// Finds the limit that applies to an id now.
    pub(super) fn applied_limit(&self, id: &[u8]) -> AppliedLimit {
        self.limiter.inner.with_view(|view| {
            let limit = view.generation.limits.entry(self.index);
            let applies = limit.limit_for(id, view.limits_now_ns());
            Ok(AppliedLimit {
                generation: view.generation.number,
                tag: applies.map(|(_, tag)| tag),
            })
        })
    }
}
