//! Takes permits of a concurrency limit.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::algorithm::concurrency::{Concurrency, InFlight};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::Member;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::Receipt;
use crate::limits::{Applying, Explanation, Id, IdFormat, Scratch};
use crate::store::key::{KeyRef, LimitTag};
use crate::store::pin;

/// A handle for a concurrency limit ([`Limit::concurrency`]), from [`Limiter::concurrency`]. Make it once, and keep it.
///
/// # Errors
///
/// As those of [`KeyedLimit`]: every call with an id can fail with [`Error::is_invalid_id`], and every call with a number of
/// permits with [`Error::is_cost_above_burst`] if it is above the limit's `max`. A call that fails has changed nothing.
///
/// # Example: at most two streams of a user and 100 requests a minute, both or neither
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limiter = Limiter::new(
///     Limits::builder()
///         .limit("Streams", IdFormat::String, Limit::concurrency(2)?)?
///         .limit("Requests", IdFormat::String, Limit::new(100, 100, Duration::from_secs(60))?)?
///         .build(),
/// );
/// let (streams, requests) = (limiter.concurrency("Streams")?, limiter.limit("Requests")?);
/// let members = [streams.member("alice"), requests.member("alice")];
/// let (decision, receipt) = limiter.batch(&members).spend_estimate()?;
/// assert!(decision.allowed());
/// assert_eq!(streams.in_flight("alice")?, 1);
/// drop(receipt); // the stream has ended: its permit goes back, the request stays charged
/// assert_eq!(streams.in_flight("alice")?, 0);
/// assert_eq!(requests.check("alice", 0)?.remaining(), Some(99));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct ConcurrencyLimit(KeyedLimit);

/// Permits of a concurrency limit. They go back when this is dropped, on any thread.
///
/// Keep it as long as the work lasts: a stream's until the stream has ended, not only until its headers are sent.
///
/// # Example
///
/// ```
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limits = Limits::builder().limit("Jobs", IdFormat::String, Limit::concurrency(3)?)?.build();
/// let jobs = Limiter::new(limits).concurrency("Jobs")?;
/// let permit = jobs.acquire("alice", 2)?.1.expect("allowed");
/// assert_eq!((permit.count(), jobs.in_flight("alice")?), (2, 2));
/// std::thread::spawn(move || drop(permit)).join().unwrap();
/// assert_eq!(jobs.in_flight("alice")?, 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use = "the permits go back when it is dropped"]
pub struct Permit(Receipt);

impl Limiter {
    /// Returns the handle of a concurrency limit.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] if there is no limit with this name, or if it is not a concurrency limit.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// let limiter = Limiter::new(limits);
    /// assert!(limiter.concurrency("Streams").is_ok());
    /// assert!(limiter.limit("Streams").unwrap_err().to_string().contains("Limiter::concurrency"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn concurrency(&self, name: &str) -> Result<ConcurrencyLimit, Error> {
        let handle = self.handle_of(name)?;
        if !handle.counts_in_flight() {
            let text = format!(
                "{name} does not count what is in flight: its handle is that of Limiter::limit"
            );
            return Err(Error::new(ErrorKind::Name, text));
        }
        Ok(ConcurrencyLimit(handle))
    }
}

impl ConcurrencyLimit {
    #[cfg(feature = "tower")]
    pub(crate) fn into_handle(self) -> KeyedLimit {
        self.0
    }

