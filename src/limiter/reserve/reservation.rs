//! Reserves units in the future.

use std::fmt;
use std::time::Duration;

use crate::core::spent::Charge;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::{Claim, Claimed, ClaimedBy, CountedCall};
use crate::limiter::reserve::error::ReserveError;
use crate::limiter::reserve::receipt::Receipt;
use crate::limiter::reserve::wanted::Wanted;
use crate::limits::Id;
use crate::store::key::KeyRef;
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
/// # use tollgate::{KeyedLimit, Limit};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// use tollgate::reserve::Reservation;
///
/// let users = KeyedLimit::new("PerUser", limit)?;
/// assert!(users.spend("alice", 5)?.allowed());
/// let reservation: Reservation = users.reserve("alice", 1, Duration::from_secs(10))?;
/// assert!(reservation.wait() > Duration::from_secs(1), "not granted yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the cost is charged, and may be used only after the wait"]
pub struct Reservation {
    /// `None` if no limit applies.
    pub(crate) charged: Option<(ClaimedBy, Claim)>,
    /// The charge of the place, unless nothing was charged.
    pub(crate) charge: Option<Charge>,
    pub(crate) cost: u64,
    /// By the limiter's clock.
    pub(crate) granted_at_ns: u64,
    /// Whether a cancel leaves the place vacant also once its time has come: the place may be in front of others, and units that
    /// are returned behind them would be granted twice.
    pub(crate) leaves_vacant: bool,
    /// The places of a batch's other members.
    pub(crate) others: Vec<Reservation>,
}

impl KeyedLimit {
    /// Reserves `cost` units after all existing reservations, if they are granted within `at_most`. The caller does its
    /// own waiting, and may act once [`Reservation::wait`] is zero. Spends without a reservation are denied until the
    /// bucket has units after the last reservation.
    ///
    /// Only gcra has reservations; the other algorithms return [`ReserveError::NoPlaces`].
    ///
    /// Reservations are granted in the order of the calls. A call takes the place of a reservation that was
    /// [cancelled](Reservation::cancel), or its first units, if that is no later than a new place would be. Returned units do
    /// not change the times of existing reservations. Later calls, also plain spends, may use these units first.
    ///
    /// With a cost of 0 the reservation is granted when the bucket's debt is gone. Reservations have no
    /// [factor](KeyedLimit::scaled).
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
    /// let mail = Limiter::with_options(limits, clock)?.limit("Mail")?;
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
        let now_ns = self.limiter.inner.clock.now_ns();
        let wanted = Wanted::Place { at_most_ns: saturating_ns(at_most) };
        Ok(self.reserve_as(id.into(), cost, now_ns, wanted)?.reservation)
    }

    /// Takes a place as it is wanted, as of `now_ns`.
    pub(crate) fn reserve_as(
        &self,
        id: Id<'_>,
        cost: u64,
        now_ns: u64,
        wanted: Wanted,
    ) -> Result<TakenPlace, ReserveError> {
        TakenPlace::new(self.claim(id, cost, now_ns, wanted)?, cost, now_ns)
    }

    /// Takes the earliest place for a key of this limit, whenever it is granted.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn reserve_key(
        &self,
        key: KeyRef<'_>,
        cost: u64,
        now_ns: u64,
    ) -> Result<Reservation, ReserveError> {
        let claimed = self.claim_key(key, cost, now_ns, Wanted::Place { at_most_ns: u64::MAX })?;
        Ok(TakenPlace::new(claimed, cost, now_ns)?.reservation)
    }
}

/// A place, and how its call is counted; `None` if no limit applies.
pub(crate) struct TakenPlace {
    pub(crate) reservation: Reservation,
    pub(crate) counted: Option<CountedCall>,
}

