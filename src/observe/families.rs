//! Lists the metrics of a limiter, for all exporters.

use std::time::UNIX_EPOCH;

use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::observe::counters::{Counters, LimitCounters};
#[cfg(feature = "tower")]
use crate::observe::rejections::RejectionKind;
use crate::observe::sample::{Family, Kind, Sample, one};
use crate::observe::shared::{SharedCounts, add_shared};

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
        if let Some(store) = &self.store {
            let by_outcome = |of: fn(&SharedCounts) -> (u64, u64)| self.by_outcome(|limit| limit.shared.as_ref().map(of));
            add_shared(store, self.is_counting, by_outcome, &mut add);
        }
        if self.is_counting {
            add("tollgate_errors_total", Counter, "Calls that failed, such as by a bad id or a cost above the burst.",
                self.by_limit(|limit| Some(limit.errors)));
        }
        #[cfg(feature = "tower")]
        if let Some(counts) = &self.rejected {
            let sample = |(kind, &value): (&RejectionKind, _)| Sample { labels: vec![("reason", kind.name())], value };
            add("tollgate_rejected_total", Counter, "Requests that an HTTP layer rejected before a limit decided.",
                RejectionKind::ALL.iter().zip(counts).map(sample).collect());
        }
        add("tollgate_in_flight", Gauge, "Permits that are out.", self.by_limit(|limit| limit.in_flight));
        add("tollgate_limit_burst", Gauge, "The most that a bucket holds by default, in units.",
            self.by_limit(|limit| limit.limit.as_ref().map(Limit::burst)));
        add("tollgate_limit_enforced", Gauge, "1 if the limit denies, 0 if it is off or in shadow mode.",
            self.by_limit(|limit| Some(u64::from(limit.enabled && limit.mode == LimitMode::Enforce))));
        add("tollgate_limit_shadow_burst", Gauge, "The most that a bucket of the shadow holds, in units.",
            self.by_limit(|limit| limit.shadow.as_ref().map(Limit::burst)));
        let stats = &self.stats;
        add("tollgate_keys", Gauge, "Buckets in the table.", one(stats.cells as u64));
        add("tollgate_table_bytes", Gauge, "Memory of the table.", one(stats.bytes as u64));
        add("tollgate_swept_total", Counter, "Full buckets that were dropped.", one(stats.swept));
        add("tollgate_overflow_total", Counter, "Calls for new keys that found no room.", vec![
            Sample { labels: vec![("outcome", "overflowed")], value: stats.overflowed },
            Sample { labels: vec![("outcome", "denied")], value: stats.denied_at_cap },
            Sample { labels: vec![("outcome", "allowed")], value: stats.allowed_at_cap },
        ]);
        add("tollgate_sweep_panics_total", Counter, "Sweeps that panicked.", one(stats.panics));
        add("tollgate_limits_generation", Gauge, "Number of the limits.", one(self.generation));
        add("tollgate_reload_errors_total", Counter, "Reloads that were refused.", one(self.reload_errors));
        add("tollgate_limits_removed_total", Counter, "Limits that reloads took away.", one(self.limits_removed));
        let last_reload = self.last_reload.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        if let Some(since) = last_reload {
            add("tollgate_last_reload_timestamp_seconds", Gauge,
                "When a reload was last done, in seconds since 1970.", one(since.as_secs()));
        }
        families
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