    /// Takes `permits` permits of the id, all or none. If the call is allowed, they are out until the [`Permit`] is dropped.
    ///
    /// The decision's `remaining` is the number of permits that the id can still take. A denial's `retry_in` is the limit's
    /// [`retry_after`](Limit::retry_after), because the time at which a permit comes back is unknown. With 0 permits the call takes none.
    ///
    /// In three cases the call is allowed and takes no permits: no limit applies to the id, a limit in shadow mode would deny
    /// the call, or the limiter is switched off.
    ///
    /// # Errors
    ///
    /// See [`ConcurrencyLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let streams = limiter.concurrency("Streams")?; // at most 2
    /// let (decision, permit) = streams.acquire("alice", 2)?;
    /// assert_eq!((decision.allowed(), decision.remaining()), (true, Some(0)));
    /// assert!(!streams.acquire("alice", 1)?.0.allowed());
    /// drop(permit);
    /// assert!(streams.acquire("alice", 1)?.0.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn acquire<'a>(
        &self,
        id: impl Into<Id<'a>>,
        permits: u64,
    ) -> Result<(Decision, Option<Permit>), Error> {
        let (decision, receipt) = self.0.spend_estimate(id, permits)?;
        Ok((decision, receipt.map(Permit)))
    }

    /// Returns the decision that [`acquire`](ConcurrencyLimit::acquire) would get, and takes nothing.
    ///
    /// # Errors
    ///
    /// See [`ConcurrencyLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let streams = limiter.concurrency("Streams")?; // at most 2
    /// assert_eq!(streams.check("alice", 1)?.remaining(), Some(1));
    /// assert_eq!(streams.in_flight("alice")?, 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, permits: u64) -> Result<Decision, Error> {
        self.0.check(id, permits)
    }

    /// Returns the number of permits of the id that are out.
    ///
    /// # Errors
    ///
    /// See [`ConcurrencyLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let streams = limiter.concurrency("Streams")?;
    /// let permit = streams.acquire("alice", 2)?.1;
    /// assert_eq!(streams.in_flight("alice")?, 2);
    /// # drop(permit);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn in_flight<'a>(&self, id: impl Into<Id<'a>>) -> Result<u64, Error> {
        self.0.permits_of(id.into())
    }

    /// Returns the sum of all permits of the limit that are out.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let streams = limiter.concurrency("Streams")?;
    /// let _permits = [streams.acquire("alice", 1)?.1, streams.acquire("bob", 2)?.1];
    /// assert_eq!(streams.total_in_flight(), 3);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn total_in_flight(&self) -> u64 {
        self.0.tally.in_flight()
    }

    /// Sets the most permits of an id, for the ids without an override, from now on. Permits that are out stay out. A
    /// controller uses it: it raises the number while calls are quick, and lowers the number when calls slow down.
    ///
    /// With 0 every call is denied; a number above 16777215 counts as 16777215. A reload that changes the limit's default ends the
    /// setting; any other reload keeps it. One call still takes at most the configured `max`.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let streams = limiter.concurrency("Streams")?;
    /// streams.set_max(3);
    /// assert_eq!((streams.max(), streams.check("alice", 1)?.remaining()), (Some(3), Some(2)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_max(&self, max: u64) {
        self.0.tally.set_max(Some(max.min(Concurrency::MOST)));
    }

    /// Returns the most permits of an id without an override; `None` if there is no limit for it. See
    /// [`set_max`](ConcurrencyLimit::set_max).
    pub fn max(&self) -> Option<u64> {
        let guard = pin();
        let generation = self.0.limiter.inner.view(&guard).generation;
        let tag = generation.limits.default_tag(self.0.index)?;
        let limit = self.0.with_set_max(generation.limits.limit_at(tag)?, tag);
        limit.rule().concurrency().map(|rule| rule.max.into())
    }

    /// Returns a member of a [batch](crate::Limiter::batch), of one permit: set more by [`Member::cost`]. A batch with it is
    /// made by [`spend_estimate`](crate::batch::Batch::spend_estimate), whose receipt keeps the permits. With [`Member::leaving`]
    /// it leaves permits to others.
    ///
    /// # Example
    ///
    /// See [`ConcurrencyLimit`].
    pub fn member<'a>(&'a self, id: impl Into<Id<'a>>) -> Member<'a> {
        self.0.member(id)
    }

    /// Denies new permits of an id for a time: see [`KeyedLimit::block`].
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit::block`].
    pub fn block<'a>(&self, id: impl Into<Id<'a>>, time: Duration) -> Result<Duration, Error> {
        self.0.block(id, time)
    }

    /// Ends a block: see [`KeyedLimit::unblock`].
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit::unblock`].
    pub fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        self.0.unblock(id)
    }

    /// Returns which limit applies to an id, and the decision about this number of permits: see [`KeyedLimit::explain`].
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit::explain`].
    pub fn explain<'a>(&self, id: impl Into<Id<'a>>, permits: u64) -> Result<Explanation, Error> {
        self.0.explain(id, permits)
    }

    /// Returns the limit that applies to an id: see [`KeyedLimit::limit_for`].
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit::limit_for`].
    pub fn limit_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        self.0.limit_for(id)
    }

    /// Returns the limit's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the format of the limit's ids.
    pub fn format(&self) -> IdFormat {
        self.0.format()
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConcurrencyLimit({})", self.name())
    }
}

impl Permit {
    /// Returns the number of permits. See [`Permit`].
    pub fn count(&self) -> u64 {
        self.0.cost()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl KeyedLimit {
    /// Whether this is a concurrency limit.
    pub(crate) fn counts_in_flight(&self) -> bool {
        let guard = pin();
        self.limiter.inner.view(&guard).generation.limits.entry(self.index).counts_in_flight()
    }

    /// Returns the limit, with the maximum that a caller has set if it is the default of a concurrency limit.
    #[inline]
    pub(crate) fn with_set_max<'l>(&self, limit: &'l Limit, tag: LimitTag) -> Cow<'l, Limit> {
        if limit.rule().is_concurrency()
            && !tag.is_of_override()
            && tag.limit() == Some(self.index)
            && let Some(max) = self.tally.given_max()
        {
            return Cow::Owned(limit.with_max(max));
        }
        Cow::Borrowed(limit)
    }

    /// Returns the number of permits of the id that are out.
    fn permits_of(&self, id: Id<'_>) -> Result<u64, Error> {
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        Ok(self.limiter.inner.with_view(|view| {
            let applies = view.generation.limits.applying(key, view.limits_now_ns());
            let Some(Applying { key, tag, .. }) = applies else { return Ok(0) };
            let word = view.inner.store.look(&view.store_key(key, tag), &view)?;
            Ok(word.map_or(0, |word| InFlight::from_word(word).permits))
        }))
    }
}
