//! Publishes the counters to the crate `metrics`.

use metrics::{counter, gauge};

use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::observe::counters::{Counters, LimitCounters};

impl Counters {
    /// Publishes these counters: see [`Limiter::publish_metrics`](crate::Limiter::publish_metrics).
    pub fn publish(&self) {
        for limit in &self.limits {
            self.publish_limit(limit);
        }
        let stats = &self.stats;
        gauge!("tollgate_keys").set(stats.cells as f64);
        gauge!("tollgate_table_bytes").set(stats.bytes as f64);
        counter!("tollgate_swept_total").absolute(stats.swept);
        counter!("tollgate_sweep_panics_total").absolute(stats.panics);
        for (outcome, count) in stats.overflow() {
            counter!("tollgate_overflow_total", "outcome" => outcome).absolute(count);
        }
        gauge!("tollgate_limits_generation").set(self.generation as f64);
        counter!("tollgate_reload_errors_total").absolute(self.reload_errors);
        if let Some(seconds) = self.last_reload_s() {
            gauge!("tollgate_last_reload_timestamp_seconds").set(seconds as f64);
        }
    }

    fn publish_limit(&self, limit: &LimitCounters) {
        let name = || limit.name.clone();
        if self.is_counting {
            for (outcome, count) in [("allowed", limit.allowed), ("denied", limit.denied)] {
                let family = "tollgate_decisions_total";
                counter!(family, "limit" => name(), "outcome" => outcome).absolute(count);
            }
            counter!("tollgate_near_total", "limit" => name()).absolute(limit.near);
            counter!("tollgate_cost_total", "limit" => name()).absolute(limit.cost);
            counter!("tollgate_errors_total", "limit" => name()).absolute(limit.errors);
        }
        counter!("tollgate_shadow_denied_total", "limit" => name()).absolute(limit.shadow_denied);
        let is_enforced = limit.mode == LimitMode::Enforce;
        gauge!("tollgate_limit_enforced", "limit" => name()).set(f64::from(u8::from(is_enforced)));
        if let Some(burst) = limit.numbers.as_ref().map(Limit::burst) {
            gauge!("tollgate_limit_burst", "limit" => name()).set(burst as f64);
        }
        if let Some(burst) = limit.shadow.as_ref().map(Limit::burst) {
            gauge!("tollgate_limit_shadow_burst", "limit" => name()).set(burst as f64);
        }
    }
}
