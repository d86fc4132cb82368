//! Blocks ids: denies their calls for a time, whatever their buckets hold.
//!
//! The blocks are in a [list](crate::core::block_list) beside the buckets. Only calls that can be denied search the
//! list: refunds, resets, settlements and cancels change the bucket as if there were no block.

#[cfg(all(test, feature = "snapshot", not(tollgate_loom)))]
mod tests;

use std::time::Duration;

use crate::algorithm::demand::Demand;
use crate::clock::MAX_NOW_NS;
use crate::core::block_list::Block;
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::other_handles::needs_store;
use crate::limits::{Id, Scratch, decode, encode};
use crate::store::key::{Key, KeyRef};
use crate::store::{Outdated, StoreKey};
use crate::util::time::saturating_ns;

/// Describes a blocked id. Made by [`Limiter::blocks`].
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// limiter.limit("PerUser")?.block_with_reason("mallory", Duration::from_secs(3600), "ticket 4711")?;
/// for blocked in limiter.blocks() {
///     assert_eq!((&*blocked.limit, &*blocked.id), ("PerUser", "mallory"));
///     assert!(blocked.left <= Duration::from_secs(3600));
/// }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form.
    pub id: String,
    /// The time until the block ends.
    pub left: Duration,
    /// The reason, if the caller gave one.
    pub reason: Option<String>,
}

/// The longest reason, in bytes.
pub(crate) const REASON_MAX_BYTES: usize = 1024;

