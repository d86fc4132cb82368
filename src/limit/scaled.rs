//! The limit that a factor makes of a limit.

use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::clock::MAX_NOW_NS;
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, LimitFault};

impl Limit {
    /// The limit for a caller with a factor: `None`, which is no limit, for a factor of 0.
    ///
    /// | algorithm | what it makes |
    /// |---|---|
    /// | gcra | `burst / factor`, emission interval `* factor` |
    /// | fixed_window | `limit / factor` |
    /// | token_bucket | `limit / factor`, `burst / factor` |
    /// | leaky_bucket | `size / factor`, `drip_rate * factor` |
    ///
    /// All are rounded up and at least 1. A gcra limit that was scaled has a count of 1 and its emission
    /// interval as its period. A rule of one's own says itself what it makes
    /// ([`Algorithm::scaled`](crate::algorithm::Algorithm::scaled)).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] when a number leaves its range, and for a rule of one's own that has
    /// no scale.
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
        // What is above u64 is out of every range; the ranges' own messages say so.
        let divide = |number: u64| factor.divide(number).unwrap_or(u64::MAX);
        let multiply = |number: u64| factor.multiply(number).unwrap_or(u64::MAX);
        match self.rule() {
            Rule::Gcra(rule) => {
                scaled_gcra(divide(rule.burst()), multiply(rule.emission_interval_ns()))
            }
            Rule::FixedWindow(rule) => {
                Limit::of_fixed_window(divide(rule.limit.into()), rule.window)
            }
            Rule::TokenBucket(rule) => Limit::of_token_bucket(
                divide(rule.limit.into()),
                rule.window,
                divide(rule.burst.into()),
            ),
            Rule::LeakyBucket(rule) => Limit::of_leaky_bucket(
                divide(rule.size.into()),
                multiply(rule.drip_rate_ms),
                rule.drip_size.into(),
            ),
            Rule::Custom(rule) => match rule.scaled(factor) {
                Some(scaled) => Limit::of_own(scaled),
                None => Err(LimitFault {
                    field: "factor",
                    message: format!("{} has no scale: only 0 and 1 are allowed", rule.name()),
                }),
            },
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
