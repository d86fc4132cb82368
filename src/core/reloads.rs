//! Runs reloads one at a time, and records them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::core::generation::Generation;
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::error::Error;
use crate::store::pin;
use crate::util::lock::{Mutex, MutexGuard};
use crate::util::sync::{Figure, Ordering};
use crate::util::time::{saturating_ns, system_now};

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
/// assert!(reloaded.removed.is_empty(), "all old limits are among the new ones");
/// let reloaded = limiter.reload(limits(20)?)?;
/// assert_eq!((reloaded.generation, reloaded.changed), (1, false));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// The number of the limits that apply now: 0 for the limits that the limiter was made with, and one more with each
    /// reload that changed them.
    pub generation: u64,
    /// Whether the reload changed the limits. A reload with the limits that apply already changes nothing and costs
    /// little.
    pub changed: bool,
    /// The names of the limits that the old limits declared and the new ones do not. Limits that are switched off are
    /// declared.
    pub removed: Vec<String>,
}

/// The lock of reloads, and their record.
#[derive(Default)]
pub(crate) struct Reloads {
    one_at_a_time: Mutex<()>,
    /// The time of the last successful reload, in ns since 1970; 0 for none.
    last_ns: Figure,
    /// The number of reloads that failed and changed nothing, with those of files that could not be loaded.
    pub(crate) refused: Figure,
    /// The number of limits that reloads have removed.
    pub(crate) removed: Figure,
}

impl Reloads {
    /// Waits for the reload that is running, and keeps others from beginning while the guard lives. Unless the holder
    /// reloads, or the last reload panicked, all words are under one generation of limits meanwhile.
    pub(crate) fn hold_off(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock()
    }

    /// Returns the time of the last successful reload.
    pub(crate) fn last(&self) -> Option<SystemTime> {
        // Relaxed: a figure for people.
        let ns = self.last_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| UNIX_EPOCH + Duration::from_nanos(ns))
    }

    /// Records a reload, and emits its event.
    pub(crate) fn record(&self, reloaded: &Result<Reloaded, Error>) {
        match reloaded {
            Ok(done) => {
                let now = system_now().and_then(|now| now.duration_since(UNIX_EPOCH).ok());
                // Relaxed, both: figures for people.
                self.last_ns.store(now.map_or(0, saturating_ns), Ordering::Relaxed);
                self.removed.fetch_add(done.removed.len() as u64, Ordering::Relaxed);
            }
            Err(_) => {
                // Relaxed: a figure for people.
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        #[cfg(feature = "tracing")]
        crate::observe::events::reload(
            reloaded.as_ref().map(|done| (done.generation, done.changed, &*done.removed)),
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
