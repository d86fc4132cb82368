//! Explains the decision that a call would get.

use std::time::UNIX_EPOCH;

use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::handle::Call;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Scratch;
use crate::limits::{Applying, ExplainedCall, Explanation, Id, LimitMode};
use crate::store::key::KeyRef;
use crate::store::pin;
use crate::util::time::system_now;

impl KeyedLimit {
    /// Explains the decision that a spend of `cost` units would get: the entry that applies, the bucket's key and
    /// state, the decision, and why similar entries do not apply. It changes nothing.
    ///
    /// It searches every override of the limit, so it is for operators, not for every request. It reads the bucket
    /// twice, for the state and for the decision; other callers may charge the bucket in between.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] for an id that does not have the limit's format. A cost above the burst is no error
    /// here: [`decision`](ExplainedCall::decision) is `None` then.
    ///
    /// # Example: an override for an id that is misspelled
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let minute = Duration::from_secs(60);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(2, 1, minute)?)?
    ///     .override_id("PerUser", "alise", Limit::new(200, 100, minute)?)?
    ///     .build();
    /// let users = Limiter::new(limits).limit("PerUser")?;
    /// assert!(users.spend("alice", 2)?.allowed());
    ///
    /// let explanation = users.explain("alice", 1)?;
    /// let call = explanation.call.expect("a limiter has buckets");
    /// assert_eq!(call.state.remaining(), Some(0));
    /// assert!(!call.decision.expect("1 is not above the burst").allowed());
    /// let near = &explanation.near[0];
    /// assert_eq!(near.id.as_deref(), Some("alise"));
    /// assert_eq!(near.why.to_string(), "another id: it differs in one place");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn explain<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Explanation, Error> {
        let id = id.into();
        let mut explanation = self.entries_that_apply(id)?;
        let is_enabled = self.limiter.is_enabled();
        let state = if is_enabled { self.state(id)? } else { Decision::UNLIMITED };
        // A check at such a cost would fail, and the error would be counted.
        let is_above =
            |limit: &Limit| cost > limit.burst() && explanation.mode == LimitMode::Enforce;
        let decision = match explanation.limit.as_ref() {
            Some(limit) if is_enabled && is_above(limit) => None,
            _ => Some(self.check(id, cost)?),
        };
        let blocked = self.blocked_for(id)?;
        explanation.call = Some(ExplainedCall { cost, state, decision, is_enabled, blocked });
        Ok(explanation)
    }

    /// Explains which entry applies to an id at the limiter's time.
    pub(crate) fn entries_that_apply(&self, id: Id<'_>) -> Result<Explanation, Error> {
        // Not pinned while all overrides are compared with the id: there may be millions.
        let (limits, now) = {
            let guard = pin();
            let view = self.limiter.inner.view(&guard);
            let limits = view.generation.limits.clone();
            let now = limits.system_time_at(view.limits_now_ns());
            (limits, now.or_else(system_now).unwrap_or(UNIX_EPOCH))
        };
        limits.explain(self.name(), id, now)
    }

    /// Checks the id's bucket at a cost of 0, whether the id is blocked or not.
    fn state(&self, id: Id<'_>) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        let now_ns = inner.clock.now_ns();
        let state = inner.with_view(|view| {
            let applies = view.generation.limits.applying(key, view.limits_ns(now_ns));
            let Some(Applying { key, entry, limit, tag }) = applies else {
                return Ok(Decision::UNLIMITED);
            };
            let key = view.store_key(key, tag);
            let state = Call::Check(0).run(view, &key, limit, now_ns)?.decision;
            Ok(if entry.is_shadow() { state.in_shadow() } else { state })
        });
        Ok(state)
    }
}
