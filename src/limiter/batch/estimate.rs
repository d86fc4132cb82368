//! Charges the members of a batch by estimates, which are settled later.

use crate::core::spent::Spent;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::fast_path::{self, After};
use crate::limiter::batch::{Batch, MemberMode, Prepared, Trial};
use crate::limiter::reserve::Receipt;
use crate::limiter::reserve::claim::Claim;

impl Batch<'_> {
    /// Like [`spend`](Batch::spend), and returns a receipt if the batch is allowed. It holds the charges of all members, to be
    /// [settled](Receipt::settle) by their actual costs together, or [one by one](Receipt::settle_member).
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    ///
    /// # Example: a completion counts for a user and for a team
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let tokens = |most| Limit::new(most, most, Duration::from_secs(60));
    /// let limiter = Limiter::new(
    ///     Limits::builder()
    ///         .limit("TokensPerUser", IdFormat::String, tokens(1_000)?)?
    ///         .limit("TokensPerTeam", IdFormat::String, tokens(5_000)?)?
    ///         .build(),
    /// );
    /// let (users, teams) = (limiter.limit("TokensPerUser")?, limiter.limit("TokensPerTeam")?);
    /// let members = [users.member("alice").cost(600), teams.member("a-team").cost(600)];
    /// let (decision, receipt) = limiter.batch(&members).spend_estimate()?;
    /// assert_eq!(decision.remaining(), Some(400));
    ///
    /// // The answer had 250 tokens. The strictest of the two buckets is that of the user.
    /// assert_eq!(receipt.expect("allowed").settle(250).remaining(), Some(750));
    /// assert_eq!(teams.check("a-team", 0)?.remaining(), Some(4_750));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_estimate(&self) -> Result<(Decision, Option<Receipt>), Error> {
        // The result is made first and filled in its place: a receipt has half a kilobyte, and a move copies it.
        let mut charged = (Decision::UNLIMITED, Some(Receipt::of_nothing()));
        if let (decision, Some(receipt)) = &mut charged {
            *decision = self.spend_for(receipt)?;
        }
        if !charged.0.allowed() {
            charged.1 = None;
        }
        Ok(charged)
    }

    /// Spends the batch, and adds the charges of an allowed one to a receipt.
    #[inline]
    fn spend_for(&self, receipt: &mut Receipt) -> Result<Decision, Error> {
        let mut after = After { tell: None, keep: Some(receipt) };
        match fast_path::spend(self.limiter, self.members, Some(&mut after)) {
            Some(decision) => Ok(decision),
            None => self.spend_generally_for(receipt),
        }
    }

    #[inline(never)]
    fn spend_generally_for(&self, receipt: &mut Receipt) -> Result<Decision, Error> {
        self.spend_and_report(false, true, |_, view, member| {
            let claim = member.claim();
            claim.into_iter().for_each(|claim| receipt.add(self.limiter, view, claim));
        })
    }
}

impl Prepared<'_> {
    /// Returns the member's charge. `None`: the batch has charged it nothing that a settlement could change.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let spent = self.spent.unwrap_or_else(|| Spent::nothing(self.decision));
        let is_above = self.trial == Trial::ShadowMode { is_above: true };
        let did_not_fit =
            self.mode == MemberMode::SpendOnly && self.cost > 0 && spent.charge.is_none();
        if self.mode == MemberMode::CheckOnly || is_above || did_not_fit {
            return None;
        }
        let of_limit = (&*self.limit, self.cost);
        let claim = Claim::new(&self.key, of_limit, self.factor, spent);
        let mut claim = claim.of_member(self.position);
        claim.is_in_shadow = self.is_in_shadow;
        claim.count_in_flight(&self.handle.tally);
        Some(claim)
    }
}
