//! Calls for limits that several nodes share.
//!
//! A call that must ask the store has three parts. It prepares everything under one view of the limits and charges the
//! local members. It then hands the batch to the store, with a function that owns all that it needs: when the answer comes,
//! it gives the local charges back if the store has denied, and counts. At last the caller's future takes the result. If the
//! caller drops that future, the function is called all the same: so a call is charged for all of its members or for none.

pub(crate) mod asked;
pub(crate) mod batch;
mod change;
mod changes;
pub(crate) mod charged;
mod counters;
mod decided;
mod estimate;
mod explain;
mod give_up;
pub(crate) mod handle;
#[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only the layer keeps members"))]
pub(crate) mod kept;
mod lease;
mod lease_path;
pub(crate) mod member;
mod outage;
mod owed;
pub(crate) mod receipt;
mod reserve;
pub(crate) mod taken;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod units;
pub(crate) mod wait;

use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::core::view::LimitsView;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
#[cfg(feature = "boulder")]
use crate::limits::boulder_number;
use crate::limits::{Entry, OnError, decode};
use crate::shared::Store;
use crate::shared::protocol::outage::Policy;
use crate::shared::protocol::{SharedMode, StoreHandle, StoreMember};
use crate::store::key::{KeyRef, LimitIndex, LimitTag};

impl StoreHandle {
    /// Returns Boulder's number of a limit whose buckets have Boulder's keys.
    #[cfg(feature = "boulder")]
    fn boulders_number(&self, entry: &Entry, limit: &Limit) -> Option<usize> {
        let has_boulders_form = self.store.has_boulder_keys() && limit.rule().gcra().is_some();
        boulder_number(&entry.name).filter(|_| has_boulders_form)
    }

    #[cfg(not(feature = "boulder"))]
    fn boulders_number(&self, _: &Entry, _: &Limit) -> Option<usize> {
        None
    }

    /// Returns the name of an id's bucket in the store: the prefix, the limit's name, its
    /// algorithm if that is not gcra, because the texts differ, and the id as text, or a hash of a long id. No name of a
    /// limit has a slash, a colon or a number sign, so no two buckets have the same name. A store with Boulder's keys has
    /// those for Boulder's limits.
    fn key(&self, entry: &Entry, limit: &Limit, id: &[u8]) -> Box<str> {
        /// The longest id that is written as it is, in bytes.
        const ID_MAX_BYTES: usize = 64;
        /// The bytes of a hash that are kept.
        const HASH_BYTES: usize = 16;
        let text = decode(entry.format, id);
        if let Some(number) = self.boulders_number(entry, limit) {
            return format!("{number}:{text}").into();
        }
        let (slash, algorithm) = match limit.rule().gcra() {
            Some(_) => ("", ""),
            None => ("/", limit.algorithm()),
        };
        let (mark, id) = match text.len() <= ID_MAX_BYTES {
            true => (":", text),
            false => {
                let digest = Sha256::digest(text.as_bytes());
                ("#", digest[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
            }
        };
        [&*self.prefix, &*entry.name, slash, algorithm, mark, &*id].concat().into()
    }

    /// Makes a member that checks an id's bucket at a cost of 0. `limit`: the one of the tag, multiplied by the caller's factor.
    fn member(
        &self,
        view: LimitsView<'_>,
        entry: &Entry,
        key: KeyRef<'_>,
        (limit, tag): (Limit, LimitTag),
        factor: Factor,
    ) -> StoreMember {
        let own = || view.generation.limits.limit_at(tag).cloned().map(Box::new);
        StoreMember {
            key: self.key(entry, &limit, key.id),
            keep_ms: keep_ms(view, key.limit, tag, &limit),
            unscaled: (factor != Factor::ONE).then(own).flatten(),
            limit,
            cost: 0,
            mode: SharedMode::CheckOnly,
            lease: None,
        }
    }
}

impl Limiter {
    /// Returns the store of the limiter's [shared](crate::limits::Shared) limits: the one that was given by
    /// [`LimiterOptions::store`](crate::LimiterOptions::store), else that of the limits' section `store`.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::{Limiter, Limits};
    ///
    /// assert!(Limiter::new(Limits::builder().build()).store().is_none());
    /// ```
    pub fn store(&self) -> Option<Store> {
        self.inner.part().map(|part| Store(part.handle.clone()))
    }
}

/// Returns the policy of a shared limit for outages of the store.
fn policy(entry: &Entry) -> Policy {
    let sharing = entry.sharing();
    let fraction = sharing.fraction().unwrap_or(Factor::ZERO);
    match sharing.on_error() {
        Some(OnError::Deny) | None => Policy::Deny,
        Some(OnError::Local) => Policy::Local(fraction),
        Some(OnError::Allow) => Policy::Allow(sharing.allow_for().unwrap_or_default(), fraction),
    }
}

/// The answer of a task at the store. Its futures are for any executor, so they have no part in tokio's budget of a task: when that
/// is used up, an executor inside of the task would poll for ever.
pub(crate) async fn answer<T>(asked: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    unconstrained(asked).await.unwrap_or_else(|_| {
        let text = "the call to the store ended without an answer";
        Err(Error::new(ErrorKind::Store, text))
    })
}

/// Makes the error of a call for a shared limit where no store was given.
#[cold]
fn no_store(name: &str) -> Error {
    let text = format!(
        "{name} is shared, and the limiter has no store: give it one by LimiterOptions::store, or by `store` in the limits file"
    );
    Error::new(ErrorKind::Store, text)
}

/// Makes the error of a batch whose member of a shared limit must leave units.
#[cold]
fn cannot_leave(name: &str) -> Error {
    let text = format!("{name} is shared, and a store decides no spend that must leave units");
    Error::new(ErrorKind::Batch, text)
}

/// Returns the least time for which the text of a bucket is kept after a call under `limit`, in ms: until the units of the
/// limit without a factor are out of it, by the largest factor that was used on this node. A leaky bucket's is kept as long as
/// it takes without a factor as well: another node may have a file in which it drips faster. For a window without factors: 0.
fn keep_ms(view: LimitsView<'_>, index: LimitIndex, tag: LimitTag, limit: &Limit) -> u64 {
    if !limit.rule().fills_slower_by_factor() {
        return 0;
    }
    let factor = view.generation.largest_factors.get(index);
    let Some(own) = view.generation.limits.limit_at(tag) else { return 0 };
    let slowest = own.scaled(factor).ok().flatten();
    let full_in = |by: &Limit| own.rule().full_in_ms_by(by.rule()) + 1;
    let is_slower = factor > Factor::ONE || matches!(own.rule(), Rule::LeakyBucket(_));
    if is_slower { full_in(own).max(slowest.as_ref().map_or(0, full_in)) } else { 0 }
}
