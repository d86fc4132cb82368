//! Calls for one bucket that several nodes share.

use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::core::shared::SharedMember;
use crate::core::shared::text::{SharedBucket, rule_time_ns};
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limiter::shared::asked::SharedCall;
use crate::limiter::shared::change::{Changed, Where, find_or_call, lowered};
use crate::limits::Id;
#[cfg(feature = "tracing")]
use crate::observe::events;
use crate::store::key::Key;
use crate::util::time::saturating_ns;

const NS_PER_MS: u64 = 1_000_000;

impl KeyedLimit {
    /// Like [`spend`](KeyedLimit::spend), for a limit that may be [shared](crate::limits::Shared): asks the store where
    /// only the store can tell. Ready at its first poll for a local limit.
    ///
    /// A future that is dropped before its first poll has charged nothing. One that is dropped later goes on without its
    /// caller: the bucket is charged if it has the units.
    ///
    /// # Errors
    ///
    /// As [`spend`](KeyedLimit::spend); and [`Error::is_store_failure`] if the store has a text that is no bucket, or ends.
    /// If it does not answer in time, or refuses all calls, it is no error: the limit's
    /// [policy](crate::limits::LimitOptions::on_error) decides. The bucket in the store may be charged then or not.
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
    /// let (one, other) = (node().limit("PerUser")?, node().limit("PerUser")?);
    /// assert_eq!(one.spend_shared("alice", 3).await?.remaining(), Some(2));
    /// assert_eq!(other.spend_shared("alice", 1).await?.remaining(), Some(1));
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id: Id<'a> = id.into();
        if let Some(decision) = self.call_by_lease(id, Call::Spend(cost)) {
            return Ok(decision);
        }
        loop {
            let members = [self.member(id).cost(cost)];
            let call = SharedCall::SPEND.of_one();
            if let Some(decision) = self.limiter.batch(&members).ask_store(call).await? {
                return Ok(decision);
            }
            match self.spend(id, cost) {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Like [`check`](KeyedLimit::check), for a limit that may be [shared](crate::limits::Shared).
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared).
    pub async fn check_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id: Id<'a> = id.into();
        if let Some(decision) = self.call_by_lease(id, Call::Check(cost)) {
            return Ok(decision);
        }
        loop {
            let members = [self.member(id).cost(cost)];
            let call = SharedCall::CHECK.of_one();
            if let Some(decision) = self.limiter.batch(&members).ask_store(call).await? {
                return Ok(decision);
            }
            match self.check(id, cost) {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Like [`refund`](KeyedLimit::refund), for a limit that may be [shared](crate::limits::Shared): reads the bucket and
    /// replaces it if no other caller has changed it meanwhile, which takes two answers of the store.
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared); also if others have changed the bucket again and again meanwhile.
    pub async fn refund_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        self.refund_scaled(id.into(), cost, Factor::ONE).await
    }

    /// Refunds units by the limit multiplied by a factor.
    pub(super) async fn refund_scaled(
        &self,
        id: Id<'_>,
        cost: u64,
        factor: Factor,
    ) -> Result<Decision, Error> {
        let place = || self.place_scaled(id, cost, factor);
        let (store, member) = match find_or_call(place, || self.scaled(factor).refund(id, cost))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let refund = move |member: &SharedMember, bucket: SharedBucket, unix_ns| {
            let limit = &member.limit;
            // In shadow mode it is no error.
            let cost = if cost > limit.burst() { 0 } else { cost };
            let outcome = limit.rule().refund(bucket.word, rule_time_ns(unix_ns), cost);
            let new = lowered(member, bucket, unix_ns, outcome.word);
            (new, with_leased_units(member, new, unix_ns, outcome.decision))
        };
        self.change((store, member), refund, forgetting_denial(self.key_of(id)?)).await
    }

    /// Like [`reset`](KeyedLimit::reset), for a limit that may be [shared](crate::limits::Shared). See
    /// [`refund_shared`](KeyedLimit::refund_shared).
    ///
    /// # Errors
    ///
    /// As [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn reset_shared<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        let id = id.into();
        let (store, member) = match find_or_call(|| self.place(id, 0), || self.reset(id))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let reset = |member: &SharedMember, bucket: SharedBucket, unix_ns| {
            let outcome = member.limit.rule().reset(bucket.word, rule_time_ns(unix_ns));
            let new = lowered(member, bucket, unix_ns, outcome.word);
            (new, with_leased_units(member, new, unix_ns, outcome.decision))
        };
        self.change((store, member), reset, forgetting_denial(self.key_of(id)?)).await
    }

