//! Waiting in place, with a timer of the caller's own.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ahash::RandomState;

use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::{Receipt, Reservation, ReserveError};
use crate::limits::Id;

/// What makes a future that is ready after a time: the one thing that waiting needs of a runtime.
///
/// Any function from a [`Duration`] to a future is one: `tokio::time::sleep`, or for others
/// `|time| async move { smol::Timer::after(time).await; }`. A timer that is early costs a poll more and
/// admits nobody early: the limiter's own clock is asked again.
pub trait Timer {
    /// Ready once `time` has passed.
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

/// How to wait for a limit: by which timer, how long at most, with how much jitter. Made by
/// [`KeyedLimit::waiting`] and [`KeyedLimit::parking`].
#[derive(Clone)]
#[must_use = "does nothing until it is asked to wait"]
pub struct Waiting<'h, T> {
    handle: &'h KeyedLimit,
    timer: T,
    at_most: Duration,
    jitter: Duration,
}

/// Parks the thread in place of a timer.
#[derive(Clone, Copy, Debug)]
pub struct Parking;

impl KeyedLimit {
    /// Waits until `cost` units are this caller's, however long that is: takes the place behind all that
    /// wait already, and sleeps once until its time has come. The receipt can be dropped, or
    /// [settled](Receipt::settle) by what it came to.
    ///
    /// The place is taken when the future is polled first. Dropped before it is ready, the future gives
    /// up its place as [`Reservation::cancel`] does. Each waiter is polled twice: when it comes, and when
    /// its time has. For a deadline and jitter see [`waiting`](KeyedLimit::waiting).
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once, when waiting would not help.
    ///
    /// # Example: with tokio
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limit = Limit::new(1, 1, Duration::from_millis(5))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Mail", IdFormat::String, limit)?.build());
    /// let mail = limiter.limit("Mail")?;
    /// for _ in 0..3 {
    ///     mail.until_allowed("alice", 1, tokio::time::sleep).await?;
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
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        self.waiting(timer).until_allowed(id, cost).await
    }

    /// How to wait, by a timer of the caller's runtime: however long, without jitter.
    ///
    /// # Example: five seconds at most, and up to 20 ms later than that it is allowed
    ///
    /// ```
    /// # #[cfg(not(tollgate_loom))] {
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Mail", IdFormat::String, limit)?.build());
    /// let mail = limiter.limit("Mail")?;
    /// let waiting = mail
    ///     .waiting(tokio::time::sleep)
    ///     .at_most(Duration::from_secs(5))
    ///     .jitter(Duration::from_millis(20));
    /// assert!(waiting.until_allowed("alice", 1).await.is_ok());
    /// let refused = waiting.until_allowed("alice", 1).await.unwrap_err();
    /// assert!(refused.is_not_in_time(), "known at once, a minute before");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting<T: Timer>(&self, timer: T) -> Waiting<'_, T> {
        Waiting { handle: self, timer, at_most: Duration::MAX, jitter: Duration::ZERO }
    }

    /// How to wait by parking the thread: however long, without jitter.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_millis(5))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Mail", IdFormat::String, limit)?.build());
    /// let mail = limiter.limit("Mail")?;
    /// mail.parking().wait_until_allowed("alice", 1)?;
    /// mail.parking().at_most(Duration::from_secs(5)).wait_until_allowed("alice", 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parking(&self) -> Waiting<'_, Parking> {
        Waiting { handle: self, timer: Parking, at_most: Duration::MAX, jitter: Duration::ZERO }
    }
}

impl<T> Waiting<'_, T> {
    /// The same, but who would have to wait longer is refused at once. Jitter comes on top.
    pub fn at_most(self, at_most: Duration) -> Self {
        Waiting { at_most, ..self }
    }

    /// The same with some time more for who has to wait, evenly at random below `jitter`: so that what
    /// was told its times together does not come together. Places keep their order and their times; it is
    /// up to the jitter who comes first.
    pub fn jitter(self, jitter: Duration) -> Self {
        Waiting { jitter, ..self }
    }

    /// Takes the place; says how much longer than its time the caller waits.
    fn place<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<(Held, Duration), ReserveError> {
        let place = self.handle.reserve(id, cost, self.at_most)?;
        let jitter = if place.wait().is_zero() { Duration::ZERO } else { below(self.jitter) };
        Ok((Held(Some(place)), jitter))
    }
}

impl<T: Timer> Waiting<'_, T> {
    /// As [`KeyedLimit::until_allowed`].
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once, when waiting would not help, or would take longer than
    /// [`at_most`](Waiting::at_most).
    pub async fn until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let (held, mut jitter) = self.place(id, cost)?;
        // Repeats only for a timer that is early, or a clock that is slower than the timer's.
        loop {
            let wait = held.wait();
            if wait.is_zero() {
                return Ok(held.keep());
            }
            self.timer.sleep(wait.saturating_add(std::mem::take(&mut jitter))).await;
        }
    }
}

impl Waiting<'_, Parking> {
    /// Parks the thread until `cost` units are this caller's; see [`KeyedLimit::until_allowed`]. By the
    /// limiter's own clock: one that stands still is looked at again and again.
    ///
    /// # Errors
    ///
    /// As [`until_allowed`](Waiting::until_allowed).
    pub fn wait_until_allowed<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Receipt, ReserveError> {
        let (held, mut jitter) = self.place(id, cost)?;
        loop {
            let wait = held.wait();
            if wait.is_zero() {
                return Ok(held.keep());
            }
            std::thread::sleep(wait.saturating_add(std::mem::take(&mut jitter)));
        }
    }
}

/// A place that is given up when it is dropped.
struct Held(Option<Reservation>);

impl Held {
    fn wait(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, Reservation::wait)
    }

    fn keep(mut self) -> Receipt {
        self.0.take().map_or_else(|| Receipt::new(None, 0), Reservation::into_receipt)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.cancel();
        }
    }
}

/// A time below `most`, evenly at random.
fn below(most: Duration) -> Duration {
    // Each state hashes with seeds of its own.
    let random = RandomState::new().hash_one(0_u64);
    // As many 2^64ths of it.
    let ns = (most.as_nanos().min(u128::from(u64::MAX)) * u128::from(random)) >> 64;
    Duration::from_nanos(ns as u64)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_random_stays_below_and_differs() {
        let most = Duration::from_millis(100);
        let drawn: Vec<Duration> = (0..1000).map(|_| below(most)).collect();
        assert!(drawn.iter().all(|&time| time < most));
        let late = drawn.iter().filter(|&&time| time >= most / 2).count();
        assert!((300..700).contains(&late), "{late} of 1000 in the later half");
        assert_eq!(below(Duration::ZERO), Duration::ZERO);
    }
}
