//! Builds a layer whose requests wait until their limits allow them.

use crate::util::sync::{AtomicUsize, Ordering};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::Error;
use crate::http::tower::answer::{Asked, RequestOutcome, Rules, rejection_for};
use crate::http::tower::async_layer::{AskedLater, AsyncRateLimitLayer};
use crate::http::tower::charge::{HeldByRequest, HeldCharge, RefundableCharges, holder_for};
use crate::http::tower::layer::LayerState;
use crate::http::tower::learner::Learner;
use crate::http::tower::matched::{
    INLINE_RULES, LimitDecision, MatchedRule, keep_one_of_each_bucket,
};
use crate::http::{RateLimitBuilder, Rejection, SetupError};
use crate::limiter::batch::Member;
use crate::limiter::reserve::{Receipt, ReserveError};
use crate::util::time::saturating_ns;

/// How requests wait.
///
/// # Example
///
/// See [`RateLimitBuilder::build_waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct WaitOptions {
    at_most: Duration,
    max_waiting: usize,
}

impl WaitOptions {
    /// Requests wait for at most `at_most`, and at most 1,024 of a layer at once.
    pub fn at_most(at_most: Duration) -> WaitOptions {
        WaitOptions { at_most, max_waiting: 1_024 }
    }

    /// Sets how many requests of the layer wait at once. One that comes while so many wait is denied, as one without a layer that
    /// waits: a queue that grows without bound serves nobody.
    pub fn max_waiting(self, max_waiting: usize) -> WaitOptions {
        WaitOptions { max_waiting, ..self }
    }
}

impl RateLimitBuilder {
    /// Builds a layer whose requests wait until all their limits allow them, for clients of another service and for servers.
    ///
    /// A request that must wait takes its places in the order of the calls: see
    /// [`Batch::until_allowed`](crate::batch::Batch::until_allowed). If its id is [blocked](crate::KeyedLimit::block), its places come
    /// after the block. It is denied as by [`build`](RateLimitBuilder::build) if its wait would be longer than
    /// [`at_most`](WaitOptions::at_most), and if too many others wait. A request that is dropped while it waits leaves its places.
    ///
    /// The layer calls the functions of its rules and exemptions when a request comes, and again if the request waits or is denied
    /// because too many wait. They must return the same for the same request.
    ///
    /// `timer` is the function of the runtime that sleeps, such as `tokio::time::sleep`. The inner service must be `Clone`; while
    /// a request waits, it keeps what the readiness of the inner service holds.
    ///
    /// # Errors
    ///
    /// As [`build`](RateLimitBuilder::build).
    ///
    /// # Example: a client that keeps to the limits of the service that it calls
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use http::{Request, Response};
    /// use tollgate::http::{Charge, RateLimitLayer, Rule, WaitOptions, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let second = Duration::from_secs(1);
    /// let limiter = Limiter::new(
    ///     Limits::builder()
    ///         .limit("Requests", IdFormat::String, Limit::new(2, 200, second)?)?
    ///         .limit("Tokens", IdFormat::String, Limit::new(1_000, 50_000, second)?)?
    ///         .build(),
    /// );
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(Rule::new(limiter.limit("Requests")?, extract::everyone("my-key")))
    ///     .rule(Rule::new(limiter.limit("Tokens")?, extract::everyone("my-key")).estimate(|_| 600))
    ///     .build_waiting(WaitOptions::at_most(Duration::from_secs(30)), tokio::time::sleep)?;
    ///
    /// let provider = service_fn(|request: Request<()>| async move {
    ///     Charge::of(request.extensions()).settle("Tokens", 400); // what the provider has counted
    ///     Ok::<_, Infallible>(Response::new(String::new()))
    /// });
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// for _ in 0..5 {
    ///     let response = layer.layer(provider).oneshot(Request::new(())).await?;
    ///     assert_eq!(response.status(), 200);
    /// }
    /// # Ok::<(), Infallible>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_waiting<F>(
        self,
        options: WaitOptions,
        timer: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> Result<AsyncRateLimitLayer, SetupError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let layer = self.build_local()?;
        let (waiting, learner) = (AtomicUsize::new(0), Arc::default());
        let queue = Arc::new(Queue { options, timer, waiting, learner });
        let ask = move |state: &Arc<LayerState>, parts: &Parts| queue.ask(state, parts);
        Ok(AsyncRateLimitLayer::new(layer, Arc::new(ask)))
    }
}

