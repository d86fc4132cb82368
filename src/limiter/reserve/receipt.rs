//! Charges an estimate, and settles it by the actual cost.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::core::view::LimitsView;
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::claim::{Claim, Claimed, ClaimedBy, Claims};
use crate::limiter::reserve::wanted::Wanted;
use crate::limits::Id;

/// Holds estimated charges, of one limit or of the members of a batch, to be [settled](Receipt::settle) by the actual costs.
/// Made by [`KeyedLimit::spend_estimate`] and [`Batch::spend_estimate`](crate::batch::Batch::spend_estimate), which have
/// examples, [`KeyedLimit::until_allowed`] and [`Reservation::into_receipt`](crate::reserve::Reservation::into_receipt).
///
/// If a receipt is dropped, the estimates that are not settled stay charged, and the permits that the batch has taken go back.
///
/// Up to eight members are kept without an allocation, apart from ids of more than 18 bytes.
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
    by: Option<ClaimedBy>,
    /// The charges that are not settled.
    claims: Claims,
    /// The units of all charges.
    cost: u64,
    /// Charges that were made under other limits, because a reload came in between.
    later: Option<Box<Receipt>>,
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
        Ok((decision, decision.allowed().then(|| Receipt::of_one(claim, estimate))))
    }
}

impl Receipt {
    /// Holds the charge of one call of `cost` units, if a limit applies to it.
    #[inline]
    pub(crate) fn of_one(charged: Option<(ClaimedBy, Claim)>, cost: u64) -> Receipt {
        let (by, claim) = charged.unzip();
        Receipt { by, claims: claim.into_iter().collect(), cost, later: None }
    }

