//! A place in the future.

use std::fmt;
use std::time::Duration;

use crate::algorithm::Outcome;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::{Claim, Claimed};
use crate::limiter::reserve::{Receipt, ReserveError};
use crate::limits::Id;

/// A place that was taken: what it was for may be done once its time has come. Made by
/// [`KeyedLimit::reserve`].
///
/// The cost is charged. Dropping a reservation leaves it so; [`cancel`](Reservation::cancel) gives up the
/// place, and [`into_receipt`](Reservation::into_receipt) settles later what it came to.
#[must_use = "the cost is charged, and may be used only after the wait"]
pub struct Reservation {
    limiter: Limiter,
    claim: Option<Claim>,
    granted_at_ns: u64,
    cost: u64,
}

impl KeyedLimit {
    /// Takes the earliest place for `cost` units, behind all that have one, if its time comes within
    /// `at_most`. Nothing is queued and nobody is woken: the caller waits by itself, and may act once
    /// [`Reservation::wait`] is zero. Places are granted in the order in which they were taken; calls that
    /// spend without one are denied until there is something left behind the last.
    ///
    /// A fixed window gives a place whole or not at all, so that what it leaves of a window is lost; drips
    /// that bring more than is missing are lost in the same way. A [factor](KeyedLimit::scaled) has no
    /// waiting.
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once: then nothing was charged.
    ///
    /// # Example: the second of two has its turn in a second
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
    /// let place = mail.reserve("alice", 1, Duration::MAX)?;
    /// assert_eq!(place.wait(), second);
    /// hand.advance(second);
    /// assert!(place.wait().is_zero());
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
        let at_most_ns = ns_of(at_most).min(NEVER_NS - 1);
        let ask = |limit: &Limit, word, now_ns| match cost {
            // Waits until what is owed has come back.
            0 => {
                let said = limit.rule().spend(word, now_ns, 0).decision;
                let wait_ns = if said.allowed() { 0 } else { ns_of(said.retry_in()) };
                placed(None, wait_ns, at_most_ns)
            }
            _ => match limit.rule().reserve(word, now_ns, cost) {
                Some(grant) => placed(Some(grant.word), grant.at_ns - now_ns, at_most_ns),
                None => placed(None, NEVER_NS, 0),
            },
        };
        let claimed = self.claim(id, cost, now_ns, ask)?;
        let Claimed { decision, claim, finds_no_room, is_tried, blocked_ns } = claimed;
        let wait_ns = if is_tried { 0 } else { ns_of(decision.retry_in()) };
        match decision.allowed() {
            true => {
                // Where it was asked as of a later time, that of a sweep, it waits from then.
                let asked_ns = claim.as_ref().and_then(Claim::charged_at_ns).unwrap_or(now_ns);
                let granted_at_ns =
                    if wait_ns == 0 { now_ns } else { asked_ns.saturating_add(wait_ns) };
                Ok(Reservation { limiter: self.limiter.clone(), claim, granted_at_ns, cost })
            }
            false if let Some(left_ns) = blocked_ns => {
                Err(ReserveError::Blocked { left: Duration::from_nanos(left_ns) })
            }
            false if finds_no_room => Err(ReserveError::NoRoom),
            false if wait_ns == NEVER_NS => Err(ReserveError::TooFarAhead),
            false => Err(ReserveError::NotInTime { needed: decision.retry_in() }),
        }
    }
}

/// No wait: the longest of a place is 2^62 ns.
const NEVER_NS: u64 = u64::MAX;

/// The answer to who asks for a place: allowed, and the word that takes it, if the wait is not too long.
fn placed(word: Option<u64>, wait_ns: u64, at_most_ns: u64) -> Outcome {
    let in_time = wait_ns <= at_most_ns;
    Outcome { word: word.filter(|_| in_time), decision: Decision::new(in_time, (0, 1), wait_ns, 0) }
}

fn ns_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER_NS)
}

impl Reservation {
    /// The time until the place is granted, by the limiter's clock as it is now; 0 once it is.
    pub fn wait(&self) -> Duration {
        let now_ns = self.limiter.inner.clock.now_ns();
        Duration::from_nanos(self.granted_at_ns.saturating_sub(now_ns))
    }

    /// The units that it is for.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Gives up the place. What nobody behind it depends on is given back:
    ///
    /// * all of it if nobody is behind, and then that of those before it which were given up while it was
    ///   behind them;
    /// * nothing while others are behind: they were told their times on top of this place. Once all of
    ///   them have given up theirs, it is given back, too;
    /// * nothing after its time has come, after a [refund](KeyedLimit::refund) or a [reset](KeyedLimit::reset) of the
    ///   bucket, after a [reload](Limiter::reload), or after the end of the override that applied.
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
    /// let second_place = mail.reserve("alice", 1, Duration::MAX)?;
    /// first.cancel();
    /// assert_eq!(second_place.wait(), 2 * second, "it keeps its time");
    /// second_place.cancel();
    /// assert_eq!(mail.reserve("alice", 1, Duration::MAX)?.wait(), second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(self) {
        if let Some(claim) = &self.claim {
            claim.give_up(self.granted_at_ns);
        }
    }

    /// The charge, to be settled when it is known what it came to. Who settles before the wait is over
    /// must wait for it all the same.
    pub fn into_receipt(self) -> Receipt {
        Receipt::new(self.claim, self.cost)
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("cost", &self.cost)
            .field("wait", &self.wait())
            .finish_non_exhaustive()
    }
}
