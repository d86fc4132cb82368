//! Defines [`Decision`], the answer to a call.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::util::time::saturating_ns;

/// Says whether a limit, or a batch of limits, allows a call, and when to call again.
///
/// The figures are exact, to the unit and the nanosecond; a caller that waits for `retry_in` is never too early. A
/// batch's figures are those of its strictest member.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
///
/// let (clock, _hand) = Clock::manual();
/// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_secs(1))?, clock);
/// assert!(bucket.spend(1)?.allowed());
/// let denied = bucket.spend(1)?;
/// assert_eq!(denied.retry_in(), Duration::from_secs(1));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use = "it says whether the call was allowed, or whether a refund returned units"]
#[derive(Clone, Copy)]
pub struct Decision {
    pub(crate) verdict: Verdict,
    /// The units that remain, as a fraction `left / unit`. Most callers never read them, so the division is left to
    /// [`Decision::remaining`]. A `unit` of 0 means that no limit applies.
    left: u64,
    unit: u64,
    retry_in_ns: u64,
    reset_in_ns: u64,
}

/// Allowed, or the position of the member that denied, plus 1. A full word like the other figures: decisions are
/// copied word by word, and a load that spans two shorter stores would have to wait for both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict(NonZeroU64);

impl Verdict {
    const ALLOWED: Verdict = Verdict(NonZeroU64::MAX);
    /// A refund gave nothing back.
    const NOTHING_REFUNDED: Verdict = Verdict(NonZeroU64::new(u64::MAX - 1).unwrap());
    /// Is set in a denial that comes from a block.
    const BLOCKED: u64 = 1 << 63;
    /// Is set in a denial by a node that cannot ask the store of a shared limit in time.
    const OVERLOADED: u64 = 1 << 62;
    /// Is set in a denial because the id has no bucket, and the table no room for one.
    const OUT_OF_ROOM: u64 = 1 << 61;
    const REASONS: u64 = Verdict::BLOCKED | Verdict::OVERLOADED | Verdict::OUT_OF_ROOM;

    /// Memory bounds the position far below [`Verdict::BLOCKED`].
    fn denied_by(position: usize) -> Verdict {
        Verdict(NonZeroU64::MIN.saturating_add(position as u64))
    }

    fn is_denied(self) -> bool {
        self != Verdict::ALLOWED && self != Verdict::NOTHING_REFUNDED
    }

    fn is_blocked(self) -> bool {
        self.is_denied() && self.0.get() & Verdict::BLOCKED != 0
    }

    pub(crate) fn is_overloaded(self) -> bool {
        self.is_denied() && self.0.get() & Verdict::OVERLOADED != 0
    }

    fn is_out_of_room(self) -> bool {
        self.is_denied() && self.0.get() & Verdict::OUT_OF_ROOM != 0
    }

    /// Returns the denial of another member, for the same reason.
    fn at(self, position: usize) -> Verdict {
        Verdict(Verdict::denied_by(position).0 | (self.0.get() & Verdict::REASONS))
    }

    /// Says of a denial that the node has too many calls for a store.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn overloaded(self) -> Verdict {
        Verdict(self.0 | Verdict::OVERLOADED)
    }

    fn blocked(self) -> Verdict {
        Verdict(self.0 | Verdict::BLOCKED)
    }

    fn position(self) -> Option<usize> {
        self.is_denied().then(|| ((self.0.get() & !Verdict::REASONS) - 1) as usize)
    }
}

impl Decision {
    /// The answer if no limit applies, or none that can deny.
    pub(crate) const UNLIMITED: Decision =
        Decision { verdict: Verdict::ALLOWED, left: 0, unit: 0, retry_in_ns: 0, reset_in_ns: 0 };

