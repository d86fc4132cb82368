//! Charges several buckets as one: all of them, or none.
//!
//! A batch first looks at the words of all its members and decides. Only if the decision is to allow, it charges them,
//! with one compare-and-swap each, in the order of their keys. If another caller has meanwhile taken units that a
//! member needed, the batch returns the charges that it has made, and is denied.

mod charge;
mod count;
mod estimate;
mod fast_path;
mod member;
mod permit_turn;
mod places;
pub(crate) mod prepared;
mod waiting;

use smallvec::SmallVec;

use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::Call;
use crate::limiter::other_handles::{needs_receipt, needs_store};
#[cfg(feature = "tower")]
use crate::limiter::reserve::{Receipt, claim::ClaimedBy};
use crate::limits::{Applying, Scratch};
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};

use count::give_to_shadow;
use fast_path::After;

pub(crate) use charge::{Looks, look, returned_on_panic, spend};
pub(crate) use count::count;
pub use member::{Member, MemberMode};
pub(crate) use prepared::{
    INLINE_MEMBERS, Needs, OF_CHECK, OF_REFUND, OF_RESET, OF_SPEND, Prepared, PreparedMembers,
    Trial, prepare_all, strictest,
};

/// Charges several buckets together or not at all. Made by [`Limiter::batch`].
///
/// A batch has one decision: that of its strictest member. A denial is stricter than an allowance; then a longer wait
/// is stricter, then fewer remaining units, then the later position. Members to which no limit applies do not count. If
/// no member can deny, the decision is as if no limit applied.
///
/// A batch never admits more than any of its limits allows. A batch that is denied or fails leaves every bucket as
/// before it, but for what refills while it holds its charges; meanwhile these may deny concurrent callers. A charge whose
/// limit a [reload](Limiter::reload) or an override's end changes at that moment stays.
///
/// A batch of up to 8 members allocates nothing.
///
/// # Errors
///
/// Every call can fail, and then changes nothing: with [`Error::is_invalid_id`], with [`Error::is_cost_above_burst`],
/// and with [`Error::is_invalid_batch`] if it names one bucket twice, or if a handle belongs to another limiter.
///
/// # Example: an order counts for the account and for the address
///
/// ```
/// use std::{net::Ipv4Addr, time::Duration};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let second = Duration::from_secs(1);
/// let limiter = Limiter::new(
///     Limits::builder()
///         .limit("OrdersPerAccount", IdFormat::RegId, Limit::new(10, 1, second)?)?
///         .limit("OrdersPerAddress", IdFormat::IpAddress, Limit::new(1, 1, second)?)?
///         .build(),
/// );
/// let (accounts, addresses) = (limiter.limit("OrdersPerAccount")?, limiter.limit("OrdersPerAddress")?);
/// let order = [accounts.member(7), addresses.member(Ipv4Addr::LOCALHOST)];
/// assert!(limiter.batch(&order).spend()?.allowed());
/// let denied = limiter.batch(&order).spend()?;
/// assert_eq!(denied.denied_by(), Some(1));
/// assert_eq!(accounts.check(7, 1)?.remaining(), Some(8), "charged once, not twice");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Batch<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) members: &'a [Member<'a>],
}

impl<'a> Batch<'a> {
    pub(crate) fn new(limiter: &'a Limiter, members: &'a [Member<'a>]) -> Batch<'a> {
        Batch { limiter, members }
    }

    /// Spends the costs of all members if all buckets have the units.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice"), users.member("bob").cost(3)];
    /// assert!(limiter.batch(&members).spend()?.allowed());
    /// assert!(!limiter.batch(&members).spend()?.allowed(), "bob has 2 units");
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(4)); // charged once
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn spend(&self) -> Result<Decision, Error> {
        match fast_path::spend(self.limiter, self.members, None) {
            Some(decision) => Ok(decision),
            None => self.spend_generally(),
        }
    }

    #[inline(never)]
    fn spend_generally(&self) -> Result<Decision, Error> {
        self.spend_and_report(false, false, |_, _, _| ())
    }

    /// Like [`spend`](Batch::spend), and adds each member's own decision to `decisions`, in the order of the batch. If
    /// the batch is denied, the decision of a member that would have been allowed is that of a check at a cost of 0,
    /// since the member was charged nothing.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
    /// let limiter = Limiter::new(
    ///     Limits::builder()
    ///         .limit("PerUser", IdFormat::String, limit(2)?)?
    ///         .limit("PerTeam", IdFormat::String, limit(1)?)?
    ///         .build(),
    /// );
    /// let (users, teams) = (limiter.limit("PerUser")?, limiter.limit("PerTeam")?);
    /// let members = [users.member("alice"), teams.member("a-team")];
    /// let batch = limiter.batch(&members);
    /// let mut each = Vec::new();
    /// assert!(batch.spend_into(&mut each)?.allowed());
    /// each.clear();
    /// assert_eq!(batch.spend_into(&mut each)?.denied_by(), Some(1));
    /// assert!(each[0].allowed() && !each[1].allowed());
    /// assert_eq!(each[0].remaining(), Some(1), "charged once");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_into(&self, decisions: &mut impl Extend<Decision>) -> Result<Decision, Error> {
        let mut each: SmallVec<[Decision; INLINE_MEMBERS]> = SmallVec::new();
        each.resize(self.members.len(), Decision::UNLIMITED);
        let mut tell = |at: usize, decision, _: &Limit| each[at] = decision;
        let mut after = After { tell: Some(&mut tell), keep: None };
        let decision = match fast_path::spend(self.limiter, self.members, Some(&mut after)) {
            Some(decision) => decision,
            None => self.spend_and_report(true, false, |_, _, member| {
                each[member.position] = member.shown_decision();
            })?,
        };
        decisions.extend(each);
        Ok(decision)
    }

