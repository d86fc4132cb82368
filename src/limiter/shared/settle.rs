//! Settlements of charges in the store, and waiting for reservations there.

use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::{
    Charged, Next, Parking, PendingPlace, Receipt, Reservation, ReserveError, Timer, WaitState,
    Waiting,
};
use crate::limits::Id;
use crate::util::block_on::block_on;

impl Receipt {
    /// Like [`settle`](Receipt::settle), for a charge in the store of shared limits: returns when the store has settled it.
    /// A receipt of a local limit is settled at the first poll.
    ///
    /// A future that is dropped before its first poll settles nothing, and one that is dropped later goes on without its
    /// caller.
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`] if the store does not answer in time or has a text that is no bucket. The estimate may
    /// stay charged then.
    ///
    /// # Example
    ///
    /// See [`KeyedLimit::spend_estimate_shared`].
    pub async fn settle_shared(self, actual: u64) -> Result<Decision, Error> {
        match &self.charged {
            Some(Charged::InStore(charge)) => charge.settle(self.cost, actual).await,
            _ => Ok(self.settle(actual)),
        }
    }

    /// Like [`settle_shared`](Receipt::settle_shared), for a thread: see
    /// [`KeyedLimit::spend_blocking`].
    ///
    /// # Errors
    ///
    /// See [`settle_shared`](Receipt::settle_shared).
    ///
    /// # Example
    ///
    /// See [`KeyedLimit::spend_estimate_blocking`].
    pub fn settle_blocking(self, actual: u64) -> Result<Decision, Error> {
        block_on(self.settle_shared(actual))
    }
}

impl KeyedLimit {
    /// Like [`until_allowed`](KeyedLimit::until_allowed), for a limit that may be [shared](crate::limits::Shared). See
    /// [`reserve_shared`](KeyedLimit::reserve_shared).
    ///
    /// # Errors
    ///
    /// As [`reserve_shared`](KeyedLimit::reserve_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(1, 500, Duration::from_secs(1))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Mail", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let mail = Limiter::with_options(limits, options).limit("Mail")?;
    /// for _ in 0..3 {
    ///     mail.until_allowed_shared("alice", 1, Duration::MAX, tokio::time::sleep).await?; // 2 ms apart
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        self.waiting(at_most, timer).until_allowed_shared(id, cost).await
    }

    /// Like [`reserve_shared`](KeyedLimit::reserve_shared), for a thread: see
    /// [`spend_blocking`](KeyedLimit::spend_blocking).
    ///
    /// # Errors
    ///
    /// See [`reserve_shared`](KeyedLimit::reserve_shared).
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
    /// let reservation = users.reserve_blocking("alice", 5, Duration::ZERO)?;
    /// assert!(reservation.wait().is_zero());
    /// assert!(users.reserve_blocking("alice", 1, Duration::from_secs(1)).unwrap_err().is_not_in_time());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_blocking<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
    ) -> Result<Reservation, ReserveError> {
        block_on(self.reserve_shared(id, cost, at_most))
    }

    /// Like [`spend_estimate_shared`](KeyedLimit::spend_estimate_shared), for a thread: see
    /// [`spend_blocking`](KeyedLimit::spend_blocking).
    ///
    /// # Errors
    ///
    /// See [`spend_estimate_shared`](KeyedLimit::spend_estimate_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(10, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Tokens", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::manual().0));
    /// let tokens = Limiter::with_options(limits, options).limit("Tokens")?;
    /// let (_, receipt) = tokens.spend_estimate_blocking("key-1", 8)?;
    /// assert_eq!(receipt.expect("allowed").settle_blocking(3)?.remaining(), Some(7));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_estimate_blocking<'a>(
        &self,
        id: impl Into<Id<'a>>,
        estimate: u64,
    ) -> Result<(Decision, Option<Receipt>), Error> {
        block_on(self.spend_estimate_shared(id, estimate))
    }
}

impl<T: Timer> Waiting<'_, T> {
    /// Like [`KeyedLimit::until_allowed_shared`]. Dropping the future cancels its reservation.
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::reserve_shared`], at once, if no wait would help, or the wait would be longer than
    /// that of the waits.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(1, 500, Duration::from_secs(1))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Mail", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let mail = Limiter::with_options(limits, options).limit("Mail")?;
    /// let waiting = mail.waiting(Duration::from_secs(1), tokio::time::sleep);
    /// waiting.until_allowed_shared("alice", 1).await?;
    /// waiting.until_allowed_shared("alice", 1).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let mut wait = SharedWait::new(self.handle, id.into(), cost, (self.at_most, self.jitter));
        loop {
            match wait.next().await? {
                Next::Sleep(time) => self.timer.sleep(time).await,
                Next::Allowed(receipt) => return Ok(receipt),
            }
        }
    }
}

impl Waiting<'_, Parking> {
    /// Like [`wait_until_allowed`](Waiting::wait_until_allowed), for a limit that may be [shared](crate::limits::Shared).
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::reserve_shared`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 500, Duration::from_secs(1))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Mail", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let mail = Limiter::with_options(limits, options).limit("Mail")?;
    /// mail.parking(Duration::from_secs(1)).wait_until_allowed_blocking("alice", 1)?;
    /// mail.parking(Duration::from_secs(1)).wait_until_allowed_blocking("alice", 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until_allowed_blocking<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let mut wait = SharedWait::new(self.handle, id.into(), cost, (self.at_most, self.jitter));
        loop {
            match block_on(wait.next())? {
                Next::Sleep(time) => std::thread::sleep(time),
                Next::Allowed(receipt) => return Ok(receipt),
            }
        }
    }
}

/// A wait of a caller for a limit that may be shared.
struct SharedWait<'h, 'i> {
    handle: &'h KeyedLimit,
    id: Id<'i>,
    cost: u64,
    at_most: Duration,
    jitter: Duration,
    state: WaitState,
}

impl<'h, 'i> SharedWait<'h, 'i> {
    fn new(
        handle: &'h KeyedLimit,
        id: Id<'i>,
        cost: u64,
        (at_most, jitter): (Duration, Duration),
    ) -> SharedWait<'h, 'i> {
        SharedWait { handle, id, cost, at_most, jitter, state: WaitState::New }
    }

    async fn next(&mut self) -> Result<Next, ReserveError> {
        let SharedWait { handle, id, cost, at_most, jitter, .. } = *self;
        if let WaitState::New = self.state {
            self.state = match handle.reserve_shared(id, cost, at_most).await {
                Ok(place) => WaitState::Reserved(PendingPlace::new(place, jitter, at_most)),
                Err(ReserveError::NoPlaces { .. }) => WaitState::retrying(handle, at_most),
                Err(error) => return Err(error),
            };
        }
        match &mut self.state {
            WaitState::Reserved(place) => Ok(place.next()),
            WaitState::New => unreachable!("the state was set above"),
            WaitState::Retrying { until_ns } => {
                let (decision, receipt) = handle.spend_estimate_shared(id, cost).await?;
                if let Some(receipt) = receipt {
                    return Ok(Next::Allowed(receipt));
                }
                let wait = decision.retry_in();
                if decision.blocked() {
                    return Err(ReserveError::Blocked { left: wait });
                }
                let sleep = handle.sleep_until(wait, jitter, *until_ns);
                sleep.ok_or(ReserveError::NotInTime { needed: wait })
            }
        }
    }
}
