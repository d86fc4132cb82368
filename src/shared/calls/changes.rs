//! Calls that change one bucket that nodes may share: refunds, resets and blocks.

use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;
#[cfg(feature = "tracing")]
use crate::observe::events;
use crate::shared::calls::answer;
use crate::shared::calls::change::{ChangedBucket, Where, find_or_call};
use crate::shared::calls::handle::{ScaledSharedLimit, SharedLimit};
use crate::shared::protocol::change::{Step, Stepped};
use crate::shared::protocol::text::rule_time_ns;

impl ScaledSharedLimit<'_> {
    /// Like [`SharedLimit::refund`].
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`], which has an example.
    pub async fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, cost, factor);
        let call = || limit.scaled(factor).refund(id, cost);
        let (store, member) = match find_or_call(place, call)? {
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
        answer(limit.change((store, member), Step::Refund { units }, showing(refunded))).await
    }

    /// Like [`SharedLimit::reset`].
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`].
    pub async fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, 0, factor);
        let (store, member) = match find_or_call(place, || limit.scaled(factor).reset(id))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let reset = |changed: &ChangedBucket| {
            let ChangedBucket { member, stepped } = changed;
            let now_ns = rule_time_ns(stepped.unix_ns);
            member.limit.rule().reset(stepped.before.word, now_ns).decision
        };
        answer(limit.change((store, member), Step::Reset, showing(reset))).await
    }
}

impl SharedLimit {
    /// Denies the id for a time, on all nodes: see [`KeyedLimit::block`]. Returns the time until its block ends. The store
    /// keeps whole milliseconds, and no reason.
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::block`]; see [`SharedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::manual().0));
    /// let users = Limiter::with_options(limits, options)?.shared("PerUser")?;
    /// block_on(users.block("alice", Duration::from_secs(60)))?;
    /// assert!(block_on(users.spend("alice", 1))?.blocked());
    /// assert_eq!(block_on(users.blocked_for("alice"))?, Some(Duration::from_secs(60)));
    /// assert!(block_on(users.unblock("alice"))?);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn block<'a>(
        &self,
        id: impl Into<Id<'a>>,
        time: Duration,
    ) -> Result<Duration, Error> {
        let (limit, id) = (&self.limit, id.into());
        let (store, member) =
            match find_or_call(|| limit.place_while_off(id), || limit.block(id, time))? {
                Where::Here(left) => return Ok(left),
                Where::InStore(store, member) => (store, member),
            };
        let (key, name) = (limit.key_of(id)?, member.key.clone());
        let note = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            let Stepped { unix_ns, before, new, .. } = changed?.stepped;
            let left_ns = new.unwrap_or(before).blocked_ns(unix_ns).unwrap_or(0);
            let id = key.as_ref().id;
            handle.drop_lease(id, &name);
            let left = Duration::from_nanos(left_ns);
            #[cfg(feature = "tracing")]
            events::block(handle.logged(id), left);
            Ok(left)
        };
        answer(limit.change((store, member), Step::Block { time }, note)).await
    }

    /// Ends an id's block. Returns whether the id was blocked.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; [`block`](SharedLimit::block) has an example.
    pub async fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let (limit, id) = (&self.limit, id.into());
        match find_or_call(|| limit.place_while_off(id), || limit.unblock(id))? {
            Where::Here(was_blocked) => Ok(was_blocked),
            Where::InStore(store, member) => {
                #[cfg(feature = "tracing")]
                let key = limit.key_of(id)?;
                let note = move |_handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
                    let Stepped { unix_ns, before, .. } = changed?.stepped;
                    let was_blocked = before.blocked_ns(unix_ns).is_some();
                    #[cfg(feature = "tracing")]
                    if was_blocked {
                        events::unblock(_handle.logged(key.as_ref().id));
                    }
                    Ok(was_blocked)
                };
                answer(limit.change((store, member), Step::Unblock, note)).await
            }
        }
    }

    /// Returns the time until an id's block ends; `None` if it is not blocked.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; [`block`](SharedLimit::block) has an example.
    pub async fn blocked_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Duration>, Error> {
        let (limit, id) = (&self.limit, id.into());
        match find_or_call(|| limit.place_while_off(id), || limit.blocked_for(id))? {
            Where::Here(left) => Ok(left),
            Where::InStore(store, member) => {
                let looked =
                    answer(limit.change((store, member), Step::Look, |_, looked| looked)).await?;
                let Stepped { unix_ns, before, .. } = looked.stepped;
                Ok(before.blocked_ns(unix_ns).map(Duration::from_nanos))
            }
        }
    }
}

/// Returns what a refund or a reset does with the store's answer. `decision` is that of the step.
fn showing(
    decision: impl Fn(&ChangedBucket) -> Decision + Send + 'static,
) -> impl FnOnce(&KeyedLimit, Result<ChangedBucket, Error>) -> Result<Decision, Error> + Send + 'static
{
    move |_, changed| {
        let changed = changed?;
        Ok(changed.figures_of(decision(&changed)))
    }
}
