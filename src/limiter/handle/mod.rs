//! A handle for one limit of a limiter: the calls for one bucket.

#[cfg(feature = "boulder")]
mod boulder;
mod call;
mod fast_path;
mod floor;
mod partial;
mod slow_path;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limits::{Entry, Id, IdFormat, Limits, Scratch, decode, encode, with_plain_bytes};
#[cfg(feature = "tracing")]
use crate::observe::events::LoggedKey;
use crate::observe::stripes::Stripes;
use crate::observe::tally::HandleTally;
use crate::store::key::{KeyRef, LimitIndex};
use crate::store::{Fingerprint, pin};

pub(crate) use call::Call;
pub(crate) use floor::FloorCall;

/// How many ids `spend_many` prefetches together: a core has about this many loads from memory in flight.
const GROUP: usize = 16;

/// A handle for one limit of a [`Limiter`], from [`Limiter::limit`](crate::Limiter::limit), or from [`KeyedLimit::new`], which makes
/// the limiter as well.
///
/// Calls take an id in its natural type: `&str`, `u64`, an address, `(u64, &str)`, an identifier set. A call for a key
/// that the table knows formats and allocates nothing.
///
/// An allowed spend writes one word, once. A check, a denial, an error and a cost of 0 write nothing.
///
/// Every call with an id can fail with [`Error::is_invalid_id`], and every call with a cost with
/// [`Error::is_cost_above_burst`]. A call that fails has changed nothing.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{KeyedLimit, Limit};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// let users = KeyedLimit::new("PerUser", limit)?; // make it once, and keep the handle
/// assert_eq!(users.spend("alice", 1)?.remaining(), Some(4));
/// assert_eq!(users.spend(4711, 1)?.remaining(), Some(4)); // a number is an id as well
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct KeyedLimit {
    pub(crate) limiter: Limiter,
    pub(crate) index: LimitIndex,
    pub(crate) name: Arc<str>,
    pub(crate) format: IdFormat,
    /// Counts this handle as a use of the limit, so that a reload that lacks the limit is an error.
    pub(crate) tally: HandleTally,
    /// The tally's counters, if calls are counted. A copy, so that a call looks at one field of its own handle.
    pub(crate) stripes: Option<Arc<Stripes>>,
}