    /// Makes the answer of a custom [`Algorithm`](crate::algorithm::Algorithm) to a spend, with the figures of the
    /// methods below: `remaining` in whole units, times in nanoseconds, at most 584 years. A denial needs a wait, so a
    /// denial's `retry_in` of 0 becomes 1 ns.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Decision;
    ///
    /// let denied = Decision::for_spend(false, 0, Duration::from_secs(1), Duration::from_secs(3));
    /// assert_eq!(denied.retry_in(), Duration::from_secs(1));
    /// assert_eq!(denied.denied_by(), Some(0));
    /// ```
    pub fn for_spend(
        allowed: bool,
        remaining: u64,
        retry_in: Duration,
        reset_in: Duration,
    ) -> Decision {
        let retry_in_ns = saturating_ns(retry_in).max(u64::from(!allowed));
        Decision::new(allowed, (remaining, 1), retry_in_ns, saturating_ns(reset_in))
    }

    /// Makes the answer of a custom [`Algorithm`](crate::algorithm::Algorithm) to a refund: whether it returned any
    /// units, and the bucket's figures after it. A refund denies nothing and has no wait.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Decision;
    ///
    /// let full_already = Decision::for_refund(false, 20, Duration::ZERO);
    /// assert!(!full_already.allowed());
    /// assert_eq!(full_already.denied_by(), None);
    /// ```
    pub fn for_refund(given_back: bool, remaining: u64, reset_in: Duration) -> Decision {
        Decision::new(given_back, (remaining, 1), 0, saturating_ns(reset_in)).of_refund()
    }

    /// `left / unit` units remain; `unit` is at least 1.
    #[inline]
    pub(crate) fn new(
        allowed: bool,
        (left, unit): (u64, u64),
        retry_in_ns: u64,
        reset_in_ns: u64,
    ) -> Decision {
        let verdict = if allowed { Verdict::ALLOWED } else { Verdict::denied_by(0) };
        Decision { verdict, left, unit, retry_in_ns, reset_in_ns }
    }

