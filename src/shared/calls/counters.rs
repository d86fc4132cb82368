//! The figures of the store, for operators.

use crate::core::state::LimiterState;
use crate::observe::store_counters::StoreCounters;
use crate::shared::part::Part;
use crate::shared::protocol::leases::Leases;
use crate::store::key::Key;

impl Part {
    /// Returns the figures of the limiter's store.
    pub(crate) fn store_counters(&self, limiter: &LimiterState) -> StoreCounters {
        let Part { handle, leases, outage, .. } = self;
        let mut counters = StoreCounters::default();
        if let Some(figures) = handle.store.figures() {
            counters.calls = figures.calls();
            counters.errors = figures.errors();
            counters.scripts_sent = figures.scripts_sent();
            counters.is_paused = figures.is_paused();
            (counters.clock_steps_ahead, counters.clock_steps_back) = figures.clock_steps();
        }
        (counters.is_outage, counters.outages) = outage.figures();
        if let Some(leases) = leases {
            (counters.leases, counters.leased_units) = leases.granted();
            counters.leased_ids = leases.records() as u64;
            let keys = leases.held_keys();
            counters.held_units = keys.iter().map(|key| held_units(limiter, leases, key)).sum();
        }
        counters
    }
}

/// Returns the units that the node holds of a bucket.
fn held_units(inner: &LimiterState, leases: &Leases, key: &Key) -> u64 {
    let now_ns = inner.clock.now_ns();
    inner.with_view(|view| {
        let Some(key) = leases.place(view, key.as_ref(), now_ns) else { return Ok(0) };
        let spent = leases.words.spend(view, &key, (0, false), now_ns)?;
        Ok(spent.map_or(0, |(left, _)| left))
    })
}