/// The requests of a layer that wait.
struct Queue<T> {
    options: WaitOptions,
    timer: T,
    waiting: AtomicUsize,
    learner: Arc<Learner>,
}

/// Counts a request as one that waits, until it is dropped.
struct Waiting<T>(Arc<Queue<T>>);

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        // Relaxed: the count publishes nothing.
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T, F> Queue<T>
where
    T: Fn(Duration) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    /// Asks the limits about a request. One that they allow now goes on at once.
    fn ask(self: &Arc<Queue<T>>, state: &Arc<LayerState>, parts: &Parts) -> AskedLater {
        match state.rules.ask_unless_denied(parts, &self.learner) {
            Ok(Some(asked)) => return AskedLater::Now(asked),
            Ok(None) => {}
            Err(rejection) => return AskedLater::Now(Err(rejection)),
        }
        let max = self.options.max_waiting;
        // Relaxed: the count publishes nothing.
        let raised = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < max).then_some(waiting + 1)
        });
        if raised.is_err() {
            return AskedLater::Now(state.rules.ask_now(parts, &self.learner));
        }
        let waiting = Waiting(Arc::clone(self));
        let (state, parts) = (Arc::clone(state), parts.clone());
        AskedLater::Later(Box::pin(async move {
            let Queue { options, timer, learner, .. } = &*waiting.0;
            state.rules.ask_until_allowed(&parts, options.at_most, timer, learner).await
        }))
    }
}

impl Rules {
    /// Asks the limits about a request, if a look at them says that they allow it. `None`: they deny it, and nothing was
    /// charged.
    fn ask_unless_denied(
        &self,
        parts: &Parts,
        learner: &Arc<Learner>,
    ) -> Result<Option<Asked>, Rejection> {
        let mut matched = self.all_matching(&self.rules, parts)?;
        if matched.len() > 1 {
            keep_one_of_each_bucket(&mut matched);
        }
        let is_allowed = {
            let members = members_of(&matched);
            let batch = self.limiter.batch(&members);
            match batch.check() {
                // A permit that came back is left to the request that was woken for it.
                Ok(decision) => decision.allowed() && !batch.is_for_woken(),
                // The charge explains the error.
                Err(_) => true,
            }
        };
        if !is_allowed {
            return Ok(None);
        }
        let asked = self.ask_matched(&mut matched)?;
        // Another request may have taken the units since the look.
        Ok(asked.0.allowed().then(|| Ok(self.learning(asked, learner, &matched))))
    }

    /// Asks the limits about a request that must not wait.
    fn ask_now(&self, parts: &Parts, learner: &Arc<Learner>) -> Asked {
        let mut matched = self.all_matching(&self.rules, parts)?;
        let asked = self.ask_matched(&mut matched)?;
        Ok(self.learning(asked, learner, &matched))
    }

    async fn ask_until_allowed<F: Future<Output = ()>>(
        &self,
        parts: &Parts,
        at_most: Duration,
        timer: &impl Fn(Duration) -> F,
        learner: &Arc<Learner>,
    ) -> Asked {
        let mut matched = self.all_matching(&self.rules, parts)?;
        if matched.len() > 1 {
            keep_one_of_each_bucket(&mut matched);
        }
        let members = members_of(&matched);
        let batch = self.limiter.batch(&members);
        let rejected = |error: Error| rejection_for(error, &matched);
        let refused = match batch.until_allowed_and_unblocked(at_most, timer).await {
            Ok(receipt) => {
                let asked = self.outcome_of_wait(&matched, receipt)?;
                return Ok(self.learning(asked, learner, &matched));
            }
            Err(ReserveError::Wrong(error)) => return Err(rejected(error)),
            Err(error) => error.needed(),
        };
        let looked = batch.check().map_err(rejected)?;
        // Units may have come back meanwhile. The request is refused all the same.
        let decision = match (looked.allowed(), refused) {
            (false, None) => looked,
            (_, needed) => {
                let needed = saturating_ns(needed.unwrap_or_default());
                Decision::new(false, (0, 1), needed, needed)
            }
        };
        let mut outcome = self.outcome(decision);
        self.look_at_each(&matched, &mut outcome)?;
        outcome.refuse(decision);
        Ok((outcome.decision(), Some(outcome)))
    }

