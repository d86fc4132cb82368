//! A charge by an estimate, settled by what it came to.

use std::fmt;

use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::{Claim, Claimed};
use crate::limits::Id;

/// A charge that was made by an estimate, to be [settled](Receipt::settle) once. Made by
/// [`KeyedLimit::spend_estimate`], [`KeyedLimit::until_allowed`] and
/// [`Reservation::into_receipt`](crate::reserve::Reservation::into_receipt).
///
/// Dropped without being settled, it leaves the estimate charged.
pub struct Receipt {
    claim: Option<Claim>,
    cost: u64,
}

impl KeyedLimit {
    /// As [`spend`](KeyedLimit::spend), with a receipt if it is allowed: for costs that are known only
    /// afterwards, such as bytes sent or tokens generated.
    ///
    /// # Errors
    ///
    /// See [`KeyedLimit`].
    ///
    /// # Example: tokens, of which 600 were expected
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
    /// let (decision, receipt) = tokens.charge("alice", 600)?;
    /// assert!(decision.allowed());
    /// let after = receipt.expect("allowed").settle(250);
    /// assert_eq!(after.remaining(), Some(750));
    ///
    /// let (_, receipt) = tokens.charge("alice", 600)?;
    /// let after = receipt.expect("allowed").settle(1_100); // 350 more than there were
    /// assert!(!after.allowed() && after.retry_in() > Duration::from_secs(20));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_estimate<'a>(
        &self,
        id: impl Into<Id<'a>>,
        estimate: u64,
    ) -> Result<(Decision, Option<Receipt>), Error> {
        let now_ns = self.limiter.inner.clock.now_ns();
        let ask = |limit: &Limit, word, now_ns| limit.rule().spend(word, now_ns, estimate);
        let Claimed { decision, claim, .. } = self.claim(id.into(), estimate, now_ns, ask)?;
        let receipt = decision.allowed().then(|| Receipt::new(claim, estimate));
        Ok((decision, receipt))
    }
}

impl Receipt {
    pub(super) fn new(claim: Option<Claim>, cost: u64) -> Receipt {
        Receipt { claim, cost }
    }

    /// The units that are charged.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Charges `actual` in place of the estimate, and says what the bucket is after it, as a
    /// [`check`](KeyedLimit::check) at a cost of 0 does: denied, if it owes.
    ///
    /// What was estimated too much is given back, but for what has come back by itself since: a bucket
    /// that would have been full without it has nothing to gain. Nothing that others were charged or were
    /// promised since is touched, so that less is given back where others wait: nothing in a fixed window
    /// and a leaky bucket. What was estimated too little is charged, whether it is there or not, down to
    /// the limit's floor, [`max_debt`](crate::limits::LimitOptions::max_debt); what is below that is
    /// forgiven. A place that is settled before its time keeps its time.
    ///
    /// Units go back once. After a [refund](KeyedLimit::refund) or a [reset](KeyedLimit::reset) of the bucket a
    /// receipt from before it gives nothing back. Nor does it after a [reload](crate::Limiter::reload) or after
    /// the end of the [override](crate::limits::OverrideOptions) that applied. Do not refund units by hand that a receipt is
    /// to return: settle it.
    pub fn settle(self, actual: u64) -> Decision {
        let Some(claim) = &self.claim else { return Decision::UNLIMITED };
        if actual < self.cost {
            claim.roll_back_to(actual);
        } else if actual > self.cost {
            claim.owe(actual - self.cost);
        }
        claim.look()
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}
