//! Charges an estimate, and settles it by the actual cost.

use std::fmt;

use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::charged::Charged;
use crate::limiter::reserve::claim::Claimed;
use crate::limits::Id;

/// Holds an estimated charge, to be [settled](Receipt::settle) once by the actual cost. Made by
/// [`KeyedLimit::spend_estimate`], which has an example, [`KeyedLimit::until_allowed`] and
/// [`Reservation::into_receipt`](crate::reserve::Reservation::into_receipt).
///
/// If a receipt is dropped, the estimate stays charged.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// use tollgate::reserve::Receipt;
///
/// let users = limiter.limit("PerUser")?;
/// let receipt: Receipt = users.spend_estimate("alice", 4)?.1.expect("allowed");
/// assert_eq!(receipt.settle(1).remaining(), Some(4));
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct Receipt {
    /// `None` if no limit applies.
    pub(in crate::limiter) charged: Option<Charged>,
    pub(in crate::limiter) cost: u64,
}

impl KeyedLimit {
    /// Like [`spend`](KeyedLimit::spend), and returns a receipt if the call is allowed. For costs that are known only
    /// afterwards, such as bytes sent or tokens generated.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example: tokens, with an estimate of 600
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// use tollgate::limits::LimitOptions;
    ///
    /// let limit = Limit::new(1000, 1000, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().max_debt(500);
    /// let limits = Limits::builder().limit_with("Tokens", IdFormat::String, limit, options)?.build();
    /// let limiter = Limiter::new(limits);
    /// let tokens = limiter.limit("Tokens")?;
    ///
    /// let (decision, receipt) = tokens.spend_estimate("alice", 600)?;
    /// assert!(decision.allowed());
    /// let after = receipt.expect("allowed").settle(250);
    /// assert_eq!(after.remaining(), Some(750));
    ///
    /// let (_, receipt) = tokens.spend_estimate("alice", 600)?;
    /// let after = receipt.expect("allowed").settle(1_100); // 350 more than the bucket had
    /// assert!(!after.allowed() && after.retry_in() > Duration::from_secs(20));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_estimate<'a>(
        &self,
        id: impl Into<Id<'a>>,
        estimate: u64,
    ) -> Result<(Decision, Option<Receipt>), Error> {
        let now_ns = self.limiter.inner.clock.now_ns();
        let ask =
            |limit: &Limit, word, now_ns| (limit.rule().spend(word, now_ns, estimate), now_ns);
        let Claimed { decision, claim, .. } = self.claim(id.into(), estimate, now_ns, ask)?;
        let charged = claim.map(Charged::Here);
        let receipt = decision.allowed().then(|| Receipt { charged, cost: estimate });
        Ok((decision, receipt))
    }
}

impl Receipt {
    /// The units that are charged as an estimate.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let (_, receipt) = limiter.limit("PerUser")?.spend_estimate("alice", 4)?;
    /// assert_eq!(receipt.expect("allowed").cost(), 4);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Charges `actual` units in place of the estimate. Returns the decision of a [`check`](KeyedLimit::check) at a
    /// cost of 0 after it: a denial if the bucket is in debt. A block of the id does not change this decision.
    ///
    /// * **The estimate was too high.** The difference is returned, except for the units that have refilled since: a
    ///   bucket that would be full without the charge gets nothing. The charges and the reservations of later callers
    ///   stay as they are, so less is returned while others wait, and nothing for a fixed window or a leaky bucket.
    ///   Later calls, also plain spends, may use the returned units before existing reservations are granted.
    /// * **The estimate was too low.** The difference is charged, even if the bucket does not have it, down to a debt
    ///   of [`max_debt`](crate::limits::LimitOptions::max_debt) units. Units beyond that are not charged, and none if the
    ///   table is full and has no bucket of the id, unless the id [shares](crate::options::AtCap::Share) one.
    ///
    /// A reservation that is settled before its time is still granted at its time.
    ///
    /// Units are returned once. A receipt returns nothing after a later [refund](KeyedLimit::refund) or
    /// [reset](KeyedLimit::reset) of the bucket, after a [reload](crate::Limiter::reload), or after the end of the
    /// [override](crate::limits::OverrideOptions) that applied. So settle a receipt, and do not refund its units by
    /// hand. While the limiter is [switched off](crate::Limiter::set_enabled), nothing is returned or charged.
    ///
    /// If another thread is rolling back a charge of the bucket at this moment, that thread returns these units as well,
    /// as soon as it goes on. The decision then shows the bucket without them.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let (decision, receipt) = users.spend_estimate("alice", 4)?;
    /// assert_eq!(decision.remaining(), Some(1));
    /// assert_eq!(receipt.expect("allowed").settle(2).remaining(), Some(3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle(self, actual: u64) -> Decision {
        match &self.charged {
            Some(charged) => charged.settle(self.cost, actual),
            None => Decision::UNLIMITED,
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}
