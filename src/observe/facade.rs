//! Publishes the counters to the crate `metrics`.

use metrics::{Label, counter, gauge};

use crate::observe::counters::Counters;
use crate::observe::sample::Kind;

impl Counters {
    /// Publishes these counters: see [`Limiter::publish_metrics`](crate::Limiter::publish_metrics).
    pub(crate) fn publish(&self) {
        for family in self.families() {
            for sample in family.samples {
                let label =
                    |(name, value): (&'static str, &str)| Label::new(name, value.to_owned());
                let labels: Vec<Label> = sample.labels.into_iter().map(label).collect();
                match family.kind {
                    Kind::Counter => counter!(family.name, labels).absolute(sample.value),
                    Kind::Gauge => gauge!(family.name, labels).set(sample.value as f64),
                }
            }
        }
    }
}
