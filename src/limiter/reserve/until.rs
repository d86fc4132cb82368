//! Waits until units are there, with the timer of the caller's runtime or by parking the thread.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::Claimed;
use crate::limiter::reserve::error::ReserveError;
use crate::limiter::reserve::pending::{Next, PendingPlace, random_below};
use crate::limiter::reserve::receipt::Receipt;
use crate::limiter::reserve::wanted::Wanted;
use crate::limits::Id;
use crate::util::time::saturating_ns;

/// Makes futures that are ready after a given time. This is all that waiting needs from a runtime.
///
/// Any function from a [`Duration`] to a future is a timer, such as `tokio::time::sleep`, or `|time| async move {
/// smol::Timer::after(time).await; }`. If a timer is early, the waiter reads the limiter's clock and sleeps again; it
/// is never admitted early.
///
/// # Example: a type that is a timer
///
/// ```
/// use std::future::Future;
/// use std::time::Duration;
/// use tollgate::reserve::Timer;
///
/// struct Tokio;
///
/// impl Timer for Tokio {
///     fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
///         tokio::time::sleep(time)
///     }
/// }
/// ```
pub trait Timer {
    /// Returns a future that is ready once `time` has passed.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::{Duration, Instant};
    /// use tollgate::reserve::Timer;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let begun = Instant::now();
    /// Timer::sleep(&tokio::time::sleep, Duration::from_millis(5)).await;
    /// assert!(begun.elapsed() >= Duration::from_millis(5));
    /// # });
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;
}

impl<F, S> Timer for F
where
    F: Fn(Duration) -> S,
    S: Future<Output = ()>,
{
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self(time)
    }
}

/// Waits for units of a limit, with a longest wait, a timer and a jitter. Made by [`KeyedLimit::waiting`] and
/// [`KeyedLimit::parking`], which have examples.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{KeyedLimit, Limit};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// let users = KeyedLimit::new("PerUser", limit)?;
/// let waiting = users.parking(Duration::from_secs(5)); // for any number of calls
/// waiting.wait_until_allowed("alice", 5)?;
/// assert!(waiting.wait_until_allowed("alice", 1).unwrap_err().is_not_in_time());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "does nothing until it is asked to wait"]
pub struct Waiting<'h, T> {
    pub(crate) handle: &'h KeyedLimit,
    pub(crate) timer: T,
    pub(crate) at_most: Duration,
    pub(crate) jitter: Duration,
}

/// Stands for waiting by parking the thread, without a timer.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{KeyedLimit, Limit};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// use tollgate::reserve::{Parking, Waiting};
///
/// let users = KeyedLimit::new("PerUser", limit)?;
/// let waiting: Waiting<'_, Parking> = users.parking(Duration::from_secs(5));
/// assert_eq!(waiting.wait_until_allowed("alice", 1)?.cost(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parking;

impl Timer for Parking {
    /// Sleeps on the thread: for futures that a thread waits for by itself.
    async fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl KeyedLimit {
    /// Spends `cost` units, and sleeps until the bucket has them, at most for `at_most`. The receipt can be dropped, or
    /// [settled](Receipt::settle) by the actual cost.
    ///
    /// Under gcra the first poll of the future makes a [reservation](KeyedLimit::reserve), and the future sleeps once, until
    /// it is granted: callers are served in the order of their calls. If the future is dropped before it is ready, the
    /// reservation is cancelled as by [`Reservation::cancel`](crate::reserve::Reservation::cancel). Under the other algorithms the future spends, sleeps
    /// [`retry_in`](crate::Decision::retry_in) and spends again; it holds nothing, and a faster caller may come first.
    ///
    /// `Duration::MAX` waits as long as it takes. Under gcra each waiting call then moves the bucket further into the future,
    /// also for callers who do not wait. For jitter see [`waiting`](KeyedLimit::waiting).
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once, if the wait would be longer than `at_most`, if no wait would help, or if the table has no
    /// room for a new id ([`AtCap::Deny`](crate::options::AtCap)).
    ///
    /// # Example: with tokio
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limit = Limit::new(1, 1, Duration::from_millis(5))?;
    /// let mail = KeyedLimit::new("Mail", limit)?;
    /// for _ in 0..3 {
    ///     mail.until_allowed("alice", 1, Duration::from_secs(5), tokio::time::sleep).await?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        self.waiting(at_most, timer).until_allowed(id, cost).await
    }

