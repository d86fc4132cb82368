//! The largest factor that each limit was charged with.

use std::sync::Arc;

use crate::algorithm::factor::Factor;
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The largest factor that each limit was charged with. A bucket drips the slower the larger it is,
/// and is full for a sweep only when it is full for all.
pub(crate) struct LargestFactors(Box<[Arc<AtomicU64>]>);

impl LargestFactors {
    pub(crate) fn new(limits: usize) -> LargestFactors {
        LargestFactors(Box::new([])).and_more(limits)
    }

    /// The same, which are shared, and those of new limits, so that there are so many.
    pub(crate) fn and_more(&self, limits: usize) -> LargestFactors {
        let one = || Arc::new(AtomicU64::new(Factor::ONE.millionths()));
        let new = (self.0.len()..limits).map(|_| one());
        LargestFactors(self.0.iter().cloned().chain(new).collect())
    }

    /// Before anything is charged with this factor.
    pub(crate) fn note(&self, limit: LimitIndex, factor: Factor) {
        if fault::active(Fault::FactorNotNoted) {
            return;
        }
        let largest = &self.0[limit.0 as usize];
        // Relaxed: published by the charge's swap, a Release; a sweep that has read that charge's word,
        // with Acquire, finds it here. Factors are few: most of the time nothing is written.
        if largest.load(Ordering::Relaxed) < factor.millionths() {
            largest.fetch_max(factor.millionths(), Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, limit: LimitIndex) -> Factor {
        // Relaxed: as above.
        Factor::from_millionths(self.0[limit.0 as usize].load(Ordering::Relaxed))
    }
}
