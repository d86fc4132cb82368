//! Encodes and decodes the parameters of a snapshot's limits, and converts words that are counted in their units.

use std::time::Duration;

use super::format::Parameters;
use super::frames::FrameFault;
use crate::algorithm::Algorithm;
use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::TimedCount;
use crate::error::Error;
use crate::limit;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;

// The algorithms' numbers in a file. Each comment names the three parameters that a file has for the algorithm.
/// A custom algorithm: three zeros, and the algorithm's name.
const CUSTOM: u8 = 0;
/// Burst, count, period in nanoseconds.
const GCRA: u8 = 1;
/// Limit, window in milliseconds, 0.
const FIXED_WINDOW: u8 = 2;
/// Limit, window in milliseconds, burst.
const TOKEN_BUCKET: u8 = 3;
/// Size, drip rate in milliseconds, drip size.
const LEAKY_BUCKET: u8 = 4;

/// A limit of the snapshot, in whose units the file's words are counted.
pub(super) enum OldLimit {
    Limit(Limit),
    /// A custom algorithm, by its name.
    Custom(Box<str>),
}

/// Encodes a limit's parameters. `None`: its buckets are in no snapshot, because what was in flight ends with its process.
pub(super) fn encode(limit: &Limit) -> Option<Parameters<'_>> {
    use limit::Parameters as Of;
    // No cast loses bits: windows and drip rates are whole milliseconds below 2^39, and a period's nanoseconds fit into
    // a u64.
    let ms = |time: Duration| time.as_millis() as u64;
    let (algorithm, numbers, name) = match limit.parameters() {
        Of::Custom(rule) => (CUSTOM, [0; 3], rule.name()),
        Of::Gcra { burst, count, period } => (GCRA, [burst, count, period.as_nanos() as u64], ""),
        Of::FixedWindow { limit, window } => (FIXED_WINDOW, [limit, ms(window), 0], ""),
        Of::TokenBucket { limit, window, burst } => (TOKEN_BUCKET, [limit, ms(window), burst], ""),
        Of::LeakyBucket { size, drip_rate, drip_size } => {
            (LEAKY_BUCKET, [size, ms(drip_rate), drip_size], "")
        }
        Of::Concurrency { .. } => return None,
    };
    Some(Parameters { algorithm, numbers, name })
}

impl OldLimit {
    /// Decodes and validates parameters.
    pub(super) fn decode(parameters: &Parameters<'_>) -> Result<OldLimit, FrameFault> {
        let ms = Duration::from_millis;
        let damaged = || FrameFault::Damaged;
        let [a, b, c] = parameters.numbers;
        let limit: Result<Limit, Error> = match parameters.algorithm {
            CUSTOM => return Ok(OldLimit::Custom(parameters.name.into())),
            GCRA => Limit::new(a, b, Duration::from_nanos(c)),
            FIXED_WINDOW => Limit::fixed_window(a, ms(b)),
            TOKEN_BUCKET => Limit::token_bucket(c, a, ms(b)),
            LEAKY_BUCKET => Limit::leaky_bucket(a, c, ms(b)),
            _ => return Err(damaged()),
        };
        limit.map(OldLimit::Limit).map_err(|_| damaged())
    }

    pub(super) fn algorithm(&self) -> &str {
        match self {
            OldLimit::Limit(limit) => limit.algorithm(),
            OldLimit::Custom(name) => name,
        }
    }

    /// Returns whether words of this limit can be converted to words of `new`.
    pub(super) fn can_become(&self, new: &Limit) -> bool {
        match (self, new.rule()) {
            (OldLimit::Custom(name), Rule::Custom(rule)) => **name == *rule.name(),
            (OldLimit::Limit(_), Rule::Custom(_)) | (OldLimit::Custom(_), _) => false,
            (OldLimit::Limit(_), _) => true,
        }
    }

    /// Returns whether `word` can be a charged bucket's word under this limit.
    pub(super) fn has_word(&self, word: u64) -> bool {
        let has_time = match self {
            OldLimit::Limit(limit) if !matches!(limit.rule(), Rule::Gcra(_)) => {
                TimedCount::from_word(word).at_ms > 0
            }
            OldLimit::Limit(_) | OldLimit::Custom(_) => true,
        };
        word != 0 && word >> 63 == 0 && has_time
    }

    /// Converts a word's debt at `at_ns` to the units of `new`. Returns `None` if no debt remains, or if words of this
    /// limit cannot be converted to `new`.
    pub(super) fn convert(
        &self,
        carry_over: CarryOver,
        new: &Limit,
        word: u64,
        at_ns: u64,
    ) -> Option<u64> {
        match self {
            _ if !self.can_become(new) => None,
            OldLimit::Limit(old) => carry_over.converted(old, new, word, at_ns),
            // The file does not say whether the algorithm is still the same one.
            OldLimit::Custom(_) => (carry_over != CarryOver::Afresh).then_some(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_limits_decode_to_the_same() {
        let time = Duration::from_millis(1500);
        for limit in [
            Limit::new(20, 10, Duration::from_nanos(1_500_000_001)).unwrap(),
            Limit::fixed_window(20, time).unwrap(),
            Limit::token_bucket(5, 20, time).unwrap(),
            Limit::leaky_bucket(20, 3, time).unwrap(),
        ] {
            let decoded = OldLimit::decode(&encode(&limit).unwrap());
            assert!(matches!(decoded, Ok(OldLimit::Limit(ref old)) if *old == limit), "{limit}");
        }
    }

    #[test]
    fn invalid_parameters_are_damage() {
        for (algorithm, numbers) in [
            (GCRA, [0, 1, 1]),
            (FIXED_WINDOW, [1, 0, 0]),
            (TOKEN_BUCKET, [1, 1_000, 2]),
            (LEAKY_BUCKET, [1 << 32, 1_000, 1]),
            (LEAKY_BUCKET + 1, [1, 1_000, 1]),
        ] {
            let parameters = Parameters { algorithm, numbers, name: "" };
            assert!(
                matches!(OldLimit::decode(&parameters), Err(FrameFault::Damaged)),
                "{numbers:?}"
            );
        }
    }
}
