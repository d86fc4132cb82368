//! Calls that change one bucket that nodes may share: refunds, resets and blocks.

use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;
#[cfg(feature = "tracing")]
use crate::observe::events;
use crate::shared::calls::change::{ChangedBucket, InStore, here_or_in_store};
use crate::shared::calls::handle::{ScaledSharedLimit, SharedLimit};
use crate::shared::protocol::change::Step;

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
        let ask = |place: InStore| {
            // In shadow mode a cost above the burst is no error.
            let units = if cost > place.member.limit.burst() { 0 } else { cost };
            Ok(limit.change(place, Step::Refund { units }, |_, changed| Ok(changed?.returned())))
        };
        here_or_in_store(place, call, ask).await
    }

    /// Like [`SharedLimit::reset`].
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`].
    pub async fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        let (ScaledSharedLimit { limit, factor }, id) = (*self, id.into());
        let place = || limit.place_scaled(id, 0, factor);
        let call = || limit.scaled(factor).reset(id);
        let ask =
            |place| Ok(limit.change(place, Step::Reset, |_, changed| Ok(changed?.returned())));
        here_or_in_store(place, call, ask).await
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
        let ask = |place: InStore| {
            let (key, name) = (limit.key_of(id)?, place.member.key.clone());
            let note = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
                let stepped = changed?.stepped;
                let left_ns = stepped.after().blocked_ns(stepped.unix_ns).unwrap_or(0);
                let id = key.as_ref().id;
                handle.drop_lease(id, &name);
                let left = Duration::from_nanos(left_ns);
                #[cfg(feature = "tracing")]
                events::block(handle.logged(id), left);
                Ok(left)
            };
            Ok(limit.change(place, Step::Block { time }, note))
        };
        here_or_in_store(|| limit.place_while_off(id), || limit.block(id, time), ask).await
    }

    /// Ends an id's block. Returns whether the id was blocked.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; [`block`](SharedLimit::block) has an example.
    pub async fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let (limit, id) = (&self.limit, id.into());
        let ask = |place| {
            #[cfg(feature = "tracing")]
            let key = limit.key_of(id)?;
            let note = move |_handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
                let was_blocked = changed?.stepped.blocked_ns().is_some();
                #[cfg(feature = "tracing")]
                if was_blocked {
                    events::unblock(_handle.logged(key.as_ref().id));
                }
                Ok(was_blocked)
            };
            Ok(limit.change(place, Step::Unblock, note))
        };
        here_or_in_store(|| limit.place_while_off(id), || limit.unblock(id), ask).await
    }

    /// Returns the time until an id's block ends; `None` if it is not blocked.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; [`block`](SharedLimit::block) has an example.
    pub async fn blocked_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Duration>, Error> {
        let (limit, id) = (&self.limit, id.into());
        let blocked = |_: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            Ok(changed?.stepped.blocked_ns().map(Duration::from_nanos))
        };
        let ask = |place| Ok(limit.change(place, Step::Look, blocked));
        here_or_in_store(|| limit.place_while_off(id), || limit.blocked_for(id), ask).await
    }
}
