//! The handle of a limit that several nodes share: its spends and checks.

use std::fmt;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limiter::other_handles::needs_permits;
use crate::limits::{Id, IdFormat};
use crate::shared::calls::asked::SharedCall;
use crate::shared::calls::member::SharedMember;
use crate::shared::calls::no_store;

/// A handle for one limit that nodes may [share](crate::limits::Shared), from [`Limiter::shared`]. It has the calls of a
/// [`KeyedLimit`] under the same names; those that may have to ask the store are async.
///
/// The limit need not be shared: the futures of a local limit are ready at their first poll, and so are those that a lease of
/// this node decides. The futures need no runtime; a thread waits for one by [`block_on`](crate::shared::block_on).
///
/// A future that is dropped before its first poll has done nothing. One that is dropped later goes on without its caller: the
/// call is made, and the bucket is charged if it has the units.
///
/// # Errors
///
/// Each call fails as that of a [`KeyedLimit`]; and with [`Error::is_store_failure`] if the store has a text that is no bucket,
/// or ends. In an outage of the store the limit's
/// [policy](crate::limits::LimitOptions::on_error) decides a spend, a check, a partial grant, an estimate or a reservation. One
/// of these without an answer in time, or that is one too many, is denied: see [`Decision::overloaded`]. Neither is an error; the
/// bucket in the store may be charged then or not. The calls that no policy can decide (refunds, resets,
/// drains, blocks, settlements, explanations) fail with [`Error::is_store_failure`], and may have been made or not.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::limits::{LimitOptions, Shared};
/// use tollgate::shared::Store;
/// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let limit = Limit::new(5, 1, Duration::from_secs(60))?;
/// let exact = LimitOptions::default().shared(Shared::Exact);
/// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
/// let store = Store::in_memory(Clock::system()); // or Store::connect(&StoreOptions::new("redis://...")?)?
/// let node = || Limiter::with_options(limits.clone(), LimiterOptions::default().store(store.clone()));
/// let (one, other) = (node()?.shared("PerUser")?, node()?.shared("PerUser")?);
/// assert_eq!(one.spend("alice", 3).await?.remaining(), Some(2));
/// assert_eq!(other.spend("alice", 1).await?.remaining(), Some(1));
/// assert!(other.refund("alice", 4).await?.allowed());
/// assert_eq!(one.check("alice", 0).await?.remaining(), Some(5));
/// # Ok::<(), tollgate::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedLimit {
    pub(crate) limit: KeyedLimit,
}

/// The calls of a [`SharedLimit`] for callers with a factor, from [`SharedLimit::scaled`]. No lease decides a call with a
/// factor other than 1.
///
/// # Errors
///
/// As the calls of a [`SharedLimit`]; also for a factor that takes the limit out of its range.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::limits::{LimitOptions, Shared};
/// # use tollgate::shared::{Store, block_on};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
/// # let limit = Limit::new(6, 1, Duration::from_secs(60))?;
/// # let exact = LimitOptions::default().shared(Shared::Exact);
/// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
/// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
/// let users = Limiter::with_options(limits, options)?.shared("PerUser")?;
/// let guests = users.scaled("2".parse()?); // half of the burst
/// assert_eq!(block_on(guests.spend("alice", 1))?.remaining(), Some(2));
/// assert!(block_on(guests.check("alice", 2))?.allowed());
/// assert_eq!(block_on(guests.refund("alice", 1))?.remaining(), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ScaledSharedLimit<'h> {
    pub(super) limit: &'h KeyedLimit,
    pub(super) factor: Factor,
}

impl Limiter {
    /// Returns a handle for the limit of this name, which nodes may share. Look it up once, and keep it.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name of no limit; and [`Error::is_store_failure`] if the limit is shared and
    /// the limiter has no store.
    ///
    /// # Example
    ///
    /// See [`SharedLimit`].
    pub fn shared(&self, name: &str) -> Result<SharedLimit, Error> {
        let limit = self.handle_of(name)?;
        if limit.counts_in_flight() {
            return Err(needs_permits(name));
        }
        if limit.is_shared() && self.inner.part().is_none() {
            return Err(no_store(name));
        }
        Ok(SharedLimit { limit })
    }
}

impl SharedLimit {
    /// Returns the limit's name.
    pub fn name(&self) -> &str {
        self.limit.name()
    }

    /// Returns the format of the limit's ids.
    pub fn format(&self) -> IdFormat {
        self.limit.format()
    }

