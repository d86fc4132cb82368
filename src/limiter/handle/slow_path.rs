//! The slow path: decides calls that the fast path cannot decide (new keys, ended overrides, factors, limits in shadow
//! mode, blocks, reloads), and counts calls.

use super::call::Ran;
use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::other_handles::{needs_permits, needs_store};
use crate::limits::{Applying, Id, Scratch, encode};
use crate::observe::stripes::Stripes;
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// A decision, the units that the caller has got, and whether it also charges the shadow limit beside the limit.
pub(super) struct Decided {
    pub(super) ran: Ran,
    pub(super) has_shadow: bool,
}

impl Decided {
    /// No limit applies.
    fn unlimited(call: Call) -> Decided {
        Decided { ran: Ran::unlimited(call), has_shadow: false }
    }
}

impl KeyedLimit {
    /// Decides a call whose limit is multiplied by a factor.
    pub(crate) fn call_with_factor(
        &self,
        id: Id<'_>,
        factor: Factor,
        call: Call,
    ) -> Result<Decision, Error> {
        if factor == Factor::ONE {
            return self.call(id, call);
        }
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let now_ns = inner.clock.now_ns();
        Ok(self.slow_path(id, self.fingerprint_of_any(id), factor, call, now_ns)?.decision)
    }

    /// Decides a call that says how many units it has charged.
    pub(crate) fn call_for_units(
        &self,
        id: Id<'_>,
        factor: Factor,
        call: Call,
    ) -> Result<Ran, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Ran::unlimited(call));
        }
        let now_ns = inner.clock.now_ns();
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        self.slow_path(id, self.fingerprint_of_any(id), factor, call, now_ns)
    }

    /// Charges all units of an id in normal form but `leave`.
    #[cfg_attr(
        not(feature = "tower"),
        allow(dead_code, reason = "only rules that learn keep such ids")
    )]
    pub(crate) fn drain_encoded(&self, id: &[u8], leave: u64) -> Result<(), Error> {
        let inner = &*self.limiter.inner;
        if inner.is_enabled() {
            let (fingerprint, call) = (self.fingerprint_of_any(id), Call::Drain(leave));
            self.slow_path(id, fingerprint, Factor::ONE, call, inner.clock.now_ns())?;
        }
        Ok(())
    }

    /// Decides a call for any id in normal form under one view of the limits, and counts it. Decides it again if a
    /// reload came between, or if another call has acted on the end of the id's override.
    #[inline(never)]
    pub(super) fn slow_path(
        &self,
        id: &[u8],
        fingerprint: Fingerprint,
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> Result<Ran, Error> {
        let decided = self
            .limiter
            .inner
            .with_view(|view| self.decide_under(view, id, fingerprint, factor, call, now_ns));
        let Decided { ran, has_shadow } = decided.inspect_err(|_| self.tally.count_error())?;
        // Charge the shadow limit beside the limit in the same way. Count a spend that it would have denied.
        if has_shadow && !call.is_check() {
            let key = KeyRef { limit: self.index, id };
            let would_deny = self.limiter.inner.in_shadow(key, factor, call, now_ns);
            self.note_shadow(would_deny && call.is_spend());
        }
        Ok(ran)
    }

    /// Decides a call for an id under one view, by the limit that applies to the id.
    #[inline(always)]
    pub(super) fn decide_under(
        &self,
        view: LimitsView<'_>,
        id: &[u8],
        fingerprint: Fingerprint,
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> Result<Result<Decided, Error>, Outdated> {
        // Ask the registry which limit applies to the id, and where its bucket is.
        let key = KeyRef { limit: self.index, id };
        let limits = &view.generation.limits;
        let Some(applying) = limits.applying(key, view.limits_ns(now_ns)) else {
            return Ok(Ok(Decided::unlimited(call)));
        };
        let Applying { key, entry, limit, tag } = applying;
        if entry.is_shared() {
            return Ok(match factor == Factor::ZERO {
                true => Ok(Decided::unlimited(call)),
                false => Err(needs_store(&entry.name)),
            });
        }
        if entry.counts_in_flight() && !call.is_check() {
            return Ok(Err(needs_permits(self.name())));
        }
        let key = match key.limit == self.index {
            true => StoreKey { key, fingerprint, tag },
            false => view.store_key(key, tag),
        };
        let limit = &*self.with_set_max(limit, tag);
        if factor == Factor::ONE {
            return self.decide(view, &key, limit, call, now_ns);
        }
        let limit = match view.scaled(key.key.limit, limit, factor, !call.is_check()) {
            Ok(Some(limit)) => limit,
            Ok(None) => return Ok(Ok(Decided::unlimited(call))),
            Err(error) => return Ok(Err(error)),
        };
        let decided = self.decide(view, &key, &limit, call, now_ns)?;
        if fault::active(Fault::FactorNotedLate) {
            view.generation.largest_factors.record(key.key.limit, factor);
        }
        Ok(decided)
    }

    /// Decides a call for a key and the limit that applies to it, and counts it.
    fn decide(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        call: Call,
        now_ns: u64,
    ) -> Result<Result<Decided, Error>, Outdated> {
        let entry = view.generation.limits.entry(key.key.limit);
        let has_shadow = entry.shadow_beside(key.tag).is_some();
        let is_above = call.cost() > limit.burst();
        if !entry.is_shadow() {
            if is_above {
                return Ok(Err(limit.cost_error(call.demand(), Some(self.name()))));
            }
            let ran = run_unless_blocked(call, view, key, limit, now_ns)?;
            if call.is_spend() {
                self.count(key.key.id, limit, ran.units, &ran.decision, now_ns);
            }
            // The shadow limit shows the effect of other parameters. A spend that a block denied says nothing about
            // them, so the shadow limit is not charged.
            let has_shadow = has_shadow && !ran.decision.blocked();
            return Ok(Ok(Decided { ran, has_shadow }));
        }
        // The limit is in shadow mode: it neither denies a call nor lets it fail.
        let call = if is_above { call.with_cost(0) } else { call };
        let ran = run_unless_blocked(call, view, key, limit, now_ns)?;
        if !call.can_be_denied() {
            return Ok(Ok(Decided { ran, has_shadow }));
        }
        let would_deny = is_above || !ran.decision.allowed();
        let decision = ran.decision.in_shadow();
        if call.is_spend() {
            self.note_shadow(would_deny);
            self.count(
                key.key.id,
                limit,
                if would_deny { 0 } else { ran.units },
                &decision,
                now_ns,
            );
        }
        Ok(Ok(Decided { ran: Ran { decision, units: call.most() }, has_shadow }))
    }

    /// Counts the spend if a shadow limit would have denied it.
    pub(crate) fn note_shadow(&self, would_deny: bool) {
        if would_deny {
            self.tally.count_shadow_denied();
        }
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.stripes.is_some()
    }

    /// Counts a spend, if calls are counted.
    #[inline(never)]
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

    /// Counts a denial, and passes it to the list of the ids denied most and to the log of denials, if they are on.
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
            denials.log(self.logged(id), decision, now_ns);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (decision, now_ns);
    }

    /// Converts an id to its normal form. An id that has no normal form is an error, and counts as one.
    pub(crate) fn encoded<'i>(
        &self,
        id: Id<'i>,
        scratch: &'i mut Scratch,
    ) -> Result<&'i [u8], Error> {
        encode(self.format, id, scratch).inspect_err(|_| self.tally.count_error())
    }
}

/// Decides a call, unless the key is blocked and the call can be denied.
fn run_unless_blocked(
    call: Call,
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<Ran, Outdated> {
    if call.can_be_denied()
        && let Some(left_ns) = view.blocked_ns(key, now_ns)
    {
        let decision = view.denied_by_block(key, limit, call.cost(), now_ns, left_ns)?;
        return Ok(Ran { decision, units: 0 });
    }
    call.run(view, key, limit, now_ns)
}