impl KeyedLimit {
    /// Blocks an id for a time from now on: every call for it is denied. Returns the time until its block ends.
    ///
    /// A block is not a charge and never changes the bucket: the bucket refills, and is refunded, reset and settled as
    /// if there were no block. While an id is blocked,
    ///
    /// * [`spend`](KeyedLimit::spend), [`check`](KeyedLimit::check) and [`spend_estimate`](KeyedLimit::spend_estimate)
    ///   are denied, also at a cost of 0: [`Decision::blocked`] is true, [`remaining`](Decision::remaining) is 0, and
    ///   [`retry_in`](Decision::retry_in) is the time until the block ends, or the bucket's own wait if that is longer;
    /// * [`reserve`](KeyedLimit::reserve) and [waiting](KeyedLimit::until_allowed) fail at once with
    ///   [`ReserveError::Blocked`](crate::reserve::ReserveError::Blocked); a reservation from before the block is
    ///   granted at its time;
    /// * a [batch](crate::batch::Batch) with the id is denied; a
    ///   [`SpendOnly`](crate::batch::MemberMode::SpendOnly) member is left out instead.
    ///
    /// If the id is blocked already, the block that ends later stays, with its reason. To shorten a block,
    /// [`unblock`](KeyedLimit::unblock) the id first. A block ends at the latest with the limiter's clock, after 146
    /// years.
    ///
    /// Reloads, the end of an override, sweeps, the cap on buckets and snapshots keep blocks. A block denies calls only
    /// while its limit applies: not while the limiter is [switched off](Limiter::set_enabled), the limit is removed or
    /// has no numbers for the id, or a factor of 0 scales it. A limit in [shadow
    /// mode](crate::limits::LimitMode::Shadow) denies no call because of a block, but counts that it would have. A
    /// [shadow limit](crate::limits::LimitOptions::shadow) beside the limit is not charged by a blocked call.
    ///
    /// A call for an id that is not blocked reads one word more if the limiter has no blocks. If it has some, the call also
    /// pins, and searches the blocks of the id's bin.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`]; [`Error::is_invalid_block`] if no limit applies to the id, or if
    /// [`max_blocks`](crate::LimiterOptions::max_blocks) ids are blocked. Nothing has changed then.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// let users = limiter.limit("PerUser")?;
    /// let hour = Duration::from_secs(3600);
    /// users.block("mallory", hour)?;
    /// let denied = users.spend("mallory", 1)?;
    /// assert!(denied.blocked() && !denied.allowed());
    /// assert_eq!(denied.retry_in(), hour);
    /// assert!(users.unblock("mallory")?);
    /// assert_eq!(users.spend("mallory", 1)?.remaining(), Some(19));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Example: an IPv6 client of a tower layer
    ///
    /// The layer's id of an IPv6 client is the base address of its network, by default its /64.
    /// `http::ClientAddress::find` gives it; the client's own address would be another id.
    ///
    /// ```
    /// # #[cfg(feature = "http")] {
    /// use std::net::IpAddr;
    /// use std::time::Duration;
    /// use tollgate::http::ClientAddress;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    /// let clients = Limiter::new(limits).limit("PerClient")?;
    /// let client: IpAddr = "2001:db8:1:2::7".parse()?;
    /// let id = ClientAddress::new().find(Some(client), &http::HeaderMap::new())?; // as the layer has it
    /// assert_eq!(id.to_string(), "2001:db8:1:2::");
    /// clients.block(id, Duration::from_secs(3600))?;
    /// # assert!(clients.spend(id, 1)?.blocked());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block<'a>(&self, id: impl Into<Id<'a>>, time: Duration) -> Result<Duration, Error> {
        self.block_id(id.into(), time, None)
    }

    /// Like [`block`](KeyedLimit::block), with a reason of at most 1,024 bytes, which [`Limiter::blocks`] lists.
    ///
    /// # Errors
    ///
    /// Those of [`block`](KeyedLimit::block); [`Error::is_invalid_block`] for a longer reason.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// users.block_with_reason("mallory", Duration::from_secs(3600), "ticket 4711")?;
    /// assert_eq!(limiter.blocks()[0].reason.as_deref(), Some("ticket 4711"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn block_with_reason<'a>(
        &self,
        id: impl Into<Id<'a>>,
        time: Duration,
        reason: impl Into<String>,
    ) -> Result<Duration, Error> {
        self.block_id(id.into(), time, Some(reason.into().into_boxed_str()))
    }

    fn block_id(
        &self,
        id: Id<'_>,
        time: Duration,
        reason: Option<Box<str>>,
    ) -> Result<Duration, Error> {
        let mut scratch = Scratch::new();
        self.block_key(self.key(id, &mut scratch)?, time, reason)
    }

    /// Blocks an id in normal form.
    pub(crate) fn block_key(
        &self,
        key: KeyRef<'_>,
        time: Duration,
        reason: Option<Box<str>>,
    ) -> Result<Duration, Error> {
        let inner = &*self.limiter.inner;
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_MAX_BYTES) {
            let why = format!("its reason is longer than {REASON_MAX_BYTES} bytes");
            return Err(self.block_error(key.id, &why));
        }
        self.refuse_if_shared(key)?;
        let now_ns = inner.clock.now_ns();
        let applies = inner.with_view(|view| {
            Ok(view.generation.limits.applying(key, view.limits_ns(now_ns)).is_some())
        });
        if !applies {
            return Err(self.block_error(key.id, "no limit applies to it"));
        }
        let until_ns = now_ns.saturating_add(saturating_ns(time)).min(MAX_NOW_NS);
        let block = Block { key: Key::new(key), until_ns, reason };
        let listed = inner.blocks.block(inner.bin_hash(key), block, now_ns).map_err(|_full| {
            let max = inner.blocks.max();
            self.block_error(key.id, &format!("{max} ids are, which is max_blocks"))
        })?;
        let left = Duration::from_nanos(listed.until_ns.saturating_sub(now_ns));
        #[cfg(feature = "tracing")]
        crate::observe::events::block(self.logged(key.id), left);
        Ok(left)
    }

    /// Ends the block of an id. Returns whether the id was blocked.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// users.block("mallory", Duration::from_secs(3600))?;
    /// assert!(users.unblock("mallory")?);
    /// assert!(users.spend("mallory", 1)?.allowed());
    /// assert!(!users.unblock("mallory")?, "it was not blocked any more");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = self.key(id.into(), &mut scratch)?;
        self.refuse_if_shared(key)?;
        let was_blocked = inner.blocks.unblock(inner.bin_hash(key), key, inner.clock.now_ns());
        #[cfg(feature = "tracing")]
        if was_blocked {
            crate::observe::events::unblock(self.logged(key.id));
        }
        Ok(was_blocked)
    }

    /// Returns the time until the block of an id ends, if the id is blocked.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let users = Limiter::with_options(limits, clock)?.limit("PerUser")?;
    /// users.block("mallory", Duration::from_secs(60))?;
    /// hand.advance(Duration::from_secs(20));
    /// assert_eq!(users.blocked_for("mallory")?, Some(Duration::from_secs(40)));
    /// assert_eq!(users.blocked_for("alice")?, None);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocked_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Duration>, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = self.key(id.into(), &mut scratch)?;
        self.refuse_if_shared(key)?;
        let now_ns = inner.clock.now_ns();
        let end_ns = inner.blocks.end_ns(inner.bin_hash(key), key, now_ns);
        Ok(end_ns.map(|end_ns| Duration::from_nanos(end_ns - now_ns)))
    }

    /// The key of an id. An invalid id is not counted as an error of a call.
    fn key<'i>(&self, id: Id<'i>, scratch: &'i mut Scratch) -> Result<KeyRef<'i>, Error> {
        Ok(KeyRef { limit: self.index, id: encode(self.format, id, scratch)? })
    }

    /// The blocks of a shared limit are in its store.
    fn refuse_if_shared(&self, key: KeyRef<'_>) -> Result<(), Error> {
        self.limiter.inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let is_in_store =
                entry.is_shared() && entry.limit_for(key.id, view.limits_now_ns()).is_some();
            Ok(if is_in_store { Err(needs_store(&entry.name)) } else { Ok(()) })
        })
    }

    fn block_error(&self, id: &[u8], why: &str) -> Error {
        let text = format!("{}:{} cannot be blocked: {why}", self.name, decode(self.format, id));
        Error::new(ErrorKind::Block, text)
    }
}

