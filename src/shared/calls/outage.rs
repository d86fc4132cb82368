//! An outage of the store, as the calls of one limiter meet it: they begin it and end it.

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
#[cfg(feature = "tracing")]
use crate::shared::events;
use crate::shared::part::Part;
use crate::shared::protocol::outage::{Policy, RETRY};
use crate::shared::protocol::{SharedMode, StoreMember};

/// Notes that the store has answered a call of a limiter.
pub(super) fn end_outage(handle: &KeyedLimit) {
    let inner = &*handle.limiter.inner;
    // An answer of one server of a cluster says nothing about another one that is lost.
    let is_whole = |part: &&Part| part.outage.is_on() && part.handle.store.is_whole();
    let ended =
        inner.part().filter(is_whole).and_then(|part| part.outage.end(|| inner.clock.now_ns()));
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
    let is_new = limiter.inner.part().is_some_and(|part| part.outage.begin(now_ns));
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
    members: &[StoreMember],
    policies: &[Policy],
    error: &Error,
) -> Vec<Decision> {
    if error.is_store_overload() {
        return vec![Decision::overload(RETRY); members.len()];
    }
    let now_ns = begin_outage(&handle.limiter, error);
    let decide = |part: &Part| part.outage.decide(members, policies, now_ns);
    handle.limiter.inner.part().map_or_else(Vec::new, decide)
}

/// Decides a spend of one bucket that the store has not decided, and counts the decision of an outage.
pub(super) fn decide_spend_without(
    handle: &KeyedLimit,
    member: StoreMember,
    cost: u64,
    policy: Policy,
    error: &Error,
) -> Decision {
    let member = StoreMember { cost, mode: SharedMode::CheckAndSpend, ..member };
    let decided = decide_without(handle, &[member], &[policy], error);
    let decision = decided.first().copied().unwrap_or(Decision::UNLIMITED);
    if error.is_store_outage() {
        handle.tally.count_without_store(decision.allowed());
    }
    decision
}