    /// Like [`block`](KeyedLimit::block), for a limit that may be [shared](crate::limits::Shared): denies the id on all
    /// nodes. Returns the time until its block ends. The store keeps whole milliseconds, and no reason.
    ///
    /// # Errors
    ///
    /// As [`block`](KeyedLimit::block) and [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn block_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        time: Duration,
    ) -> Result<Duration, Error> {
        let id = id.into();
        let (store, member) =
            match find_or_call(|| self.place_while_off(id), || self.block(id, time))? {
                Where::Here(left) => return Ok(left),
                Where::InStore(store, member) => (store, member),
            };
        let block = move |_: &SharedMember, bucket: SharedBucket, unix_ns: u64| {
            let end_ns = unix_ns.saturating_add(saturating_ns(time));
            let until_ms = end_ns.div_ceil(NS_PER_MS).max(bucket.blocked_until_ms);
            blocked_until(bucket, until_ms, unix_ns)
        };
        let key = self.key_of(id)?;
        let note = move |handle: &KeyedLimit, left_ns: Result<Option<u64>, Error>| {
            let (id, left_ns) = (key.as_ref().id, left_ns?.unwrap_or(0));
            handle.note_block(id, left_ns);
            let left = Duration::from_nanos(left_ns);
            #[cfg(feature = "tracing")]
            events::block(handle.logged(id), left);
            Ok(left)
        };
        self.change((store, member), block, note).await
    }

    /// Like [`unblock`](KeyedLimit::unblock), for a limit that may be [shared](crate::limits::Shared). Returns whether the
    /// id was blocked.
    ///
    /// # Errors
    ///
    /// As [`refund_shared`](KeyedLimit::refund_shared).
    pub async fn unblock_shared<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let id = id.into();
        match find_or_call(|| self.place_while_off(id), || self.unblock(id))? {
            Where::Here(was_blocked) => Ok(was_blocked),
            Where::InStore(store, member) => {
                let unblock = |_: &SharedMember, bucket: SharedBucket, unix_ns| {
                    let was_blocked = bucket.blocked_ns(unix_ns).is_some();
                    let (changed, _) = blocked_until(bucket, 0, unix_ns);
                    (changed, was_blocked)
                };
                let key = self.key_of(id)?;
                let note = move |handle: &KeyedLimit, was_blocked: Result<bool, Error>| {
                    let (id, was_blocked) = (key.as_ref().id, was_blocked?);
                    handle.forget_denial(id);
                    #[cfg(feature = "tracing")]
                    if was_blocked {
                        events::unblock(handle.logged(id));
                    }
                    Ok(was_blocked)
                };
                self.change((store, member), unblock, note).await
            }
        }
    }

    /// Like [`blocked`](KeyedLimit::blocked), for a limit that may be [shared](crate::limits::Shared). Returns the time
    /// until the id's block ends.
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared).
    pub async fn blocked_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
    ) -> Result<Option<Duration>, Error> {
        let id = id.into();
        match find_or_call(|| self.place_while_off(id), || self.blocked(id))? {
            Where::Here(left) => Ok(left),
            Where::InStore(store, member) => {
                let look = |_: &SharedMember, bucket: SharedBucket, unix_ns| {
                    (None, bucket.blocked_ns(unix_ns))
                };
                let left = self.change((store, member), look, |_, left| left);
                Ok(left.await?.map(Duration::from_nanos))
            }
        }
    }
}

/// Makes the last step of a refund or a reset on this node: a kept denial of the id is forgotten.
fn forgetting_denial<R>(
    key: Key,
) -> impl FnOnce(&KeyedLimit, Result<R, Error>) -> Result<R, Error> + Send + 'static {
    move |handle, changed| changed.inspect(|_| handle.forget_denial(key.as_ref().id))
}

/// Returns the decision of a refund or a reset with the figures that the next call finds: the units that nodes hold are not in
/// the bucket.
fn with_leased_units(
    member: &SharedMember,
    new: Option<SharedBucket>,
    unix_ns: u64,
    decision: Decision,
) -> Decision {
    let Some(new) = new else { return decision };
    let guarded = new.with_guard(member.limits(), unix_ns);
    if guarded.word == new.word {
        return decision;
    }
    let figures = member.limit.rule().refund(guarded.word, rule_time_ns(unix_ns), 0).decision;
    decision.with_figures_of(figures)
}

/// Sets the end of a bucket's block; returns the bucket if it has changed, and the ns until the end.
fn blocked_until(bucket: SharedBucket, until_ms: u64, unix_ns: u64) -> Changed<Option<u64>> {
    let new = SharedBucket { blocked_until_ms: until_ms, ..bucket };
    ((new != bucket).then_some(new), new.blocked_ns(unix_ns))
}
