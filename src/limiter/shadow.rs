//! The bucket beside an enforced one: what other numbers would have said.

use crate::algorithm::factor::Factor;
use crate::core::state::SharedState;
use crate::limiter::handle::{Call, Check};
use crate::store::key::KeyRef;
use crate::util::fault::{self, Fault};

impl SharedState {
    /// Does in the shadow of `key`, if it has one, what was done to its bucket; returns whether the shadow
    /// says no. It is a bucket like others: asked, charged and swept by itself, under the limits as they
    /// are by now. What it says changes no decision.
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
                    // No limit, or numbers that the factor takes out of their range.
                    Ok(None) | Err(_) => return Ok(false),
                },
            };
            let limit = scaled.as_ref().unwrap_or(limit);
            if cost > limit.burst() {
                return Ok(true);
            }
            // What is settled or given back may be more than the shadow holds.
            let call = call.at_cost(call.cost().min(limit.burst()));
            let key = view.store_key(KeyRef { limit: index, ..key }, tag);
            if fault::active(Fault::ShadowByCheck) {
                let said = Check(cost).run(view, &key, limit, now_ns)?;
                let _ = call.run(view, &key, limit, now_ns)?;
                return Ok(!said.allowed());
            }
            Ok(!call.run(view, &key, limit, now_ns)?.allowed())
        })
    }
}
