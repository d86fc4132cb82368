//! Records the largest factor that a call of each limit had, also a denied call, but no check.

use std::sync::Arc;

use crate::algorithm::factor::Factor;
use crate::limits::Limits;
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The largest factor that a call of each limit had, by the limit's index. A larger factor makes a bucket refill more
/// slowly. So a sweep takes a bucket for full only if it is full by the largest.
#[derive(Clone)]
pub(crate) struct LargestFactors(Arc<[Arc<AtomicU64>]>);

impl LargestFactors {
    pub(crate) fn new(limits: &Limits) -> LargestFactors {
        LargestFactors(Arc::new([])).following((limits, limits))
    }

    /// Returns the factors for `limits`. A name with the same index in `before` keeps its factor from `self`; the others begin
    /// with 1.
    pub(crate) fn following(&self, (before, limits): (&Limits, &Limits)) -> LargestFactors {
        let one = |_: &_| Arc::new(AtomicU64::new(Factor::ONE.millionths()));
        LargestFactors(limits.known_or_new((before, &self.0), one))
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