    /// Like [`spend`](Batch::spend), and calls `tell`, in any order, for each member whose limit is enforced, with its
    /// position, its own decision as in [`spend_into`](Batch::spend_into), and its limit. `tell` must not panic.
    #[cfg(feature = "tower")]
    pub(crate) fn spend_telling(
        &self,
        tell: &mut dyn FnMut(usize, Decision, &Limit),
    ) -> Result<Decision, Error> {
        let mut after = After { tell: Some(tell), keep: None };
        match fast_path::spend(self.limiter, self.members, Some(&mut after)) {
            Some(decision) => Ok(decision),
            None => self.spend_keeping(tell, |_| false, |_, _| ()),
        }
    }

    /// Like [`spend`](Batch::spend), for callers that may return the charges later. Calls `tell`, in any order, for
    /// each member whose limit is enforced, with its position, its own decision and its limit. If the batch is allowed,
    /// calls `keep` with the receipt of each member for whose position `keeps` is true.
    #[cfg(feature = "tower")]
    pub(crate) fn spend_keeping(
        &self,
        mut tell: impl FnMut(usize, Decision, &Limit),
        keeps: impl Fn(usize) -> bool,
        mut keep: impl FnMut(usize, Receipt),
    ) -> Result<Decision, Error> {
        self.spend_and_report(true, true, |decision, view, member| {
            let position = member.position;
            if !member.is_in_shadow_mode() {
                tell(position, member.shown_decision(), &member.limit);
            }
            if decision.allowed()
                && keeps(position)
                && let Some(claim) = member.claim()
            {
                let by = ClaimedBy::new(self.limiter, view);
                keep(position, Receipt::of_one(Some((by, claim)), member.cost));
            }
        })
    }

    /// Spends and counts the batch, and then calls `report` with its decision for each member that a limit applies to.
    /// `looks_again`: if the batch is denied, the decisions of the members that did not deny it are renewed by a check at a
    /// cost of 0. `keeps`: the caller keeps the charges, so members may take permits.
    fn spend_and_report(
        &self,
        looks_again: bool,
        keeps: bool,
        mut report: impl FnMut(&Decision, LimitsView<'_>, &Prepared<'_>),
    ) -> Result<Decision, Error> {
        self.with_members(OF_SPEND, keeps, &mut |view, members| {
            returned_on_panic(view, members, |members| {
                let (decision, now_ns) = spend(view, members)?;
                if looks_again && !decision.allowed() {
                    for member in members.iter_mut() {
                        if member.decision.allowed() || member.is_in_shadow_mode() {
                            let ask = |word, at_ns| member.limit.rule().spend(word, at_ns, 0);
                            member.decision = view.look(
                                &member.key,
                                (&member.limit, Demand::NOTHING),
                                now_ns,
                                ask,
                            )?;
                        }
                    }
                }
                // Nothing after this is repeated when the limits change: each batch counts once.
                count(view.inner, members, &decision, now_ns);
                members.iter().for_each(|member| report(&decision, view, member));
                Ok(decision)
            })
        })
    }

    /// Returns the decision that [`spend`](Batch::spend) would get, and changes nothing.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice").cost(5), users.member("bob")];
    /// assert_eq!(limiter.batch(&members).check()?.remaining(), Some(0));
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn check(&self) -> Result<Decision, Error> {
        self.with_members(OF_CHECK, true, &mut |view, members| {
            look(view, members, Looks::AtRoom)?;
            Ok(strictest(members, |member| member.can_deny()))
        })
    }

