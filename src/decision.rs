//! The answer to a call.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// What a limit, or a batch of limits, says to a call.
///
/// The figures are exact; waits are never early. For a batch they are those of the strictest member.
///
/// # Example: what a caller does with it
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
#[must_use = "it says whether the call is allowed"]
#[derive(Clone, Copy)]
pub struct Decision {
    said: Said,
    /// What is left, in parts of which `unit` make one unit: most callers never ask, so the division
    /// waits for those who do. A `unit` of 0 is no limit.
    left: u64,
    unit: u64,
    retry_in_ns: u64,
    reset_in_ns: u64,
}

/// Yes, or by whom no. A word of its own, like the other figures: a decision is written by words and read
/// by words, and a processor that has to put one together of shorter ones waits for them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Said(NonZeroU64);

impl Said {
    const ALLOWED: Said = Said(NonZeroU64::MAX);
    /// By a refund that gave nothing back.
    const NOTHING_GIVEN: Said = Said(NonZeroU64::new(u64::MAX - 1).unwrap());

    /// Beside the position of a denial: it was a block.
    const BLOCK: u64 = 1 << 63;

    /// By the member of a batch at this position. One with more would not fit in memory.
    fn denied_by(position: usize) -> Said {
        Said(NonZeroU64::MIN.saturating_add(position as u64))
    }

    fn is_denied(self) -> bool {
        self != Said::ALLOWED && self != Said::NOTHING_GIVEN
    }

    fn is_blocked(self) -> bool {
        self.is_denied() && self.0.get() & Said::BLOCK != 0
    }

    fn blocked(self) -> Said {
        Said(self.0 | Said::BLOCK)
    }

    fn position(self) -> Option<usize> {
        self.is_denied().then(|| ((self.0.get() & !Said::BLOCK) - 1) as usize)
    }
}

impl Decision {
    /// The answer where no limit applies, or none that can deny.
    pub(crate) const UNLIMITED: Decision =
        Decision { said: Said::ALLOWED, left: 0, unit: 0, retry_in_ns: 0, reset_in_ns: 0 };

    /// The answer of an [`Algorithm`](crate::algorithm::Algorithm) to a spend, with the figures of the methods below:
    /// `remaining` in whole units, waits to the nanosecond, at most 584 years. A denial must wait: a
    /// `retry_in` of 0 is taken as 1 ns there.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Decision;
    ///
    /// let denied = Decision::to_spend(false, 0, Duration::from_secs(1), Duration::from_secs(3));
    /// assert_eq!(denied.retry_in(), Duration::from_secs(1));
    /// assert_eq!(denied.denied_by(), Some(0));
    /// ```
    pub fn to_spend(
        allowed: bool,
        remaining: u64,
        retry_in: Duration,
        reset_in: Duration,
    ) -> Decision {
        let retry_in_ns = saturated_ns(retry_in).max(u64::from(!allowed));
        Decision::new(allowed, (remaining, 1), retry_in_ns, saturated_ns(reset_in))
    }

    /// The answer of an [`Algorithm`](crate::algorithm::Algorithm) to a refund: whether anything was given back, and
    /// what the bucket is after it. It denies nothing, and nobody has to wait.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Decision;
    ///
    /// let full_already = Decision::to_refund(false, 20, Duration::ZERO);
    /// assert!(!full_already.allowed());
    /// assert_eq!(full_already.denied_by(), None);
    /// ```
    pub fn to_refund(given_back: bool, remaining: u64, reset_in: Duration) -> Decision {
        Decision::new(given_back, (remaining, 1), 0, saturated_ns(reset_in)).of_refund()
    }

    /// `left / unit` is what remains; `unit` is at least 1.
    #[inline]
    pub(crate) fn new(
        allowed: bool,
        (left, unit): (u64, u64),
        retry_in_ns: u64,
        reset_in_ns: u64,
    ) -> Decision {
        let said = if allowed { Said::ALLOWED } else { Said::denied_by(0) };
        Decision { said, left, unit, retry_in_ns, reset_in_ns }
    }

