//! Several buckets as one: all are charged, or none.
//!
//! A batch first looks at the words of all its members and decides. Only if that says allowed does it
//! charge them, one compare-and-swap each, in the order of their keys. When a concurrent caller has
//! taken what a member needed in between, the charges made so far are taken back, and the batch is
//! denied.

mod charge;
mod note;

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::algorithm::factor::Factor;
use crate::core::view::{LimitsView, Spent};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::{KeyedLimit, Refund, Reset};
#[cfg(feature = "tower")]
use crate::limiter::reserve::Claim;
use crate::limits::{Id, Scratch, encode};
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

use charge::{Told, look, spend, undone_on_panic};
use note::{Tried, is_tried, said_by};

/// Members that are kept on the stack; a larger batch allocates.
const INLINE_MEMBERS: usize = 8;

/// What a member of a batch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberMode {
    /// Can deny the batch, and is charged if the batch is allowed.
    #[default]
    CheckAndSpend,
    /// Can deny the batch, and is never changed.
    CheckOnly,
    /// Never denies the batch; is charged if the batch is allowed and the cost fits, else left alone.
    SpendOnly,
}

/// One bucket of a batch: a limit's handle, an id, a cost and what to do. Made by
/// [`KeyedLimit::member`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Member<'a> {
    handle: &'a KeyedLimit,
    id: Id<'a>,
    cost: u64,
    mode: MemberMode,
    factor: Factor,
}

impl<'a> Member<'a> {
    pub(crate) fn new(handle: &'a KeyedLimit, id: Id<'a>) -> Member<'a> {
        Member { handle, id, cost: 1, mode: MemberMode::default(), factor: Factor::ONE }
    }

    /// The same at another cost; 0 asks without charging.
    pub fn cost(self, cost: u64) -> Member<'a> {
        Member { cost, ..self }
    }

    /// The same for a caller with a factor; see [`KeyedLimit::scaled`].
    pub fn factor(self, factor: Factor) -> Member<'a> {
        Member { factor, ..self }
    }

    /// The same in another mode.
    pub fn mode(self, mode: MemberMode) -> Member<'a> {
        Member { mode, ..self }
    }
}

/// Several buckets that are charged together or not at all. Made by [`Limiter::batch`].
///
/// The decision is one: that of the strictest member, which is the first of: denied before allowed,
/// the longer wait, the fewer units remaining, the later in the batch. Members whose limit has no
/// numbers for their id do not count; if none can deny, no limit applies.
///
/// It never admits more than any of its limits allows, and a denied or failed batch leaves every
/// bucket as if it had not been. While it charges, a concurrent caller may be denied by what it
/// holds at that moment. A refund or reset of one of its buckets in that moment may give back what it
/// holds: denied, it leaves that bucket alone then. Beside two [reloads](Limiter::reload), or beside one that
/// changes the numbers of a bucket to which another call gives units back, a charge of a denied batch may stay:
/// it denies, and admits nothing. Up to 8 members are handled without an allocation.
///
/// # Errors
///
/// Every call can fail, and has changed nothing then: [`Error::is_invalid_id`],
/// [`Error::is_cost_above_burst`], and [`Error::is_invalid_batch`] when a bucket that a limit applies to is
/// named twice or a handle is of another limiter.
///
/// # Example: an order is charged to the account and to the address, or to neither
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
    limiter: &'a Limiter,
    members: &'a [Member<'a>],
}

/// A member whose key and numbers are known.
struct Prepared<'a> {
    key: StoreKey<'a>,
    limit: Cow<'a, Limit>,
    cost: u64,
    mode: MemberMode,
    /// In the caller's batch.
    position: usize,
    tried: Tried,
    decision: Decision,
    /// What it was charged.
    spent: Option<Spent>,
    /// Whether the numbers that are tried beside its limit's were charged, too.
    is_in_shadow: bool,
}

/// The members that a limit applies to, in the order of their keys, so that of two equal batches
/// that meet one goes through.
type PreparedMembers<'a> = SmallVec<[Prepared<'a>; INLINE_MEMBERS]>;

impl<'a> Batch<'a> {
    pub(crate) fn new(limiter: &'a Limiter, members: &'a [Member<'a>]) -> Batch<'a> {
        Batch { limiter, members }
    }

    /// Asks for all costs and charges them if all are there.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    pub fn spend(&self) -> Result<Decision, Error> {
        self.with_members(
            |cost, limit| cost <= limit.burst(),
            |view, members| {
                undone_on_panic(view, members, |members| {
                    let Told { decision, now_ns } = spend(view, members)?;
                    self.note(view.inner, members, &decision, now_ns);
                    Ok(decision)
                })
            },
        )
    }

    /// As [`spend`](Batch::spend), and adds to `decisions` what each member says, in the batch's order:
    /// no limit for those that none applies to. When the batch is denied, a member that would have been
    /// allowed says what is there, for it was charged nothing: as at a cost of 0.
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
    /// assert!(batch.spend_each(&mut each)?.allowed());
    /// each.clear();
    /// assert_eq!(batch.spend_each(&mut each)?.denied_by(), Some(1));
    /// assert!(each[0].allowed() && !each[1].allowed());
    /// assert_eq!(each[0].remaining(), Some(1), "charged once");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn spend_each(&self, decisions: &mut impl Extend<Decision>) -> Result<Decision, Error> {
        let mut each: SmallVec<[Decision; INLINE_MEMBERS]> = SmallVec::new();
        each.resize(self.members.len(), Decision::UNLIMITED);
        let decision = self.spend_and(|member, said| each[member.position] = said, |_, _| ())?;
        decisions.extend(each);
        Ok(decision)
    }

