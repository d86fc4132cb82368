//! Reloads, one at a time, and what each did.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use crate::core::generation::Generation;
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::error::Error;
use crate::store::pin;
use crate::util::sync::{Figure, Ordering};

/// What a reload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// The number of the limits that apply now: 0 for those that the limiter was made with, and one
    /// more with each reload that changed anything.
    pub generation: u64,
    /// Whether anything was changed. The same limits once more change nothing and cost little.
    pub changed: bool,
}

/// One reload at a time.
#[derive(Default)]
pub(crate) struct Reloads {
    one_at_a_time: Mutex<()>,
    last: Mutex<Option<SystemTime>>,
    /// Those that changed nothing because they could not be.
    pub(crate) refused: Figure,
}

impl Reloads {
    /// Waits for the reload that is running, and lets no other begin while the guard lives. All words are under one
    /// generation of limits then.
    pub(crate) fn hold_off(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock()
    }

    /// When one was done last.
    pub(crate) fn last(&self) -> Option<SystemTime> {
        *self.last.lock()
    }

    /// Counts an attempt, and tells of it.
    pub(crate) fn note(&self, reloaded: &Result<Reloaded, Error>) {
        match reloaded {
            Ok(_) => *self.last.lock() = Some(SystemTime::now()),
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

impl SharedState {
    /// Brings everything under the limits as they are now, and forgets those before. Returns them without those.
    pub(crate) fn renew(&self, generation: &Generation) -> Arc<Generation> {
        // Without a pin over it all, so that what is left behind can be freed on the way.
        let view = LimitsView { inner: self, generation };
        self.store.renew(&view);
        for (index, _) in generation.limits.by_index() {
            generation.carry_shared(index);
        }
        let settled = Arc::new(generation.settled());
        #[cfg(tollgate_loom)]
        settled.is_made();
        self.generation.replace(&pin(), settled.clone());
        self.free_replaced();
        settled
    }
}
