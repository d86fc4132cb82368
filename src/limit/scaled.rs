//! A limit divided by a factor.

use crate::algorithm::Charge;
use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::clock::MAX_NOW_NS;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::used_units;
use crate::limit::{Limit, LimitFault};

impl Limit {
    /// Computes the limit for a caller with a factor. `None` for a factor of 0: no limit applies.
    ///
    /// | algorithm | parameters of the result |
    /// |---|---|
    /// | gcra | `burst / factor`, emission interval `* factor` |
    /// | fixed_window | `limit / factor` |
    /// | token_bucket | `limit / factor`, `burst / factor` |
    /// | leaky_bucket | `size / factor`, `drip_rate * factor` |
    ///
    /// All are rounded up and at least 1. A scaled gcra limit has a count of 1 and its emission interval as its period. A
    /// custom algorithm computes its own result ([`Algorithm::scaled`](crate::algorithm::Algorithm::scaled)).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if a parameter leaves its range, or if a custom algorithm does not support factors.
    ///
    /// # Example: half the limit
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let halved = limit.scaled("2".parse()?)?.expect("a factor other than 0");
    /// assert_eq!(halved.to_string(), "burst 10, count 1, period 200ms");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn scaled(&self, factor: Factor) -> Result<Option<Limit>, Error> {
        if factor == Factor::ZERO {
            return Ok(None);
        }
        if factor == Factor::ONE {
            return Ok(Some(self.clone()));
        }
        self.multiplied(factor).map(Some).map_err(|fault| {
            Error::new(ErrorKind::Limit, format!("with factor {factor}: {}", fault.message))
        })
    }

    fn multiplied(&self, factor: Factor) -> Result<Limit, LimitFault> {
        // A result above `u64` is out of every range, and gets that range's error.
        let divide = |number: u64| factor.divide(number).unwrap_or(u64::MAX);
        let multiply = |number: u64| factor.multiply(number).unwrap_or(u64::MAX);
        match self.rule() {
            Rule::Gcra(rule) => {
                scaled_gcra(divide(rule.burst()), multiply(rule.emission_interval_ns()))
            }
            Rule::Window(rule) => Limit::from_window(
                rule.kind,
                divide(rule.quota.into()),
                rule.window_ms,
                divide(rule.burst.into()),
            ),
            Rule::LeakyBucket(rule) => Limit::from_drips(
                divide(rule.size.into()),
                multiply(rule.drip_rate_ms),
                rule.drip_size.into(),
            ),
            Rule::Custom(rule) => match rule.scaled(factor) {
                Some(scaled) => Limit::validate_custom(scaled),
                None => Err(LimitFault {
                    field: "factor",
                    message: format!(
                        "{} does not support factors: only 0 and 1 are allowed",
                        rule.name()
                    ),
                }),
            },
        }
    }

    /// Returns the units that a charge by the limit `scaled`, on the word `before`, lets drip out of a leaky bucket of this
    /// limit beyond those that drip out by this limit: 0 for the other algorithms, and for factors from 1.
    pub(crate) fn drained_early(&self, scaled: &Limit, before: u64, now_ns: u64) -> u64 {
        match (self.rule(), scaled.rule()) {
            (Rule::LeakyBucket(own), Rule::LeakyBucket(scaled)) => {
                own.found_by(scaled, (before, before), now_ns).drained_early()
            }
            _ => 0,
        }
    }

    /// Rolls back a charge that was made by the limit `scaled`, or by this limit if they are equal. Other calls see the
    /// bucket by this limit: by the scaled one an ended window may be open, and units may drip out that others do not
    /// count. `own_before`: the word before the charge as others saw it; that of the charge, but after leases. Returns the new word, or `None` to leave the word as it is. `now_ns`: as in
    /// [`Algorithm::roll_back`](crate::algorithm::Algorithm::roll_back).
    pub(crate) fn rolled_back(
        &self,
        scaled: &Limit,
        word: u64,
        (charge, own_before): (Charge, u64),
        now_ns: &dyn Fn() -> u64,
    ) -> Option<u64> {
        if self == scaled || charge.is_last(word) {
            let charge = Charge { before: own_before, ..charge };
            return self.rule().roll_back(word, charge, now_ns);
        }
        if let (Rule::LeakyBucket(own), Rule::LeakyBucket(scaled)) = (self.rule(), scaled.rule()) {
            // The charge charges no units that were in the bucket before by either of the two limits.
            let before = own.found_by(scaled, (charge.before, own_before), charge.now_ns);
            let before = before.word_before();
            return self.rule().roll_back(word, Charge { before, ..charge }, now_ns);
        }
        let owing = self.owing_removed(word, charge, now_ns());
        owing.or_else(|| self.rule().roll_back(word, charge, now_ns))
    }

    /// Adds to `word` the units that `charge`, by a scaled limit, has removed from a bucket of this limit, because a scaled
    /// window that owes units loses more of them. `None` if it has removed none.
    fn owing_removed(&self, word: u64, charge: Charge, now_ns: u64) -> Option<u64> {
        // At the charge's time: later, what other calls have charged would have passed after these units.
        let used = |word| used_units(self.rule(), word, charge.now_ns);
        let removed = used(charge.before)?.checked_sub(used(charge.after)?)?;
        if removed == 0 {
            return None;
        }
        self.rule().owe(word, now_ns, removed, self.debt_room())
    }
}

fn scaled_gcra(burst: u64, emission_interval_ns: u64) -> Result<Limit, LimitFault> {
    if emission_interval_ns > MAX_NOW_NS {
        return Err(LimitFault {
            field: "period",
            message: format!(
                "invalid emission interval of {emission_interval_ns} ns or more: at most {} ns is allowed",
                MAX_NOW_NS
            ),
        });
    }
    Limit::validate(burst, 1, emission_interval_ns)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A rollback relies on it: by the limit itself, reservations with a factor seem to be granted later, never earlier.
        #[test]
        fn scaled_burst_offset_is_never_smaller(
            burst in 1..1_000_000_u64,
            interval_ns in 1..10_000_000_000_u64,
            millionths in prop_oneof![1..2_000_000_u64, 1..10_000_000_000_u64],
        ) {
            let limit = Limit::new(burst, 1, Duration::from_nanos(interval_ns)).unwrap();
            if let Ok(Some(scaled)) = limit.scaled(Factor::from_millionths(millionths)) {
                prop_assert!(scaled.burst_offset() >= limit.burst_offset(), "{limit} {scaled}");
            }
        }
    }
}
