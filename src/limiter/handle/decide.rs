//! A decision off the shortest way: limits in shadow, numbers beside, and what is counted of them.

use super::{Call, KeyedLimit, Spend};
use crate::algorithm::factor::Factor;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::{Id, Scratch, encode};
use crate::observe::stripes::Stripes;
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It can be denied, and charges.
    Spend,
    /// It says what a spend would.
    Check,
    /// It gives back, and denies nothing.
    Give,
}

/// What was decided, and whether a shadow stands beside it.
pub(super) struct Decided {
    decision: Decision,
    has_shadow: bool,
}

impl Decided {
    pub(super) const UNLIMITED: Decided =
        Decided { decision: Decision::UNLIMITED, has_shadow: false };
}

impl KeyedLimit {
    pub(crate) fn with_factor(
        &self,
        id: Id<'_>,
        cost: u64,
        factor: Factor,
        call: impl Call,
    ) -> Result<Decision, Error> {
        if factor == Factor::ONE {
            return self.with(id, cost, call);
        }
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let now_ns = inner.clock.now_ns();
        let decided = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let Some((limit, tag)) = entry.limit_for(id, view.limits_ns(now_ns)) else {
                return Ok(Ok(Decided::UNLIMITED));
            };
            let limit = match view.scaled(self.index, limit, factor) {
                Ok(Some(limit)) => limit,
                Ok(None) => return Ok(Ok(Decided::UNLIMITED)),
                Err(error) => return Ok(Err(error)),
            };
            let key = view.store_key(KeyRef { limit: self.index, id }, tag);
            let decided = self.decide(view, &key, &limit, cost, call, now_ns)?;
            if fault::active(Fault::FactorNotedLate) {
                view.generation.largest_factors.note(self.index, factor);
            }
            Ok(decided)
        });
        self.finish(decided, id, factor, cost, call, now_ns)
    }

    /// Decides for a key and the numbers that apply to it, and counts it.
    pub(super) fn decide<C: Call>(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        call: C,
        now_ns: u64,
    ) -> Result<Result<Decided, Error>, Outdated> {
        let entry = view.generation.limits.entry(self.index);
        let has_shadow = entry.shadow_beside(key.tag).is_some();
        let is_above = cost > limit.burst();
        if !entry.is_shadow() {
            if is_above {
                return Ok(Err(limit.cost_error(cost, Some(&entry.name))));
            }
            let decision = run_unless_blocked(call, view, key, limit, now_ns)?;
            if C::KIND == Kind::Spend {
                self.count(key.key.id, limit, cost, &decision, now_ns);
            }
            // A shadow tries other numbers, and a block is none.
            let has_shadow = has_shadow && !decision.blocked();
            return Ok(Ok(Decided { decision, has_shadow }));
        }
        // A limit that only says that it would deny: no call fails or is denied for it.
        let call = if is_above { call.at_no_cost() } else { call };
        let decision = run_unless_blocked(call, view, key, limit, now_ns)?;
        if C::KIND == Kind::Give {
            return Ok(Ok(Decided { decision, has_shadow }));
        }
        let would_deny = is_above || !decision.allowed();
        let decision = decision.in_shadow();
        if C::KIND == Kind::Spend {
            self.note_shadow(would_deny);
            self.count(key.key.id, limit, if would_deny { 0 } else { cost }, &decision, now_ns);
        }
        Ok(Ok(Decided { decision, has_shadow }))
    }

    /// What is left to do when a call is decided: its shadow, and the count of its error.
    pub(super) fn finish<C: Call>(
        &self,
        decided: Result<Decided, Error>,
        id: &[u8],
        factor: Factor,
        cost: u64,
        call: C,
        now_ns: u64,
    ) -> Result<Decision, Error> {
        let Decided { decision, has_shadow } = decided.inspect_err(|_| self.tally.count_error())?;
        if has_shadow && C::KIND != Kind::Check {
            let key = KeyRef { limit: self.index, id };
            let would_deny = self.limiter.inner.in_shadow(key, factor, cost, call, now_ns);
            self.note_shadow(would_deny && C::KIND == Kind::Spend);
        }
        Ok(decision)
    }

    /// What a spend was told that was decided on this word, and at that time; counted.
    #[inline(always)]
    pub(super) fn counted(
        &self,
        id: &[u8],
        limit: &Limit,
        (word, now_ns): (u64, u64),
        cost: u64,
    ) -> Result<Decision, Error> {
        // What most are told, straight to where the caller has it.
        if let Some(stripes) = &self.stripes
            && let Some(decision) = Spend(cost).ask_gcra(limit, word, now_ns)
            && decision.allowed()
        {
            stripes.count_allowed(&decision, limit.burst(), cost);
            return Ok(decision);
        }
        self.counted_otherwise(id, limit, (word, now_ns), cost)
    }

    #[inline(never)]
    fn counted_otherwise(
        &self,
        id: &[u8],
        limit: &Limit,
        (word, now_ns): (u64, u64),
        cost: u64,
    ) -> Result<Decision, Error> {
        let decision = Spend(cost).tell(limit, word, now_ns);
        self.count(id, limit, cost, &decision, now_ns);
        Ok(decision)
    }

    /// Counts a spend that numbers which are tried would have denied.
    pub(crate) fn note_shadow(&self, would_deny: bool) {
        if would_deny {
            self.tally.count_shadow_denied();
        }
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.stripes.is_some()
    }

    /// Counts a spend that was decided.
    #[inline(always)]
    pub(crate) fn count(
        &self,
        id: &[u8],
        limit: &Limit,
        cost: u64,
        decision: &Decision,
        now_ns: u64,
    ) {
        let Some(stripes) = &self.stripes else { return };
        if decision.allowed() {
            stripes.count_allowed(decision, limit.burst(), cost);
        } else {
            self.count_denied(stripes, id, decision, now_ns);
        }
    }

    /// Counts a denial, and gives it to those who keep an eye on ids.
    #[cold]
    pub(crate) fn count_denied(
        &self,
        stripes: &Stripes,
        id: &[u8],
        decision: &Decision,
        now_ns: u64,
    ) {
        stripes.count_denied();
        let inner = &*self.limiter.inner;
        if let Some(top) = &inner.top_denied {
            top.feed(KeyRef { limit: self.index, id });
        }
        #[cfg(feature = "tracing")]
        if let Some(denials) = &inner.denials {
            denials.tell(self.logged(id), decision, now_ns);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (decision, now_ns);
    }

    /// An id in normal form; one that is none is counted.
    pub(crate) fn encoded<'i>(
        &self,
        id: Id<'i>,
        scratch: &'i mut Scratch,
    ) -> Result<&'i [u8], Error> {
        encode(self.format, id, scratch).inspect_err(|_| self.tally.count_error())
    }
}

/// Decides a call, unless the key is blocked and the call can be denied.
fn run_unless_blocked<C: Call>(
    call: C,
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<Decision, Outdated> {
    if C::KIND != Kind::Give
        && let Some(left_ns) = view.blocked_ns(key, now_ns)
    {
        return view.denied_by_block(key, limit, call.cost(), now_ns, left_ns);
    }
    call.run(view, key, limit, now_ns)
}
