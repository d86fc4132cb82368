//! The bucket that a limit has on a node in an outage of the store.

use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::limit::Limit;

/// The bucket of a key in an outage, of this node's part of the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutageBucket {
    pub(super) full_at_ns: u64,
    /// The time in which an empty bucket fills.
    pub(super) fills_in_ns: u64,
}

impl OutageBucket {
    /// Returns the time at which the bucket is full under `part`. If a reload has changed the burst, the time at which it was
    /// empty, `full_at_ns - fills_in_ns`, stays the same.
    pub(super) fn full_at_ns_under(self, part: &Gcra) -> u64 {
        self.full_at_ns.saturating_add(part.burst_offset_ns()).saturating_sub(self.fills_in_ns)
    }
}

/// Returns the bucket of an outage: a part of a limit's rate, rounded down, and of its burst, rounded down and at least 1.
/// `None`: the part is so small that it has no unit in 73 years.
pub(super) fn part(limit: &Limit, fraction: Factor) -> Option<Gcra> {
    const MILLION: u128 = 1_000_000;
    const MAX_NS: u64 = 1 << 61;
    let (per_ns, units) = match limit.rule() {
        Rule::Gcra(gcra) => (gcra.emission_interval_ns().into(), 1),
        Rule::Window(window) => {
            (u128::from(window.window_ms) * u128::from(NS_PER_MS), u128::from(window.quota))
        }
        Rule::LeakyBucket(leaky) => {
            (u128::from(leaky.drip_rate_ms) * u128::from(NS_PER_MS), u128::from(leaky.drip_size))
        }
        // No shared limit has one of these.
        Rule::Concurrency(_) | Rule::Custom(_) => return None,
    };
    let millionths = u128::from(fraction.millionths());
    let interval_ns = u64::try_from((per_ns * MILLION).div_ceil(units * millionths)).ok()?;
    let share = u128::from(limit.burst()) * millionths / MILLION;
    let burst = u64::try_from(share).ok()?.min(MAX_NS / interval_ns).max(1);
    let offset_ns = interval_ns.checked_mul(burst).filter(|&ns| ns <= MAX_NS)?;
    Some(Gcra::new(burst, interval_ns, offset_ns))
}