    /// Takes the charge of a call for one limit, and its units.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn into_one(mut self) -> (Option<(ClaimedBy, Claim)>, u64) {
        (self.by.take().zip(self.claims.pop()), self.cost)
    }

    /// Holds no charge.
    #[inline]
    pub(crate) fn of_nothing() -> Receipt {
        Receipt { by: None, claims: Claims::new(), cost: 0, later: None }
    }

    /// Adds the charge of a member of a batch, which was made in this view.
    #[inline]
    pub(crate) fn add(&mut self, limiter: &Limiter, view: LimitsView<'_>, claim: Claim) {
        if self.by.is_none() {
            self.by = Some(ClaimedBy::new(limiter, view));
        }
        self.cost = self.cost.saturating_add(claim.cost());
        self.claims.push(claim);
    }

    /// Adds the charges of another receipt of the same batch.
    pub(crate) fn append(&mut self, mut other: Receipt) {
        self.cost = self.cost.saturating_add(other.cost);
        self.by = self.by.take().or(other.by.take());
        self.claims.append(&mut other.claims);
    }

    /// Holds the charges of two receipts for members of one batch.
    pub(crate) fn joined(mut self, mut other: Receipt) -> Receipt {
        match (&self.by, &other.by) {
            (Some(own), Some(by)) if !own.is_same(by) => {
                self.cost = self.cost.saturating_add(other.cost);
                let later = self.later.take();
                self.later = Some(Box::new(match later {
                    Some(later) => later.joined(other),
                    None => other,
                }));
                self
            }
            _ => {
                let later = other.later.take();
                self.append(other);
                later.into_iter().fold(self, |all, later| all.joined(*later))
            }
        }
    }

    /// All charges, each with the limits under which it was made.
    fn charges(&self) -> impl Iterator<Item = (&ClaimedBy, &Claim)> {
        let parts = std::iter::successors(Some(self), |part| part.later.as_deref());
        parts.flat_map(|part| {
            part.by.iter().flat_map(|by| part.claims.iter().map(move |it| (by, it)))
        })
    }

    /// Whether the member at `position` has a charge.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn has_member(&self, position: usize) -> bool {
        self.charges().any(|(_, claim)| claim.position() == position)
    }

    /// Takes the charge of the member at `position`, as a separate receipt.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn take_member(&mut self, position: usize) -> Option<Receipt> {
        let Some(at) = self.claims.iter().position(|claim| claim.position() == position) else {
            return self.later.as_mut()?.take_member(position);
        };
        let claim = self.claims.swap_remove(at);
        let cost = claim.cost();
        let (by, claims) = (self.by.clone(), Claims::from_iter([claim]));
        Some(Receipt { by, claims, cost, later: None })
    }

    /// Returns the charges, to mark those that have charged a shadow bucket as well.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn claims_mut(&mut self) -> impl Iterator<Item = &mut Claim> {
        self.claims.iter_mut()
    }

    /// Whether a charge is of permits.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn has_permits(&self) -> bool {
        self.claims.iter().any(|claim| claim.is_of_permits)
    }

    /// Returns all units of all charges, the last one first, but for permits. A charge whose return panics stays.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn give_back_all(&self) {
        let units = self.charges().filter(|(_, claim)| !claim.is_of_permits);
        for (by, claim) in units.collect::<SmallVec<[_; 8]>>().into_iter().rev() {
            // The others are returned as well. A second panic during unwinding would abort the process.
            let _ = catch_unwind(AssertUnwindSafe(|| claim.give_back(by, claim.cost())));
        }
    }

    /// The same charges, of the member at `position`.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn of_position(self, position: usize) -> Receipt {
        self.of_positions(|_| position)
    }

    /// The same charges; `position` converts the position of each member.
    pub(crate) fn of_positions(mut self, position: impl Fn(usize) -> usize) -> Receipt {
        self.claims.iter_mut().for_each(|claim| claim.set_position(position(claim.position())));
        self
    }

    /// Returns all units of the charge of the member at `position`. Returns whether there is one.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn give_back_member(&self, position: usize) -> bool {
        let charge = self.charges().find(|(_, claim)| claim.position() == position);
        charge.inspect(|(by, claim)| claim.give_back(by, claim.cost())).is_some()
    }

    /// Decides a check of the bucket of the member at `position`, at a cost of 0.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn look_at_member(&self, position: usize) -> Option<Decision> {
        let (by, claim) = self.charges().find(|(_, claim)| claim.position() == position)?;
        Some(claim.look(by))
    }

    /// The units that are charged as estimates, of all members together. Members that are settled count as well.
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
    ///   [refund](KeyedLimit::refund) of these units. A bucket is never more than full. A fixed window takes nothing
    ///   if the estimate was charged in an earlier window.
    /// * **The estimate was too low.** The rest is charged, down to a debt of
    ///   [`max_debt`](crate::limits::LimitOptions::max_debt) units beyond what the bucket has. Nothing is charged if the
    ///   table is full and has no bucket of the id, unless the id [shares](crate::options::AtCap::Share) one.
    /// * **The receipt of a batch** settles each member that is not settled yet, all of them by the same `actual`, and returns
    ///   the strictest of the decisions. Members whose actual costs differ are settled by their places: see
    ///   [`settle_member`](Receipt::settle_member). Permits go back.
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
        let units = self.charges().filter(|(_, claim)| !claim.is_of_permits);
        let mut units: SmallVec<[_; 8]> = units.collect();
        units.sort_unstable_by_key(|(_, claim)| claim.position());
        let settled = units.iter().map(|(by, claim)| claim.settle(by, actual));
        settled.fold(Decision::UNLIMITED, Decision::stricter)
    }

    /// Settles one member of a batch, by its position in the batch, and returns its decision as [`settle`](Receipt::settle)
    /// does. `None`: there is nothing to settle, because the member is settled already, because no limit applies to it, or
    /// because the batch charged it nothing (a member that only checks, or one that only spends and whose bucket did not
    /// have the units). Permits are not settled: they go back with the receipt.
    ///
    /// The members that are never settled stay charged by their estimates: here the one request.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// let minute = Duration::from_secs(60);
    /// let limiter = Limiter::new(
    ///     Limits::builder()
    ///         .limit("Requests", IdFormat::String, Limit::new(10, 10, minute)?)?
    ///         .limit("Tokens", IdFormat::String, Limit::new(1000, 1000, minute)?)?
    ///         .build(),
    /// );
    /// let (requests, tokens) = (limiter.limit("Requests")?, limiter.limit("Tokens")?);
    /// let members = [requests.member("alice"), tokens.member("alice").cost(600)];
    /// let (_, receipt) = limiter.batch(&members).spend_estimate()?;
    /// let mut receipt = receipt.expect("allowed");
    /// // The answer had 250 tokens.
    /// assert_eq!(receipt.settle_member(1, 250).expect("charged").remaining(), Some(750));
    /// assert_eq!(receipt.settle_member(1, 250), None); // once
    /// drop(receipt);
    /// assert_eq!(requests.check("alice", 0)?.remaining(), Some(9));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle_member(&mut self, position: usize, actual: u64) -> Option<Decision> {
        let is_of = |claim: &Claim| claim.position() == position && !claim.is_of_permits;
        let Some(at) = self.claims.iter().position(is_of) else {
            return self.later.as_mut()?.settle_member(position, actual);
        };
        let claim = self.claims.swap_remove(at);
        self.by.as_ref().map(|by| claim.settle(by, actual))
    }
}

/// Gives permits back.
impl Drop for Receipt {
    fn drop(&mut self) {
        let Some(by) = &self.by else { return };
        for claim in self.claims.iter().filter(|claim| claim.is_of_permits) {
            // The others are given back as well. A second panic during unwinding would abort the process.
            let _ = catch_unwind(AssertUnwindSafe(|| claim.release(by)));
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}