impl KeyedLimit {
    /// Makes a limiter with one limit, and returns the limit's handle.
    ///
    /// Ids are of the format [`IdFormat::String`](crate::IdFormat): text, numbers, addresses, each counted by its text. The
    /// limiter has the default [options](crate::LimiterOptions); for others, for more limits, for overrides or another format
    /// make a [`Limiter`]. `name` is the limit's name in metrics and reloads.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] if no limit can have the name.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// let users = KeyedLimit::new("PerUser", Limit::new(20, 10, Duration::from_secs(1))?)?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn new(name: &str, limit: Limit) -> Result<KeyedLimit, Error> {
        let limits = Limits::builder().limit(name, IdFormat::String, limit)?;
        Limiter::new(limits.build()).limit(name)
    }

    /// Returns the limiter.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::sweep::SweepOptions;
    /// use tollgate::{KeyedLimit, Limit};
    ///
    /// let users = KeyedLimit::new("PerUser", Limit::new(20, 10, Duration::from_secs(1))?)?;
    /// let _sweeper = users.limiter().start_sweeper(SweepOptions::default())?;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Charges `cost` units to the id's bucket if it has them, and returns the decision.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(5, 10, Duration::from_secs(60))?; // a burst of 5, refilled at 10 a minute
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let decision = limiter.limit("PerUser")?.spend("alice", 2)?;
    /// assert!(decision.allowed());
    /// assert_eq!(decision.remaining(), Some(3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Spend(cost))
    }

    /// Calls [`spend`](KeyedLimit::spend) for many independent ids and adds the decisions to `decisions`, in order.
    ///
    /// Ids are handled in groups of 16. For each group the clock is read once, and the buckets of all its plain ids
    /// (text, numbers) are prefetched, so that the waits for memory overlap.
    ///
    /// To charge several buckets all or nothing, use a [batch](crate::batch).
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let mut decisions = Vec::new();
    /// limiter.limit("PerUser")?.spend_many(["alice", "bob", "alice"], 1, &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().flatten().map(|d| d.allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_many<'a, I: Into<Id<'a>>>(
        &self,
        ids: impl IntoIterator<Item = I>,
        cost: u64,
        decisions: &mut impl Extend<Result<Decision, Error>>,
    ) {
        let inner = &*self.limiter.inner;
        let mut ids = ids.into_iter().map(Into::into).fuse();
        let mut group: SmallVec<[(Id<'a>, Fingerprint); GROUP]> = SmallVec::new();
        loop {
            // The ids' own text may not be in the cache: load it for all of them first.
            group.extend(ids.by_ref().take(GROUP).map(|id| {
                touch(&id);
                (id, Fingerprint::NONE)
            }));
            if group.is_empty() {
                return;
            }
            for (id, fingerprint) in &mut group {
                if let Some(known) = with_plain_bytes(self.format, id, |id| self.fetch(id)) {
                    *fingerprint = known;
                }
            }
            let call = Call::Spend(cost);
            let read_ns = Some(inner.clock.now_ns());
            // One call of `extend` a group, so that a `Vec` reserves once.
            decisions.extend(group.drain(..).map(|(id, fingerprint)| {
                // Asked for each id: the caller's code runs in between and may block a key.
                if !inner.is_enabled() || inner.blocks.is_any() {
                    return self.call_with_checks(id, call, read_ns);
                }
                let decide = |bytes: &[u8]| self.call_for_key(bytes, fingerprint, call, read_ns);
                with_plain_bytes(self.format, &id, decide)
                    .unwrap_or_else(|| self.call_encoding(id, call, read_ns))
            }));
        }
    }

    /// Returns the decision that a [`spend`](KeyedLimit::spend) would get, and charges nothing. (governor's `check`
    /// charges.)
    ///
    /// For an id without a bucket it also asks whether the table has room for one, and answers as
    /// [`AtCap`](crate::options::AtCap) says: under `Deny` with a denial for [lack of
    /// room](crate::Decision::out_of_room), under `Share` with the overflow bucket's decision. For that it looks at the
    /// buckets that a spend would look at, at most 80. With `Engine::Exact` it looks at 256 of them, and a spend may find a
    /// full one among the others. A check at a cost of 0 asks for no room.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.check("alice", 2)?.remaining(), Some(3));
    /// assert_eq!(users.check("alice", 2)?.remaining(), Some(3)); // nothing was charged
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Check(cost))
    }

    /// Gives `cost` units back to the id's bucket; a bucket takes no more than makes it full. The decision is `allowed`
    /// if the bucket took any; its other figures describe the bucket afterwards.
    ///
    /// A refund by hand is a gift: a [receipt](crate::reserve::Receipt) of the same units still returns them when it is
    /// settled. Refund units by hand only if no receipt will return them.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.spend("alice", 5)?.allowed());
    /// assert_eq!(users.refund("alice", 1)?.remaining(), Some(1));
    /// assert!(users.refund("alice", 5)?.allowed()); // makes the bucket full
    /// assert!(!users.refund("alice", 1)?.allowed()); // it is full already
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Refund(cost))
    }

    /// Makes the id's bucket full. Receipts and reservations from before stay valid.
    ///
    /// If the table has no room for the id's bucket, the id shares a bucket with other ids. Then a reset or a
    /// [`refund`](KeyedLimit::refund) returns nothing, because the others owe those units as well, and the decision is not
    /// `allowed`.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.spend("alice", 5)?.allowed());
    /// assert_eq!(users.reset("alice")?.remaining(), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.call(id.into(), Call::Reset)
    }

    /// Whether the handle belongs to this limiter.
    #[inline]
    pub(crate) fn is_of(&self, limiter: &Limiter) -> bool {
        Arc::ptr_eq(&limiter.inner, &self.limiter.inner)
    }

    /// Returns an error if the handle belongs to another limiter.
    pub(crate) fn check_limiter(&self, limiter: &Limiter) -> Result<(), Error> {
        if self.is_of(limiter) {
            return Ok(());
        }
        let text = format!("the handle of {} is of another limiter", self.name());
        Err(Error::new(ErrorKind::Batch, text))
    }

    /// Returns a key of this limit in the form that events print.
    #[cfg(feature = "tracing")]
    pub(crate) fn logged<'a>(&'a self, id: &'a [u8]) -> LoggedKey<'a> {
        LoggedKey { limit: self.index, name: &self.name, format: self.format, id }
    }

    /// Returns the limit's name.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// assert_eq!(limiter.limit("PerUser")?.name(), "PerUser");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the limit is shared now. A reload may change it.
    pub(crate) fn is_shared(&self) -> bool {
        let guard = pin();
        self.limiter.inner.view(&guard).generation.limits.entry(self.index).is_shared()
    }

    /// Returns the format of the limit's ids.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// assert_eq!(limiter.limit("PerUser")?.format(), IdFormat::String);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn format(&self) -> IdFormat {
        self.format
    }

    /// Returns the id in its normal form, which names its bucket, such as `8.8.8.8/32` for an address under
    /// `domainOrCIDR`.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerAddress", IdFormat::IpAddress, limit)?.build();
    /// let limiter = Limiter::new(limits);
    /// assert_eq!(limiter.limit("PerAddress")?.normalize("8.8.8.8")?, "8.8.8.8");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn normalize<'a>(&self, id: impl Into<Id<'a>>) -> Result<String, Error> {
        let mut scratch = Scratch::new();
        let id = encode(self.format(), id.into(), &mut scratch)?;
        Ok(decode(self.format(), id))
    }

    /// Returns the limit that applies to an id: that of the most specific override, else the default, else `None` for
    /// no limit.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let applies = limiter.limit("PerUser")?.limit_for("alice")?;
    /// assert_eq!(applies.map(|limit| limit.burst()), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        self.with_entry(id.into(), |_, limit| limit.cloned())
    }

    /// Calls `then` with the limit that applies to an id, unless it is in shadow mode.
    #[cfg(feature = "http")]
    pub(crate) fn with_enforced<R>(
        &self,
        id: Id<'_>,
        then: impl FnOnce(&Limit) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        self.with_entry(id, |entry, limit| limit.filter(|_| !entry.is_shadow()).and_then(then))
    }

    fn with_entry<R>(
        &self,
        id: Id<'_>,
        then: impl FnOnce(&Entry, Option<&Limit>) -> R,
    ) -> Result<R, Error> {
        let mut scratch = Scratch::new();
        let id = encode(self.format, id, &mut scratch)?;
        let guard = pin();
        let view = self.limiter.inner.view(&guard);
        let limits = &view.generation.limits;
        let applies = limits.applying(KeyRef { limit: self.index, id }, view.limits_now_ns());
        Ok(then(limits.entry(self.index), applies.map(|applying| applying.limit)))
    }

    /// Returns the ids that have a bucket, in no order, or `None` if the [engine](crate::options::Engine) stores
    /// fingerprints in place of keys, as every engine but `Engine::Exact` (the feature `exact`) does. The call reads every cell of the table: do not make it for each request.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// use tollgate::{Limiter, LimiterOptions, options::Engine};
    ///
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # #[cfg(feature = "exact")] {
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().engine(Engine::Exact))?;
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// assert_eq!(users.ids(), Some(vec!["alice".to_owned()]));
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn ids(&self) -> Option<Vec<String>> {
        let (mut ids, limits) = (Vec::new(), self.limiter.limits());
        let mut has_networks = false;
        let keeps_keys = self.limiter.inner.store.for_each_key(|key| {
            let key = key.as_ref();
            if limits.public(key.limit) == self.index {
                has_networks |= key.limit != self.index;
                ids.push(decode(self.format(), key.id));
            }
        });
        if has_networks {
            // A reload may have moved an address, which then has a bucket here and there.
            ids.sort_unstable();
            ids.dedup();
        }
        keeps_keys.then_some(ids)
    }
}

/// Loads the first byte of a text. Nothing waits for the byte, so the loads of several texts overlap.
#[inline(always)]
fn touch(id: &Id<'_>) {
    if let Id::Text(text) = id {
        std::hint::black_box(text.as_bytes().first().copied());
    }
}

impl fmt::Debug for KeyedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedLimit({})", self.name())
    }
}
