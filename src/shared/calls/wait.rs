//! Waits until units of a limit that nodes may share are there.

use std::fmt;
use std::time::Duration;

use crate::limiter::reserve::pending::random_below;
use crate::limiter::reserve::{ReserveError, Timer};
use crate::limits::Id;
use crate::shared::calls::handle::SharedLimit;
use crate::shared::calls::receipt::{SharedReceipt, SharedReservation};
use crate::util::time::saturating_ns;

/// The shortest time after which a call asks again that was one too many for its node. The longest is three times as long.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// How callers wait for a limit that nodes may share, from [`SharedLimit::waiting`].
#[derive(Clone)]
#[must_use = "does nothing until it is asked to wait"]
pub struct SharedWaiting<'h, T> {
    limit: &'h SharedLimit,
    timer: T,
    at_most: Duration,
    jitter: Duration,
}

impl SharedLimit {
    /// Waits until the bucket has `cost` units, at most for `at_most`, and charges them: see
    /// [`KeyedLimit::until_allowed`](crate::KeyedLimit::until_allowed). Dropping the future cancels its reservation.
    ///
    /// # Errors
    ///
    /// As [`reserve`](SharedLimit::reserve), at once, if no wait would help, or the wait would be longer.
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
    /// let mail = Limiter::with_options(limits, options)?.shared("Mail")?;
    /// for _ in 0..3 {
    ///     let receipt = mail.until_allowed("alice", 1, Duration::from_secs(1), tokio::time::sleep).await?;
    ///     assert_eq!(receipt.cost(), 1); // 2 ms apart
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<SharedReceipt, ReserveError> {
        self.waiting(at_most, timer).until_allowed(id, cost).await
    }

    /// Returns the waits with a timer: see [`KeyedLimit::waiting`](crate::KeyedLimit::waiting). A thread takes the timer
    /// [`Parking`](crate::reserve::Parking).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::reserve::Parking;
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 500, Duration::from_secs(1))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Mail", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let mail = Limiter::with_options(limits, options)?.shared("Mail")?;
    /// let waiting = mail.waiting(Duration::from_secs(1), Parking).jitter(Duration::from_millis(1));
    /// assert_eq!(block_on(waiting.until_allowed("alice", 1))?.cost(), 1);
    /// assert_eq!(block_on(waiting.until_allowed("alice", 1))?.cost(), 1); // 2 to 3 ms later
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting<T: Timer>(&self, at_most: Duration, timer: T) -> SharedWaiting<'_, T> {
        SharedWaiting { limit: self, timer, at_most, jitter: Duration::ZERO }
    }
}

impl<T> SharedWaiting<'_, T> {
    /// Makes each wait longer by a random time below `jitter`: see [`Waiting::jitter`](crate::reserve::Waiting::jitter).
    pub fn jitter(self, jitter: Duration) -> Self {
        SharedWaiting { jitter, ..self }
    }
}

impl<T: Timer> SharedWaiting<'_, T> {
    /// Like [`SharedLimit::until_allowed`].
    ///
    /// # Errors
    ///
    /// As [`SharedLimit::until_allowed`]. [`SharedLimit::waiting`] has an example.
    pub async fn until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<SharedReceipt, ReserveError> {
        let (SharedWaiting { limit, timer, at_most, jitter }, id) = (self, id.into());
        let clock = &limit.limit.limiter.inner.clock;
        let until_ns = clock.now_ns().saturating_add(saturating_ns(*at_most));
        if !limit.limit.is_shared() {
            let local = limit.limit.waiting(*at_most, |time| timer.sleep(time)).jitter(*jitter);
            match local.until_allowed(id, cost).await {
                // A reload has come between, and has made the limit a shared one.
                Err(ReserveError::Wrong(error)) if error.needs_store() => {}
                receipt => return receipt.map(SharedReceipt::of_local),
            }
        }
        let (mut place, at_most) = loop {
            let now_ns = clock.now_ns();
            let at_most = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            let error = match limit.reserve(id, cost, at_most).await {
                Ok(place) => break (CancelledOnDrop(Some(place)), at_most),
                Err(ReserveError::NoPlaces { .. }) => return self.retry(id, cost, until_ns).await,
                Err(error) => error,
            };
            // This node has more calls than it can ask in time. The store has not had this one.
            let is_overload = matches!(&error, ReserveError::Wrong(why) if why.is_store_overload() && why.is_unsent());
            let time = limit.limit.sleep_until(now_ns, ASK_AGAIN, 2 * ASK_AGAIN, until_ns);
            match time.filter(|_| is_overload) {
                Some(time) => timer.sleep(time).await,
                None => return Err(error),
            }
        };
        let spare = if place.wait().is_zero() { Duration::ZERO } else { at_most };
        let mut jitter = random_below((*jitter).min(spare.saturating_sub(place.wait())));
        loop {
            let wait = place.wait();
            if wait.is_zero() {
                let receipt = place.0.take().map(SharedReservation::into_receipt);
                return Ok(receipt.unwrap_or_else(|| SharedReceipt::of_nothing(cost)));
            }
            timer.sleep(wait.saturating_add(std::mem::take(&mut jitter))).await;
        }
    }

    /// Spends again after each denial's `retry_in`, for an algorithm without places.
    async fn retry(
        &self,
        id: Id<'_>,
        cost: u64,
        until_ns: u64,
    ) -> Result<SharedReceipt, ReserveError> {
        loop {
            let (decision, receipt) = self.limit.limit.estimate_or_nothing(id, cost).await?;
            if let Some(receipt) = receipt {
                return Ok(receipt);
            }
            let wait = decision.retry_in();
            if decision.blocked() {
                // The bucket may have the units later than the block ends.
                let left = self.limit.blocked_for(id).await?.unwrap_or(wait);
                return Err(ReserveError::Blocked { left });
            }
            let limit = &self.limit.limit;
            let now_ns = limit.limiter.inner.clock.now_ns();
            let (wait, jitter) = match decision.overloaded() {
                true => (ASK_AGAIN, 2 * ASK_AGAIN),
                false => (wait, self.jitter),
            };
            let Some(time) = limit.sleep_until(now_ns, wait, jitter, until_ns) else {
                return Err(ReserveError::NotInTime { needed: wait });
            };
            self.timer.sleep(time).await;
        }
    }
}

/// A reservation that is cancelled if its caller goes away before its time.
struct CancelledOnDrop(Option<SharedReservation>);

impl CancelledOnDrop {
    fn wait(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, SharedReservation::wait)
    }
}

impl Drop for CancelledOnDrop {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.cancel();
        }
    }
}

impl<T> fmt::Debug for SharedWaiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWaiting")
            .field("limit", self.limit)
            .field("at_most", &self.at_most)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
