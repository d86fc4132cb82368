//! Calls for one bucket that several nodes share.

use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::core::shared::change::{Step, Stepped};
use crate::core::shared::text::rule_time_ns;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limiter::shared::asked::SharedCall;
use crate::limiter::shared::change::{ChangedBucket, Where, find_or_call};
use crate::limits::Id;
#[cfg(feature = "tracing")]
use crate::observe::events;
use crate::store::key::Key;

impl KeyedLimit {
    /// Like [`spend`](KeyedLimit::spend), for a limit that may be [shared](crate::limits::Shared): asks the store where
    /// only the store can tell. Ready at its first poll for a local limit.
    ///
    /// A future that is dropped before its first poll has charged nothing. One that is dropped later goes on without its
    /// caller: the bucket is charged if it has the units.
    ///
    /// # Errors
    ///
    /// As [`spend`](KeyedLimit::spend); and [`Error::is_store_failure`] if the store has a text that is no bucket, or ends.
    /// If it does not answer in time, or refuses all calls, it is no error: the limit's
    /// [policy](crate::limits::LimitOptions::on_error) decides. The bucket in the store may be charged then or not.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, Shared};
    /// use tollgate::shared::Store;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let exact = LimitOptions::default().shared(Shared::Exact);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// let store = Store::in_memory(Clock::system()); // or Store::connect(&StoreOptions::new("redis://...")?)?
    /// let node = || Limiter::with_options(limits.clone(), LimiterOptions::default().store(store.clone()));
    /// let (one, other) = (node().limit("PerUser")?, node().limit("PerUser")?);
    /// assert_eq!(one.spend_shared("alice", 3).await?.remaining(), Some(2));
    /// assert_eq!(other.spend_shared("alice", 1).await?.remaining(), Some(1));
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id: Id<'a> = id.into();
        if let Some(decision) = self.call_by_lease(id, Call::Spend(cost)) {
            return Ok(decision);
        }
        loop {
            let members = [self.member(id).cost(cost)];
            let call = SharedCall::SPEND.of_one();
            if let Some(decision) = self.limiter.batch(&members).ask_store(call).await? {
                return Ok(decision);
            }
            match self.spend(id, cost) {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Like [`check`](KeyedLimit::check), for a limit that may be [shared](crate::limits::Shared).
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared).
    pub async fn check_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id: Id<'a> = id.into();
        if let Some(decision) = self.call_by_lease(id, Call::Check(cost)) {
            return Ok(decision);
        }
        loop {
            let members = [self.member(id).cost(cost)];
            let call = SharedCall::CHECK.of_one();
            if let Some(decision) = self.limiter.batch(&members).ask_store(call).await? {
                return Ok(decision);
            }
            match self.check(id, cost) {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Like [`refund`](KeyedLimit::refund), for a limit that may be [shared](crate::limits::Shared).
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared); and [`Error::is_store_failure`] if the store does not answer in time. The units
    /// may be returned then or not.
    pub async fn refund_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        self.refund_scaled(id.into(), cost, Factor::ONE).await
    }

    /// Refunds units by the limit multiplied by a factor.
    pub(super) async fn refund_scaled(
        &self,
        id: Id<'_>,
        cost: u64,
        factor: Factor,
    ) -> Result<Decision, Error> {
        let place = || self.place_scaled(id, cost, factor);
        let (store, member) = match find_or_call(place, || self.scaled(factor).refund(id, cost))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        // In shadow mode a cost above the burst is no error.
        let units = if cost > member.limit.burst() { 0 } else { cost };
        let refunded = move |changed: &ChangedBucket| {
            let ChangedBucket { member, stepped } = changed;
            let now_ns = rule_time_ns(stepped.unix_ns);
            member.limit.rule().refund(stepped.before.word, now_ns, units).decision
        };
        let then = forgetting_denial(self.key_of(id)?, refunded);
        self.change((store, member), Step::Refund { units }, then).await
    }

    /// Like [`reset`](KeyedLimit::reset), for a limit that may be [shared](crate::limits::Shared). See
    /// [`refund_shared`](KeyedLimit::refund_shared).
    ///
    /// # Errors
    ///
    /// As [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn reset_shared<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        let id = id.into();
        let (store, member) = match find_or_call(|| self.place(id, 0), || self.reset(id))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let reset = |changed: &ChangedBucket| {
            let ChangedBucket { member, stepped } = changed;
            let now_ns = rule_time_ns(stepped.unix_ns);
            member.limit.rule().reset(stepped.before.word, now_ns).decision
        };
        let then = forgetting_denial(self.key_of(id)?, reset);
        self.change((store, member), Step::Reset, then).await
    }

