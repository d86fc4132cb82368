//! The interface by which the core uses limits that nodes share.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::clock::Clock;
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::observe::shared::StoreCounters;

/// The part of a limiter for the limits that nodes share. A limiter without a store has none.
pub(crate) trait SharedPart: Any + Send + Sync {
    /// Looks at up to `cells` words of the part, and drops the words whose time is over.
    fn sweep(&self, cells: usize, now_ns: u64, view: LimitsView<'_>);

    /// Frees the memory that no reader reads any more, after a whole sweep.
    fn free_unread(&self);

    /// Returns the units that the node holds in leases, before a reload replaces the limits.
    fn begin_reload(&self, limiter: &Arc<LimiterState>);

    /// Migrates its words to the limits of a view.
    fn renew(&self, view: LimitsView<'_>);

    /// Returns the figures of the store.
    fn counters(&self, limiter: &LimiterState) -> StoreCounters;

    /// The reload is done, or has panicked.
    fn end_reload(&self);
}

/// A store that can serve the limiters of this process.
pub(crate) trait StartShared: Debug + Send + Sync {
    /// Makes the part of a limiter that has the clock, and at most `max_keys` keys.
    fn start(&self, clock: &Clock, max_keys: usize) -> Box<dyn SharedPart>;
}

/// A reload, for the limits that nodes share.
pub(crate) struct Reloading<'p>(Option<&'p dyn SharedPart>);

impl LimiterState {
    /// Begins a reload.
    pub(crate) fn begin_reload(self: &Arc<LimiterState>) -> Reloading<'_> {
        // Made first: the reload ends also if its beginning panics.
        let reloading = Reloading(self.shared.as_deref());
        if let Some(part) = reloading.0 {
            part.begin_reload(self);
        }
        reloading
    }
}

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.0 {
            part.end_reload();
        }
    }
}
