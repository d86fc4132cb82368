//! Calls for shared limits that charge as many units as there are, or tell each member's decision, and calls with a factor.

use smallvec::SmallVec;

use crate::core::shared::change::Step;
use crate::core::shared::text::rule_time_ns;
use crate::core::shared::{SharedMember, SharedMode};
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::{Batch, INLINE_MEMBERS};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::scaled::ScaledLimit;
use crate::limiter::shared::answered::answer;
use crate::limiter::shared::asked::SharedCall;
use crate::limiter::shared::batch::Begun;
use crate::limiter::shared::change::{ChangedBucket, Where, find_or_call};
use crate::limiter::shared::outage::decide_without;
use crate::limiter::shared::reserve::Terms;
use crate::limits::Id;
use crate::util::block_on::block_on;

impl KeyedLimit {
    /// Like [`spend_up_to`](KeyedLimit::spend_up_to), for a limit that may be [shared](crate::limits::Shared). Units
    /// that nodes hold in leases are not there.
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](KeyedLimit::spend_shared). If the store does not answer in time, the limit's [policy](crate::limits::LimitOptions::on_error) grants all units or none.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// let (units, decision) = users.spend_up_to_shared("alice", 8).await?;
    /// assert_eq!((units, decision.remaining()), (5, Some(0)));
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_up_to_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        most: u64,
    ) -> Result<(u64, Decision), Error> {
        let id = id.into();
        let (store, member, terms) = loop {
            match find_or_call(|| self.place(id, 0), || self.spend_up_to(id, most))? {
                Where::Here(granted) => return Ok(granted),
                Where::InStore(store, member) => {
                    // A reload that makes the limit a local one may come between.
                    if let Some(terms) = self.terms(id)? {
                        break (store, member, terms);
                    }
                }
            }
        };
        let (key, asked) = (self.key_of(id)?, member.clone());
        let at_most = most.min(member.limit.burst());
        let granted_by = move |changed: ChangedBucket| {
            let ChangedBucket { member, stepped } = changed;
            let (rule, now_ns) = (member.limit.rule(), rule_time_ns(stepped.unix_ns));
            let word = stepped.before.word;
            if let Some(left_ns) = stepped.before.blocked_ns(stepped.unix_ns) {
                let asked = rule.spend(word, now_ns, at_most.min(1)).decision;
                let free = rule.spend(word, now_ns, 0).decision;
                let asked = if asked.allowed() { free } else { asked };
                return (0, asked.under_block(left_ns));
            }
            (stepped.units, rule.spend_up_to(word, now_ns, at_most).1.decision)
        };
        let count = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            let granted = changed.map(granted_by);
            handle.granted(key.as_ref().id, (granted, most), (asked, terms))
        };
        self.change((store, member), Step::SpendUpTo { most: at_most }, count).await
    }

    /// Counts a partial grant, or decides it by the limit's policy if the store does not.
    fn granted(
        &self,
        id: &[u8],
        (granted, most): (Result<(u64, Decision), Error>, u64),
        (member, terms): (SharedMember, Terms),
    ) -> Result<(u64, Decision), Error> {
        let limit = member.limit.clone();
        let (units, decision) = match granted {
            Ok(granted) => granted,
            Err(error) if error.is_undecided() => {
                let cost = most.min(limit.burst());
                let member = SharedMember { cost, mode: SharedMode::CheckAndSpend, ..member };
                let decided = decide_without(self, &[member], &[terms.policy], &error);
                let decision = decided.first().copied().unwrap_or(Decision::UNLIMITED);
                if error.is_store_outage() {
                    self.tally.count_without_store(decision.allowed());
                }
                (if decision.allowed() { cost } else { 0 }, decision)
            }
            Err(error) => {
                self.tally.count_error();
                return Err(error);
            }
        };
        let (granted, decision) = match terms.is_shadow {
            true => {
                self.note_shadow(!decision.allowed());
                (most, decision.in_shadow())
            }
            false => (units, decision),
        };
        self.count(id, &limit, units, &decision, self.limiter.inner.clock.now_ns());
        Ok((granted, decision))
    }

    /// Like [`drain`](KeyedLimit::drain), for a limit that may be [shared](crate::limits::Shared). Units that nodes hold in
    /// leases stay theirs.
    ///
    /// # Errors
    ///
    /// As [`refund_shared`](KeyedLimit::refund_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// assert_eq!(users.drain_shared("alice", 1).await?.remaining(), Some(1));
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn drain_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        leave: u64,
    ) -> Result<Decision, Error> {
        let id = id.into();
        let (store, member) = match find_or_call(|| self.place(id, 0), || self.drain(id, leave))? {
            Where::Here(decision) => return Ok(decision),
            Where::InStore(store, member) => (store, member),
        };
        let drained =
            self.change((store, member), Step::Drain { leave }, |_, drained| drained).await?;
        Ok(drained.check().of_refund())
    }
}

