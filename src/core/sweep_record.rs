//! Counts sweeps, and the panics and skips in them. No thread waits for another here: a child process of a fork may
//! sweep and read the figures at once, whatever the threads of its parent were doing.

use std::time::{Duration, Instant};

use crate::observe::stats::Stats;
use crate::util::sync::{Figure, Ordering};
use crate::util::time::{instant_now, saturating_ns};

/// The counters of a limiter's sweeps.
#[derive(Debug)]
pub(crate) struct SweepRecord {
    /// When the limiter was made. `None` where std has no clock.
    began: Option<Instant>,
    /// The end of the last step: one more than the ns since `began`; 0 before the first step.
    last_run_ns: Figure,
    steps: Figure,
    panics: Figure,
    rule_panics: Figure,
    clock_skips: Figure,
}

impl SweepRecord {
    pub(crate) fn new() -> SweepRecord {
        SweepRecord {
            began: instant_now(),
            last_run_ns: Figure::new(0),
            steps: Figure::new(0),
            panics: Figure::new(0),
            rule_panics: Figure::new(0),
            clock_skips: Figure::new(0),
        }
    }

    /// Counts a step of a sweep.
    pub(crate) fn record(&self) {
        count(&self.steps);
        if let Some(began) = self.began {
            let ns = saturating_ns(began.elapsed()).saturating_add(1);
            // Relaxed: a figure for people. Of concurrent steps the last to end counts.
            self.last_run_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    /// Counts a panic of a whole step, in the sweeper's thread.
    pub(crate) fn record_panic(&self) {
        count(&self.panics);
    }

    /// Counts a panic of a custom algorithm that was caught.
    pub(crate) fn count_rule_panic(&self) {
        count(&self.rule_panics);
    }

    /// Counts a sweep that was skipped because its clock reading was not trusted.
    pub(crate) fn count_skipped(&self) {
        count(&self.clock_skips);
    }

    /// Returns the figures of sweeps; the others are 0.
    pub(crate) fn stats(&self) -> Stats {
        // Relaxed: figures for people.
        let read = |figure: &Figure| figure.load(Ordering::Relaxed);
        let since_ns = read(&self.last_run_ns).checked_sub(1);
        let last_run = self.began.zip(since_ns);
        Stats {
            steps: read(&self.steps),
            panics: read(&self.panics),
            last_run: last_run.map(|(began, ns)| began + Duration::from_nanos(ns)),
            rule_panics: read(&self.rule_panics),
            clock_skips: read(&self.clock_skips),
            ..Stats::default()
        }
    }
}

fn count(figure: &Figure) {
    // Relaxed: a figure for people.
    figure.fetch_add(1, Ordering::Relaxed);
}
