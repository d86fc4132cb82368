//! Reserves units in the future.

use std::fmt;
use std::time::Duration;

use crate::algorithm::{Grant, Outcome};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::charged::Charged;
use crate::limiter::reserve::claim::{Claim, Claimed};
use crate::limiter::reserve::error::ReserveError;
use crate::limiter::reserve::receipt::Receipt;
use crate::limits::Id;
use crate::util::time::saturating_ns;

/// Holds units of a bucket from a time on: the caller may act once the reservation is granted. Made by
/// [`KeyedLimit::reserve`], which has an example.
///
/// The cost is charged, and stays charged if the reservation is dropped. [`cancel`](Reservation::cancel) returns the
/// units, and [`into_receipt`](Reservation::into_receipt) lets the caller settle the actual cost.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// use tollgate::reserve::Reservation;
///
/// let users = limiter.limit("PerUser")?;
/// assert!(users.spend("alice", 5)?.allowed());
/// let reservation: Reservation = users.reserve("alice", 1, Duration::from_secs(10))?;
/// assert!(reservation.wait() > Duration::from_secs(1), "not granted yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the cost is charged, and may be used only after the wait"]
pub struct Reservation {
    pub(in crate::limiter) receipt: Receipt,
    /// By the limiter's clock.
    pub(in crate::limiter) granted_at_ns: u64,
}

impl KeyedLimit {
    /// Reserves `cost` units after all existing reservations, if they are granted within `at_most`. The caller does its
    /// own waiting, and may act once [`Reservation::wait`] is zero. Spends without a reservation are denied until the
    /// bucket has units after the last reservation.
    ///
    /// Reservations are granted in the order of the calls, unless units are returned meanwhile. A settlement, a refund
    /// or a reset keeps the times of existing reservations, and later calls, also plain spends, may use the returned
    /// units before them.
    ///
    /// With a cost of 0 the reservation is granted when the bucket's debt is gone.
    ///
    /// A reservation does not span two fixed windows: the units that the first window has left are lost if they do not
    /// suffice. Likewise the units of a leaky bucket's drip beyond those that a reservation needs are lost. Reservations
    /// have no [factor](KeyedLimit::scaled).
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once, and nothing is charged.
    ///
    /// # Example: the second of two reservations is granted after a second
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder().limit("Mail", IdFormat::String, Limit::new(1, 1, second)?)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let mail = Limiter::with_clock(limits, clock).limit("Mail")?;
    /// assert!(mail.reserve("alice", 1, Duration::MAX)?.wait().is_zero());
    /// let reservation = mail.reserve("alice", 1, Duration::MAX)?;
    /// assert_eq!(reservation.wait(), second);
    /// hand.advance(second);
    /// assert!(reservation.wait().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(
        &self,
        id: impl Into<Id<'a>>,
        cost: u64,
        at_most: Duration,
    ) -> Result<Reservation, ReserveError> {
        self.reserve_id(id.into(), cost, at_most)
    }

    fn reserve_id(
        &self,
        id: Id<'_>,
        cost: u64,
        at_most: Duration,
    ) -> Result<Reservation, ReserveError> {
        let now_ns = self.limiter.inner.clock.now_ns();
        let at_most_ns = saturating_ns(at_most).min(NEVER_NS - 1);
        let ask = |limit: &Limit, word, now_ns| match cost {
            0 => {
                let decision = limit.rule().spend(word, now_ns, 0).decision;
                let wait_ns =
                    if decision.allowed() { 0 } else { saturating_ns(decision.retry_in()) };
                (place(None, wait_ns, at_most_ns), now_ns)
            }
            _ => match limit.rule().reserve(word, now_ns, cost) {
                Some(Grant { word, at_ns }) => {
                    (place(Some(word), at_ns - now_ns, at_most_ns), at_ns)
                }
                None => (place(None, NEVER_NS, 0), now_ns),
            },
        };
        let claimed = self.claim(id, cost, now_ns, ask)?;
        let Claimed { decision, claim, found_no_room, is_in_shadow_mode, blocked_ns, .. } = claimed;
        let wait_ns = if is_in_shadow_mode { 0 } else { saturating_ns(decision.retry_in()) };
        if decision.allowed() {
            // The charge may be at a later time than `now_ns`, that of a sweep; the wait starts at the charge.
            let charged_ns = claim.as_ref().and_then(Claim::charged_at_ns).unwrap_or(now_ns);
            let granted_at_ns =
                if wait_ns == 0 { now_ns } else { charged_ns.saturating_add(wait_ns) };
            let charged = claim.map(Charged::Here);
            return Ok(Reservation { receipt: Receipt { charged, cost }, granted_at_ns });
        }
        Err(match blocked_ns {
            Some(left_ns) => ReserveError::Blocked { left: Duration::from_nanos(left_ns) },
            None if found_no_room => ReserveError::NoRoom,
            None if wait_ns == NEVER_NS => ReserveError::TooFarAhead,
            None => ReserveError::NotInTime { needed: decision.retry_in() },
        })
    }
}

