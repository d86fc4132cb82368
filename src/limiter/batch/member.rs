//! Defines [`Member`], one bucket of a batch.

use crate::algorithm::factor::Factor;
use crate::limiter::handle::KeyedLimit;
use crate::limits::{FloorName, Id, Leave, with_plain_bytes};
use crate::store::Fingerprint;

/// Says whether a member can deny its batch, and whether the batch charges it.
///
/// # Example: a limit that never denies, but counts what fits
///
/// ```
/// use std::time::Duration;
/// use tollgate::batch::MemberMode;
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
/// let members = [users.member("alice"), teams.member("a-team").mode(MemberMode::SpendOnly)];
/// assert!(limiter.batch(&members).spend()?.allowed());
/// assert!(limiter.batch(&members).spend()?.allowed(), "the team's bucket is empty, and does not deny");
/// assert!(!limiter.batch(&members).spend()?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberMode {
    /// The member can deny the batch, and is charged if the batch is allowed.
    #[default]
    CheckAndSpend,
    /// The member can deny the batch, and is never charged.
    CheckOnly,
    /// The member never denies the batch. If the batch is allowed, it is charged if its bucket has the units.
    SpendOnly,
}

/// One bucket of a [batch](crate::Limiter::batch): a handle, an id, a cost and a mode. Made by [`KeyedLimit::member`].
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// use tollgate::batch::{Member, MemberMode};
///
/// let users = limiter.limit("PerUser")?;
/// let checked: Member = users.member("alice").cost(5).mode(MemberMode::CheckOnly);
/// assert!(limiter.batch(&[checked]).spend()?.allowed());
/// assert_eq!(users.check("alice", 0)?.remaining(), Some(5));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Member<'a> {
    pub(crate) handle: &'a KeyedLimit,
    pub(crate) id: Id<'a>,
    pub(crate) cost: u64,
    pub(crate) terms: Terms<'a>,
    pub(crate) factor: Factor,
    /// For the fast path; computed where the type of the id is known. `None` for a member that the fast path leaves to the general
    /// way: its id has first to be converted to its normal form, its cost is 0, or its factor, mode or units to leave are not the
    /// defaults.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// The mode of a member, and the units that its bucket must have left. One byte says that both are the defaults, so that a
/// member is made with few writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Terms<'a> {
    Default,
    Other { mode: MemberMode, leave: u64 },
    WithPriority { mode: MemberMode, floor: &'a FloorName },
}

const _: () = assert!(size_of::<Terms<'_>>() <= 16, "a member is copied into each batch");

impl<'a> Terms<'a> {
    #[inline]
    fn new(mode: MemberMode, leave: Leave<'a>) -> Terms<'a> {
        match (mode, leave) {
            (MemberMode::CheckAndSpend, Leave::Units(0)) => Terms::Default,
            (mode, Leave::Units(leave)) => Terms::Other { mode, leave },
            (mode, Leave::Floor(floor)) => Terms::WithPriority { mode, floor },
        }
    }

    #[inline]
    pub(crate) fn mode(self) -> MemberMode {
        match self {
            Terms::Default => MemberMode::CheckAndSpend,
            Terms::Other { mode, .. } | Terms::WithPriority { mode, .. } => mode,
        }
    }

    #[inline]
    pub(crate) fn leave(self) -> Leave<'a> {
        match self {
            Terms::Default => Leave::Units(0),
            Terms::Other { leave, .. } => Leave::Units(leave),
            Terms::WithPriority { floor, .. } => Leave::Floor(floor),
        }
    }
}

impl<'a> Member<'a> {
    /// Sets the cost, in units. A cost of 0 checks the bucket without charging it. Default: 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// assert_eq!(limiter.batch(&[users.member("alice").cost(3)]).spend()?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn cost(self, cost: u64) -> Member<'a> {
        Member { cost, ..self }.fast_if(cost > 0)
    }

    /// Sets the caller's factor; see [`KeyedLimit::scaled`]. Default: 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let member = users.member("alice").factor("0.5".parse()?);
    /// assert_eq!(limiter.batch(&[member]).spend()?.remaining(), Some(9)); // of 10
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn factor(self, factor: Factor) -> Member<'a> {
        Member { factor, ..self }.fast_if(factor == Factor::ONE)
    }

    /// Sets the units that the bucket must have left after the cost, else the member denies the batch; see
    /// [`KeyedLimit::leaving`], and [`KeyedLimit::priority`] for units that a limits file gives. The batch charges the cost alone, and its refund gives that back. Default: 0.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?; // a burst of 5
    /// let members = [users.member("alice").cost(2).leaving(3)];
    /// assert_eq!(limiter.batch(&members).spend()?.remaining(), Some(3));
    /// assert_eq!(limiter.batch(&members).spend()?.denied_by(), Some(0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn leaving(self, leave: u64) -> Member<'a> {
        self.leaving_any(Leave::Units(leave))
    }

    #[inline]
    pub(crate) fn leaving_any(self, leave: Leave<'a>) -> Member<'a> {
        self.with_terms(Terms::new(self.terms.mode(), leave))
    }

    /// Sets the mode. Default: [`MemberMode::CheckAndSpend`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// use tollgate::batch::MemberMode;
    ///
    /// let users = limiter.limit("PerUser")?;
    /// let member = users.member("alice").cost(5).mode(MemberMode::SpendOnly);
    /// assert!(limiter.batch(&[member]).spend()?.allowed());
    /// assert!(limiter.batch(&[member]).spend()?.allowed(), "it never denies");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn mode(self, mode: MemberMode) -> Member<'a> {
        self.with_terms(Terms::new(mode, self.terms.leave()))
    }

    #[inline]
    fn with_terms(self, terms: Terms<'a>) -> Member<'a> {
        Member { terms, ..self }.fast_if(matches!(terms, Terms::Default))
    }

    /// Leaves the member to the general way, unless `is_simple`.
    #[inline]
    fn fast_if(self, is_simple: bool) -> Member<'a> {
        Member { fingerprint: self.fingerprint.filter(|_| is_simple), ..self }
    }

    /// Whether the member is charged by its limit alone, and can deny the batch.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.terms, Terms::Default) && self.factor == Factor::ONE
    }
}

impl KeyedLimit {
    /// Makes a member of a [batch](crate::Limiter::batch): check-and-spend, at a cost of 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// assert_eq!(limiter.batch(&[users.member("alice")]).spend()?.remaining(), Some(4));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn member<'a>(&'a self, id: impl Into<Id<'a>>) -> Member<'a> {
        let (id, terms) = (id.into(), Terms::Default);
        let fingerprint = with_plain_bytes(self.format, &id, |id| self.fingerprint(id));
        Member { handle: self, id, cost: 1, terms, factor: Factor::ONE, fingerprint }
    }
}