    /// Asks for all costs, as [`spend`](Batch::spend) does. Tells, in no order, of each member whose limit is enforced:
    /// its position, what it says, and its numbers; and of a batch that is allowed what each member was charged, for
    /// which `keeps` says so.
    #[cfg(feature = "tower")]
    pub(crate) fn spend_keeping(
        &self,
        mut tell: impl FnMut(usize, Decision, &Limit),
        keeps: impl Fn(usize) -> bool,
        mut keep: impl FnMut(usize, Claim),
    ) -> Result<Decision, Error> {
        let tell = |member: &Prepared<'_>, said| {
            if !is_tried(member) {
                tell(member.position, said, &member.limit);
            }
        };
        self.spend_and(tell, |view, member| {
            if let Some(spent) = member.spent
                && keeps(member.position)
            {
                let by = (member.cost, self.members[member.position].factor);
                let is_in_shadow = member.is_in_shadow;
                let claim =
                    Claim::of_member(self.limiter, view, &member.key, by, spent, is_in_shadow);
                keep(member.position, claim);
            }
        })
    }

    /// Calls `tell` for each member that a limit applies to, with what it says, and then `done`.
    fn spend_and(
        &self,
        mut tell: impl FnMut(&Prepared<'_>, Decision),
        mut done: impl FnMut(LimitsView<'_>, &Prepared<'_>),
    ) -> Result<Decision, Error> {
        self.with_members(
            |cost, limit| cost <= limit.burst(),
            |view, members| {
                undone_on_panic(view, members, |members| {
                    let Told { decision, now_ns } = spend(view, members)?;
                    for member in members.iter_mut() {
                        let would_be_allowed = member.decision.allowed() || is_tried(member);
                        if would_be_allowed && !decision.allowed() {
                            let ask = |word, at_ns| member.limit.rule().spend(word, at_ns, 0);
                            member.decision = view.look(&member.key, now_ns, ask)?;
                        }
                    }
                    for member in members.iter() {
                        tell(member, said_by(member));
                    }
                    self.note(view.inner, members, &decision, now_ns);
                    members.iter().for_each(|member| done(view, member));
                    Ok(decision)
                })
            },
        )
    }

    /// Asks what [`spend`](Batch::spend) would say, and changes nothing.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    pub fn check(&self) -> Result<Decision, Error> {
        self.with_members(
            |cost, limit| cost <= limit.burst(),
            |view, members| {
                look(view, members)?;
                Ok(strictest(members, can_deny))
            },
        )
    }

    /// Gives back each member's cost, each by itself; a check-only member is left alone.
    ///
    /// # Errors
    ///
    /// See [`Batch`].
    pub fn refund(&self) -> Result<Decision, Error> {
        self.with_members(
            |cost, limit| cost <= limit.burst(),
            |view, members| {
                let now_ns = view.inner.clock.now_ns();
                for member in members.iter_mut() {
                    let cost = if member.mode == MemberMode::CheckOnly { 0 } else { member.cost };
                    let give = |view: LimitsView<'_>, key: &StoreKey<'_>, limit: &Limit| {
                        view.refund(key, limit, cost, now_ns)
                    };
                    member.decision = self.by_itself(view, member, give);
                    self.give_to_shadow(view.inner, member, Refund(cost), now_ns);
                }
                Ok(strictest(members, |_| true))
            },
        )
    }

    /// Makes each member's bucket full, each by itself; a check-only member is left alone.
    ///
    /// # Errors
    ///
    /// See [`Batch`]; the costs do not matter.
    pub fn reset(&self) -> Result<Decision, Error> {
        // A member's cost does not matter here, so that none is too high.
        self.with_members(
            |_, _| true,
            |view, members| {
                let now_ns = view.inner.clock.now_ns();
                for member in members.iter_mut() {
                    let mode = member.mode;
                    let give = |view: LimitsView<'_>, key: &StoreKey<'_>, limit: &Limit| match mode
                    {
                        MemberMode::CheckOnly => view
                            .look(key, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, 0)),
                        _ => view.reset(key, limit, now_ns),
                    };
                    member.decision = self.by_itself(view, member, give);
                    self.give_to_shadow(view.inner, member, Reset, now_ns);
                }
                Ok(strictest(members, |_| true))
            },
        )
    }

    /// Calls `give` for one member, which is not to be called again once it has done its work: with the
    /// limits as they are then, if they have changed since the batch began.
    fn by_itself(
        &self,
        view: LimitsView<'_>,
        member: &Prepared<'_>,
        give: impl Fn(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<Decision, Outdated>,
    ) -> Decision {
        if let Ok(given) = give(view, &member.key, &member.limit) {
            return given;
        }
        let factor = self.members[member.position].factor;
        self.limiter.inner.with_view(|view| {
            let key = member.key.key;
            let numbers =
                view.generation.limits.entry(key.limit).limit_for(key.id, view.limits_now_ns());
            let Some((limit, tag)) = numbers else { return Ok(Decision::UNLIMITED) };
            let scaled = match factor == Factor::ONE {
                true => None,
                // A factor that the new numbers do not bear is left out: what is given back is theirs.
                false => view.scaled(key.limit, limit, factor).unwrap_or_default(),
            };
            give(view, &StoreKey { tag, ..member.key }, scaled.as_ref().unwrap_or(limit))
        })
    }

    /// Finds the members' keys and numbers; the members are in the order of their keys. A cost that
    /// its limit does not allow is an error. Where the limits change before `call` is done, which has
    /// changed nothing then, all begins again.
    fn with_members(
        &self,
        allows: impl Fn(u64, &Limit) -> bool,
        mut call: impl FnMut(LimitsView<'_>, &mut PreparedMembers<'_>) -> Result<Decision, Outdated>,
    ) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        inner.with_view(|view| {
            let mut scratches: SmallVec<[Scratch; INLINE_MEMBERS]> = SmallVec::new();
            scratches.resize_with(self.members.len(), Scratch::new);
            match self.prepare_all(view, &mut scratches, &allows) {
                Ok(mut prepared) => Ok(Ok(call(view, &mut prepared)?)),
                Err(error) => Ok(Err(error)),
            }
        })
    }

    fn prepare_all<'s>(
        &'s self,
        view: LimitsView<'s>,
        scratches: &'s mut [Scratch],
        allows: impl Fn(u64, &Limit) -> bool,
    ) -> Result<PreparedMembers<'s>, Error> {
        let mut prepared = PreparedMembers::new();
        for ((position, member), scratch) in self.members.iter().enumerate().zip(scratches) {
            let Some(member) = self.prepare(view, position, member, scratch)? else { continue };
            if !allows(member.cost, &member.limit) {
                let handle = self.members[position].handle;
                let name = handle.name();
                handle.tally.count_error();
                return Err(member.limit.cost_error(member.cost, Some(name)));
            }
            prepared.push(member);
        }
        if !fault::active(Fault::CallersOrder) {
            prepared.sort_unstable_by_key(|member| member.key.key);
        }
        for pair in prepared.windows(2) {
            if pair[0].key.key == pair[1].key.key {
                let member = &self.members[pair[1].position];
                let id = member.handle.normalize(member.id)?;
                let text =
                    format!("the bucket {}:{id} is named twice in the batch", member.handle.name());
                return Err(Error::new(ErrorKind::Batch, text));
            }
        }
        Ok(prepared)
    }

    fn prepare<'s>(
        &'s self,
        view: LimitsView<'s>,
        position: usize,
        member: &Member<'s>,
        scratch: &'s mut Scratch,
    ) -> Result<Option<Prepared<'s>>, Error> {
        member.handle.check_limiter(self.limiter)?;
        let index = member.handle.index;
        let id = encode(member.handle.format, member.id, scratch)
            .inspect_err(|_| member.handle.tally.count_error())?;
        let entry = view.generation.limits.entry(index);
        let Some((limit, tag)) = entry.limit_for(id, view.limits_now_ns()) else {
            return Ok(None);
        };
        let limit = if member.factor == Factor::ONE {
            Cow::Borrowed(limit)
        } else {
            match view.scaled(index, limit, member.factor)? {
                Some(limit) => Cow::Owned(limit),
                None => return Ok(None),
            }
        };
        let tried = match entry.is_shadow() {
            true => Tried::Itself { is_above: member.cost > limit.burst() },
            false if entry.shadow_beside(tag).is_some() => Tried::Shadow,
            false => Tried::Nothing,
        };
        let is_above = tried == Tried::Itself { is_above: true };
        Ok(Some(Prepared {
            key: view.store_key(KeyRef { limit: index, id }, tag),
            limit,
            cost: if is_above { 0 } else { member.cost },
            mode: member.mode,
            position,
            tried,
            decision: Decision::UNLIMITED,
            spent: None,
            is_in_shadow: false,
        }))
    }
}

fn can_deny(member: &Prepared<'_>) -> bool {
    member.mode != MemberMode::SpendOnly && !is_tried(member)
}

/// The decision of the strictest of the members that `count`.
fn strictest(members: &[Prepared<'_>], count: impl Fn(&Prepared<'_>) -> bool) -> Decision {
    let mut in_order: SmallVec<[&Prepared<'_>; INLINE_MEMBERS]> =
        members.iter().filter(|member| count(member)).collect();
    in_order.sort_unstable_by_key(|member| member.position);
    in_order.iter().fold(Decision::UNLIMITED, |strictest, member| {
        strictest.stricter(member.decision.of_member(member.position))
    })
}
