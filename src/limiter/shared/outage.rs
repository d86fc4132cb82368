//! An outage of the store, as the calls of one limiter meet it: they begin it and end it.

use crate::core::shared::SharedMember;
use crate::core::shared::outage::{Policy, RETRY};
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
#[cfg(feature = "tracing")]
use crate::observe::events;

/// Notes that the store has answered a call of a limiter.
pub(super) fn end_outage(handle: &KeyedLimit) {
    let inner = &*handle.limiter.inner;
    let ended = inner.outage.end(|| inner.clock.now_ns());
    if ended.is_some() {
        handle.limiter.report_owed();
    }
    #[cfg(feature = "tracing")]
    if let Some(length) = ended {
        events::outage_ended(length);
    }
    #[cfg(not(feature = "tracing"))]
    let _ = ended;
}

/// Notes that the store has not decided a call of a limiter. Returns the time.
pub(super) fn begin_outage(limiter: &Limiter, error: &Error) -> u64 {
    let now_ns = limiter.inner.clock.now_ns();
    let is_new = limiter.inner.outage.begin(now_ns);
    #[cfg(feature = "tracing")]
    if is_new {
        events::outage_began(error);
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (error, is_new);
    now_ns
}

/// Decides members that the store has not decided: by the policies of their limits, or, if this node has too many calls under
/// way, against them: that is no outage, which callers could bring about.
pub(super) fn decide_without(
    handle: &KeyedLimit,
    members: &[SharedMember],
    policies: &[Policy],
    error: &Error,
) -> Vec<Decision> {
    if error.is_store_overload() {
        return vec![Decision::overload(RETRY); members.len()];
    }
    let now_ns = begin_outage(&handle.limiter, error);
    handle.limiter.inner.outage.decide(members, policies, now_ns)
}
