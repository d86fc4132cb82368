//! Dropping full cells: a thread, and what it did.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::core::state::SharedState;
use crate::error::Error;
use crate::store::Swept;
use crate::util::background::{Stop, Ticker};

/// When a [`Sweeper`] sweeps, and how much at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepOptions {
    /// The time from the end of one pass over the whole table to the next. Default: 1 s.
    pub interval: Duration,
    /// The cells that a pass looks at in one step; between steps it gives way. Default: 16,384.
    pub step: usize,
}

impl Default for SweepOptions {
    fn default() -> SweepOptions {
        SweepOptions { interval: Duration::from_secs(1), step: 16_384 }
    }
}

impl SweepOptions {
    /// The same with another interval.
    #[must_use]
    pub fn interval(self, interval: Duration) -> SweepOptions {
        SweepOptions { interval, ..self }
    }

    /// The same with another step; 0 counts as 1.
    #[must_use]
    pub fn step(self, step: usize) -> SweepOptions {
        SweepOptions { step, ..self }
    }
}

/// The thread that sweeps a limiter. Dropping it wakes and joins the thread.
///
/// The thread keeps no limiter alive: it ends when the last one is gone. A pass that panics is
/// counted, and the next one comes at its time.
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
    pub(crate) fn start(inner: &Arc<SharedState>, options: SweepOptions) -> Result<Sweeper, Error> {
        let swept = Arc::downgrade(inner);
        let tick = move |stop: &Stop| {
            let Some(inner) = swept.upgrade() else {
                return ControlFlow::Break(());
            };
            // A panic can come from a clock of the caller's own; the table's locks do not poison.
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

/// One pass over the table, step by step; the number of steps is at most that of the table's parts.
fn sweep_all(inner: &SharedState, step: usize, stop: &Stop) {
    let mut pass = Swept::default();
    while !stop.requested() && !pass.finished {
        let swept = inner.sweep(step);
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
