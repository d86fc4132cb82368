//! A limit divided by a factor.

use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::clock::MAX_NOW_NS;
use crate::error::{Error, ErrorKind};
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
    /// custom algorithm supports no factors.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if a parameter leaves its range, or if the limit is a custom algorithm.
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
            Rule::Concurrency(_) | Rule::Custom(_) => Err(LimitFault {
                field: "factor",
                message: format!(
                    "{} does not support factors: only 0 and 1 are allowed",
                    self.rule().name()
                ),
            }),
        }
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