    /// Returns each member's cost to its bucket, one member after the other, except for check-only members.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
    /// let limiter = Limiter::new(
    ///     Limits::builder()
    ///         .limit("PerUser", IdFormat::String, limit(2)?)?
    ///         .limit("PerTeam", IdFormat::String, limit(9)?)?
    ///         .build(),
    /// );
    /// let (users, teams) = (limiter.limit("PerUser")?, limiter.limit("PerTeam")?);
    /// let members = [users.member("alice").cost(2), teams.member("a-team").cost(2)];
    /// assert!(limiter.batch(&members).spend()?.allowed());
    /// assert!(limiter.batch(&members).refund()?.allowed()); // the work was not done
    /// assert_eq!(teams.check("a-team", 0)?.remaining(), Some(9));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund(&self) -> Result<Decision, Error> {
        self.give_each(
            OF_REFUND,
            &|member| Call::Refund(member.cost),
            &|view, key, limit, member, now_ns| {
                let cost = if member.mode == MemberMode::CheckOnly { 0 } else { member.cost };
                // A reload may have made the burst smaller since the cost was checked.
                view.refund(key, limit, cost.min(limit.burst()), now_ns)
            },
        )
    }

    /// Fills each member's bucket, one member after the other, except those of check-only members.
    ///
    /// # Errors
    ///
    /// See [`Batch`]; a cost above the burst is no error here.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice").cost(5), users.member("bob")];
    /// assert!(limiter.batch(&members).spend()?.allowed());
    /// assert!(limiter.batch(&members).reset()?.allowed());
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reset(&self) -> Result<Decision, Error> {
        self.give_each(OF_RESET, &|_| Call::Reset, &|view, key, limit, member, now_ns| match member
            .mode
        {
            MemberMode::CheckOnly => {
                let ask = |word, at_ns| limit.rule().spend(word, at_ns, 0);
                view.look(key, (limit, Demand::NOTHING), now_ns, ask)
            }
            _ => view.reset(key, limit, now_ns),
        })
    }

    /// Calls `give` for each member, and repeats it as `shadow_call` on the member's shadow.
    fn give_each(
        &self,
        needs: Needs,
        shadow_call: &dyn Fn(&Prepared<'_>) -> Call<'static>,
        give: &Give<'_>,
    ) -> Result<Decision, Error> {
        self.with_members(needs, false, &mut |view, members| {
            let now_ns = view.inner.clock.now_ns();
            for member in members.iter_mut() {
                member.decision = match give(view, &member.key, &member.limit, member, now_ns) {
                    Ok(decision) => decision,
                    // The limits have changed. Only this member is repeated: the others are done.
                    Err(Outdated) => view.inner.with_view(|view| {
                        with_limit_now(view, member, |key, limit| {
                            give(view, key, limit, member, now_ns)
                        })
                    }),
                };
                give_to_shadow(view.inner, member, shadow_call(member), now_ns);
            }
            Ok(strictest(members, |_| true))
        })
    }

    /// Prepares the members, in the order of their keys, and calls `call`. Begins again when `call` finds that the
    /// limits have changed; it must have changed nothing then. `needs`: see [`Needs`].
    fn with_members(
        &self,
        needs: Needs,
        with_permits: bool,
        call: &mut dyn FnMut(
            LimitsView<'_>,
            &mut PreparedMembers<'_>,
        ) -> Result<Decision, Outdated>,
    ) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        inner.with_view(|view| {
            let mut scratches: SmallVec<[Scratch; INLINE_MEMBERS]> = SmallVec::new();
            scratches.resize_with(self.members.len(), Scratch::new);
            let (members, mut prepared) = (self.members.iter(), PreparedMembers::new());
            match prepare_all(self.limiter, members, view, &mut scratches, needs, &mut prepared) {
                Ok(()) => {
                    if let Some(member) = prepared.iter().find(|member| member.is_shared(view)) {
                        member.handle.tally.count_error();
                        return Ok(Err(needs_store(member.handle.name())));
                    }
                    let mut permits = prepared.iter().filter(|member| member.is_of_permits());
                    if let Some(member) = permits.next().filter(|_| !with_permits) {
                        member.handle.tally.count_error();
                        return Ok(Err(needs_receipt(member.handle.name())));
                    }
                    Ok(Ok(call(view, &mut prepared)?))
                }
                Err(error) => Ok(Err(error)),
            }
        })
    }
}

/// Gives units back to a member's bucket, as of a time.
type Give<'g> = dyn Fn(LimitsView<'_>, &StoreKey<'_>, &Limit, &Prepared<'_>, u64) -> Result<Decision, Outdated>
    + 'g;

/// Calls `give` with a member's key and limit as they are in a newer view.
fn with_limit_now(
    view: LimitsView<'_>,
    member: &Prepared<'_>,
    give: impl FnOnce(&StoreKey<'_>, &Limit) -> Result<Decision, Outdated>,
) -> Result<Decision, Outdated> {
    let key = KeyRef { limit: member.handle.index, id: member.key.key.id };
    let applies = view.generation.limits.applying(key, view.limits_now_ns());
    let Some(Applying { key, limit, tag, .. }) = applies else { return Ok(Decision::UNLIMITED) };
    let scaled = match member.factor == Factor::ONE {
        true => None,
        // If the factor takes the new limit out of its range, the units are returned without the factor.
        false => view.scaled(key.limit, limit, member.factor, true).unwrap_or_default(),
    };
    give(&view.store_key(key, tag), scaled.as_ref().unwrap_or(limit))
}
