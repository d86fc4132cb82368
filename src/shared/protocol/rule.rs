//! What texts in a store need to know of the rules of limits.

use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::rule::Rule;

impl ChargeMark {
    /// The interval in ns by which units of gcra were charged.
    pub(crate) fn interval_ns(self) -> u64 {
        self.0
    }

    /// The start of the window that was charged, in the ms of its word. `None`: the charge was of no window.
    pub(crate) fn window_ms(self) -> Option<u64> {
        (self.0 > 0).then_some(self.0)
    }
}

impl Rule {
    /// The ms in which all units of a bucket by this rule are out of it, `by` a rule that a factor may have scaled. 0 unless both
    /// are windows or leaky buckets.
    pub(crate) fn full_in_ms_by(&self, by: &Rule) -> u64 {
        match (self, by) {
            (Rule::Window(own), Rule::Window(by)) => {
                by.window_ms.saturating_mul(own.quota.div_ceil(by.quota).into())
            }
            (Rule::LeakyBucket(own), Rule::LeakyBucket(by)) => {
                by.drip_rate_ms.saturating_mul(own.size.div_ceil(by.drip_size).into())
            }
            _ => 0,
        }
    }
}
