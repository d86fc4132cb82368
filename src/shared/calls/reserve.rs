//! Reservations and estimates of limits that several nodes share.
//!
//! A reservation is one step of the store, and its time is the store's. The node waits from the moment at which it has the
//! answer, so that its wait never ends before the store's time has come.

use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::{Receipt, ReserveError};
use crate::limits::Id;
use crate::shared::calls::answer;
use crate::shared::calls::asked::{AskedBatch, SharedCall};
use crate::shared::calls::batch::Begun;
use crate::shared::calls::change::{ChangedBucket, InStore};
use crate::shared::calls::charged::ChargedInStore;
use crate::shared::calls::handle::SharedLimit;
use crate::shared::calls::kept::{DecidedBatch, MemberCharge};
use crate::shared::calls::outage::decide_spend_without;
use crate::shared::calls::receipt::{Place, SharedReceipt, SharedReservation, StoredEstimate};
use crate::shared::protocol::change::{Step, Stepped};
use crate::shared::protocol::text::{rule_time_ns, unix_ms};
use crate::store::key::Key;
use crate::util::time::saturating_ns;

/// A grant of the store. If it is dropped before its caller has it, the reservation is cancelled.
struct Granted {
    charged: Option<Box<ChargedInStore>>,
    wait_ns: u64,
    /// A check of the bucket at a cost of 0 after the charge.
    after: Decision,
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(charged) = &self.charged {
            charged.begin_cancel();
        }
    }
}

impl SharedLimit {
    /// Charges `cost` units now, for a time at most `at_most` in the future: see
    /// [`KeyedLimit::reserve`](crate::KeyedLimit::reserve). Reservations of all nodes are granted in the order in which the
    /// store has them. A future that is dropped before it is ready cancels its reservation.
    ///
    /// In an outage of the store, the limit's [policy](crate::limits::LimitOptions::on_error) decides, and no caller
    /// waits: the units are there at once, or the call returns the store's error.
    ///
    /// # Errors
    ///
    /// As [`KeyedLimit::reserve`](crate::KeyedLimit::reserve); and [`ReserveError::Wrong`] with [`Error::is_store_failure`] if the
    /// store does not answer and the policy denies, if this node has too many calls under way (a
    /// [wait](SharedLimit::until_allowed) tries again then), or if the store has a text that is no bucket; or with [`Error::is_leased`] if the
    /// limit is [`Leased`](crate::limits::Shared::Leased): units that nodes hold in leases have no order.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, Shared};
    /// use tollgate::shared::{Store, block_on};
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(1))?;
    /// let exact = LimitOptions::default().shared(Shared::Exact);
    /// let limits = Limits::builder().limit_with("Mail", IdFormat::String, limit, exact)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let options = LimiterOptions::default().store(Store::in_memory(clock.clone())).clock(clock);
    /// let mail = Limiter::with_options(limits, options)?.shared("Mail")?;
    /// assert!(block_on(mail.spend("alice", 1))?.allowed());
    /// let reservation = block_on(mail.reserve("alice", 1, Duration::from_secs(5)))?;
    /// assert_eq!(reservation.wait(), Duration::from_secs(1));
    /// hand.advance(Duration::from_secs(1));
    /// assert!(reservation.wait().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn reserve<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
    ) -> Result<SharedReservation, ReserveError> {
        let (handle, id) = (&self.limit, id.into());
        loop {
            let Some(terms) = handle.terms_unleased(id)? else {
                match handle.reserve(id, cost, at_most) {
                    // A reload has come between, and has made the limit a shared one.
                    Err(ReserveError::Wrong(error)) if error.needs_store() => continue,
                    reservation => return Ok(SharedReservation(Place::Here(reservation?))),
                }
            };
            let limit = handle.limit_for(id)?;
            if let Some(limit) = limit.filter(|limit| limit.rule().gcra().is_none()) {
                return Err(ReserveError::NoPlaces { algorithm: limit.rule().name() });
            }
            if terms.is_shadow {
                let (_, receipt) = handle.estimate_or_nothing(id, cost).await?;
                let receipt = receipt.unwrap_or_else(|| SharedReceipt::of_nothing(cost));
                return Ok(SharedReservation(receipt.into_place()));
            }
            if let Some(place) = handle.place(id, cost)? {
                return handle.reserve_in_store(place, handle.key_of(id)?, cost, at_most).await;
            }
        }
    }

    /// Charges an estimate, which the receipt's [`settle`](SharedReceipt::settle) replaces by the actual cost: see
    /// [`KeyedLimit::spend_estimate`](crate::KeyedLimit::spend_estimate). `None` beside a denial.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; and [`Error::is_leased`] if the limit is [`Leased`](crate::limits::Shared::Leased).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(10_000, 10_000, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("Tokens", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::manual().0));
    /// let tokens = Limiter::with_options(limits, options)?.shared("Tokens")?;
    /// let (decision, receipt) = block_on(tokens.spend_estimate("key-1", 4_000))?;
    /// assert!(decision.allowed());
    /// let after = block_on(receipt.expect("allowed").settle(1_350))?;
    /// assert_eq!(after.remaining(), Some(8_650));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn spend_estimate<'a>(
        &self,
        id: impl Into<Id<'a>>,
        estimate: u64,
    ) -> Result<(Decision, Option<SharedReceipt>), Error> {
        self.limit.estimate(id.into(), estimate, async |asked| answer(asked.ask()).await).await
    }
}

