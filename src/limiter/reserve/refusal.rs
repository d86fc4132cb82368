//! Why nobody waits.

use std::fmt;
use std::time::Duration;

use crate::error::Error;

/// Why a place was not taken. It is known at once, before anybody has waited, and nothing was charged.
///
/// # Example: not in time, and never
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
/// use tollgate::reserve::ReserveError;
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// let users = limiter.limit("PerUser")?;
/// assert!(users.spend("alice", 1)?.allowed());
/// let late = users.reserve("alice", 1, Duration::from_secs(5)).unwrap_err();
/// assert!(matches!(late, ReserveError::NotInTime { needed } if needed > Duration::from_secs(50)));
/// assert!(users.reserve("alice", 2, Duration::MAX).unwrap_err().is_never());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ReserveError {
    /// The place would be granted later than the caller would wait.
    NotInTime {
        /// The time that it takes, to the nanosecond.
        needed: Duration,
    },
    /// There is no place so far ahead: the limiter's clock ends after 146 years, and for limits that count
    /// whole milliseconds after 17 or when 16777215 units wait; a limit of one's own gives places only if
    /// it has an [`Algorithm::reserve`](crate::algorithm::Algorithm::reserve).
    TooFarAhead,
    /// There is no room for the key's bucket, under [`AtCap::Deny`](crate::options::AtCap::Deny).
    NoRoom,
    /// The id is [blocked](crate::KeyedLimit::block): no places are given until that ends.
    Blocked {
        /// The time until the block ends.
        left: Duration,
    },
    /// The call was wrong: the id, or a cost that is above the burst and so never allowed.
    Wrong(Error),
}

impl ReserveError {
    /// Whether waiting longer would help.
    pub fn is_not_in_time(&self) -> bool {
        matches!(self, ReserveError::NotInTime { .. })
    }

    /// Whether the cost is more than the bucket can ever hold.
    pub fn is_never(&self) -> bool {
        matches!(self, ReserveError::Wrong(error) if error.is_cost_above_burst())
    }

    /// Whether the id is [blocked](crate::KeyedLimit::block).
    pub fn is_blocked(&self) -> bool {
        matches!(self, ReserveError::Blocked { .. })
    }

    /// The time that the place takes, if that is why.
    pub fn needed(&self) -> Option<Duration> {
        match self {
            ReserveError::NotInTime { needed } => Some(*needed),
            _ => None,
        }
    }
}

impl From<Error> for ReserveError {
    fn from(error: Error) -> ReserveError {
        ReserveError::Wrong(error)
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::NotInTime { needed } => {
                write!(
                    f,
                    "not in time: allowed in {needed:?}, which is longer than the caller would wait"
                )
            }
            ReserveError::TooFarAhead => {
                f.write_str("too far ahead: the limit has no place that late")
            }
            ReserveError::Blocked { left } => {
                write!(f, "blocked: the block of the id ends in {left:?}")
            }
            ReserveError::NoRoom => f.write_str("no room: as many keys have a bucket as may"),
            ReserveError::Wrong(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReserveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReserveError::Wrong(error) => Some(error),
            _ => None,
        }
    }
}