    /// Adds what learns from the response to the outcome of a request that goes on.
    fn learning(
        &self,
        (decision, outcome): (Decision, Option<RequestOutcome>),
        learner: &Arc<Learner>,
        matched: &[MatchedRule<'_, '_>],
    ) -> (Decision, Option<RequestOutcome>) {
        let learning = if decision.allowed() { learner.begin(matched) } else { None };
        let Some(learning) = learning else { return (decision, outcome) };
        let mut outcome = outcome.unwrap_or_else(|| RequestOutcome::new(decision));
        let held = outcome.held.get_or_insert_with(|| Box::new(HeldByRequest::new()));
        held.learning = Some(learning);
        (decision, Some(outcome))
    }

    /// Makes the outcome of a request that has all its charges.
    fn outcome_of_wait(
        &self,
        matched: &[MatchedRule<'_, '_>],
        mut receipt: Receipt,
    ) -> Result<(Decision, Option<RequestOutcome>), Rejection> {
        let mut outcome = self.outcome(Decision::UNLIMITED);
        outcome.held = holder_for(matched.iter().map(|one| one.rule));
        if self.records_allowed {
            self.look_at_each(matched, &mut outcome)?;
            mark_soft(matched, &receipt, &mut outcome);
        }
        for (at, one) in matched.iter().enumerate() {
            let holds = one.rule.holds();
            if !holds && !one.rule.can_refund() {
                continue;
            }
            let Some(charge) = receipt.take_member(at) else { continue };
            match outcome.held.as_mut().filter(|_| holds) {
                Some(held) => {
                    let limit = one.rule.limit();
                    held.charges.push(HeldCharge::new(limit, one.position, Box::new(charge)));
                }
                None => {
                    let new = || Box::new(RefundableCharges::new());
                    outcome.charges.get_or_insert_with(new).add(one.position, charge);
                }
            }
        }
        let decision = outcome.decision();
        let is_needed =
            !outcome.limits.is_empty() || outcome.charges.is_some() || outcome.held.is_some();
        Ok((decision, is_needed.then_some(outcome)))
    }

    /// Records the present decision of each limit, and the strictest of them. That on an allowed request has the wait of the
    /// next one of the same cost.
    fn look_at_each(
        &self,
        matched: &[MatchedRule<'_, '_>],
        outcome: &mut RequestOutcome,
    ) -> Result<(), Rejection> {
        let is_allowed = outcome.decision().allowed();
        for one in matched {
            let cost = if is_allowed { 0 } else { one.cost };
            let mut looked = one.look(cost).map_err(|error| rejection_for(error, matched))?;
            if is_allowed {
                // A reload may have made the burst smaller than the cost: such a call has no wait.
                if let Ok(next) = one.look(one.cost) {
                    looked = looked.with_wait_of(&next);
                }
                looked = looked.in_shadow();
            }
            outcome.limits.extend(self.record_after(one, looked)?);
        }
        outcome.join_decisions(self);
        Ok(())
    }
}

/// Makes the decision of each soft rule that has not charged the request a denial: its bucket lacked the units.
fn mark_soft(matched: &[MatchedRule<'_, '_>], receipt: &Receipt, outcome: &mut RequestOutcome) {
    for (at, one) in matched.iter().enumerate() {
        if !one.rule.is_soft() || receipt.has_member(at) {
            continue;
        }
        let has_limit = |limit: &&mut LimitDecision| {
            limit.position == one.position && limit.decision.remaining().is_some()
        };
        let Some(limit) = outcome.limits.iter_mut().find(has_limit) else { continue };
        // The units may have come since.
        let denied = one.look(one.cost).ok().filter(|looked| !looked.allowed());
        limit.decision = denied.unwrap_or(Decision::new(false, (0, 1), 1, 0));
    }
}

fn members_of<'m>(matched: &'m [MatchedRule<'_, '_>]) -> SmallVec<[Member<'m>; INLINE_RULES]> {
    matched.iter().map(MatchedRule::member).collect()
}
