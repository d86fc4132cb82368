//! The part of a limiter for the limits that nodes share: its store, its leases, and the outages that it meets.

use std::any::Any;
use std::sync::Arc;

use crate::clock::Clock;
use crate::core::shared_part::{SharedPart, StartShared};
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::StoreOptions;
use crate::observe::store_counters::StoreCounters;
use crate::shared::Store;
use crate::shared::protocol::StoreHandle;
use crate::shared::protocol::denials::Denials;
use crate::shared::protocol::leases::Leases;
use crate::shared::protocol::outage::Outage;
use crate::store::hash::new_keys;

pub(crate) struct Part {
    pub(crate) handle: StoreHandle,
    /// The units that this node has taken ahead. `None` if the clock does not measure the store's time.
    pub(crate) leases: Option<Leases>,
    /// The denials that this node keeps. `None` for the same reason.
    pub(crate) denials: Option<Denials>,
    /// Whether the store answers.
    pub(crate) outage: Outage,
}

impl LimiterOptions {
    /// Sets the store of [shared](crate::limits::Shared) limits. Default: none.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::shared::Store;
    /// # use tollgate::{Clock, Limiter, LimiterOptions, Limits};
    /// let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let limiter = Limiter::with_options(Limits::builder().build(), options)?;
    /// # let _ = limiter;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn store(mut self, store: Store) -> LimiterOptions {
        self.shared_by = Some(Arc::new(store));
        self
    }
}

impl StartShared for Store {
    fn start(&self, clock: &Clock, max_keys: usize) -> Box<dyn SharedPart> {
        let handle = self.0.clone();
        let is_in_step = clock.is_of_machine() || handle.store.is_on(clock);
        let leases = is_in_step.then(|| Leases::new(max_keys));
        // On a clock that is set, as in a replay, each run has the same answers.
        let hash_keys = if clock.is_of_machine() { new_keys() } else { [1, 2, 3, 4] };
        let denials = is_in_step.then(|| Denials::new(hash_keys));
        Box::new(Part { handle, leases, denials, outage: Outage::default() })
    }
}

impl StartShared for StoreOptions {
    fn start(&self, clock: &Clock, max_keys: usize) -> Box<dyn SharedPart> {
        Store::of_section(self).start(clock, max_keys)
    }
}

impl SharedPart for Part {
    fn sweep(&self, cells: usize, now_ns: u64, view: LimitsView<'_>) {
        self.leases.iter().for_each(|leases| leases.words.sweep(cells, now_ns, view));
    }

    fn free_unread(&self) {
        self.leases.iter().for_each(|leases| leases.words.free_unread());
    }

    fn begin_reload(&self, limiter: &Arc<LimiterState>) {
        self.leases.iter().for_each(|leases| leases.begin_reload());
        Limiter { inner: limiter.clone() }.give_leases_up();
    }

    fn renew(&self, view: LimitsView<'_>) {
        self.leases.iter().for_each(|leases| leases.words.renew(view));
    }

    fn counters(&self, limiter: &LimiterState) -> StoreCounters {
        self.store_counters(limiter)
    }

    fn end_reload(&self) {
        self.leases.iter().for_each(|leases| leases.end_reload());
    }
}

impl LimiterState {
    /// Returns the part for shared limits; `None` if the limiter has no store.
    #[inline]
    pub(crate) fn part(&self) -> Option<&Part> {
        let part: &dyn Any = self.shared.as_deref()?;
        part.downcast_ref()
    }

    /// Returns the node's leases, if it can have any.
    #[inline]
    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.part()?.leases.as_ref()
    }
}
