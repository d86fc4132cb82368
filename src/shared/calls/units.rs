//! Calls for one bucket that nodes may share and that charge as many units as there are.

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;
use crate::shared::calls::change::{ChangedBucket, InStore, Terms, here_or_in_store};
use crate::shared::calls::handle::ScaledSharedLimit;
use crate::shared::calls::outage::decide_spend_without;
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::change::Step;

impl ScaledSharedLimit<'_> {
    /// Like [`SharedLimit::spend_up_to`](crate::shared::SharedLimit::spend_up_to), which has an example.
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`].
    pub async fn spend_up_to<'a>(
        &self,
        id: impl Into<Id<'a>>,
        most: u64,
    ) -> Result<(u64, Decision), Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, 0, factor);
        let call = || limit.scaled(factor).spend_up_to(id, most);
        let ask = |place: InStore| {
            let (key, member, terms) = (limit.key_of(id)?, place.member.clone(), place.terms);
            let at_most = most.min(member.limit.burst());
            let count = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
                let granted = changed.map(|it| (it.stepped.units, it.stepped.decision));
                handle.granted(key.as_ref().id, (granted, most), (member, terms))
            };
            Ok(limit.change(place, Step::SpendUpTo { most: at_most }, count))
        };
        here_or_in_store(place, call, ask).await
    }

    /// Like [`SharedLimit::drain`](crate::shared::SharedLimit::drain).
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`].
    pub async fn drain<'a>(&self, id: impl Into<Id<'a>>, leave: u64) -> Result<Decision, Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, 0, factor);
        let call = || limit.scaled(factor).drain(id, leave);
        let drained = |_: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            Ok(changed?.check().of_refund())
        };
        let ask = |place| Ok(limit.change(place, Step::Drain { leave }, drained));
        here_or_in_store(place, call, ask).await
    }
}

impl KeyedLimit {
    /// Counts a partial grant, or decides it by the limit's policy if the store does not.
    fn granted(
        &self,
        id: &[u8],
        (granted, most): (Result<(u64, Decision), Error>, u64),
        (member, terms): (StoreMember, Terms),
    ) -> Result<(u64, Decision), Error> {
        let limit = member.limit.clone();
        let (units, decision) = match granted {
            Ok(granted) => granted,
            Err(error) if error.is_undecided() => {
                let cost = most.min(limit.burst());
                let decision = decide_spend_without(self, member, cost, terms.policy, &error);
                (if decision.allowed() { cost } else { 0 }, decision)
            }
            Err(error) => {
                self.tally.count_error();
                return Err(error);
            }
        };
        let (granted, decision) = match terms.is_shadow {
            true => {
                self.note_shadow(!decision.allowed());
                (most, decision.in_shadow())
            }
            false => (units, decision),
        };
        self.count(id, &limit, units, &decision, self.limiter.inner.clock.now_ns());
        Ok((granted, decision))
    }
}
