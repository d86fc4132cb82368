//! Calls that charge as many units as a bucket has: a partial grant, and a drain.

use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::scaled::ScaledLimit;
use crate::limits::Id;

impl KeyedLimit {
    /// Charges as many units as the id's bucket has now, at most `most` and at most the burst. Returns their number and
    /// the decision.
    ///
    /// If the bucket has no unit, the call is denied and returns 0; [`retry_in`](Decision::retry_in) is the time until it
    /// has one. If no limit applies, and under a limit in shadow mode, the caller gets `most`. A `most` of 0
    /// checks the bucket.
    ///
    /// The call counts as one spend, of the units that it charged. A shadow limit beside the limit is charged in the same
    /// way. The slow path decides it: it takes about twice the time of a [`spend`](KeyedLimit::spend).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?; // a burst of 5
    /// let (granted, decision) = users.spend_up_to("alice", 8)?;
    /// assert_eq!((granted, decision.remaining()), (5, Some(0)));
    /// let (granted, decision) = users.spend_up_to("alice", 8)?;
    /// assert_eq!((granted, decision.allowed()), (0, false));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_up_to<'a>(
        &self,
        id: impl Into<Id<'a>>,
        most: u64,
    ) -> Result<(u64, Decision), Error> {
        let ran = self.call_for_units(id.into(), Factor::ONE, Call::SpendUpTo(most))?;
        Ok((ran.units, ran.decision))
    }

    /// Charges all units that the id's bucket has now but `leave`, and returns the figures after it. A bucket with fewer
    /// units stays as it is. A custom [`Algorithm`](crate::algorithm::Algorithm) spends them.
    ///
    /// A bucket that does not exist is full, so a new id cannot begin with an empty bucket. Drain it when you first see the
    /// id: a new customer, a restarted peer, an id that has just passed a challenge.
    ///
    /// Like [`reset`](KeyedLimit::reset), a drain ignores blocks and is not counted as a call. Its decision is
    /// [`allowed`](Decision::allowed) unless the bucket owes units. At the cap on keys, a
    /// new id is treated as by a spend ([`AtCap`](crate::options::AtCap)): under `AtCap::Deny` the decision is a denial, and
    /// nothing is drained.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?; // a burst of 5
    /// assert_eq!(users.drain("alice", 1)?.remaining(), Some(1));
    /// assert!(users.spend("alice", 1)?.allowed());
    /// assert!(!users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn drain<'a>(&self, id: impl Into<Id<'a>>, leave: u64) -> Result<Decision, Error> {
        Ok(self.call_for_units(id.into(), Factor::ONE, Call::Drain(leave))?.decision)
    }
}

impl ScaledLimit<'_> {
    /// Like [`KeyedLimit::spend_up_to`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit::spend_up_to`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.scaled("0.5".parse()?).spend_up_to("alice", 99)?.0, 10);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_up_to<'a>(
        &self,
        id: impl Into<Id<'a>>,
        most: u64,
    ) -> Result<(u64, Decision), Error> {
        let ran = self.handle.call_for_units(id.into(), self.factor, Call::SpendUpTo(most))?;
        Ok((ran.units, ran.decision))
    }

    /// Like [`KeyedLimit::drain`].
    ///
    /// # Errors
    ///
    /// See [`ScaledLimit`] and [`KeyedLimit::drain`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert_eq!(users.scaled("0.5".parse()?).drain("alice", 8)?.remaining(), Some(8)); // of 10
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn drain<'a>(&self, id: impl Into<Id<'a>>, leave: u64) -> Result<Decision, Error> {
        Ok(self.handle.call_for_units(id.into(), self.factor, Call::Drain(leave))?.decision)
    }
}
