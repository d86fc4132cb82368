//! Defines [`LeavingLimit`]: the calls of a handle that must leave units in the bucket.

use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::Member;
use crate::limiter::handle::{Call, FloorCall, KeyedLimit};
use crate::limiter::scaled::ScaledLimit;
use crate::limits::{Id, Leave};

/// Keeps units of each bucket for other callers: its calls are allowed only if a number of units would be left after them.
/// Made by [`KeyedLimit::leaving`] with a number, and by [`KeyedLimit::priority`] with the name of a floor, which has the number.
///
/// A call is decided and charged at once, so no race takes the units that are kept. It charges its cost alone.
/// [`remaining`](Decision::remaining) counts all units of the bucket; [`retry_in`](Decision::retry_in) is the time until the
/// same call is allowed. Under a token bucket the units that must be left are units that calls may spend now. A cost of 0
/// checks that the units are there.
///
/// # Errors
///
/// See [`KeyedLimit`]. A cost that is above the burst together with the units that must be left could never be allowed: it
/// is an [`Error::is_cost_above_burst`].
///
/// # Example: background work leaves half of the units to users
///
/// ```
/// use std::time::Duration;
/// use tollgate::{KeyedLimit, Limit};
///
/// let requests = KeyedLimit::new("Requests", Limit::new(10, 10, Duration::from_secs(60))?)?;
/// let background = requests.leaving(5);
/// assert_eq!(background.spend("acme", 5)?.remaining(), Some(5));
/// assert!(!background.spend("acme", 1)?.allowed());
/// assert!(requests.spend("acme", 5)?.allowed());
/// assert!(background.spend("acme", 6).unwrap_err().is_cost_above_burst());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LeavingLimit<'h> {
    limit: ScaledLimit<'h>,
    leave: Leave<'h>,
}

impl KeyedLimit {
    /// Returns the calls that must leave `leave` units in the bucket. They are about as fast as those for keys with an
    /// override.
    ///
    /// # Example
    ///
    /// See [`LeavingLimit`].
    pub fn leaving(&self, leave: u64) -> LeavingLimit<'_> {
        self.scaled(Factor::ONE).leaving(leave)
    }

    /// Returns the calls with a priority: those that must leave the units of the limit's floor of this name, as the limits
    /// file says in `floors` or [`LimitOptions::floor`](crate::limits::LimitOptions::floor) in code. Each call looks the floor
    /// up, so a reload that changes it applies at once, and a percentage is of the burst of the id's own terms.
    ///
    /// From then on a reload that lacks the floor is refused while a handle of the limit is alive. If the limit is switched
    /// off, or [removed on purpose](crate::reload::ReloadOptions::remove_missing), it may lack any.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] if the limit has no such floor; the error says which it has.
    ///
    /// # Example: the file says what batch work leaves to users
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// use tollgate::{Limiter, Limits};
    ///
    /// let limiter = Limiter::new(Limits::from_yaml(
    ///     "Tokens: {burst: 100, count: 100, period: 1h, id: string, floors: {batch: 50%, reports: 20}}",
    /// )?);
    /// let tokens = limiter.limit("Tokens")?;
    /// let batch = tokens.priority("batch")?; // once, at the start: a typo is found here
    /// assert!(batch.spend("acme", 50)?.allowed());
    /// assert!(!batch.spend("acme", 1)?.allowed());
    /// assert!(tokens.spend("acme", 50)?.allowed());
    /// assert!(tokens.priority("bacth").unwrap_err().to_string().contains("did you mean batch?"));
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn priority(&self, name: &str) -> Result<LeavingLimit<'_>, Error> {
        self.scaled(Factor::ONE).priority(name)
    }
}

impl<'h> ScaledLimit<'h> {
    /// Like [`KeyedLimit::leaving`]. The units are those of the caller with the factor.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let trusted = users.scaled("0.5".parse()?).leaving(4); // of 10
    /// assert!(trusted.spend("alice", 6)?.allowed());
    /// assert!(!trusted.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn leaving(&self, leave: u64) -> LeavingLimit<'h> {
        LeavingLimit { limit: *self, leave: Leave::Units(leave) }
    }

    /// Like [`KeyedLimit::priority`]. A percentage is of the burst of the caller with the factor.
    ///
    /// # Errors
    ///
    /// Those of [`KeyedLimit::priority`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # use tollgate::limits::{Floor, LimitOptions};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().floor("batch", Floor::Percent(40));
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, options)?.build();
    /// let users = Limiter::new(limits).limit("PerUser")?; // 5 at once
    /// let trusted = users.scaled("0.5".parse()?).priority("batch")?; // leaves 4 of 10
    /// assert!(trusted.spend("alice", 6)?.allowed());
    /// assert!(!trusted.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn priority(&self, name: &str) -> Result<LeavingLimit<'h>, Error> {
        let floor = self.handle.ask_for_floor(name)?;
        Ok(LeavingLimit { limit: *self, leave: Leave::Floor(floor) })
    }
}

impl<'h> LeavingLimit<'h> {
    /// Charges `cost` units if the bucket has them and those that must be left, and returns the decision.
    ///
    /// # Errors
    ///
    /// See [`LeavingLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?; // 5 at once, one comes every 6 s
    /// assert!(users.leaving(2).spend("alice", 3)?.allowed());
    /// let denied = users.leaving(2).spend("alice", 1)?;
    /// assert_eq!((denied.allowed(), denied.remaining()), (false, Some(2)));
    /// assert!(denied.retry_in() <= Duration::from_secs(6));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), cost, true)
    }

    /// Returns the decision that a [`spend`](LeavingLimit::spend) would get, and charges nothing.
    ///
    /// # Errors
    ///
    /// See [`LeavingLimit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.leaving(2).check("alice", 3)?.allowed());
    /// assert!(users.spend("alice", 1)?.allowed());
    /// assert!(!users.leaving(2).check("alice", 3)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.call(id.into(), cost, false)
    }

    /// Makes a member of a [batch](crate::Limiter::batch) that must leave the units: check-and-spend, at a cost of 1.
    ///
    /// # Example
    ///
    /// See [`Member::leaving`].
    pub fn member<'a>(&self, id: impl Into<Id<'a>>) -> Member<'a>
    where
        'h: 'a,
    {
        self.limit.member(id).leaving_any(self.leave)
    }

    fn call(&self, id: Id<'_>, cost: u64, spends: bool) -> Result<Decision, Error> {
        let ScaledLimit { handle, factor } = self.limit;
        match self.leave {
            Leave::Units(leave) => {
                let demand = Demand { cost, leave };
                Ok(handle.call_for_units(id, factor, Call::leaving(&demand, spends))?.decision)
            }
            Leave::Floor(floor) => {
                handle.call_with_floor(id, factor, FloorCall { floor, cost, spends })
            }
        }
    }
}
