//! Runs reloads one at a time, and records them.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use crate::core::generation::Generation;
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::error::Error;
use crate::store::pin;
use crate::util::sync::{Figure, Ordering};
use crate::util::time::system_now;

/// The result of a reload.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limits = |burst| -> Result<Limits, tollgate::Error> {
///     let limit = Limit::new(burst, 10, Duration::from_secs(1))?;
///     Ok(Limits::builder().limit("Requests", IdFormat::String, limit)?.build())
/// };
/// let limiter = Limiter::new(limits(10)?);
/// let reloaded = limiter.reload(limits(20)?)?;
/// assert_eq!((reloaded.generation, reloaded.changed), (1, true));
/// let reloaded = limiter.reload(limits(20)?)?;
/// assert_eq!((reloaded.generation, reloaded.changed), (1, false));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// The number of the limits that apply now: 0 for the limits that the limiter was made with, and one more with each
    /// reload that changed them.
    pub generation: u64,
    /// Whether the reload changed the limits. A reload with the limits that apply already changes nothing and costs
    /// little.
    pub changed: bool,
}

/// The lock of reloads, and their record.
#[derive(Default)]
pub(crate) struct Reloads {
    one_at_a_time: Mutex<()>,
    last: Mutex<Option<SystemTime>>,
    /// The number of reloads that failed and changed nothing.
    pub(crate) refused: Figure,
}

impl Reloads {
    /// Waits for the reload that is running, and keeps others from beginning while the guard lives. Meanwhile all
    /// words are under one generation of limits.
    pub(crate) fn hold_off(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock()
    }

    /// Returns the time of the last successful reload.
    pub(crate) fn last(&self) -> Option<SystemTime> {
        *self.last.lock()
    }

    /// Records a reload, and emits its event.
    pub(crate) fn record(&self, reloaded: &Result<Reloaded, Error>) {
        match reloaded {
            Ok(_) => *self.last.lock() = system_now(),
            Err(_) => {
                // Relaxed: a figure for people.
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        #[cfg(feature = "tracing")]
        crate::observe::events::reload(
            reloaded.as_ref().map(|done| (done.generation, done.changed)),
        );
    }
}

impl LimiterState {
    /// Migrates all cells and overflow buckets to `generation`, and publishes it again without the generation before.
    pub(crate) fn renew(&self, generation: &Generation) -> Arc<Generation> {
        // No pin is held over the whole migration, so that retired segments can be freed on the way.
        let view = LimitsView { inner: self, generation };
        self.store.renew(&view);
        if let Some(part) = &self.shared {
            part.renew(view);
        }
        for (index, _) in generation.limits.by_index() {
            generation.migrate_overflow(index);
        }
        let settled = Arc::new(generation.settled());
        #[cfg(tollgate_loom)]
        settled.mark_made();
        self.generation.replace(&pin(), settled.clone());
        self.free_replaced();
        settled
    }
}
