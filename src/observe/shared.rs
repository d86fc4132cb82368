//! The counts of limits that nodes share, and of their store.

use super::sample::{Kind, Sample, one};
use super::store_counters::ClockSteps;
use crate::util::sync::{Figure, Ordering};

pub(crate) use super::store_counters::StoreCounters;

/// Holds the counts of one limit that nodes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedCounts {
    /// Those of [`LimitCounters::allowed`](crate::metrics::LimitCounters::allowed) that a lease of this node has decided, without the store. 0 unless the limiter
    /// counts.
    pub allowed_by_lease: u64,
    /// Those of [`LimitCounters::denied`](crate::metrics::LimitCounters::denied) for which this node kept a denial by the store. 0 unless the limiter counts.
    pub denied_by_lease: u64,
    /// Spends that the limit's [policy](crate::limits::LimitOptions::on_error) allowed while the store did not answer. Those
    /// of a limit in shadow mode are counted as the policy would decide them. Always counted.
    pub allowed_without_store: u64,
    /// Spends that the policy denied while the store did not answer. Always counted.
    pub denied_without_store: u64,
}

/// Allowed and denied spends.
#[derive(Default)]
pub(crate) struct Outcomes([Figure; 2]);

impl Outcomes {
    pub(crate) fn figure(&self, is_allowed: bool) -> &Figure {
        &self.0[usize::from(!is_allowed)]
    }

    pub(crate) fn read(&self) -> OutcomeCounts {
        // Relaxed: figures for operators.
        let [allowed, denied] = &self.0;
        OutcomeCounts(allowed.load(Ordering::Relaxed), denied.load(Ordering::Relaxed))
    }
}

/// The counts of [`Outcomes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeCounts(pub(crate) u64, pub(crate) u64);

impl OutcomeCounts {
    pub(crate) fn plus(self, more: OutcomeCounts) -> OutcomeCounts {
        OutcomeCounts(self.0.wrapping_add(more.0), self.1.wrapping_add(more.1))
    }
}

impl SharedCounts {
    pub(crate) fn new(by_lease: OutcomeCounts, without_store: OutcomeCounts) -> SharedCounts {
        SharedCounts {
            allowed_by_lease: by_lease.0,
            denied_by_lease: by_lease.1,
            allowed_without_store: without_store.0,
            denied_without_store: without_store.1,
        }
    }
}

/// Adds the families of the store and of the limits that share it, if there is one.
#[rustfmt::skip]
pub(super) fn add_shared<'c>(
    store: &'c StoreCounters,
    is_counting: bool,
    by_outcome: impl Fn(fn(&SharedCounts) -> (u64, u64)) -> Vec<Sample<'c>>,
    add: &mut impl FnMut(&'static str, Kind, &'static str, Vec<Sample<'c>>),
) {
    use Kind::{Counter, Gauge};
    let by = |label, values: Vec<(&'static str, u64)>| {
        values.into_iter().map(|(name, value)| Sample { labels: vec![(label, name)], value }).collect()
    };
    if is_counting {
        add("tollgate_lease_decisions_total", Counter, "Spends of shared limits that the node has decided, by a lease or by a denial that it kept.",
            by_outcome(|shared| (shared.allowed_by_lease, shared.denied_by_lease)));
    }
    add("tollgate_policy_decisions_total", Counter, "Spends of shared limits that on_error has decided, because the store did not.",
        by_outcome(|shared| (shared.allowed_without_store, shared.denied_without_store)));
    add("tollgate_store_calls_total", Counter, "Calls to the store of shared limits.", one(store.calls));
    let errors = &store.errors;
    add("tollgate_store_errors_total", Counter, "Calls that the store has not decided.", by("kind", vec![
        ("timeout", errors.timeout),
        ("no_connection", errors.no_connection),
        ("paused", errors.paused),
        ("refused", errors.refused),
        ("unknown_text", errors.unknown_text),
        ("overload", errors.overload),
    ]));
    add("tollgate_store_scripts_sent_total", Counter, "Scripts whose text was sent, because the server did not know them.", one(store.scripts_sent));
    add("tollgate_store_paused", Gauge, "1 while calls are held back: a server has answered nothing in time for 2 s.", one(store.is_paused.into()));
    add("tollgate_store_outage", Gauge, "1 from the first call of an outage until an answer at least 5 s after the last such call.", one(store.is_outage.into()));
    add("tollgate_store_outages_total", Counter, "Outages that have begun.", one(store.outages));
    let (ahead, back) = (store.clock_steps_ahead, store.clock_steps_back);
    add("tollgate_store_clock_steps_total", Counter, "Steps of the server's clock.",
        by("direction", vec![("ahead", ahead.count), ("back", back.count)]));
    let ms = |steps: ClockSteps| u64::try_from(steps.last.as_millis()).unwrap_or(u64::MAX);
    add("tollgate_store_last_clock_step_milliseconds", Gauge, "Size of the last step of the server's clock.",
        by("direction", vec![("ahead", ms(ahead)), ("back", ms(back))]));
    add("tollgate_leases_total", Counter, "Leases that the store has granted.", one(store.leases));
    add("tollgate_leased_units_total", Counter, "Units of the granted leases.", one(store.leased_units));
    add("tollgate_leased_ids", Gauge, "Ids of which the node has a record because of leases.", one(store.leased_ids));
    add("tollgate_held_units", Gauge, "Units of leases that are neither spent nor given back nor ended.", one(store.held_units));
}