impl Batch<'_> {
    /// Like [`spend_each`](Batch::spend_each), for members of which some are [shared](crate::limits::Shared). If a member of
    /// this node denies the batch, the store is not asked: the shared members' decisions have no figures then.
    ///
    /// # Errors
    ///
    /// As [`spend_shared`](Batch::spend_shared). `decisions` has nothing more then.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// # let limiter = Limiter::with_options(limits, options);
    /// let users = limiter.limit("PerUser")?;
    /// let mut each = Vec::new();
    /// let members = [users.member("alice").cost(2), users.member("bob")];
    /// assert!(limiter.batch(&members).spend_each_shared(&mut each).await?.allowed());
    /// assert_eq!([each[0].remaining(), each[1].remaining()], [Some(3), Some(4)]);
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_each_shared(
        &self,
        decisions: &mut impl Extend<Decision>,
    ) -> Result<Decision, Error> {
        loop {
            let call = SharedCall { keeps: true, ..SharedCall::SPEND };
            let decided = match self.begin(call)? {
                Begun::Local => match self.spend_each(decisions) {
                    Err(error) if error.needs_store() => continue,
                    decision => return decision,
                },
                Begun::Decided(decided) => decided,
                Begun::Asks(asked) => answer(self.ask(asked)?).await?,
            };
            let mut each: SmallVec<[Decision; INLINE_MEMBERS]> = SmallVec::new();
            each.resize(self.members.len(), Decision::UNLIMITED);
            for member in &decided.members {
                each[member.position] = member.decision;
            }
            decisions.extend(each);
            return Ok(decided.decision);
        }
    }

    /// Like [`spend_each_shared`](Batch::spend_each_shared), for a thread: see [`KeyedLimit::spend_blocking`].
    ///
    /// # Errors
    ///
    /// See [`spend_each_shared`](Batch::spend_each_shared).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let mut each = Vec::new();
    /// assert!(limiter.batch(&[users.member("alice")]).spend_each_blocking(&mut each)?.allowed());
    /// assert_eq!(each[0].remaining(), Some(4));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_each_blocking(
        &self,
        decisions: &mut impl Extend<Decision>,
    ) -> Result<Decision, Error> {
        block_on(self.spend_each_shared(decisions))
    }
}

impl ScaledLimit<'_> {
    /// Like [`spend`](ScaledLimit::spend), for a limit that may be [shared](crate::limits::Shared). Always asks the store.
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::spend_shared`]; also for a factor that takes the limit out of its range.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let limit = Limit::new(6, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options).limit("PerUser")?;
    /// let guests = users.scaled("2".parse()?); // half of the burst
    /// assert_eq!(guests.spend_shared("alice", 1).await?.remaining(), Some(2));
    /// assert!(guests.check_shared("alice", 2).await?.allowed());
    /// assert_eq!(guests.refund_shared("alice", 1).await?.remaining(), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id = id.into();
        self.call_shared(id, SharedCall::SPEND, cost, || self.spend(id, cost)).await
    }

    /// Like [`check`](ScaledLimit::check), for a limit that may be [shared](crate::limits::Shared).
    ///
    /// # Errors
    ///
    /// See [`spend_shared`](ScaledLimit::spend_shared), which has an example.
    pub async fn check_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        let id = id.into();
        self.call_shared(id, SharedCall::CHECK, cost, || self.check(id, cost)).await
    }

    async fn call_shared(
        &self,
        id: Id<'_>,
        call: SharedCall,
        cost: u64,
        local: impl Fn() -> Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        loop {
            let members = [self.member(id).cost(cost)];
            let batch = self.handle.limiter.batch(&members);
            if let Some(decision) = batch.ask_store(call.of_one()).await? {
                return Ok(decision);
            }
            match local() {
                // A reload has come between, and has made the limit a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Like [`refund`](ScaledLimit::refund), for a limit that may be [shared](crate::limits::Shared). See
    /// [`KeyedLimit::refund_shared`].
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::refund_shared`]. [`spend_shared`](ScaledLimit::spend_shared) has an example.
    pub async fn refund_shared<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Decision, Error> {
        self.handle.refund_scaled(id.into(), cost, self.factor).await
    }
}