    /// Returns the id in its normal form: see [`KeyedLimit::normalize`].
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn normalize<'a>(&self, id: impl Into<Id<'a>>) -> Result<String, Error> {
        self.limit.normalize(id)
    }

    /// Returns the limit that applies to an id: see [`KeyedLimit::limit_for`].
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn limit_for<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        self.limit.limit_for(id)
    }

    /// Returns the key of an id's bucket in Boulder's store: see [`KeyedLimit::boulder_key`].
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    #[cfg(feature = "boulder")]
    pub fn boulder_key<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<String>, Error> {
        self.limit.boulder_key(id)
    }

    /// Returns the calls for callers with a factor: see [`KeyedLimit::scaled`].
    ///
    /// # Example
    ///
    /// See [`ScaledSharedLimit`].
    pub fn scaled(&self, factor: Factor) -> ScaledSharedLimit<'_> {
        ScaledSharedLimit { limit: &self.limit, factor }
    }

    /// Makes a member of a [`SharedBatch`](crate::shared::SharedBatch), at a cost of 1.
    ///
    /// # Example
    ///
    /// See [`SharedBatch`](crate::shared::SharedBatch).
    pub fn member<'a>(&'a self, id: impl Into<Id<'a>>) -> SharedMember<'a> {
        self.limit.member(id).into()
    }

    /// Checks at a cost of 0 what this node knows of an id without the store. For this crate's tests.
    #[doc(hidden)]
    pub fn known_here<'a>(&self, id: impl Into<Id<'a>>) -> Option<Decision> {
        let id: Id<'_> = id.into();
        let members = [self.limit.member(id).cost(0).into()];
        self.limit.limiter.shared_batch(&members).check_here()
    }

    fn plain(&self) -> ScaledSharedLimit<'_> {
        self.scaled(Factor::ONE)
    }

    /// Charges `cost` units to the id's bucket if it has them: see [`KeyedLimit::spend`].
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`], which has an example.
    pub async fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.plain().decide(id.into(), SharedCall::SPEND, cost).await
    }

    /// Returns the decision that a [`spend`](SharedLimit::spend) would get, and charges nothing.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`], which has an example.
    pub async fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.plain().decide(id.into(), SharedCall::CHECK, cost).await
    }

    /// Gives `cost` units back to the id's bucket: see [`KeyedLimit::refund`].
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`], which has an example.
    pub async fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.plain().refund(id, cost).await
    }

    /// Makes the id's bucket full: see [`KeyedLimit::reset`].
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`].
    pub async fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.plain().reset(id).await
    }

    /// Charges as many of `most` units as there are: see [`KeyedLimit::spend_up_to`]. Units that nodes hold in leases are not
    /// there. Returns the units that were charged, and the decision. In an outage of the store the limit's
    /// [policy](crate::limits::LimitOptions::on_error) grants all units or none.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options)?.shared("PerUser")?;
    /// let (granted, decision) = block_on(users.spend_up_to("alice", 8))?;
    /// assert_eq!((granted, decision.remaining()), (5, Some(0)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn spend_up_to<'a>(
        &self,
        id: impl Into<Id<'a>>,
        most: u64,
    ) -> Result<(u64, Decision), Error> {
        self.plain().spend_up_to(id, most).await
    }

    /// Charges all units that the bucket has but `leave`: see [`KeyedLimit::drain`].
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`].
    pub async fn drain<'a>(&self, id: impl Into<Id<'a>>, leave: u64) -> Result<Decision, Error> {
        self.plain().drain(id, leave).await
    }
}

impl<'h> ScaledSharedLimit<'h> {
    /// Like [`SharedLimit::spend`].
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`], which has an example.
    pub async fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.decide(id.into(), SharedCall::SPEND, cost).await
    }

    /// Like [`SharedLimit::check`].
    ///
    /// # Errors
    ///
    /// See [`ScaledSharedLimit`], which has an example.
    pub async fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.decide(id.into(), SharedCall::CHECK, cost).await
    }

    /// Makes a member of a [`SharedBatch`](crate::shared::SharedBatch), at a cost of 1 and with this factor.
    pub fn member<'a>(&self, id: impl Into<Id<'a>>) -> SharedMember<'a>
    where
        'h: 'a,
    {
        self.limit.member(id).factor(self.factor).into()
    }

    /// Decides a spend or a check: by a lease of this node, by the store, or by the local bucket.
    async fn decide(&self, id: Id<'_>, call: SharedCall, cost: u64) -> Result<Decision, Error> {
        let ScaledSharedLimit { limit, factor } = *self;
        let one = if call.spends { Call::Spend(cost) } else { Call::Check(cost) };
        // Only a guess: a reload may come between. The calls themselves tell, each of them with one view of the limits.
        let mut may_be_shared = limit.is_shared();
        loop {
            if may_be_shared {
                if let Some(decision) = limit.call_by_lease(id, factor, one) {
                    return Ok(decision);
                }
                let members = [limit.member(id).cost(cost).factor(factor).into()];
                let batch = limit.limiter.shared_batch(&members);
                if let Some(decision) = batch.ask_store(call.of_one()).await? {
                    return Ok(decision);
                }
            }
            match limit.call_with_factor(id, factor, one) {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => may_be_shared = true,
                decision => return decision,
            }
        }
    }
}

impl fmt::Debug for SharedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedLimit({})", self.name())
    }
}