impl KeyedLimit {
    /// Charges an estimate for a caller that takes nothing if it goes away before it has its receipt.
    pub(super) async fn estimate_or_nothing(
        &self,
        id: Id<'_>,
        estimate: u64,
    ) -> Result<(Decision, Option<SharedReceipt>), Error> {
        let ask = async |asked: Box<AskedBatch>| Ok(answer(asked.ask_unclaimed()).await?.claim());
        self.estimate(id, estimate, ask).await
    }

    /// Charges an estimate. `ask` asks the store for a batch.
    async fn estimate(
        &self,
        id: Id<'_>,
        estimate: u64,
        ask: impl AsyncFn(Box<AskedBatch>) -> Result<DecidedBatch, Error>,
    ) -> Result<(Decision, Option<SharedReceipt>), Error> {
        loop {
            if self.terms_unleased(id)?.is_some() {
                let members = [self.member(id).cost(estimate).into()];
                let batch = self.limiter.shared_batch(&members);
                let call = SharedCall::SPEND.of_one().keeping();
                let decided = match batch.begin(call)? {
                    Begun::Local => continue,
                    Begun::Decided(decided) => decided,
                    Begun::Asks(asked) => ask(asked).await?,
                };
                let mut charges = decided.members.into_iter().filter_map(|member| member.charge);
                let receipt = match charges.next() {
                    Some(MemberCharge::InStore(mut charge)) => {
                        // A limit in shadow mode charges nothing for a cost above its burst, and the charge has a cost of
                        // 0 then. The receipt has the estimate all the same.
                        charge.cost = estimate;
                        let stored = StoredEstimate { charge, position: None };
                        SharedReceipt::new(Receipt::of_nothing(), vec![stored])
                    }
                    _ => SharedReceipt::of_nothing(estimate),
                };
                return Ok((decided.decision, decided.decision.allowed().then_some(receipt)));
            }
            match self.spend_estimate(id, estimate) {
                Err(error) if error.needs_store() => {}
                Err(error) => return Err(error),
                Ok((decision, receipt)) => {
                    return Ok((decision, receipt.map(SharedReceipt::of_local)));
                }
            }
        }
    }

