//! Writes the counters in Prometheus' text format.

use std::fmt::{Display, Write as _};

use crate::observe::counters::Counters;
use crate::observe::sample::{Family, Kind};

impl Counters {
    /// Writes these counters as text: see [`Limiter::prometheus`](crate::Limiter::prometheus).
    pub(crate) fn prometheus(&self) -> String {
        let mut text = String::new();
        for family in self.families() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{family}");
        }
        text
    }
}

impl Display for Family<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Family { name, kind, help, samples } = self;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
        for sample in samples {
            f.write_str(name)?;
            for (i, (label, value)) in sample.labels.iter().enumerate() {
                let before = if i == 0 { '{' } else { ',' };
                write!(f, "{before}{label}=\"{}\"", Escaped(value))?;
            }
            let end = if sample.labels.is_empty() { "" } else { "}" };
            writeln!(f, "{end} {}", sample.value)?;
        }
        Ok(())
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
