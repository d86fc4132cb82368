//! Shadows: a second bucket of a key, under the limit that is tried beside the enforced one.

use crate::algorithm::factor::Factor;
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::limiter::handle::Call;
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

impl SharedState {
    /// Repeats a call for a key's bucket on the key's shadow, if it has one, and returns whether the shadow would have
    /// denied it. A shadow is a bucket of its own, under the limits that apply at the time. It changes no decision.
    pub(crate) fn in_shadow(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> bool {
        self.with_shadow(key, factor, now_ns, |view, key, limit| {
            if call.can_be_denied() && call.cost() > limit.burst() {
                return Ok(true);
            }
            run_capped(call, view, key, limit, now_ns)
        })
    }

    /// Charges a settlement to a key's shadow, if it has one: a cost above the shadow's burst is charged as its burst.
    pub(crate) fn in_shadow_capped(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> bool {
        self.with_shadow(key, factor, now_ns, |view, key, limit| {
            run_capped(call, view, key, limit, now_ns)
        })
    }

    /// Calls `then` with the shadow's key and limit. Returns false if there is no shadow, or if the factor removes its
    /// limit or takes its numbers out of their range.
    fn with_shadow(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        now_ns: u64,
        then: impl Fn(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<bool, Outdated>,
    ) -> bool {
        self.with_view(|view| {
            let shadow = view.generation.limits.shadow_of(key, view.limits_ns(now_ns));
            let Some((index, limit, tag)) = shadow else { return Ok(false) };
            let key = view.store_key(KeyRef { limit: index, ..key }, tag);
            if factor == Factor::ONE {
                return then(view, &key, limit);
            }
            match view.scaled(index, limit, factor) {
                Ok(Some(limit)) => then(view, &key, &limit),
                Ok(None) | Err(_) => Ok(false),
            }
        })
    }
}

/// Decides a call of at most the limit's burst, which a refund or a settlement may exceed; returns whether it was denied.
fn run_capped(
    call: Call,
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<bool, Outdated> {
    let call = call.with_cost(call.cost().min(limit.burst()));
    if fault::active(Fault::ShadowByCheck) && call.can_be_denied() {
        let decision = Call::Check(call.cost()).run(view, key, limit, now_ns)?;
        let _ = call.run(view, key, limit, now_ns)?;
        return Ok(!decision.allowed());
    }
    Ok(!call.run(view, key, limit, now_ns)?.allowed())
}