/// Stands for "no reservation": the longest wait for one is 2^62 ns.
const NEVER_NS: u64 = u64::MAX;

/// The outcome of asking for a reservation: allowed, with the word that charges it, if the wait is not too long.
fn place(word: Option<u64>, wait_ns: u64, at_most_ns: u64) -> Outcome {
    let in_time = wait_ns <= at_most_ns;
    Outcome { word: word.filter(|_| in_time), decision: Decision::new(in_time, (0, 1), wait_ns, 0) }
}

impl Reservation {
    /// The time until the reservation is granted, by a new reading of the limiter's clock; 0 once it is granted.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("Mail", IdFormat::String, limit)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let mail = Limiter::with_clock(limits, clock).limit("Mail")?;
    /// assert!(mail.spend("alice", 1)?.allowed());
    /// let reservation = mail.reserve("alice", 1, Duration::MAX)?;
    /// hand.advance(Duration::from_secs(45));
    /// assert_eq!(reservation.wait(), Duration::from_secs(15));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Duration {
        // Without a limit there is no wait.
        let now_ns = self.receipt.charged.as_ref().map_or(self.granted_at_ns, Charged::now_ns);
        Duration::from_nanos(self.granted_at_ns.saturating_sub(now_ns))
    }

    /// The units that are reserved.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let reservation = limiter.limit("PerUser")?.reserve("alice", 3, Duration::MAX)?;
    /// assert_eq!(reservation.cost(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cost(&self) -> u64 {
        self.receipt.cost
    }

    /// Cancels the reservation, and returns its units if no other caller depends on them:
    ///
    /// * If the reservation is the last, all its units are returned. Then the reservation before it is the last; if that
    ///   was cancelled earlier, its units are returned as well, and so on.
    /// * While there are later reservations, nothing is returned, because their times were computed on top of this one.
    ///   Its units are returned once all later reservations are cancelled or settled to 0.
    /// * Nothing is returned once the time of the grant has passed, or after a [refund](KeyedLimit::refund) or a
    ///   [reset](KeyedLimit::reset) of the bucket, a [reload](crate::Limiter::reload), or the end of the override that
    ///   applied; nor while the limiter is [switched off](crate::Limiter::set_enabled).
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder().limit("Mail", IdFormat::String, Limit::new(1, 1, second)?)?.build();
    /// let mail = Limiter::with_clock(limits, Clock::manual().0).limit("Mail")?;
    /// assert!(mail.spend("alice", 1)?.allowed());
    /// let first = mail.reserve("alice", 1, Duration::MAX)?;
    /// let later = mail.reserve("alice", 1, Duration::MAX)?;
    /// first.cancel();
    /// assert_eq!(later.wait(), 2 * second, "it keeps its time");
    /// later.cancel();
    /// assert_eq!(mail.reserve("alice", 1, Duration::MAX)?.wait(), second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(self) {
        if let Some(charged) = &self.receipt.charged {
            charged.cancel(self.granted_at_ns);
        }
    }

    /// Turns the reservation into a receipt, to settle the actual cost. A settlement does not end the wait: the caller
    /// must still wait until the reservation is granted.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let reservation = limiter.limit("PerUser")?.reserve("alice", 4, Duration::ZERO)?;
    /// assert_eq!(reservation.into_receipt().settle(1).remaining(), Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_receipt(self) -> Receipt {
        self.receipt
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("cost", &self.cost())
            .field("wait", &self.wait())
            .finish_non_exhaustive()
    }
}