    /// Prepares waits of at most `at_most` with a timer of the caller's runtime, without jitter.
    ///
    /// # Example: five seconds at most, with up to 20 ms of jitter
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let mail = KeyedLimit::new("Mail", limit)?;
    /// let waiting =
    ///     mail.waiting(Duration::from_secs(5), tokio::time::sleep).jitter(Duration::from_millis(20));
    /// assert!(waiting.until_allowed("alice", 1).await.is_ok());
    /// let refused = waiting.until_allowed("alice", 1).await.unwrap_err();
    /// assert!(refused.is_not_in_time(), "known at once: the wait is a minute");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting<T: Timer>(&self, at_most: Duration, timer: T) -> Waiting<'_, T> {
        Waiting { handle: self, timer, at_most, jitter: Duration::ZERO }
    }

    /// Prepares waits of at most `at_most` by parking the thread, without jitter.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_millis(5))?;
    /// let mail = KeyedLimit::new("Mail", limit)?;
    /// mail.parking(Duration::from_secs(5)).wait_until_allowed("alice", 1)?;
    /// mail.parking(Duration::from_secs(5)).wait_until_allowed("alice", 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parking(&self, at_most: Duration) -> Waiting<'_, Parking> {
        Waiting { handle: self, timer: Parking, at_most, jitter: Duration::ZERO }
    }
}

impl<T> Waiting<'_, T> {
    /// Adds a random time below `jitter`, evenly distributed, to each sleep, at most as long as the deadline allows. So callers whose units come at the same time do
    /// not all act at once. Reservations keep their order; the callers may act in another. Default: 0. Waits
    /// without a reservation have at least 1 ms.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let waiting = users.parking(Duration::MAX).jitter(Duration::from_millis(20));
    /// assert!(waiting.wait_until_allowed("alice", 5).is_ok(), "no wait, so no jitter");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn jitter(self, jitter: Duration) -> Self {
        Waiting { jitter, ..self }
    }
}

impl<T: Timer> Waiting<'_, T> {
    /// Like [`KeyedLimit::until_allowed`].
    ///
    /// # Errors
    ///
    /// Those of [`KeyedLimit::until_allowed`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let waiting = users.waiting(Duration::from_secs(1), tokio::time::sleep);
    /// let receipt = waiting.until_allowed("alice", 4).await?;
    /// assert_eq!(receipt.settle(1).remaining(), Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let mut wait = self.begin(id.into(), cost);
        loop {
            match wait.next()? {
                Next::Sleep(time) => self.timer.sleep(time).await,
                Next::Allowed(receipt) => return Ok(receipt),
            }
        }
    }
}

impl Waiting<'_, Parking> {
    /// Like [`KeyedLimit::until_allowed`], but parks the thread, by the limiter's clock. If
    /// that clock stands still, the thread parks and reads it again and again.
    ///
    /// # Errors
    ///
    /// Those of [`until_allowed`](Waiting::until_allowed).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// let limit = Limit::new(1, 1, Duration::from_millis(5))?;
    /// let mail = Limiter::new(Limits::builder().limit("Mail", IdFormat::String, limit)?.build()).limit("Mail")?;
    /// let begun = std::time::Instant::now();
    /// mail.parking(Duration::MAX).wait_until_allowed("alice", 1)?;
    /// mail.parking(Duration::MAX).wait_until_allowed("alice", 1)?;
    /// assert!(begun.elapsed() >= Duration::from_millis(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let mut wait = self.begin(id.into(), cost);
        loop {
            match wait.next()? {
                Next::Sleep(time) => std::thread::sleep(time),
                Next::Allowed(receipt) => return Ok(receipt),
            }
        }
    }
}