    /// Whether the call may go on. For a refund or a reset: whether it returned any units.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_secs(60))?, Clock::system());
    /// assert!(bucket.spend(1)?.allowed());
    /// assert!(!bucket.spend(1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::ALLOWED
    }

    /// The whole units that can still be spent after this call; 0 under a block. `None` if no limit applies.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(3, 1, Duration::from_secs(60))?, Clock::system());
    /// assert_eq!(bucket.spend(1)?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.left.checked_div(self.unit)
    }

    /// The time until the same cost is allowed, if nothing else is spent until then. After an allowed call 0 if the
    /// same cost could be spent again at once.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let (clock, hand) = Clock::manual();
    /// let bucket = Bucket::new(Limit::new(3, 1, Duration::from_secs(60))?, clock);
    /// assert!(bucket.spend(3)?.allowed());
    /// let wait = bucket.spend(2)?.retry_in();
    /// assert_eq!(wait, Duration::from_secs(120));
    /// hand.advance(wait);
    /// assert!(bucket.spend(2)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn retry_in(&self) -> Duration {
        Duration::from_nanos(self.retry_in_ns)
    }

    /// The time until the bucket is full if nothing else is spent.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let (clock, _hand) = Clock::manual();
    /// let bucket = Bucket::new(Limit::new(3, 1, Duration::from_secs(60))?, clock);
    /// assert_eq!(bucket.spend(2)?.reset_in(), Duration::from_secs(120));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn reset_in(&self) -> Duration {
        Duration::from_nanos(self.reset_in_ns)
    }

    /// The position in the batch of the member that denied the call; 0 for a call of one limit. `None` if the call is
    /// allowed, and for refunds and resets.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
    /// # let limits = Limits::builder()
    /// #     .limit("PerUser", IdFormat::String, limit(5)?)?
    /// #     .limit("PerTeam", IdFormat::String, limit(1)?)?
    /// #     .build();
    /// # let limiter = Limiter::new(limits);
    /// # let (users, teams) = (limiter.limit("PerUser")?, limiter.limit("PerTeam")?);
    /// let members = [users.member("alice"), teams.member("a-team")];
    /// assert_eq!(limiter.batch(&members).spend()?.denied_by(), None);
    /// assert_eq!(limiter.batch(&members).spend()?.denied_by(), Some(1)); // the team's bucket is empty
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn denied_by(&self) -> Option<usize> {
        self.verdict.position()
    }

    /// Whether the call was denied because the id is [blocked](crate::KeyedLimit::block); for a batch, the id of the
    /// member that denied it.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, Limit::new(1, 1, second)?)?;
    /// let users = Limiter::new(limits.build()).limit("PerUser")?;
    /// users.block("mallory", 60 * second)?;
    /// assert!(users.spend("mallory", 1)?.blocked());
    /// assert!(users.spend("alice", 1)?.allowed());
    /// let denied = users.spend("alice", 1)?;
    /// assert!(!denied.allowed() && !denied.blocked());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn blocked(&self) -> bool {
        self.verdict.is_blocked()
    }

    /// Whether the call was denied because the id has no bucket and the full table has no room for one; for a batch, the id
    /// of the member that denied it. The id has not used up its units. [`AtCap`](crate::options::AtCap) says when such
    /// calls are denied.
    ///
    /// `retry_in` is then the time after which there can be room: until one of the buckets that the call has looked at is
    /// full again and can be dropped. Other ids may take the room first.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::options::AtCap;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(10, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let options = LimiterOptions::default().max_keys(1).at_cap(AtCap::Deny).clock(clock);
    /// let users = Limiter::with_options(limits, options)?.limit("PerUser")?;
    /// assert!(users.spend("alice", 3)?.allowed());
    /// let denied = users.spend("bob", 1)?;
    /// assert!(denied.out_of_room());
    /// assert_eq!(denied.retry_in(), Duration::from_secs(180)); // then alice's bucket is full
    /// hand.advance(denied.retry_in());
    /// assert!(users.spend("bob", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn out_of_room(&self) -> bool {
        self.verdict.is_out_of_room()
    }

    /// Whether less than a fifth of `burst` remains: `5 * remaining < burst`.
    #[inline(always)]
    pub(crate) fn is_near(&self, burst: u64) -> bool {
        // Multiplies, because a division by `unit` would be slow: `enough` is the fewest units that are not near, and
        // a product that does not fit in a word is above any `left`. A burst is not 0.
        let enough = burst.wrapping_sub(1) / 5 + 1;
        enough.checked_mul(self.unit).is_none_or(|enough| self.left < enough)
    }

    /// Counts the figures of a decision as of a later time from the call's own reading of the clock, which is `ahead_ns`
    /// earlier: for a caller whose clock is behind a sweep's.
    #[inline]
    pub(crate) fn seen_earlier(self, ahead_ns: u64) -> Decision {
        let later = |ns: u64| if ns == 0 { 0 } else { ns.saturating_add(ahead_ns) };
        Decision {
            retry_in_ns: later(self.retry_in_ns),
            reset_in_ns: later(self.reset_in_ns),
            ..self
        }
    }

    /// Returns the decision with the wait of another: none if that one allows its call.
    pub(crate) fn with_wait_of(self, other: &Decision) -> Decision {
        let retry_in_ns = if other.allowed() { 0 } else { other.retry_in_ns };
        Decision { retry_in_ns, ..self }
    }

    /// Turns a denial into an allowance with the same figures: the answer of a limit in shadow mode.
    #[inline]
    pub(crate) fn in_shadow(self) -> Decision {
        Decision { verdict: Verdict::ALLOWED, ..self }
    }

    /// Turns an allowance into a denial with the same figures if the same call would be denied next.
    #[cfg(feature = "tower")]
    pub(crate) fn for_retry(self) -> Decision {
        if self.allowed() && self.retry_in_ns > 0 {
            return Decision { verdict: Verdict::denied_by(0), ..self };
        }
        self
    }

    /// Names the batch's member at `position` as the one that denies, if this is a denial.
    #[inline]
    pub(crate) fn for_member(mut self, position: usize) -> Decision {
        if self.verdict.is_denied() {
            self.verdict = self.verdict.at(position);
        }
        self
    }

    /// Makes the wait longer.
    #[cfg(feature = "http")]
    pub(crate) fn waiting_longer(self, by: Duration) -> Decision {
        Decision { retry_in_ns: self.retry_in_ns.saturating_add(saturating_ns(by)), ..self }
    }

    /// Denies a call for an id without a bucket, for which there can be room in `wait_ns`.
    pub(crate) fn without_room(wait_ns: u64) -> Decision {
        let wait_ns = wait_ns.max(1);
        let verdict = Verdict(Verdict::denied_by(0).0 | Verdict::OUT_OF_ROOM);
        Decision { verdict, left: 0, unit: 1, retry_in_ns: wait_ns, reset_in_ns: wait_ns }
    }

    /// Turns a spend's decision into the denial by a block that ends in `left_ns`.
    pub(crate) fn under_block(self, left_ns: u64) -> Decision {
        let own_ns = if self.allowed() { 0 } else { self.retry_in_ns };
        let retry_in_ns = own_ns.max(left_ns);
        let verdict = Verdict::denied_by(0).blocked();
        Decision { verdict, left: 0, unit: self.unit.max(1), retry_in_ns, ..self }
    }

    /// Returns the remaining units and the time until the bucket is full.
    #[cfg(feature = "http")]
    pub(crate) fn left_and_reset_ns(&self) -> (u64, u64) {
        (self.remaining().unwrap_or(0), self.reset_in_ns)
    }

    /// Turns a decision into a refund's: in place of a denial it says that nothing was refunded.
    #[inline]
    pub(crate) fn of_refund(mut self) -> Decision {
        if !self.allowed() {
            self.verdict = Verdict::NOTHING_REFUNDED;
        }
        self
    }

    /// The stricter of two decisions: a denial before an allowance, then the longer wait, then the fewer remaining
    /// units; `later` if all are equal. "No limit" is the least strict.
    pub(crate) fn stricter(self, later: Decision) -> Decision {
        if self.cmp_strictness(&later) == Ordering::Greater { self } else { later }
    }

    /// Compares how strict two decisions are: `Greater` if this is the stricter one.
    #[inline(always)]
    pub(crate) fn cmp_strictness(&self, other: &Decision) -> Ordering {
        let rank = |d: &Decision| (d.unit != 0, !d.allowed(), d.retry_in_ns);
        // Only decisions of the same rank need two divisions.
        rank(self).cmp(&rank(other)).then_with(|| other.remaining().cmp(&self.remaining()))
    }

    /// All that callers can read: two decisions are equal if these are.
    fn figures(&self) -> (Verdict, Option<u64>, u64, u64) {
        let Decision { verdict, retry_in_ns, reset_in_ns, .. } = *self;
        (verdict, self.remaining(), retry_in_ns, reset_in_ns)
    }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Decision) -> bool {
        self.figures() == other.figures()
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Decision");
        if self.verdict.is_overloaded() {
            shown.field("overloaded", &true);
        }
        if self.verdict.is_out_of_room() {
            shown.field("out_of_room", &true);
        }
        shown
            .field("allowed", &self.allowed())
            .field("remaining", &self.remaining())
            .field("retry_in", &self.retry_in())
            .field("reset_in", &self.reset_in())
            .field("denied_by", &self.denied_by())
            .field("blocked", &self.blocked())
            .finish()
    }
}