impl Limiter {
    /// Lists the [blocked](KeyedLimit::block) ids, in no order; [`block_with_reason`](KeyedLimit::block_with_reason)
    /// has an example. It copies the whole list, so it is for operators, not for every request.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// limiter.limit("PerUser")?.block("mallory", Duration::from_secs(3600))?;
    /// let ids: Vec<String> = limiter.blocks().into_iter().map(|blocked| blocked.id).collect();
    /// assert_eq!(ids, ["mallory"]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocks(&self) -> Vec<Blocked> {
        let inner = &*self.inner;
        let now_ns = inner.clock.now_ns();
        self.under_same_limits(|limits| {
            let shown = inner.blocks.all(now_ns).into_iter().map(|block| {
                let KeyRef { limit, id } = block.key.as_ref();
                let entry = limits.entry(limit);
                Blocked {
                    limit: entry.name.to_string(),
                    id: decode(entry.format, id),
                    left: Duration::from_nanos(block.until_ns - now_ns),
                    reason: block.reason.as_deref().map(str::to_owned),
                }
            });
            shown.collect()
        })
    }
}

impl LimiterState {
    /// The hash that selects a key's bin in the list of blocks.
    pub(crate) fn bin_hash(&self, key: KeyRef<'_>) -> u64 {
        self.store.hash(key, self.store.fingerprint(key))
    }
}

impl LimitsView<'_> {
    /// The time until the block of a key ends, if the key is blocked. The block of an address is listed under the limit, in
    /// whichever network the address is.
    pub(crate) fn blocked_ns(self, key: &StoreKey<'_>, now_ns: u64) -> Option<u64> {
        let inner = self.inner;
        if !inner.blocks.is_any() {
            return None;
        }
        let limit = self.generation.limits.public(key.key.limit);
        let listed = KeyRef { limit, ..key.key };
        let hash = match listed == key.key {
            true => inner.store.hash(key.key, key.fingerprint),
            false => inner.bin_hash(listed),
        };
        inner.blocks.end_ns(hash, listed, now_ns).map(|end_ns| end_ns - now_ns)
    }

    /// The denial of a call that needs `cost` units of a key whose block ends in `left_ns`. Writes nothing.
    pub(crate) fn denied_by_block(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
        left_ns: u64,
    ) -> Result<Decision, Outdated> {
        let denied = self.look(key, (limit, Demand::NOTHING), now_ns, |word, at_ns| {
            let asked = limit.rule().spend(word, at_ns, cost);
            // The call charges nothing, so if the bucket has the units, its figures are those at a cost of 0.
            if asked.decision.allowed() { limit.rule().spend(word, at_ns, 0) } else { asked }
        });
        Ok(denied?.under_block(left_ns))
    }
}
