//! Lists the metrics of a limiter, for all exporters.

use std::time::UNIX_EPOCH;

use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::observe::counters::{Counters, LimitCounters};
#[cfg(feature = "valkey")]
use crate::observe::store_counters::ClockSteps;

/// Samples of one name.
pub(crate) struct Family<'c> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample<'c>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

pub(crate) struct Sample<'c> {
    pub(crate) labels: Vec<(&'static str, &'c str)>,
    pub(crate) value: u64,
}

impl Counters {
    /// All families. Those of counted calls are left out if the limiter does not count.
    #[rustfmt::skip]
    pub(crate) fn families(&self) -> Vec<Family<'_>> {
        use Kind::{Counter, Gauge};
        let mut families = Vec::new();
        let mut add = |name, kind, help, samples| families.push(Family { name, kind, help, samples });
        if self.is_counting {
            add("tollgate_decisions_total", Counter, "Spends by limit and outcome.", self.decisions());
            add("tollgate_near_total", Counter, "Allowed spends that left less than a fifth of the burst.",
                self.by_limit(|limit| Some(limit.near)));
            add("tollgate_cost_total", Counter, "Cost of the allowed spends, in units, without the spends that a limit in shadow mode would have denied.",
                self.by_limit(|limit| Some(limit.cost)));
        }
        add("tollgate_shadow_denied_total", Counter,
            "Spends that a limit in shadow mode, or the shadow beside a limit, would have denied.",
            self.by_limit(|limit| Some(limit.shadow_denied)));
        #[cfg(feature = "valkey")]
        self.add_shared(&mut add);
        if self.is_counting {
            add("tollgate_errors_total", Counter, "Calls that failed: a bad id, or a cost above the burst.",
                self.by_limit(|limit| Some(limit.errors)));
        }
        add("tollgate_limit_burst", Gauge, "The most that a bucket holds by default, in units.",
            self.by_limit(|limit| limit.limit.as_ref().map(Limit::burst)));
        add("tollgate_limit_enforced", Gauge, "1 if the limit denies, 0 if it is in shadow mode.",
            self.by_limit(|limit| Some(u64::from(limit.mode == LimitMode::Enforce))));
        add("tollgate_limit_shadow_burst", Gauge, "The most that a bucket of the shadow holds, in units.",
            self.by_limit(|limit| limit.shadow.as_ref().map(Limit::burst)));
        let stats = &self.stats;
        add("tollgate_keys", Gauge, "Buckets in the table.", one(stats.cells as u64));
        add("tollgate_table_bytes", Gauge, "Memory of the table.", one(stats.bytes as u64));
        add("tollgate_swept_total", Counter, "Full buckets that were dropped.", one(stats.swept));
        add("tollgate_overflow_total", Counter, "Calls for new keys that found no room.", vec![
            Sample { labels: vec![("outcome", "shared")], value: stats.shared },
            Sample { labels: vec![("outcome", "denied")], value: stats.denied_at_cap },
            Sample { labels: vec![("outcome", "allowed")], value: stats.allowed_at_cap },
        ]);
        add("tollgate_sweep_panics_total", Counter, "Sweeps that panicked.", one(stats.panics));
        add("tollgate_limits_generation", Gauge, "Number of the limits.", one(self.generation));
        add("tollgate_reload_errors_total", Counter, "Reloads that were refused.", one(self.reload_errors));
        let last_reload = self.last_reload.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        if let Some(since) = last_reload {
            add("tollgate_last_reload_timestamp_seconds", Gauge,
                "When a reload was last done, in seconds since 1970.", one(since.as_secs()));
        }
        families
    }

    /// Adds the families of the store and of the limits that share it, if there is one.
    #[cfg(feature = "valkey")]
    #[rustfmt::skip]
    fn add_shared<'c>(&'c self, add: &mut impl FnMut(&'static str, Kind, &'static str, Vec<Sample<'c>>)) {
        use Kind::{Counter, Gauge};
        let Some(store) = &self.store else { return };
        let by = |label, values: Vec<(&'static str, u64)>| {
            values.into_iter().map(|(name, value)| Sample { labels: vec![(label, name)], value }).collect()
        };
        if self.is_counting {
            add("tollgate_lease_decisions_total", Counter, "Spends of shared limits that the node has decided, by a lease or by a denial that it kept.",
                self.by_outcome(|limit| limit.is_shared.then_some((limit.allowed_by_lease, limit.denied_by_lease))));
        }
        add("tollgate_policy_decisions_total", Counter, "Spends of shared limits that on_error has decided, because the store did not.",
            self.by_outcome(|limit| limit.is_shared.then_some((limit.allowed_without_store, limit.denied_without_store))));
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
        add("tollgate_store_paused", Gauge, "1 if the store is not asked after failures.", one(store.is_paused.into()));
        add("tollgate_store_outage", Gauge, "1 if the store did not decide the last call.", one(store.is_outage.into()));
        add("tollgate_store_outages_total", Counter, "Outages that have begun.", one(store.outages));
        let (ahead, back) = (store.clock_steps_ahead, store.clock_steps_back);
        add("tollgate_store_clock_steps_total", Counter, "Steps of the server's clock.",
            by("direction", vec![("ahead", ahead.count), ("back", back.count)]));
        let ms = |steps: ClockSteps| u64::try_from(steps.last.as_millis()).unwrap_or(u64::MAX);
        add("tollgate_store_last_clock_step_milliseconds", Gauge, "Size of the last step of the server's clock.",
            by("direction", vec![("ahead", ms(ahead)), ("back", ms(back))]));
        add("tollgate_leases_total", Counter, "Leases that the store has granted.", one(store.leases));
        add("tollgate_leased_units_total", Counter, "Units of the granted leases.", one(store.leased_units));
        add("tollgate_held_units", Gauge, "Units of leases that are neither spent nor given back nor ended.", one(store.held_units));
    }

    fn decisions(&self) -> Vec<Sample<'_>> {
        self.by_outcome(|limit| Some((limit.allowed, limit.denied)))
    }

    /// Two samples for each limit that has values: those of allowed and of denied calls.
    fn by_outcome(&self, values: impl Fn(&LimitCounters) -> Option<(u64, u64)>) -> Vec<Sample<'_>> {
        let mut samples = Vec::new();
        for limit in &self.limits {
            let Some((allowed, denied)) = values(limit) else { continue };
            for (outcome, value) in [("allowed", allowed), ("denied", denied)] {
                let labels = vec![("limit", limit.name.as_str()), ("outcome", outcome)];
                samples.push(Sample { labels, value });
            }
        }
        samples
    }

    /// One sample for each limit that has a value.
    fn by_limit(&self, value: impl Fn(&LimitCounters) -> Option<u64>) -> Vec<Sample<'_>> {
        let named =
            self.limits.iter().filter_map(|limit| Some((limit.name.as_str(), value(limit)?)));
        named.map(|(name, value)| Sample { labels: vec![("limit", name)], value }).collect()
    }
}

fn one(value: u64) -> Vec<Sample<'static>> {
    vec![Sample { labels: Vec::new(), value }]
}
