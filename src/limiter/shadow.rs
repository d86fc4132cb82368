//! Shadow buckets: a key's second bucket, under the shadow limit that is tried beside the enforced limit.

use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::limiter::handle::Call;
use crate::limits::Floor;
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

impl LimiterState {
    /// Repeats a call for a key's bucket on the key's shadow bucket, if it has one, and returns whether the shadow
    /// limit would have denied the call. The shadow limit is looked up now: a reload may have replaced it since the
    /// decision. It changes no decision of the enforced limit.
    pub(crate) fn in_shadow(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> bool {
        self.with_shadow((key, u64::MAX), factor, now_ns, &|view, key, limit| {
            if call.can_be_denied() && call.cost() > limit.burst() {
                return Ok(true);
            }
            run_capped(call, view, key, limit, now_ns)
        })
    }

    /// Like `in_shadow` for a spend or a check that must leave units: a percentage of the shadow limit's burst, or if that is
    /// 0 the units of the demand.
    pub(crate) fn in_shadow_leaving(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        (demand, percent): (Demand, u8),
        spends: bool,
        now_ns: u64,
    ) -> bool {
        self.with_shadow((key, u64::MAX), factor, now_ns, &|view, key, limit| {
            let of_burst = || Floor::Percent(percent).units_of(limit.burst());
            let leave = if percent == 0 { demand.leave } else { of_burst() };
            let demand = Demand { leave, ..demand };
            if demand.needed() > limit.burst() {
                return Ok(true);
            }
            run_capped(Call::leaving(&demand, spends), view, key, limit, now_ns)
        })
    }

    /// Repeats the charge or the refund of a settlement or a cancel on a key's shadow bucket, if it has one, and
    /// returns whether the shadow limit denied it. A cost above the shadow limit's burst counts as the burst. `charged`:
    /// the key, and the generation in which it was charged.
    pub(crate) fn in_shadow_capped(
        &self,
        charged: (KeyRef<'_>, u64),
        factor: Factor,
        call: Call,
        now_ns: u64,
    ) -> bool {
        self.with_shadow(charged, factor, now_ns, &|view, key, limit| {
            run_capped(call, view, key, limit, now_ns)
        })
    }

    /// Calls `then` with the shadow bucket's key and limit. Returns false if the key has no shadow limit, or if the
    /// factor removes that limit or takes its parameters out of their range. The key was charged in `generation`;
    /// `u64::MAX` for a call of a handle.
    fn with_shadow(
        &self,
        (key, generation): (KeyRef<'_>, u64),
        factor: Factor,
        now_ns: u64,
        then: &dyn Fn(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<bool, Outdated>,
    ) -> bool {
        self.with_view(|view| {
            let limits = &view.generation.limits;
            let shadow = limits.shadow_of((key, generation), view.limits_ns(now_ns));
            let Some((index, limit, tag)) = shadow else { return Ok(false) };
            let key = view.store_key(KeyRef { limit: index, ..key }, tag);
            if factor == Factor::ONE {
                return then(view, &key, limit);
            }
            match view.scaled(index, limit, factor, true) {
                Ok(Some(limit)) => then(view, &key, &limit),
                Ok(None) | Err(_) => Ok(false),
            }
        })
    }
}

/// Makes a call whose cost is cut to the limit's burst, and returns whether it was denied. Only a refund or a
/// settlement can have a cost above the burst.
fn run_capped(
    call: Call,
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<bool, Outdated> {
    let is_above = call.cost() > limit.burst();
    let call = if is_above { call.with_cost(limit.burst()) } else { call };
    if fault::active(Fault::ShadowByCheck) && call.can_be_denied() {
        let decision = Call::Check(call.cost()).run(view, key, limit, now_ns)?.decision;
        let _ = call.run(view, key, limit, now_ns)?;
        return Ok(!decision.allowed());
    }
    Ok(!call.run(view, key, limit, now_ns)?.decision.allowed())
}