impl TakenPlace {
    fn new(claimed: Claimed, cost: u64, now_ns: u64) -> Result<TakenPlace, ReserveError> {
        let Claimed { decision, claim, charge, refused, is_in_shadow_mode, .. } = claimed;
        let wait_ns = if is_in_shadow_mode { 0 } else { saturating_ns(decision.retry_in()) };
        if !decision.allowed() {
            return Err(ReserveError::from_denial(refused, decision));
        }
        let (charged, granted_at_ns) = (claim, now_ns.saturating_add(wait_ns));
        let leaves_vacant = claimed.leaves_vacant;
        let others = Vec::new();
        let reservation =
            Reservation { charged, charge, cost, granted_at_ns, leaves_vacant, others };
        Ok(TakenPlace { reservation, counted: claimed.counted })
    }
}

impl Reservation {
    /// Makes a place of a charge that is made already.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn granted(receipt: Receipt) -> Reservation {
        let (charged, cost) = receipt.into_one();
        let (charge, granted_at_ns, leaves_vacant, others) = (None, 0, false, Vec::new());
        Reservation { charged, charge, cost, granted_at_ns, leaves_vacant, others }
    }

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
    /// let mail = Limiter::with_options(limits, clock)?.limit("Mail")?;
    /// assert!(mail.spend("alice", 1)?.allowed());
    /// let reservation = mail.reserve("alice", 1, Duration::MAX)?;
    /// hand.advance(Duration::from_secs(45));
    /// assert_eq!(reservation.wait(), Duration::from_secs(15));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Duration {
        // Without a limit there is no wait.
        let now_ns = self.charged.as_ref().map_or(self.granted_at_ns, |(by, _)| by.now_ns());
        let own = Duration::from_nanos(self.granted_at_ns.saturating_sub(now_ns));
        self.others.iter().map(Reservation::wait).fold(own, Duration::max)
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
        self.others.iter().map(Reservation::cost).fold(self.cost, u64::saturating_add)
    }

    /// Cancels the reservation.
    ///
    /// * If its time has come, it is a spend: its units are returned, as by a [settlement](Receipt::settle) to 0, and later calls
    ///   may use them before the reservations behind it. A place of a batch, and one that was vacant before, may be in front of
    ///   charges that were made earlier: it is cancelled as if its time had not come.
    /// * If its time has not come and no other charge is behind it in the bucket, its units are returned. So are those of cancelled
    ///   reservations in front of it: a client that goes away with all its waiting calls leaves the bucket as it was.
    /// * Otherwise the place becomes vacant. The next reservation of the id that the place suits takes it, or its first units, and
    ///   charges nothing. Its units are lost as the clock passes them. About
    ///   [`max_vacant_places`](crate::LimiterOptions::max_vacant_places) are kept. A [reload](crate::Limiter::reload) drops
    ///   those of the limits that it changes, and of those with an override that ends; a [refund](KeyedLimit::refund) or a
    ///   [reset](KeyedLimit::reset) by hand drops those of the id.
    ///
    /// Nothing is returned if a reload has changed the limit of the id since, or the end of its override, or if the override
    /// has ended; nor while the limiter is [switched off](crate::Limiter::set_enabled).
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder().limit("Mail", IdFormat::String, Limit::new(1, 1, second)?)?.build();
    /// let mail = Limiter::with_options(limits, Clock::manual().0)?.limit("Mail")?;
    /// assert!(mail.spend("alice", 1)?.allowed());
    /// let first = mail.reserve("alice", 1, Duration::MAX)?;
    /// let later = mail.reserve("alice", 1, Duration::MAX)?;
    /// first.cancel();
    /// assert_eq!(later.wait(), 2 * second, "it keeps its time");
    /// let next = mail.reserve("alice", 1, Duration::MAX)?;
    /// assert_eq!(next.wait(), second, "it takes the place of the first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(self) {
        self.others.into_iter().rev().for_each(Reservation::cancel);
        match (&self.charged, self.charge) {
            (Some((by, claim)), Some(charge)) => {
                let granted_at_ns = if self.leaves_vacant { u64::MAX } else { self.granted_at_ns };
                claim.cancel(by, charge, granted_at_ns);
            }
            // A spend of which no more is known than its receipt.
            (Some((by, claim)), None) => claim.give_back(by, claim.cost()),
            (None, _) => {}
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
        let own = Receipt::of_one(self.charged, self.cost);
        self.others.into_iter().map(Reservation::into_receipt).fold(own, Receipt::joined)
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
