//! Dropping full cells: a thread, and what it did.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::limiter::Inner;
use crate::store::Swept;
use crate::sync::{Figure, Ordering};
use crate::ticker::{Stop, Ticker};

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
/// use tollgate::{Limiter, Limits, SweepOptions};
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

/// What a limiter's table holds, and what has been done to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Cells that there are.
    pub cells: usize,
    /// Bytes that the cells and their keys take, room for more and what is not freed yet included.
    pub bytes: usize,
    /// Of these, the bytes that came from the system directly, past the program's allocator. Large
    /// parts of the lock-free table do, so that neither a call that gets one nor a call that frees one
    /// has to wait for an allocator's housekeeping.
    pub mapped_bytes: usize,
    /// Cells that were dropped because they were full, since the limiter was made.
    pub swept: u64,
    /// Steps of sweeps that were made.
    pub steps: u64,
    /// Passes of the thread that panicked.
    pub panics: u64,
    /// Panics of rules of the caller's own that were caught: in `is_full`, where the sweep leaves the cell and goes
    /// on, and where a place is given up that another call takes back, which then stays taken.
    pub rule_panics: u64,
    /// Steps of sweeps, of calls at the cap too, that were skipped because the clock was not believed: see
    /// [`Limiter::sweep`](crate::Limiter::sweep).
    pub clock_skips: u64,
    /// When the last step ended.
    pub last_run: Option<Instant>,
    /// Times that a part of the table was moved to a larger or smaller one.
    pub migrations: u64,
    /// Parts that were left and are not freed yet: a thread might read them, or they go back to the
    /// system piece by piece, with the next calls and sweeps. A thread that stands still in the middle
    /// of a call, of this limiter or another, holds back all that are left after it came. Past as many
    /// bytes as the table has in use, or 16 MiB if that is more, a part is left only to make room for
    /// buckets that are not full. So [`bytes`](Stats::bytes) is at most three times what the table has in
    /// use, and 16 MiB; a reload beside such a thread leaves the whole table once more.
    pub retired: usize,
    /// Times that a part was not left because of that. Where its places are used up by buckets that were
    /// dropped, new ids are treated as beyond the cap ([`AtCap`](crate::AtCap)) until the thread goes on.
    pub put_off: u64,
    /// Calls for new keys at the cap that were decided by the shared bucket.
    pub shared: u64,
    /// Calls for new keys that were denied because of the cap.
    pub denied_at_cap: u64,
    /// Calls for new keys that were allowed and not counted because of the cap.
    pub allowed_at_cap: u64,
}

/// What sweeps have done so far.
#[derive(Debug, Default)]
pub(crate) struct SweepRecord {
    passes: Mutex<Stats>,
    rule_panics: Figure,
    clock_skips: Figure,
}

impl SweepRecord {
    pub(crate) fn record(&self) {
        let mut passes = self.passes.lock();
        passes.steps += 1;
        passes.last_run = Some(Instant::now());
    }

    pub(crate) fn record_panic(&self) {
        self.passes.lock().panics += 1;
    }

    /// Counts a panic of a rule, which its caller has caught.
    pub(crate) fn count_rule_panic(&self) {
        // Relaxed: a figure for people.
        self.rule_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sweep that was skipped because of its clock.
    pub(crate) fn count_skipped(&self) {
        // Relaxed: a figure for people.
        self.clock_skips.fetch_add(1, Ordering::Relaxed);
    }

    /// The part of the figures that sweeps know of.
    pub(crate) fn stats(&self) -> Stats {
        // Relaxed: figures for people.
        Stats {
            rule_panics: self.rule_panics.load(Ordering::Relaxed),
            clock_skips: self.clock_skips.load(Ordering::Relaxed),
            ..*self.passes.lock()
        }
    }
}

impl Sweeper {
    pub(crate) fn start(inner: &Arc<Inner>, options: SweepOptions) -> Result<Sweeper, Error> {
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
        let ticker = Ticker::start("tollgate-sweep", options.interval, tick).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start the thread tollgate-sweep: {error}"))
        })?;
        Ok(Sweeper { _ticker: ticker })
    }
}

/// One pass over the table, step by step; the number of steps is at most that of the table's parts.
fn sweep_all(inner: &Inner, step: usize, stop: &Stop) {
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
    crate::events::sweep(&pass);
}