    /// Whether the call may go on. Of a refund: whether anything was given back.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.said == Said::ALLOWED
    }

    /// Whole units that can still be spent after this call; on a denial, those that are there now.
    /// `None` where no limit applies.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.left.checked_div(self.unit)
    }

    /// Denied: the time until this same cost would be allowed if nothing else is spent. Allowed: the
    /// time until the same cost could be spent again, 0 if at once.
    #[inline]
    pub fn retry_in(&self) -> Duration {
        Duration::from_nanos(self.retry_in_ns)
    }

    /// The time until the bucket is full if nothing else is spent.
    #[inline]
    pub fn reset_in(&self) -> Duration {
        Duration::from_nanos(self.reset_in_ns)
    }

    /// The position in its batch of the member that denied it, 0 for a call of one limit.
    /// `None` when allowed, and for a refund.
    #[inline]
    pub fn denied_by(&self) -> Option<usize> {
        self.said.position()
    }

    /// Whether it was denied because the id is [blocked](crate::KeyedLimit::block), whatever its bucket holds. Of
    /// a batch: because that of the member is which denied it.
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
        self.said.is_blocked()
    }

    /// Whether less than a fifth of `burst` remains: `5 * remaining < burst`.
    #[inline(always)]
    pub(crate) fn is_near(&self, burst: u64) -> bool {
        // Without a division by what is not known: the units that are enough, as parts. A burst is not 0;
        // parts that are too many for a word are more than any that are left.
        let enough = burst.wrapping_sub(1) / 5 + 1;
        enough.checked_mul(self.unit).is_none_or(|enough| self.left < enough)
    }

    /// This decision of a limit that denies nobody: the figures as they are.
    #[inline]
    pub(crate) fn in_shadow(self) -> Decision {
        Decision { said: Said::ALLOWED, ..self }
    }

    /// This decision of the batch's member at `position`.
    #[inline]
    pub(crate) fn of_member(mut self, position: usize) -> Decision {
        if self.said.is_denied() {
            let denied = Said::denied_by(position);
            self.said = if self.blocked() { denied.blocked() } else { denied };
        }
        self
    }

    /// This decision of a spend from a bucket whose id is blocked for so long: a denial.
    pub(crate) fn under_block(self, left_ns: u64) -> Decision {
        let own_ns = if self.allowed() { 0 } else { self.retry_in_ns };
        let retry_in_ns = own_ns.max(left_ns);
        let said = Said::denied_by(0).blocked();
        Decision { said, left: 0, unit: self.unit.max(1), retry_in_ns, ..self }
    }

    /// This decision as the answer to a refund, which denies nothing.
    #[inline]
    pub(crate) fn of_refund(mut self) -> Decision {
        if !self.allowed() {
            self.said = Said::NOTHING_GIVEN;
        }
        self
    }

    /// The stricter of two decisions: denied before allowed, then the longer wait, then the fewer
    /// remaining; on a full tie `later`. Where no limit applies is the least strict.
    pub(crate) fn stricter(self, later: Decision) -> Decision {
        let rank = |d: &Decision| {
            let remaining = d.remaining();
            (remaining.is_some(), !d.allowed(), d.retry_in_ns, std::cmp::Reverse(remaining))
        };
        if rank(&self) > rank(&later) { self } else { later }
    }

    /// What a caller can see.
    fn figures(&self) -> (bool, bool, Option<usize>, Option<u64>, u64, u64) {
        let Decision { retry_in_ns, reset_in_ns, .. } = *self;
        let (denied_by, remaining) = (self.denied_by(), self.remaining());
        (self.allowed(), self.blocked(), denied_by, remaining, retry_in_ns, reset_in_ns)
    }
}

fn saturated_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl PartialEq for Decision {
    fn eq(&self, other: &Decision) -> bool {
        self.figures() == other.figures()
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
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
    assert!(size_of::<Decision>() <= 40, "a decision is returned in a few registers' worth");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stricter_decision_wins_and_later_wins_a_tie() {
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
