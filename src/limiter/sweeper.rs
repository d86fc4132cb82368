//! Runs the thread that drops full buckets.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::core::state::LimiterState;
use crate::error::Error;
use crate::store::Swept;
use crate::util::background::{Stop, Ticker};

/// Sets when a [`Sweeper`] sweeps, and how many cells it looks at in one step. Its example is [`Sweeper`]'s.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{Limiter, Limits};
/// use tollgate::sweep::SweepOptions;
///
/// let often = SweepOptions::default().interval(Duration::from_millis(1)).step(1_024);
/// let limiter = Limiter::new(Limits::builder().build());
/// let _sweeper = limiter.start_sweeper(often)?;
/// while limiter.stats().steps < 2 {
///     std::thread::yield_now();
/// }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SweepOptions {
    pub(super) interval: Duration,
    pub(super) step: usize,
}

impl Default for SweepOptions {
    fn default() -> SweepOptions {
        SweepOptions { interval: Duration::from_secs(1), step: 16_384 }
    }
}

impl SweepOptions {
    /// Sets the time from the end of one pass over the whole table to the start of the next; 0 is allowed. Default: 1
    /// s.
    pub fn interval(self, interval: Duration) -> SweepOptions {
        SweepOptions { interval, ..self }
    }

    /// Sets the number of cells in a step, at least 1; 0 counts as 1. The thread yields between steps. Default: 16,384.
    pub fn step(self, step: usize) -> SweepOptions {
        SweepOptions { step, ..self }
    }
}

/// Owns the thread that sweeps a limiter. Dropping it wakes and joins the thread. Made by
/// [`Limiter::start_sweeper`](crate::Limiter::start_sweeper).
///
/// The thread does not keep the limiter alive: it ends when the last clone of the limiter is dropped. A pass that
/// panics is [counted](crate::metrics::Stats::panics), and the next pass runs at its usual time.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Limits};
/// use tollgate::sweep::SweepOptions;
///
/// let limiter = Limiter::new(Limits::builder().build());
/// let sweeper = limiter.start_sweeper(SweepOptions::default().interval(Duration::from_secs(10)))?;
/// assert_eq!(limiter.stats().cells, 0);
/// drop(sweeper); // joined at once
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the sweeper stops it"]
pub struct Sweeper {
    _ticker: Ticker,
}

impl Sweeper {
    pub(crate) fn start(
        inner: &Arc<LimiterState>,
        options: SweepOptions,
    ) -> Result<Sweeper, Error> {
        let limiter = Arc::downgrade(inner);
        let tick = move |stop: &Stop| {
            let Some(inner) = limiter.upgrade() else {
                return ControlFlow::Break(());
            };
            // A custom clock may panic. Unwinding is safe: the table's locks do not poison.
            let pass = catch_unwind(AssertUnwindSafe(|| sweep_all(&inner, options.step, stop)));
            if pass.is_err() {
                inner.sweeps.record_panic();
            }
            ControlFlow::Continue(())
        };
        let ticker = Ticker::start("tollgate-sweep", options.interval, tick)
            .map_err(|error| Error::from_io("cannot start the thread tollgate-sweep", error))?;
        Ok(Sweeper { _ticker: ticker })
    }
}

/// How long before its reading of the clock the thread sweeps. A new bucket begins no earlier than the last sweep, so a call
/// that has read the clock a moment before a sweep would find less in a new bucket.
const SWEEP_AGO_NS: u64 = 1_000_000;

/// Makes one pass over the table, in at most as many steps as the table has parts.
fn sweep_all(inner: &LimiterState, step: usize, stop: &Stop) {
    let mut pass = Swept::default();
    while !stop.requested() && !pass.finished {
        let swept = inner.sweep(step, SWEEP_AGO_NS);
        pass.looked_at += swept.looked_at;
        pass.dropped += swept.dropped;
        pass.finished = swept.finished;
        if !pass.finished {
            std::thread::yield_now();
        }
    }
    #[cfg(feature = "tracing")]
    crate::observe::events::sweep(&pass);
}
