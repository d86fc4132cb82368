//! Records the largest factor that each limit was charged with.

use std::sync::Arc;

use crate::algorithm::factor::Factor;
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The largest factor that each limit was charged with, by the limit's index. A larger factor makes a bucket refill more
/// slowly. So a sweep takes a bucket for full only if it is full by the largest.
pub(crate) struct LargestFactors(Box<[Arc<AtomicU64>]>);

impl LargestFactors {
    pub(crate) fn new(limits: usize) -> LargestFactors {
        LargestFactors(Box::new([])).extended(limits)
    }

    /// Returns the same factors, shared with these, with those of new limits, for `limits` limits in all.
    pub(crate) fn extended(&self, limits: usize) -> LargestFactors {
        let one = || Arc::new(AtomicU64::new(Factor::ONE.millionths()));
        let new = (self.0.len()..limits).map(|_| one());
        LargestFactors(self.0.iter().cloned().chain(new).collect())
    }

    /// Records a factor. A call records it before its first charge with it.
    pub(crate) fn record(&self, limit: LimitIndex, factor: Factor) {
        if fault::active(Fault::FactorNotNoted) {
            return;
        }
        let largest = &self.0[limit.0 as usize];
        // Relaxed: published by the Release of the charge's swap. A sweep that has read that charge's word, with
        // Acquire, finds the factor. The load first: few different factors are used, so that most calls write nothing.
        if largest.load(Ordering::Relaxed) < factor.millionths() {
            largest.fetch_max(factor.millionths(), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, limit: LimitIndex) -> Factor {
        // Relaxed: as in `record`.
        Factor::from_millionths(self.0[limit.0 as usize].load(Ordering::Relaxed))
    }
}
