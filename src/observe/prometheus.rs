//! Writes the counters in Prometheus' text format.

use std::fmt::{Display, Write as _};

use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::observe::counters::{Counters, LimitCounters};

/// One family of samples, with one sample per limit.
struct LimitFamily {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    read: fn(&LimitCounters) -> Option<u64>,
}

/// The families with one sample per limit. The decisions, with two samples per limit, are written apart.
const LIMIT_FAMILIES: [LimitFamily; 7] = [
    LimitFamily {
        name: "tollgate_near_total",
        kind: COUNTER,
        help: "Allowed spends that left less than a fifth of the burst.",
        read: |limit| Some(limit.near),
    },
    LimitFamily {
        name: "tollgate_cost_total",
        kind: COUNTER,
        help: "Cost of the allowed spends, in units.",
        read: |limit| Some(limit.cost),
    },
    LimitFamily {
        name: "tollgate_shadow_denied_total",
        kind: COUNTER,
        help: "Spends that a limit in shadow mode, or the shadow beside a limit, would have denied.",
        read: |limit| Some(limit.shadow_denied),
    },
    LimitFamily {
        name: "tollgate_errors_total",
        kind: COUNTER,
        help: "Calls that failed: a bad id, or a cost above the burst.",
        read: |limit| Some(limit.errors),
    },
    LimitFamily {
        name: "tollgate_limit_burst",
        kind: GAUGE,
        help: "The most that a bucket holds by default, in units.",
        read: |limit| limit.numbers.as_ref().map(Limit::burst),
    },
    LimitFamily {
        name: "tollgate_limit_enforced",
        kind: GAUGE,
        help: "1 if the limit denies, 0 if it is in shadow mode.",
        read: |limit| Some(u64::from(limit.mode == LimitMode::Enforce)),
    },
    LimitFamily {
        name: "tollgate_limit_shadow_burst",
        kind: GAUGE,
        help: "The most that a bucket of the shadow holds, in units.",
        read: |limit| limit.shadow.as_ref().map(Limit::burst),
    },
];

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// The families that are left out if the limiter does not count.
const COUNTED_FAMILIES: [&str; 3] =
    ["tollgate_near_total", "tollgate_cost_total", "tollgate_errors_total"];

impl Counters {
    /// Writes these counters as text: see [`Limiter::prometheus`](crate::Limiter::prometheus).
    pub fn prometheus(&self) -> String {
        let mut text = Text::default();
        if self.is_counting {
            text.family("tollgate_decisions_total", COUNTER, "Spends by limit and outcome.");
            for limit in &self.limits {
                for (outcome, count) in [("allowed", limit.allowed), ("denied", limit.denied)] {
                    let labels = [("limit", &*limit.name), ("outcome", outcome)];
                    text.sample("tollgate_decisions_total", &labels, count);
                }
            }
        }
        for family in &LIMIT_FAMILIES {
            if !self.is_counting && COUNTED_FAMILIES.contains(&family.name) {
                continue;
            }
            text.family(family.name, family.kind, family.help);
            for limit in &self.limits {
                if let Some(value) = (family.read)(limit) {
                    text.sample(family.name, &[("limit", &*limit.name)], value);
                }
            }
        }
        self.write_stats(&mut text);
        text.0
    }

    fn write_stats(&self, text: &mut Text) {
        let stats = &self.stats;
        text.one("tollgate_keys", GAUGE, "Buckets in the table.", stats.cells);
        text.one("tollgate_table_bytes", GAUGE, "Memory of the table.", stats.bytes);
        text.one("tollgate_swept_total", COUNTER, "Full buckets that were dropped.", stats.swept);
        text.family("tollgate_overflow_total", COUNTER, "Calls for new keys that found no room.");
        for (outcome, count) in stats.overflow() {
            text.sample("tollgate_overflow_total", &[("outcome", outcome)], count);
        }
        text.one("tollgate_sweep_panics_total", COUNTER, "Sweeps that panicked.", stats.panics);
        let generation = self.generation;
        text.one("tollgate_limits_generation", GAUGE, "Number of the limits.", generation);
        let errors = self.reload_errors;
        text.one("tollgate_reload_errors_total", COUNTER, "Reloads that were refused.", errors);
        if let Some(seconds) = self.last_reload_s() {
            let help = "When a reload was last done, in seconds since 1970.";
            text.one("tollgate_last_reload_timestamp_seconds", GAUGE, help, seconds);
        }
    }
}

/// The text written so far. Writing to a string cannot fail.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", Escaped(value));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Writes a family of one sample.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A label's value, escaped as the format requires.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_labels_value_is_escaped() {
        assert_eq!(Escaped("a\\b\"c\nd").to_string(), "a\\\\b\\\"c\\nd");
    }
}