/// The least jitter of a caller without a place. Most algorithms count whole milliseconds, so without it callers come in the same
/// order each time, and the first one gets all units.
pub(crate) const RETRY_JITTER: Duration = Duration::from_millis(1);

/// A wait of a caller.
struct Wait<'h, 'i> {
    handle: &'h KeyedLimit,
    id: Id<'i>,
    cost: u64,
    jitter: Duration,
    at_most: Duration,
    state: WaitState,
}

enum WaitState {
    New,
    /// Under gcra.
    Reserved(PendingPlace),
    /// Under another algorithm. The caller spends again, until this time of the limiter's clock.
    Retrying {
        until_ns: u64,
    },
}

impl WaitState {
    /// Begins to spend again and again, for at most `at_most`.
    fn retrying(handle: &KeyedLimit, at_most: Duration) -> WaitState {
        let now_ns = handle.limiter.inner.clock.now_ns();
        WaitState::Retrying { until_ns: now_ns.saturating_add(saturating_ns(at_most)) }
    }
}

impl KeyedLimit {
    /// Returns the rest of a sleep of `wait`, and up to `jitter` longer, from `now_ns` on, an earlier reading of the limiter's
    /// clock. It ends by `until_ns`; `None` if the wait itself does not.
    pub(crate) fn sleep_until(
        &self,
        now_ns: u64,
        wait: Duration,
        jitter: Duration,
        until_ns: u64,
    ) -> Option<Duration> {
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let sleep = wait + random_below(jitter.min(left.checked_sub(wait)?));
        let since_ns = self.limiter.inner.clock.now_ns().saturating_sub(now_ns);
        Some(sleep.saturating_sub(Duration::from_nanos(since_ns)))
    }
}

impl<T> Waiting<'_, T> {
    fn begin<'i>(&self, id: Id<'i>, cost: u64) -> Wait<'_, 'i> {
        let Waiting { handle, at_most, jitter, .. } = *self;
        Wait { handle, id, cost, jitter, at_most, state: WaitState::New }
    }
}

impl Wait<'_, '_> {
    fn next(&mut self) -> Result<Next, ReserveError> {
        if let WaitState::New = self.state {
            self.state = match self.handle.reserve(self.id, self.cost, self.at_most) {
                Ok(place) => {
                    WaitState::Reserved(PendingPlace::new(place, self.jitter, self.at_most))
                }
                Err(ReserveError::NoPlaces { .. }) => {
                    WaitState::retrying(self.handle, self.at_most)
                }
                Err(error) => return Err(error),
            };
        }
        match &mut self.state {
            WaitState::Reserved(place) => Ok(place.next()),
            WaitState::New => unreachable!("the state was set above"),
            WaitState::Retrying { until_ns } => {
                let until_ns = *until_ns;
                self.spend(until_ns)
            }
        }
    }

    /// Spends, or returns how long to sleep before the next attempt.
    fn spend(&self, until_ns: u64) -> Result<Next, ReserveError> {
        let now_ns = self.handle.limiter.inner.clock.now_ns();
        let mut claimed = self.handle.claim(self.id, self.cost, now_ns, Wanted::NowOrLater)?;
        if !claimed.decision.allowed() {
            let wait = claimed.decision.retry_in();
            if claimed.refused.is_none()
                && let Some(time) =
                    self.handle.sleep_until(now_ns, wait, self.jitter.max(RETRY_JITTER), until_ns)
            {
                return Ok(Next::Sleep(time));
            }
            // The attempt that refuses the caller counts as a denial.
            claimed = self.handle.claim(self.id, self.cost, now_ns, Wanted::Now)?;
        }
        let Claimed { decision, claim, refused, .. } = claimed;
        if decision.allowed() {
            return Ok(Next::Allowed(Receipt::of_one(claim, self.cost)));
        }
        Err(ReserveError::from_denial(refused, decision))
    }
}

impl<T> fmt::Debug for Waiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("handle", self.handle)
            .field("at_most", &self.at_most)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
