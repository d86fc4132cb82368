//! What a call would be answered, and why, by a limiter's own look-ups and checks.

use std::time::SystemTime;

use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::handle::{Call, Check};
use crate::limits::Scratch;
use crate::limits::{ExplainedCall, Explanation, Id, LimitMode};
use crate::store::key::KeyRef;

impl Limiter {
    /// Why a spend of `cost` would be answered as it would: see [`KeyedLimit::explain`].
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is not known, [`Error::is_invalid_id`] for an id that
    /// is not of the limit's format.
    pub fn explain<'a>(
        &self,
        name: &str,
        id: impl Into<Id<'a>>,
        cost: u64,
    ) -> Result<Explanation, Error> {
        self.limit(name)?.explain(id, cost)
    }
}

impl KeyedLimit {
    /// Why a spend of `cost` units would be answered as it would: the entry that applies, the bucket's
    /// key and state, the answer, and why entries that look nearer do not apply. It changes nothing.
    ///
    /// It looks at every override of the limit: for people who ask, not for a request's way. State and
    /// answer are two looks at the bucket, between which others may have charged it.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] for an id that is not of the limit's format. A cost that is above what
    /// the bucket can ever hold is no error here: there is no [`decision`](ExplainedCall::decision) then.
    ///
    /// # Example: who was meant
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
        let limits = self.limiter.limits();
        let mut explanation = limits.explain(self.name(), id, SystemTime::now())?;
        let is_enabled = self.limiter.is_enabled();
        let state = if is_enabled { self.state(id)? } else { Decision::UNLIMITED };
        // Not asked for what is known to be an error, which would count as one.
        let never = |limit: &Limit| cost > limit.burst() && explanation.mode == LimitMode::Enforce;
        let decision = match explanation.numbers.as_ref() {
            Some(limit) if is_enabled && never(limit) => None,
            _ => Some(self.check(id, cost)?),
        };
        let blocked = self.blocked(id)?;
        explanation.call = Some(ExplainedCall { cost, state, decision, is_enabled, blocked });
        Ok(explanation)
    }

    /// The state of the id's bucket, whether it is blocked or not: as a check at a cost of 0 says.
    fn state(&self, id: Id<'_>) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        let now_ns = inner.clock.now_ns();
        let state = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let Some((limit, tag)) = entry.limit_for(key.id, now_ns) else {
                return Ok(Decision::UNLIMITED);
            };
            let state = Check(0).run(view, &view.store_key(key, tag), limit, now_ns)?;
            Ok(if entry.is_shadow() { state.in_shadow() } else { state })
        });
        Ok(state)
    }
}
