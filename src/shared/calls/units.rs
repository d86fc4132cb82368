//! Calls for one bucket that nodes may share and that charge as many units as there are.

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;
use crate::shared::calls::answer;
use crate::shared::calls::change::{ChangedBucket, Where, find_or_call};
use crate::shared::calls::handle::ScaledSharedLimit;
use crate::shared::calls::outage::decide_without;
use crate::shared::calls::reserve::Terms;
use crate::shared::protocol::change::Step;
use crate::shared::protocol::text::rule_time_ns;
use crate::shared::protocol::{SharedMode, StoreMember};

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
        let (store, member, terms) = loop {
            let place = || limit.place_scaled(id, 0, factor);
            match find_or_call(place, || limit.scaled(factor).spend_up_to(id, most))? {
                Where::Here(granted) => return Ok(granted),
                Where::InStore(store, member) => {
                    // A reload that makes the limit a local one may come between.
                    if let Some(terms) = limit.terms(id)? {
                        break (store, member, terms);
                    }
                }
            }
        };
        let (key, asked) = (limit.key_of(id)?, member.clone());
        let at_most = most.min(member.limit.burst());
        let granted_by = move |changed: ChangedBucket| {
            let ChangedBucket { member, stepped } = changed;
            let (rule, now_ns) = (member.limit.rule(), rule_time_ns(stepped.unix_ns));
            let word = stepped.before.word;
            if let Some(left_ns) = stepped.before.blocked_ns(stepped.unix_ns) {
                let asked = rule.spend(word, now_ns, at_most.min(1)).decision;
                let free = rule.spend(word, now_ns, 0).decision;
                let asked = if asked.allowed() { free } else { asked };
                return (0, asked.under_block(left_ns));
            }
            (stepped.units, rule.spend_up_to(word, now_ns, at_most).1.decision)
        };
        let count = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            let granted = changed.map(granted_by);
            handle.granted(key.as_ref().id, (granted, most), (asked, terms))
        };
        answer(limit.change((store, member), Step::SpendUpTo { most: at_most }, count)).await
    }

    /// Like [`SharedLimit::drain`](crate::shared::SharedLimit::drain).
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`].
    pub async fn drain<'a>(&self, id: impl Into<Id<'a>>, leave: u64) -> Result<Decision, Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, 0, factor);
        let found = find_or_call(place, || limit.scaled(factor).drain(id, leave))?;
        let (store, member) = match found {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let drained = limit.change((store, member), Step::Drain { leave }, |_, drained| drained);
        Ok(answer(drained).await?.check().of_refund())
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
                let member = StoreMember { cost, mode: SharedMode::CheckAndSpend, ..member };
                let decided = decide_without(self, &[member], &[terms.policy], &error);
                let decision = decided.first().copied().unwrap_or(Decision::UNLIMITED);
                if error.is_store_outage() {
                    self.tally.count_without_store(decision.allowed());
                }
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
