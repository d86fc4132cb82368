//! A caller's multiplier on a limit, and the limit that it makes.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::gcra;
use crate::algorithm::rule::Rule;
use crate::error::{Error, ErrorKind};
use crate::limit::decimal::{self, Decimal};
use crate::limit::{Limit, LimitFault};

/// A caller's multiplier on a limit, such as that of a role: how costly the caller is. 2 halves what is
/// allowed, 0.5 doubles it, 1 changes nothing, and 0 is no limit.
///
/// It is a decimal with at most six digits after the point, at most 18446744073709.551615, and is taken
/// exactly; a number in floating point is taken as the shortest decimal that reads back as it.
///
/// # Example: what a factor of 0.5 makes of a limit
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Factor, Limit};
///
/// let factor: Factor = "0.5".parse()?;
/// assert_eq!(factor, Factor::try_from(0.5)?);
/// let limit = Limit::leaky_bucket(10, Duration::from_millis(100), 1)?;
/// let doubled = Limit::leaky_bucket(20, Duration::from_millis(50), 1)?;
/// assert_eq!(limit.scaled(factor)?, Some(doubled));
/// assert_eq!(limit.scaled(Factor::ZERO)?, None);
/// assert!(Factor::try_from(-1.0).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(Decimal);

impl Factor {
    /// No limit.
    pub const ZERO: Factor = Factor(Decimal { millionths: 0 });

    /// The limit as it is.
    pub const ONE: Factor = Factor(Decimal::ONE);

    /// The factor in millionths: 500000 for 0.5.
    pub const fn millionths(self) -> u64 {
        self.0.millionths
    }

    /// A factor of so many millionths.
    pub const fn from_millionths(millionths: u64) -> Factor {
        Factor(Decimal { millionths })
    }

    /// `number / factor`, rounded up, at least 1; `None` above u64. The factor is not 0.
    fn divide(self, number: u64) -> Option<u64> {
        let millions = u128::from(number) * u128::from(decimal::ONE);
        u64::try_from(millions.div_ceil(u128::from(self.0.millionths.max(1))).max(1)).ok()
    }

    /// `number * factor`, rounded up, at least 1; `None` above u64.
    fn multiply(self, number: u64) -> Option<u64> {
        let millionths = u128::from(number) * u128::from(self.0.millionths);
        u64::try_from(millionths.div_ceil(u128::from(decimal::ONE)).max(1)).ok()
    }
}

impl Default for Factor {
    fn default() -> Factor {
        Factor::ONE
    }
}

impl FromStr for Factor {
    type Err = Error;

    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] for what is no decimal, is negative, or has more than six digits
    /// after the point.
    fn from_str(text: &str) -> Result<Factor, Error> {
        Decimal::parse(text).map(Factor).map_err(|reason| {
            Error::new(ErrorKind::Limit, format!("invalid factor {text:?}: {reason}"))
        })
    }
}

impl TryFrom<f64> for Factor {
    type Error = Error;

    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] for what is negative, not finite, or has more than six digits after
    /// the point.
    fn try_from(number: f64) -> Result<Factor, Error> {
        Decimal::of_f64(number).map(Factor).map_err(|reason| {
            Error::new(ErrorKind::Limit, format!("invalid factor {number}: {reason}"))
        })
    }
}

impl From<u32> for Factor {
    fn from(number: u32) -> Factor {
        Factor::from_millionths(u64::from(number) * decimal::ONE)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Factor({self})")
    }
}

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
    /// ([`Algorithm::scaled`](crate::Algorithm::scaled)).
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
            Rule::Own(rule) => match rule.scaled(factor) {
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
    if emission_interval_ns > gcra::MAX_NOW_NS {
        return Err(LimitFault {
            field: "period",
            message: format!(
                "invalid emission interval of {emission_interval_ns} ns or more: at most {} ns is allowed",
                gcra::MAX_NOW_NS
            ),
        });
    }
    Limit::validate(burst, 1, emission_interval_ns)
}