    async fn reserve_in_store(
        &self,
        place: InStore,
        key: Key,
        cost: u64,
        at_most: Duration,
    ) -> Result<SharedReservation, ReserveError> {
        let (of, member, policy) = (key.clone(), place.member.clone(), place.terms.policy);
        let (limit, at_most_ns) = (member.limit.clone(), saturating_ns(at_most));
        let step = match cost {
            0 => Step::Look,
            units => Step::Reserve { units, at_most_ns },
        };
        let then = move |handle: &KeyedLimit, changed: Result<ChangedBucket, Error>| {
            Ok(granted(handle, of, changed?, cost, at_most_ns))
        };
        let answered = answer(self.change(place, step, then)).await;
        let inner = &*self.limiter.inner;
        let id = key.as_ref().id;
        let mut granted = match answered {
            Ok(Ok(granted)) => granted,
            Ok(Err(refused)) => {
                let retry_in = refused.needed().unwrap_or(Duration::ZERO);
                let denied = Decision::for_spend(false, 0, retry_in, retry_in);
                self.count(id, &limit, 0, &denied, inner.clock.now_ns());
                return Err(refused);
            }
            Err(error) if error.is_undecided() => {
                let decision = decide_spend_without(self, member, cost, policy, &error);
                let counted = if decision.allowed() { cost } else { 0 };
                self.count(id, &limit, counted, &decision, inner.clock.now_ns());
                if !decision.allowed() {
                    return Err(error.into());
                }
                return Ok(SharedReservation::of_nothing(cost));
            }
            Err(error) => {
                self.tally.count_error();
                return Err(error.into());
            }
        };
        let now_ns = inner.clock.now_ns();
        self.count(id, &limit, cost, &granted.after.in_shadow(), now_ns);
        let granted_at_ns = now_ns.saturating_add(granted.wait_ns);
        Ok(match granted.charged.take() {
            Some(charge) => SharedReservation(Place::InStore { charge, granted_at_ns }),
            None => SharedReservation::of_nothing(cost),
        })
    }
}

/// Returns what the store has granted.
fn granted(
    handle: &KeyedLimit,
    key: Key,
    changed: ChangedBucket,
    cost: u64,
    at_most_ns: u64,
) -> Result<Granted, ReserveError> {
    let (after, ChangedBucket { member, stepped }) = (changed.check(), changed);
    let Stepped { unix_ns, before, new, .. } = stepped;
    if let Some(left_ns) = stepped.blocked_ns() {
        return Err(ReserveError::Blocked { left: Duration::from_nanos(left_ns) });
    }
    let not_in_time = |ns| ReserveError::NotInTime { needed: Duration::from_nanos(ns) };
    let (limit, now_ns) = (member.limit, rule_time_ns(unix_ns));
    let (wait_ns, word) = if cost == 0 {
        let wait_ns = if after.allowed() { 0 } else { saturating_ns(after.retry_in()) };
        if wait_ns > at_most_ns {
            return Err(not_in_time(wait_ns));
        }
        // Nothing is charged, and a settlement may owe.
        (wait_ns, None)
    } else {
        let places = limit.rule().gcra();
        let grant = places.and_then(|gcra| gcra.reserve(before.word, now_ns, cost));
        let grant = grant.ok_or(ReserveError::TooFarAhead)?;
        let wait_ns = grant.at_ns - now_ns;
        if new.is_none() {
            // While nodes hold units, no reservation waits.
            let leased_ms = before.leases.last_end_ms().saturating_sub(unix_ms(unix_ns));
            return Err(not_in_time(wait_ns.max(leased_ms * NS_PER_MS)));
        }
        (wait_ns, Some(grant.word))
    };
    let charged = Box::new(ChargedInStore {
        mark: word.map(|word| limit.rule().charge_mark(word)),
        ends_ns: handle.override_end_ns(key.as_ref().id),
        handle: handle.clone(),
        factor: Factor::ONE,
        reserved: word,
        key,
        limit,
        cost,
    });
    Ok(Granted { charged: Some(charged), wait_ns, after })
}
