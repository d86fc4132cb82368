//! Defines [`ReserveError`].

use std::fmt;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::reserve::claim::Refused;

/// Says why no reservation was made, or why a wait ended without units. Nothing was charged. Under gcra the error comes at once,
/// before any wait. Under other algorithms it may also come after a wait, if another caller took the units or the id was blocked.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{KeyedLimit, Limit};
/// use tollgate::reserve::ReserveError;
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let users = KeyedLimit::new("PerUser", limit)?;
/// assert!(users.spend("alice", 1)?.allowed());
/// let late = users.reserve("alice", 1, Duration::from_secs(5)).unwrap_err();
/// assert!(matches!(late, ReserveError::NotInTime { needed } if needed > Duration::from_secs(50)));
/// assert!(users.reserve("alice", 2, Duration::MAX).unwrap_err().is_never());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReserveError {
    /// The units come later than the caller is willing to wait.
    NotInTime {
        /// The time from this error until a new place would be granted, to the nanosecond. A place that another caller has
        /// cancelled may be granted earlier.
        needed: Duration,
    },
    /// The limit grants no reservation that late: reservations end with the limiter's clock, after 146 years.
    TooFarAhead,
    /// The limit's algorithm grants no units in the future: only gcra does. Calls that wait
    /// ([`until_allowed`](crate::KeyedLimit::until_allowed)) work for all algorithms.
    NoPlaces {
        /// The name of the algorithm.
        algorithm: &'static str,
    },
    /// The table is full, and has no room for the key's bucket: see [`Decision::out_of_room`](crate::Decision::out_of_room).
    NoRoom,
    /// The id is [blocked](crate::KeyedLimit::block), and gets no reservation until the block ends.
    Blocked {
        /// The time until the block ends.
        left: Duration,
    },
    /// The call itself is invalid: its id, or a cost that is above the burst and so never allowed. For a limit that nodes share
    /// also that it is leased, or that the store has failed.
    Wrong(Error),
}

impl ReserveError {
    /// Says why a call was denied.
    /// Explains the denial of a batch for which no wait helps in time.
    pub(crate) fn of_batch(denial: Decision) -> ReserveError {
        match (denial.blocked(), denial.out_of_room()) {
            (true, _) => ReserveError::Blocked { left: denial.retry_in() },
            (_, true) => ReserveError::NoRoom,
            _ => ReserveError::NotInTime { needed: denial.retry_in() },
        }
    }

    pub(super) fn from_denial(refused: Option<Refused>, decision: Decision) -> ReserveError {
        match refused {
            Some(Refused::Blocked { left_ns }) => {
                ReserveError::Blocked { left: Duration::from_nanos(left_ns) }
            }
            Some(Refused::NoRoom) => ReserveError::NoRoom,
            Some(Refused::TooFarAhead) => ReserveError::TooFarAhead,
            Some(Refused::NoPlaces { algorithm }) => ReserveError::NoPlaces { algorithm },
            None => ReserveError::NotInTime { needed: decision.retry_in() },
        }
    }

    /// Whether a longer wait would get a reservation.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.spend("alice", 5)?.allowed());
    /// let error = users.reserve("alice", 1, Duration::ZERO).unwrap_err();
    /// assert!(error.is_not_in_time() && !error.is_never());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_not_in_time(&self) -> bool {
        matches!(self, ReserveError::NotInTime { .. })
    }

    /// Whether the cost is above the burst, so that no wait helps.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let error = users.reserve("alice", 6, Duration::MAX).unwrap_err(); // the burst is 5
    /// assert!(error.is_never() && error.needed().is_none());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_never(&self) -> bool {
        matches!(self, ReserveError::Wrong(error) if error.is_cost_above_burst())
    }

    /// Whether the id is [blocked](crate::KeyedLimit::block).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// users.block("mallory", Duration::from_secs(60))?;
    /// assert!(users.reserve("mallory", 1, Duration::MAX).unwrap_err().is_blocked());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_blocked(&self) -> bool {
        matches!(self, ReserveError::Blocked { .. })
    }

    /// Whether the limit's algorithm has no reservations: only gcra has.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// let limit = Limit::fixed_window(5, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let error = limiter.limit("PerUser")?.reserve("alice", 1, Duration::MAX).unwrap_err();
    /// assert!(error.is_without_places());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_without_places(&self) -> bool {
        matches!(self, ReserveError::NoPlaces { .. })
    }

    /// The time until the reservation would be granted, if that is too long.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.spend("alice", 5)?.allowed());
    /// let needed = users.reserve("alice", 2, Duration::ZERO).unwrap_err().needed();
    /// assert!(needed.is_some_and(|time| time <= Duration::from_secs(12))); // a unit comes back every 6 s
    /// assert!(users.reserve("alice", 2, Duration::from_secs(12)).is_ok());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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
                    "not in time: allowed in {needed:?}, which is longer than the caller would wait from now on"
                )
            }
            ReserveError::TooFarAhead => {
                f.write_str("too far ahead: the limit grants no reservation that late")
            }
            ReserveError::NoPlaces { algorithm } => {
                write!(
                    f,
                    "{algorithm} has no reservations: only gcra has; wait with until_allowed, or spend after retry_in"
                )
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
