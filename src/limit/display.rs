//! The text of a limit, with the field names of limits files.

use std::fmt;
use std::time::Duration;

use crate::limit::{Limit, ParameterValue, Parameters};

/// Writes the parameters as a file has them: `burst 20, count 10, period 1s`. The name of any other algorithm than gcra
/// comes first: `fixed_window: limit 10, window 1m`.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// let limit = Limit::new(300, 300, Duration::from_secs(3 * 3600))?;
/// assert_eq!(limit.to_string(), "burst 300, count 300, period 3h");
/// let limit = Limit::leaky_bucket(10, 1, Duration::from_millis(1250))?;
/// assert_eq!(limit.to_string(), "leaky_bucket: size 10, drip_rate 1s250ms, drip_size 1");
/// # Ok::<(), tollgate::Error>(())
/// ```
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters();
        if let Parameters::Custom(rule) = parameters {
            return write!(f, "{}: largest cost {}", rule.name(), self.burst());
        }
        if self.rule().gcra().is_none() {
            write!(f, "{}: ", self.algorithm())?;
        }
        for (at, (name, value)) in parameters.named().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            match value {
                ParameterValue::Units(units) => write!(f, "{before}{name} {units}")?,
                ParameterValue::Time(time) => write!(f, "{before}{name} {}", Go(time))?,
            }
        }
        Ok(())
    }
}

/// A duration in Go's notation, as files have it: `1h30m`.
pub(crate) struct Go(pub(crate) Duration);

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u128); 6] = [
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ];
        let mut left_ns = self.0.as_nanos();
        if left_ns == 0 {
            return f.write_str("0s");
        }
        for (unit, unit_ns) in UNITS {
            let (whole, rest_ns) = (left_ns / unit_ns, left_ns % unit_ns);
            if whole > 0 {
                write!(f, "{whole}{unit}")?;
            }
            left_ns = rest_ns;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn parameters_have_the_names_of_files() {
        for (limit, text) in [
            (Limit::new(20, 10, SECOND), "burst 20, count 10, period 1s"),
            (Limit::fixed_window(10, 60 * SECOND), "fixed_window: limit 10, window 1m"),
            (
                Limit::token_bucket(3, 15, 90 * SECOND),
                "token_bucket: limit 15, window 1m30s, burst 3",
            ),
        ] {
            assert_eq!(limit.unwrap().to_string(), text);
        }
    }

    #[test]
    fn durations_are_in_gos_notation() {
        for (ns, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1us500ns"),
            (250_000_000, "250ms"),
            (3_600_000_000_000, "1h"),
            (604_800_000_000_000, "168h"),
            (3_661_001_001_001, "1h1m1s1ms1us1ns"),
        ] {
            assert_eq!(Go(Duration::from_nanos(ns)).to_string(), text);
        }
    }
}
