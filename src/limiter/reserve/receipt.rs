//! Charges an estimate, and settles it by the actual cost.

use std::fmt;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::{Claim, Claimed, Wanted};
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
/// # use tollgate::{KeyedLimit, Limit};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// use tollgate::reserve::Receipt;
///
/// let users = KeyedLimit::new("PerUser", limit)?;
/// let receipt: Receipt = users.spend_estimate("alice", 4)?.1.expect("allowed");
/// assert_eq!(receipt.settle(1).remaining(), Some(4));
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct Receipt {
    /// `None` if no limit applies.
    pub(crate) charged: Option<Claim>,
    pub(crate) cost: u64,
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
        let claimed = self.claim(id.into(), estimate, now_ns, Wanted::Now)?;
        let Claimed { decision, claim, .. } = claimed;
        let receipt = decision.allowed().then(|| Receipt { charged: claim, cost: estimate });
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
    /// * **The estimate was too high.** The difference is returned, and can be spent at once: this is a
    ///   [refund](KeyedLimit::refund) of these units. A bucket is never more than full; a fixed window that is not that of
    ///   the estimate takes nothing.
    /// * **The estimate was too low.** The rest is charged, down to a debt of
    ///   [`max_debt`](crate::limits::LimitOptions::max_debt) units beyond what the bucket has. Nothing is charged if the
    ///   table is full and has no bucket of the id, unless the id [shares](crate::options::AtCap::Share) one.
    ///
    /// A reservation that is settled before its time is still granted at its time.
    ///
    /// Nothing is returned if a [reload](crate::Limiter::reload) has changed the limit of the id since, or its override has
    /// ended. While the limiter is [switched off](crate::Limiter::set_enabled), nothing is returned or charged.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// let (decision, receipt) = users.spend_estimate("alice", 4)?;
    /// assert_eq!(decision.remaining(), Some(1));
    /// assert_eq!(receipt.expect("allowed").settle(2).remaining(), Some(3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle(self, actual: u64) -> Decision {
        match &self.charged {
            Some(claim) => claim.settle(self.cost, actual),
            None => Decision::UNLIMITED,
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}
