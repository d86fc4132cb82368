//! The calls that ask the store, for threads.

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::Batch;
use crate::limiter::handle::KeyedLimit;
use crate::limits::{Explanation, Id};
use crate::util::block_on::block_on;

impl KeyedLimit {
    /// Like [`spend_shared`](KeyedLimit::spend_shared), for a thread: parks it until the store has answered, at most for
    /// the store's [timeout](crate::limits::StoreOptions::answers_within). Not for a thread of an async runtime, whose
    /// other tasks would wait as well.
    ///
    /// # Errors
    ///
    /// See [`spend_shared`](KeyedLimit::spend_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// assert_eq!(users.spend_blocking("alice", 2)?.remaining(), Some(3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_blocking<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        block_on(self.spend_shared(id, cost))
    }

    /// Like [`check_shared`](KeyedLimit::check_shared), for a thread: see [`spend_blocking`](KeyedLimit::spend_blocking).
    ///
    /// # Errors
    ///
    /// See [`check_shared`](KeyedLimit::check_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// assert!(users.check_blocking("alice", 5)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check_blocking<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        block_on(self.check_shared(id, cost))
    }

    /// Like [`explain_shared`](KeyedLimit::explain_shared), for a thread: see
    /// [`spend_blocking`](KeyedLimit::spend_blocking).
    ///
    /// # Errors
    ///
    /// See [`explain_shared`](KeyedLimit::explain_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// assert!(users.spend_blocking("alice", 4)?.allowed());
    /// let call = users.explain_blocking("alice", 2)?.call.expect("the store has answered");
    /// assert_eq!(call.state.remaining(), Some(1));
    /// assert!(call.decision.is_some_and(|decision| !decision.allowed()));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn explain_blocking<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Explanation, Error> {
        block_on(self.explain_shared(id, cost))
    }
}

impl Batch<'_> {
    /// Like [`spend_shared`](Batch::spend_shared), for a thread: see [`KeyedLimit::spend_blocking`].
    ///
    /// # Errors
    ///
    /// See [`spend_shared`](Batch::spend_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// # let limiter = Limiter::with_options(limits, options);
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice"), users.member("bob").cost(5)];
    /// assert!(limiter.batch(&members).spend_blocking()?.allowed());
    /// assert_eq!(limiter.batch(&members).spend_blocking()?.denied_by(), Some(1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_blocking(&self) -> Result<Decision, Error> {
        block_on(self.spend_shared())
    }

    /// Like [`check_shared`](Batch::check_shared), for a thread: see [`KeyedLimit::spend_blocking`].
    ///
    /// # Errors
    ///
    /// See [`spend_shared`](Batch::spend_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// # let limiter = Limiter::with_options(limits, options);
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice"), users.member("bob").cost(5)];
    /// assert!(limiter.batch(&members).check_blocking()?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check_blocking(&self) -> Result<Decision, Error> {
        block_on(self.check_shared())
    }
}
