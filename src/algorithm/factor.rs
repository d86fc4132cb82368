//! A factor: how much more or less than the limit a caller may spend.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::util::decimal::{self, Decimal};
use crate::util::escape::quoted;

/// A number by which a limit is divided for one caller, such as a factor for its role. 2 halves the limit, 0.5 doubles it,
/// 1 changes nothing, and 0 means no limit.
///
/// It is an exact decimal with at most six digits after the point, at most 18446744073709.551615. A floating-point number
/// is converted to the shortest decimal that reads back as the same number.
///
/// # Example: a factor of 0.5
///
/// ```
/// use std::time::Duration;
/// use tollgate::limit::Factor;
/// use tollgate::Limit;
///
/// let factor: Factor = "0.5".parse()?;
/// assert_eq!(factor, Factor::try_from(0.5)?);
/// let limit = Limit::leaky_bucket(10, 1, Duration::from_millis(100))?;
/// let doubled = Limit::leaky_bucket(20, 1, Duration::from_millis(50))?;
/// assert_eq!(limit.scaled(factor)?, Some(doubled));
/// assert_eq!(limit.scaled(Factor::ZERO)?, None);
/// assert!(Factor::try_from(-1.0).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(Decimal);

impl Factor {
    /// 0: no limit applies.
    pub const ZERO: Factor = Factor(Decimal { millionths: 0 });

    /// 1: the limit applies unchanged.
    pub const ONE: Factor = Factor(Decimal::ONE);

    /// The factor in millionths: 500000 for 0.5.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::limit::Factor;
    ///
    /// assert_eq!("0.5".parse::<Factor>()?.millionths(), 500_000);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub const fn millionths(self) -> u64 {
        self.0.millionths
    }

    /// Makes a factor of `millionths` / 1,000,000.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::limit::Factor;
    ///
    /// const HALF: Factor = Factor::from_millionths(500_000);
    /// assert_eq!(HALF.to_string(), "0.5");
    /// ```
    pub const fn from_millionths(millionths: u64) -> Factor {
        Factor(Decimal { millionths })
    }

    /// Computes `number / factor`, rounded up, at least 1; `None` above `u64`. The factor is not 0.
    pub(crate) fn divide(self, number: u64) -> Option<u64> {
        let millions = u128::from(number) * u128::from(decimal::ONE);
        u64::try_from(millions.div_ceil(u128::from(self.0.millionths.max(1))).max(1)).ok()
    }

    /// Computes `number * factor`, rounded up, at least 1; `None` above `u64`.
    pub(crate) fn multiply(self, number: u64) -> Option<u64> {
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
    /// [`Error::is_invalid_limit`] if the text is no decimal, is negative, has more than six digits after the point,
    /// or is above 18446744073709.551615.
    fn from_str(text: &str) -> Result<Factor, Error> {
        Decimal::parse(text).map(Factor).map_err(|reason| {
            Error::new(ErrorKind::Limit, format!("invalid factor {}: {reason}", quoted(text, 64)))
        })
    }
}

impl TryFrom<f64> for Factor {
    type Error = Error;

    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the number is negative, not finite, has more than six digits after the point,
    /// or is above 18446744073709.551615.
    fn try_from(number: f64) -> Result<Factor, Error> {
        Decimal::from_f64(number).map(Factor).map_err(|reason| {
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
