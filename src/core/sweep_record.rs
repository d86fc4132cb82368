//! Counts sweeps, and the panics and skips in them.

use parking_lot::Mutex;

use crate::observe::stats::Stats;
use crate::util::sync::{Figure, Ordering};
use crate::util::time::instant_now;

/// The counters of a limiter's sweeps.
#[derive(Debug, Default)]
pub(crate) struct SweepRecord {
    passes: Mutex<Stats>,
    rule_panics: Figure,
    clock_skips: Figure,
}

impl SweepRecord {
    /// Counts a step of a sweep.
    pub(crate) fn record(&self) {
        let mut passes = self.passes.lock();
        passes.steps += 1;
        passes.last_run = instant_now();
    }

    /// Counts a panic of a whole step, in the sweeper's thread.
    pub(crate) fn record_panic(&self) {
        self.passes.lock().panics += 1;
    }

    /// Counts a panic of a custom rule that was caught.
    pub(crate) fn count_rule_panic(&self) {
        // Relaxed: a figure for people.
        self.rule_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sweep that was skipped because its clock reading was not trusted.
    pub(crate) fn count_skipped(&self) {
        // Relaxed: a figure for people.
        self.clock_skips.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the figures of sweeps; the others are 0.
    pub(crate) fn stats(&self) -> Stats {
        // Relaxed: figures for people.
        Stats {
            rule_panics: self.rule_panics.load(Ordering::Relaxed),
            clock_skips: self.clock_skips.load(Ordering::Relaxed),
            ..*self.passes.lock()
        }
    }
}
