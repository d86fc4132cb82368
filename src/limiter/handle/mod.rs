//! A handle for one limit of a limiter: the calls for one bucket.

mod call;
mod fast_path;
mod slow_path;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limits::{Entry, Id, IdFormat, STRING_MAX_BYTES, Scratch, decode, encode};
#[cfg(feature = "tracing")]
use crate::observe::events::LoggedKey;
use crate::observe::stripes::Stripes;
use crate::observe::tally::Tally;
use crate::store::key::LimitIndex;
use crate::store::{Fingerprint, pin};

pub(crate) use call::Call;

/// Ids whose lines are fetched together: as many as a core has requests to memory under way.
const GROUP: usize = 16;

/// One limit of a [`Limiter`], by its name.
///
/// Calls take an id in its natural type: `&str`, `u64`, an address, `(u64, &str)`, an identifier set.
/// For a key that is known they format and allocate nothing.
///
/// An allowed spend writes one word, once; a check, a denial, an error and a cost of 0 write nothing.
///
/// Every call with an id can fail with [`Error::is_invalid_id`], and every call with a cost with
/// [`Error::is_cost_above_burst`]; then nothing has changed.
#[derive(Clone)]
pub struct KeyedLimit {
    pub(crate) limiter: Limiter,
    pub(crate) index: LimitIndex,
    pub(crate) name: Arc<str>,
    pub(crate) format: IdFormat,
    pub(crate) tally: Arc<Tally>,
    /// The tally's: `None` is all that a call reads where nothing is counted.
    pub(crate) stripes: Option<Arc<Stripes>>,
}

impl KeyedLimit {
    /// Asks for `cost` units of the id's bucket and charges them if they are there.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    #[inline]
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Spend(cost))
    }

    /// As [`spend`](KeyedLimit::spend) for many ids that have nothing to do with each other: their answers
    /// are added to `decisions`, in order.
    ///
    /// The table's lines of 16 ids at a time are fetched before the first of them is touched, so that
    /// the waits for memory overlap; the clock is read once for them.
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
            // The ids themselves first, which may be far away, too.
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
            let is_plain = inner.is_enabled() && !inner.blocks.is_any();
            let now_ns = inner.clock.now_ns();
            // One call of `extend` a group, so that a `Vec` reserves once.
            decisions.extend(group.drain(..).map(|(id, fingerprint)| {
                let decide =
                    |bytes: &[u8]| self.call_for_key(bytes, fingerprint, call, Some(now_ns));
                let plain = is_plain.then(|| with_plain_bytes(self.format, &id, decide)).flatten();
                plain.unwrap_or_else(|| self.call(id, call))
            }));
        }
    }

    /// Asks what a [`spend`](KeyedLimit::spend) would say, all four figures, and charges nothing. (In
    /// governor, `check` charges.)
    ///
    /// It looks at buckets, not at the room in the table. Of a new id at the
    /// [cap](crate::LimiterOptions::max_keys) it says what a bucket of the id's own would say, also under
    /// [`AtCap::Deny`](crate::options::AtCap::Deny), where a spend is denied; under [`AtCap::Share`](crate::options::AtCap::Share)
    /// it says what the shared bucket would say (ids with an override do not share it).
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    #[inline]
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Check(cost))
    }

    /// Gives back up to `cost` units, never past full. `allowed` says whether anything was given
    /// back; the other figures are the bucket's after it.
    ///
    /// A receipt or a place from before it gives nothing back afterwards. Units that a
    /// [receipt](crate::reserve::Receipt) is to return are not to be refunded by hand.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), Call::Refund(cost))
    }

    /// Makes the id's bucket full. A receipt or a place from before it gives nothing back afterwards.
    ///
    /// A new id that shares a bucket, because there is no room for its own, gets nothing back, here and by
    /// [`refund`](KeyedLimit::refund): that is others' debt, too. The decision is not `allowed` then.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.call(id.into(), Call::Reset)
    }

    /// Fails if the handle is of another limiter.
    pub(crate) fn check_limiter(&self, limiter: &Limiter) -> Result<(), Error> {
        if Arc::ptr_eq(&limiter.inner, &self.limiter.inner) {
            return Ok(());
        }
        let text = format!("the handle of {} is of another limiter", self.name());
        Err(Error::new(ErrorKind::Batch, text))
    }

    /// A key of this limit, as events show it.
    #[cfg(feature = "tracing")]
    pub(crate) fn logged<'a>(&'a self, id: &'a [u8]) -> LoggedKey<'a> {
        LoggedKey { limit: self.index, name: &self.name, format: self.format, id }
    }

    /// The limit's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the limit's ids look.
    pub fn format(&self) -> IdFormat {
        self.format
    }

    /// The id as its bucket's key has it, such as `8.8.8.8/32` for an address under `domainOrCIDR`.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    pub fn normalize<'a>(&self, id: impl Into<Id<'a>>) -> Result<String, Error> {
        let mut scratch = Scratch::new();
        let id = encode(self.format(), id.into(), &mut scratch)?;
        Ok(decode(self.format(), id))
    }

    /// The numbers that apply to an id: those of the most specific override, else the default's, else
    /// `None`, which is no limit.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    pub fn limit_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        self.with_numbers(id.into(), |limit| limit.cloned())
    }

    fn with_numbers<R>(
        &self,
        id: Id<'_>,
        then: impl FnOnce(Option<&Limit>) -> R,
    ) -> Result<R, Error> {
        self.with_entry(id, |_, limit| then(limit))
    }

    /// Calls `then` with the numbers that apply to an id and are enforced.
    #[cfg(feature = "tower")]
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
        let entry = view.generation.limits.entry(self.index);
        let numbers = entry.limit_for(id, view.limits_now_ns());
        Ok(then(entry, numbers.map(|(limit, _)| limit)))
    }

    /// The ids that have a bucket, in no order; `None` if the [engine](crate::options::Engine) keeps no keys.
    /// Looks at every cell: not for a request's way.
    pub fn ids(&self) -> Option<Vec<String>> {
        let mut ids = Vec::new();
        let keeps_keys = self.limiter.inner.store.for_each_key(|key| {
            let key = key.as_ref();
            if key.limit == self.index {
                ids.push(decode(self.format(), key.id));
            }
        });
        keeps_keys.then_some(ids)
    }
}

/// Has the line of a text fetched: what is read is not used, so that nothing waits for it.
#[inline(always)]
fn touch(id: &Id<'_>) {
    if let Id::Text(text) = id {
        std::hint::black_box(text.as_bytes().first().copied());
    }
}

/// Calls `then` with the bytes of an id that is in its limit's normal form as it is.
#[inline(always)]
fn with_plain_bytes<R>(format: IdFormat, id: &Id<'_>, then: impl FnOnce(&[u8]) -> R) -> Option<R> {
    match (format, id) {
        (IdFormat::RegId, Id::Number(number)) => Some(then(&number.to_be_bytes())),
        (IdFormat::String, Id::Text(text)) if (1..=STRING_MAX_BYTES).contains(&text.len()) => {
            Some(then(text.as_bytes()))
        }
        _ => None,
    }
}

impl fmt::Debug for KeyedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedLimit({})", self.name())
    }
}