    /// Like [`block`](KeyedLimit::block), for a limit that may be [shared](crate::limits::Shared): denies the id on all
    /// nodes. Returns the time until its block ends. The store keeps whole milliseconds, and no reason.
    ///
    /// # Errors
    ///
    /// As [`block`](KeyedLimit::block) and [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn block_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        time: Duration,
    ) -> Result<Duration, Error> {
        let id = id.into();
        let (store, member) =
            match find_or_call(|| self.place_while_off(id), || self.block(id, time))? {
                Where::Here(left) => return Ok(left),
                Where::InStore(store, member) => (store, member),
            };
        let key = self.key_of(id)?;
        let note = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            let Stepped { unix_ns, before, new, .. } = changed?.stepped;
            let left_ns = new.unwrap_or(before).blocked_ns(unix_ns).unwrap_or(0);
            let id = key.as_ref().id;
            handle.note_block(id, left_ns);
            let left = Duration::from_nanos(left_ns);
            #[cfg(feature = "tracing")]
            events::block(handle.logged(id), left);
            Ok(left)
        };
        self.change((store, member), Step::Block { time }, note).await
    }

    /// Like [`unblock`](KeyedLimit::unblock), for a limit that may be [shared](crate::limits::Shared). Returns whether the
    /// id was blocked.
    ///
    /// # Errors
    ///
    /// As [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn unblock_shared<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let id = id.into();
        match find_or_call(|| self.place_while_off(id), || self.unblock(id))? {
            Where::Here(was_blocked) => Ok(was_blocked),
            Where::InStore(store, member) => {
                let key = self.key_of(id)?;
                let note = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
                    let Stepped { unix_ns, before, .. } = changed?.stepped;
                    let (id, was_blocked) = (key.as_ref().id, before.blocked_ns(unix_ns).is_some());
                    handle.forget_denial(id);
                    #[cfg(feature = "tracing")]
                    if was_blocked {
                        events::unblock(handle.logged(id));
                    }
                    Ok(was_blocked)
                };
                self.change((store, member), Step::Unblock, note).await
            }
        }
    }

    /// Like [`blocked`](KeyedLimit::blocked), for a limit that may be [shared](crate::limits::Shared). Returns the time
    /// until the id's block ends.
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared).
    pub async fn blocked_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
    ) -> Result<Option<Duration>, Error> {
        let id = id.into();
        match find_or_call(|| self.place_while_off(id), || self.blocked(id))? {
            Where::Here(left) => Ok(left),
            Where::InStore(store, member) => {
                let looked = self.change((store, member), Step::Look, |_, looked| looked).await?;
                let Stepped { unix_ns, before, .. } = looked.stepped;
                Ok(before.blocked_ns(unix_ns).map(Duration::from_nanos))
            }
        }
    }
}

/// Makes the last step of a refund or a reset on this node: a kept denial of the id is forgotten. `decision` is that of the step.
fn forgetting_denial(
    key: Key,
    decision: impl Fn(&ChangedBucket) -> Decision + Send + 'static,
) -> impl FnOnce(&KeyedLimit, Result<ChangedBucket, Error>) -> Result<Decision, Error> + Send + 'static
{
    move |handle, changed| {
        let changed = changed?;
        handle.forget_denial(key.as_ref().id);
        Ok(changed.figures_of(decision(&changed)))
    }
}