const _: () =
    assert!(size_of::<Decision>() <= 40, "a decision is five words, which are cheap to copy");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stricter_decision_wins_then_the_later() {
        let allowed = Decision::new(true, (5, 1), 0, 9);
        let allowed_long = Decision::new(true, (0, 1), 100, 9);
        let denied_short = Decision::new(false, (3, 1), 1, 9);
        let denied_few = Decision::new(false, (2, 1), 1, 9);
        assert_eq!(allowed_long.stricter(denied_short), denied_short, "a denial beats a long wait");
        assert_eq!(denied_short.stricter(allowed_long), denied_short);
        assert_eq!(allowed.stricter(allowed_long), allowed_long, "the longer wait");
        assert_eq!(denied_few.stricter(denied_short), denied_few, "the fewer remaining");
        let tie = Decision::new(false, (2, 1), 1, 77);
        assert_eq!(denied_few.stricter(tie), tie);
        assert_eq!(tie.stricter(denied_few), denied_few);
    }

    #[test]
    fn no_limit_is_the_least_strict() {
        let allowed = Decision::new(true, (u64::MAX, 1), 0, 0);
        assert_eq!(Decision::UNLIMITED.stricter(allowed), allowed);
        assert_eq!(allowed.stricter(Decision::UNLIMITED), allowed);
        assert_eq!(Decision::UNLIMITED.remaining(), None);
    }
}
