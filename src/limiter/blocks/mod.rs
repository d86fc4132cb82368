//! Ids that are blocked: denied for a time, whatever their buckets hold.
//!
//! A block lies in a [list] beside the buckets. Only calls that can be denied look for one: refunds, resets,
//! settlements and cancels change the bucket as without a block.

#[cfg(all(test, feature = "snapshot", not(tollgate_loom)))]
mod tests;

use std::time::Duration;

use crate::core::block_list::Block;

use crate::clock::MAX_NOW_NS;
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limits::{Id, Scratch, decode, encode};
use crate::store::key::{Key, KeyRef};
use crate::store::{Outdated, StoreKey};

/// An id that is blocked, as [`Limiter::blocked`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form.
    pub id: String,
    /// The time until the block ends.
    pub left: Duration,
    /// The reason that was given for it.
    pub reason: Option<String>,
}

/// The most bytes of a reason.
pub(crate) const REASON_MAX_BYTES: usize = 1024;

impl KeyedLimit {
    /// Denies an id everything for a time, from now on; returns the time until its block ends.
    ///
    /// A block is not a charge: it never changes the bucket, which refills, is refunded, reset and settled as
    /// without it. While an id is blocked,
    ///
    /// * [`spend`](KeyedLimit::spend), [`check`](KeyedLimit::check) and [`charge`](KeyedLimit::spend_estimate) are denied, also at a
    ///   cost of 0: [`Decision::blocked`] is true, [`remaining`](Decision::remaining) is 0, and
    ///   [`retry_in`](Decision::retry_in) is the longer of the block's end and the bucket's own wait;
    /// * [`reserve`](KeyedLimit::reserve) and [waiting](KeyedLimit::until_allowed) are refused at once, by
    ///   [`ReserveError::Blocked`](crate::reserve::ReserveError::Blocked); places that were taken before keep their time;
    /// * a [batch](crate::batch::Batch) with the id is denied, or leaves it out if the member is
    ///   [`SpendOnly`](crate::batch::MemberMode::SpendOnly).
    ///
    /// Of two blocks the longer one stays, with its reason: a shorter one changes nothing
    /// ([`unblock`](KeyedLimit::unblock) first). A time that ends after the limiter's clock, 146 years, is cut.
    ///
    /// Reloads, the end of an override, sweeps, the cap on buckets and snapshots keep blocks. A block denies
    /// where its limit applies: not where the limiter is [switched off](Limiter::set_enabled), the limit is
    /// removed, has no numbers for the id by now, or is scaled by a factor of 0, and as soon as it applies
    /// again. A limit in [shadow mode](crate::limits::LimitMode::Shadow) denies no call for a block, and counts that it
    /// would; a [shadow](crate::limits::LimitOptions::shadow) beside the limit is not asked about a blocked call.
    ///
    /// A call for an id that is not blocked reads one word more where there are no blocks at all, and one more
    /// where there are.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`]; and [`Error::is_invalid_block`] when no limit applies to the id, or as many ids are
    /// blocked as [may be](crate::LimiterOptions::max_blocks). Then nothing has changed.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_clock(limits, Clock::manual().0);
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

    /// Like [`block`](KeyedLimit::block), with a reason, which [`Limiter::blocked`] lists: text of at most 1,024
    /// bytes.
    ///
    /// # Errors
    ///
    /// As [`block`](KeyedLimit::block); [`Error::is_invalid_block`] for a reason that is longer.
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
    /// assert_eq!(limiter.blocked()[0].reason.as_deref(), Some("ticket 4711"));
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
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: encode(self.format, id, &mut scratch)? };
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_MAX_BYTES) {
            let why = format!("its reason is longer than {REASON_MAX_BYTES} bytes");
            return Err(self.not_blocked(key.id, &why));
        }
        let now_ns = inner.clock.now_ns();
        let applies = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            Ok(entry.limit_for(key.id, now_ns).is_some())
        });
        if !applies {
            return Err(self.not_blocked(key.id, "no limit applies to it"));
        }
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns.saturating_add(time_ns).min(MAX_NOW_NS);
        let block = Block { key: Key::new(key), until_ns, reason };
        let listed = inner.blocks.block(inner.bin_hash(key), block, now_ns).map_err(|_full| {
            let max = inner.blocks.max();
            self.not_blocked(key.id, &format!("{max} ids are, which is max_blocks"))
        })?;
        let left = Duration::from_nanos(listed.until_ns.saturating_sub(now_ns));
        #[cfg(feature = "tracing")]
        crate::observe::events::block(self.logged(key.id), left);
        Ok(left)
    }

    /// Ends the block of an id; returns whether it was blocked.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: encode(self.format, id.into(), &mut scratch)? };
        let was_blocked = inner.blocks.unblock(inner.bin_hash(key), key, inner.clock.now_ns());
        #[cfg(feature = "tracing")]
        if was_blocked {
            crate::observe::events::unblock(self.logged(key.id));
        }
        Ok(was_blocked)
    }

    /// The time until the block of an id ends, if it is blocked.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn blocked<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Duration>, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: encode(self.format, id.into(), &mut scratch)? };
        let now_ns = inner.clock.now_ns();
        let end_ns = inner.blocks.end_ns(inner.bin_hash(key), key, now_ns);
        Ok(end_ns.map(|end_ns| Duration::from_nanos(end_ns - now_ns)))
    }

    fn not_blocked(&self, id: &[u8], why: &str) -> Error {
        let text = format!("{}:{} cannot be blocked: {why}", self.name, decode(self.format, id));
        Error::new(ErrorKind::Block, text)
    }
}

impl Limiter {
    /// The ids that are [blocked](KeyedLimit::block), in no order. Looks at the whole list: not for a request's
    /// way.
    pub fn blocked(&self) -> Vec<Blocked> {
        let inner = &*self.inner;
        let now_ns = inner.clock.now_ns();
        let listed = inner.blocks.all(now_ns);
        // After the list: limits are never taken away from among them.
        let limits = self.limits();
        let shown = listed.iter().map(|block| {
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
    }
}

impl SharedState {
    /// The hash that picks a key's bin.
    pub(crate) fn bin_hash(&self, key: KeyRef<'_>) -> u64 {
        self.store.hash(key, self.store.fingerprint(key))
    }
}

impl LimitsView<'_> {
    /// The time until the block of a key ends, if it is blocked.
    pub(crate) fn blocked_ns(self, key: &StoreKey<'_>, now_ns: u64) -> Option<u64> {
        let inner = self.inner;
        let hash = inner.store.hash(key.key, key.fingerprint);
        inner.blocks.end_ns(hash, key.key, now_ns).map(|end_ns| end_ns - now_ns)
    }

    /// The denial of a key that is blocked for so long, for a call that asks for `cost` units. Writes nothing.
    pub(crate) fn denied_by_block(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
        left_ns: u64,
    ) -> Result<Decision, Outdated> {
        let denied = self.look(key, now_ns, |word, at_ns| {
            let asked = limit.rule().spend(word, at_ns, cost);
            // Nothing is charged: what a bucket that has the units says is what it says at no cost.
            if asked.decision.allowed() { limit.rule().spend(word, at_ns, 0) } else { asked }
        });
        Ok(denied?.under_block(left_ns))
    }
}
