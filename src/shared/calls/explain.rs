//! Explains a call for a bucket in the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limits::{ExplainedCall, Explanation, Id, LimitMode};
use crate::shared::calls::answer;
use crate::shared::calls::change::InStore;
use crate::shared::calls::handle::SharedLimit;
use crate::shared::calls::outage::end_outage;
use crate::shared::protocol::decide::read;
use crate::shared::protocol::text::rule_time_ns;
use crate::shared::protocol::{SharedStore, StoreMember};

impl SharedLimit {
    /// Explains the decision that a call would get: see [`KeyedLimit::explain`]. Reads the bucket in the store, once, and
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// See [`SharedLimit`]; if the store does not answer it is an error: an explanation is never that of the limit's
    /// [policy](crate::limits::LimitOptions::on_error).
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
    /// assert!(block_on(users.spend("alice", 3))?.allowed());
    /// let call = block_on(users.explain("alice", 1))?.call.expect("the store has answered");
    /// assert_eq!(call.state.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn explain<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Explanation, Error> {
        let (limit, id) = (&self.limit, id.into());
        loop {
            // An id that is none is not counted as an error, as by a local explanation.
            let mut explanation = limit.entries_that_apply(id)?;
            if !limit.limiter.is_enabled() {
                return self.explain_while_off(id, cost).await;
            }
            let Some(InStore { store, member, .. }) = limit.place(id, 0)? else {
                match limit.explain(id, cost) {
                    // A reload has come between, and has made the limit a shared one.
                    Err(error) if error.needs_store() => continue,
                    explanation => return explanation,
                }
            };
            let call = ask(limit.clone(), store, member, cost).await?;
            explanation.call = Some(match explanation.mode {
                LimitMode::Shadow => in_shadow(call),
                LimitMode::Enforce => call,
            });
            return Ok(explanation);
        }
    }

    /// Explains a call of a limiter that is off: no limit applies to it, and blocks are listed all the same.
    async fn explain_while_off(&self, id: Id<'_>, cost: u64) -> Result<Explanation, Error> {
        let mut explanation = self.limit.entries_that_apply(id)?;
        let (state, decision) = (Decision::UNLIMITED, Some(Decision::UNLIMITED));
        let blocked = self.blocked_for(id).await?;
        explanation.call =
            Some(ExplainedCall { cost, state, decision, is_enabled: false, blocked });
        Ok(explanation)
    }
}

/// Asks the store for a bucket, by a task of the store.
async fn ask(
    handle: KeyedLimit,
    store: Arc<dyn SharedStore>,
    member: StoreMember,
    cost: u64,
) -> Result<ExplainedCall, Error> {
    let (tell, explained) = oneshot::channel();
    let by = store.clone();
    store.run(Box::pin(async move {
        let explained = explain_now(&*by, member, cost).await;
        if explained.is_ok() {
            end_outage(&handle);
        }
        let _ = tell.send(explained);
    }));
    answer(explained).await
}

/// Reads the bucket of a member that charges nothing, and decides a spend of `cost`.
async fn explain_now(
    store: &dyn SharedStore,
    member: StoreMember,
    cost: u64,
) -> Result<ExplainedCall, Error> {
    let found = store.charge_return([member.clone()].into()).await?;
    let (limit, unix_ns) = (&member.limit, found.unix_ns);
    let text = found.texts.first().and_then(Option::as_deref);
    let bucket = read(&member.key, limit, text)
        .inspect_err(|error| store.count_unknown_text(error))?
        .guarded(limit, unix_ns);
    let blocked = bucket.blocked_ns(unix_ns).map(Duration::from_nanos);
    // A decision on an id that is blocked does not have the bucket's own figures.
    let state = limit.rule().spend(bucket.word, rule_time_ns(unix_ns), 0).decision;
    let fits = cost <= limit.burst();
    let decision = fits.then(|| bucket.spend(limit, unix_ns, cost).decision);
    Ok(ExplainedCall { cost, state, decision, is_enabled: true, blocked })
}

/// Returns the explanation of a limit in shadow mode, which denies no call.
fn in_shadow(call: ExplainedCall) -> ExplainedCall {
    let decision = call.decision.unwrap_or(call.state).in_shadow();
    ExplainedCall { state: call.state.in_shadow(), decision: Some(decision), ..call }
}
