//! Repeats calls on the shadow of a bucket, to count what a shadow limit would have denied.

use crate::algorithm::factor::Factor;
use crate::core::state::SharedState;
use crate::limiter::handle::{Call, Check};
use crate::store::key::KeyRef;
use crate::util::fault::{self, Fault};

impl SharedState {
    /// Repeats a call on the shadow bucket of `key`, if there is one; returns whether the shadow limit denies it. A
    /// shadow bucket is charged and swept like any other, under the limits that apply now. It changes no decision.
    pub(crate) fn in_shadow(
        &self,
        key: KeyRef<'_>,
        factor: Factor,
        cost: u64,
        call: impl Call,
        now_ns: u64,
    ) -> bool {
        self.with_view(|view| {
            let Some((index, limit, tag)) =
                view.generation.limits.shadow_of(key, view.limits_ns(now_ns))
            else {
                return Ok(false);
            };
            let scaled = match factor == Factor::ONE {
                true => None,
                false => match view.scaled(index, limit, factor) {
                    Ok(Some(scaled)) => Some(scaled),
                    // A factor of 0, or one that takes the shadow limit out of its range.
                    Ok(None) | Err(_) => return Ok(false),
                },
            };
            let limit = scaled.as_ref().unwrap_or(limit);
            if cost > limit.burst() {
                return Ok(true);
            }
            // A settlement or a refund may be for more units than the shadow bucket holds.
            let call = call.at_cost(call.cost().min(limit.burst()));
            let key = view.store_key(KeyRef { limit: index, ..key }, tag);
            if fault::active(Fault::ShadowByCheck) {
                let checked = Check(cost).run(view, &key, limit, now_ns)?;
                let _ = call.run(view, &key, limit, now_ns)?;
                return Ok(!checked.allowed());
            }
            Ok(!call.run(view, &key, limit, now_ns)?.allowed())
        })
    }
}
