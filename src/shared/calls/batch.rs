//! Batches with members that several nodes share.

use std::iter;
use std::sync::Arc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::batch::{
    Batch, INLINE_MEMBERS, Looks, Member, MemberMode, Needs, OF_CHECK, OF_REFUND, OF_RESET,
    OF_SPEND, Prepared, PreparedMembers, count, look, prepare_all, returned_on_panic, spend,
    strictest,
};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::other_handles::needs_receipt;
use crate::limiter::reserve::Receipt;
use crate::limits::Scratch;
use crate::shared::calls::answer;
use crate::shared::calls::asked::{
    AskedBatch, Counted, Keeping, LocalCharges, SharedCall, shared_mode,
};
use crate::shared::calls::change::{Answer, ChangedBucket, here_or_in_store};
use crate::shared::calls::handle::ScaledSharedLimit;
use crate::shared::calls::kept::{DecidedBatch, Unclaimed};
use crate::shared::calls::lease::{LeasedMember, answer_by_lease, have_no_units};
use crate::shared::calls::member::SharedMember;
use crate::shared::calls::{cannot_leave, no_store, policy};
use crate::shared::part::Part;
use crate::shared::protocol::change::Step;
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::{StoreHandle, StoreMember};
use crate::store::Outdated;

/// How far a batch came without the store.
pub(crate) enum Begun {
    /// No member is shared.
    Local,
    /// It is decided without the store: by a local member, leases or a kept denial, because the call is not let in, or because
    /// the limiter is off.
    Decided(DecidedBatch),
    Asks(Box<AskedBatch>),
}

/// Several buckets, of which nodes may share some, from [`Limiter::shared_batch`]. A spend charges all of them, on this node
/// and in the store, or none.
///
/// The local members are charged first. If one of them denies the batch, the store is not asked, and the decision is that of
/// the local members alone. If the store denies the batch or fails, the local charges are given back.
///
/// The futures are ready at their first poll if no member is shared. A future that is dropped before its first poll has done
/// nothing. One that is dropped later goes on without its caller: the batch is charged if it is allowed.
///
/// # Errors
///
/// As the calls of a [`Batch`](crate::batch::Batch); and with [`Error::is_store_failure`] if the store has a text that is no
/// bucket, or ends. Nothing is charged then on this node; in the store all members may be charged or none, in several slots of a
/// cluster those of one slot. In an
/// outage of the store each shared limit's [policy](crate::limits::LimitOptions::on_error) decides its members of a spend or a
/// check. A batch without an answer in time, or that is one too many, is denied: see [`Decision::overloaded`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::limits::{LimitOptions, Shared};
/// use tollgate::shared::Store;
/// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
/// let exact = LimitOptions::default().shared(Shared::Exact);
/// let limits = Limits::builder()
///     .limit("PerClient", IdFormat::String, limit(2)?)?
///     .limit_with("PerTeam", IdFormat::String, limit(3)?, exact)?
///     .build();
/// let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
/// let limiter = Limiter::with_options(limits, options)?;
/// let (clients, teams) = (limiter.limit("PerClient")?, limiter.shared("PerTeam")?);
/// let members = [clients.member("alice").into(), teams.member("red")];
/// assert_eq!(limiter.shared_batch(&members).spend().await?.remaining(), Some(1));
/// assert!(limiter.shared_batch(&members).refund().await?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SharedBatch<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) members: &'a [SharedMember<'a>],
}

impl Limiter {
    /// Makes a batch of members of which nodes may share some.
    ///
    /// # Example
    ///
    /// See [`SharedBatch`].
    pub fn shared_batch<'a>(&'a self, members: &'a [SharedMember<'a>]) -> SharedBatch<'a> {
        SharedBatch { limiter: self, members }
    }
}

impl SharedBatch<'_> {
    /// Charges all members if each has its units: see [`Batch::spend`](crate::batch::Batch::spend).
    ///
    /// # Errors
    ///
    /// See [`SharedBatch`], which has an example.
    pub async fn spend(&self) -> Result<Decision, Error> {
        self.decide(SharedCall::SPEND).await
    }

    /// Returns the decision that a [`spend`](SharedBatch::spend) would get, and changes nothing. If a member of this node
    /// denies the batch, the store is not asked.
    ///
    /// # Errors
    ///
    /// See [`SharedBatch`].
    pub async fn check(&self) -> Result<Decision, Error> {
        self.decide(SharedCall::CHECK).await
    }

    /// Like [`spend`](SharedBatch::spend), and adds each member's decision to `decisions`: see
    /// [`Batch::spend_into`](crate::batch::Batch::spend_into). If a member of this node denies the batch, the store is not
    /// asked: the shared members' decisions have no figures then. After an error `decisions` has nothing more.
    ///
    /// # Errors
    ///
    /// See [`SharedBatch`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// # let limiter = Limiter::with_options(limits, options)?;
    /// let users = limiter.shared("PerUser")?;
    /// let mut each = Vec::new();
    /// let members = [users.member("alice").cost(2), users.member("bob")];
    /// assert!(block_on(limiter.shared_batch(&members).spend_into(&mut each))?.allowed());
    /// assert_eq!([each[0].remaining(), each[1].remaining()], [Some(3), Some(4)]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn spend_into(
        &self,
        decisions: &mut impl Extend<Decision>,
    ) -> Result<Decision, Error> {
        loop {
            let call = SharedCall::SPEND.keeping();
            let decided = match self.begin(call)? {
                Begun::Local => match self.here(|batch| batch.spend_into(decisions)) {
                    Err(error) if error.needs_store() => continue,
                    decision => return decision,
                },
                Begun::Decided(decided) => decided,
                Begun::Asks(asked) => answer(asked.ask()).await?,
            };
            let mut each: SmallVec<[Decision; INLINE_MEMBERS]> = SmallVec::new();
            each.resize(self.members.len(), Decision::UNLIMITED);
            for member in &decided.members {
                each[member.position] = member.decision;
            }
            decisions.extend(each);
            return Ok(decided.decision);
        }
    }

    /// Gives each member's units back: see [`Batch::refund`](crate::batch::Batch::refund). The store is asked for each shared
    /// member, for all of them at once.
    ///
    /// # Errors
    ///
    /// See [`SharedBatch`]: no policy decides a refund. Some members may have their units back after an error of the store.
    pub async fn refund(&self) -> Result<Decision, Error> {
        self.give_each(true).await
    }

    /// Makes each member's bucket full: see [`Batch::reset`](crate::batch::Batch::reset).
    ///
    /// # Errors
    ///
    /// See [`refund`](SharedBatch::refund).
    pub async fn reset(&self) -> Result<Decision, Error> {
        self.give_each(false).await
    }

    async fn give_each(&self, refunds: bool) -> Result<Decision, Error> {
        if !self.limiter.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        // An error that can be known before is one of all members: nothing is given back.
        self.prepared(if refunds { OF_REFUND } else { OF_RESET }, |view, members| {
            let mut shared = members.iter().filter(|member| member.is_shared(view));
            Ok(match (shared.next(), view.inner.part()) {
                (Some(first), None) => Err(no_store(first.handle.name())),
                _ => Ok(()),
            })
        })??;
        let given =
            self.members.iter().enumerate().map(async |(position, SharedMember(member))| {
                let given = give(self.limiter, member, refunds).await?;
                Ok::<_, Error>(given.for_member(position))
            });
        let decisions = join_all(given).await;
        let mut strictest = Decision::UNLIMITED;
        for decision in decisions {
            strictest = strictest.stricter(decision?);
        }
        Ok(strictest)
    }

    async fn decide(&self, call: SharedCall) -> Result<Decision, Error> {
        loop {
            if let Some(decision) = self.ask_store(call).await? {
                return Ok(decision);
            }
            match self.here(|batch| if call.spends { batch.spend() } else { batch.check() }) {
                // A reload has come between, and has made a member a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Makes a call for a batch that has no shared member.
    pub(super) fn here<R>(&self, call: impl FnOnce(Batch<'_>) -> R) -> R {
        let members: SmallVec<[Member<'_>; INLINE_MEMBERS]> =
            self.members.iter().map(|member| member.0).collect();
        call(self.limiter.batch(&members))
    }

    /// Decides a check without asking the store: by leases, kept denials, or, if the store lets no call in, as such a call is
    /// decided. `None`: the store has to be asked, or no member is shared.
    pub(super) fn check_here(&self) -> Option<Decision> {
        match self.begin(SharedCall::CHECK) {
            Ok(Begun::Decided(decided)) => Some(decided.decision),
            _ => None,
        }
    }

    /// Decides the batch by the store; `None` if no member is shared.
    pub(super) async fn ask_store(&self, call: SharedCall) -> Result<Option<Decision>, Error> {
        match self.begin(call)? {
            Begun::Local => Ok(None),
            Begun::Decided(decided) => Ok(Some(decided.decision)),
            Begun::Asks(asked) => Ok(Some(answer(asked.ask()).await?.decision)),
        }
    }

    /// Prepares the batch under one view of the limits, and charges its local members if it has shared ones too.
    pub(crate) fn begin(&self, call: SharedCall) -> Result<Begun, Error> {
        if !self.limiter.inner.is_enabled() {
            return Ok(Begun::Decided(DecidedBatch::UNLIMITED));
        }
        let needs = if call.spends { OF_SPEND } else { OF_CHECK };
        self.prepared(needs, |view, members| self.begin_with(view, members, call))?
    }

    /// Looks up the keys and the limits of all members.
    pub(super) fn prepared<R>(
        &self,
        needs: Needs,
        mut then: impl FnMut(LimitsView<'_>, &mut [Prepared<'_>]) -> Result<R, Outdated>,
    ) -> Result<R, Error> {
        self.limiter.inner.with_view(|view| {
            let mut scratches: SmallVec<[Scratch; INLINE_MEMBERS]> = SmallVec::new();
            scratches.resize_with(self.members.len(), Scratch::new);
            let members = self.members.iter().map(|member| &member.0);
            let mut prepared = PreparedMembers::new();
            match prepare_all(self.limiter, members, view, &mut scratches, needs, &mut prepared) {
                Ok(()) => then(view, &mut prepared).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        })
    }

    fn begin_with(
        &self,
        view: LimitsView<'_>,
        members: &mut [Prepared<'_>],
        call: SharedCall,
    ) -> Result<Result<Begun, Error>, Outdated> {
        if call.spends
            && !call.holds
            && let Some(member) = members.iter().find(|member| member.is_of_permits())
        {
            member.handle.tally.count_error();
            return Ok(Err(needs_receipt(member.handle.name())));
        }
        let is_shared = |member: &Prepared<'_>| member.is_shared(view);
        let Some(first) = members.iter().find(|member| is_shared(member)) else {
            return Ok(Ok(Begun::Local));
        };
        if let Some(member) = members.iter().find(|it| it.leave > 0 && is_shared(it)) {
            member.handle.tally.count_error();
            return Ok(Err(cannot_leave(member.handle.name())));
        }
        let Some(Part { handle, .. }) = view.inner.part() else {
            first.handle.tally.count_error();
            return Ok(Err(no_store(first.handle.name())));
        };
        members.sort_by_key(is_shared);
        let (locals, shared) = members.split_at_mut(members.partition_point(|it| !is_shared(it)));
        if !call.spends {
            look(view, locals, Looks::AtRoom)?;
            let decision = strictest(locals, |member| member.can_deny());
            if !decision.allowed() {
                return Ok(Ok(Begun::Decided(DecidedBatch::denied_here(decision, iter::empty()))));
            }
        }
        let mut begin = |locals: &[Prepared<'_>], receipt| {
            let handle_and_call = (handle, call);
            self.begin_shared(view, handle_and_call, locals, shared, receipt)
        };
        if !call.spends {
            return begin(locals, None);
        }
        returned_on_panic(view, locals, |locals| {
            let (decision, now_ns) = spend(view, locals)?;
            if !decision.allowed() {
                count(view.inner, locals, &decision, now_ns);
                let locals = locals.iter().map(|member| Counted::new(member, call));
                return Ok(Ok(Begun::Decided(DecidedBatch::denied_here(decision, locals))));
            }
            // Taken: from here on a panic rolls the charges back by their claims.
            let mut receipt = Receipt::of_nothing();
            for member in locals.iter_mut() {
                let claim = member.claim();
                claim.into_iter().for_each(|claim| receipt.add(self.limiter, view, claim));
                member.spent = None;
            }
            begin(locals, (!locals.is_empty()).then_some(receipt))
        })
    }

    /// Answers shared members by the leases of this node, and prepares the others for the store. The local members are
    /// charged.
    fn begin_shared(
        &self,
        view: LimitsView<'_>,
        (handle, call): (&StoreHandle, SharedCall),
        locals: &[Prepared<'_>],
        shared: &mut [Prepared<'_>],
        receipt: Option<Receipt>,
    ) -> Result<Result<Begun, Error>, Outdated> {
        let mut asked = AskedBatch {
            store: handle.store.clone(),
            locals: locals.iter().map(|member| Counted::new(member, call)).collect(),
            claims: LocalCharges::new(receipt),
            shared: SmallVec::new(),
            members: Arc::default(),
            leased: Vec::new(),
            policies: SmallVec::new(),
            call,
            passed: Passed::default(),
            keeping: None,
        };
        // Read when the charges are in `asked`, which gives them back if the clock panics.
        let now_ns = view.inner.clock.now_ns();
        let mut to_ask: SmallVec<[&Prepared<'_>; INLINE_MEMBERS]> = SmallVec::new();
        for member in shared {
            let mode = shared_mode(member, call.spends);
            match answer_by_lease(view, member, mode, now_ns)? {
                Some(taken) => {
                    asked.locals.push(Counted::by_lease(member, call));
                    taken.into_iter().for_each(|taken| asked.claims.add(member.position, taken));
                }
                None => to_ask.push(member),
            }
        }
        if to_ask.is_empty() {
            return Ok(Ok(Begun::Decided(asked.decide_here())));
        }
        let as_asked = |member: &&Prepared<'_>| asked_member(view, handle, member, call.spends);
        let mut members: Arc<[StoreMember]> = to_ask.iter().map(as_asked).collect();
        let limits = &view.generation.limits;
        asked.policies =
            to_ask.iter().map(|member| policy(limits.entry(member.key.key.limit))).collect();
        asked.shared = to_ask.iter().map(|member| Counted::new(member, call)).collect();
        let (mut was_denied, is_split) = (false, handle.store.is_split(&members));
        if let Some(denials) = view.inner.part().and_then(|part| part.denials.as_ref()) {
            if !is_split
                && let Some(found) = denials.find(&members, now_ns)
                && have_no_units(view, &to_ask, now_ns)?
            {
                asked.members = members;
                return Ok(asked.decide_by_denial(found).map(Begun::Decided));
            }
            let (marks, has_denial) = denials.marks(&members, now_ns);
            was_denied = has_denial;
            // The texts of several slots are of different times, and some may have been charged and returned.
            asked.keeping = (!is_split).then_some(Keeping { sent_ns: now_ns, marks });
        }
        match handle.store.admit(&mut members.iter().map(|member| &*member.key), was_denied) {
            Ok(passed) => asked.passed = passed,
            Err(error) => {
                asked.members = members;
                return Ok(Ok(Begun::Decided(asked.decide_undecided(&error))));
            }
        }
        if let ([member], true, Some(denials)) = (&*members, was_denied, asked.denials()) {
            denials.charge(member, now_ns);
        }
        // No clone of them was made yet.
        let ours = Arc::get_mut(&mut members).into_iter().flatten();
        for (at, (member, to_store)) in to_ask.iter().zip(ours).enumerate() {
            let is_charged = to_store.mode.is_charged() && to_store.cost > 0;
            let may_ask = !is_split && is_charged && handle.store.is_ready(&to_store.key);
            let asks = (may_ask, !call.spends);
            if let Some(leased) = LeasedMember::new(view, member, &to_store.key, asks, now_ns)? {
                to_store.lease = leased.request();
                asked.leased.push((at, leased));
            }
        }
        asked.members = members;
        Ok(Ok(Begun::Asks(Box::new(asked))))
    }
}

/// Makes the member as the store gets it.
pub(super) fn asked_member(
    view: LimitsView<'_>,
    handle: &StoreHandle,
    member: &Prepared<'_>,
    spends: bool,
) -> StoreMember {
    let (key, limit) = (&member.key, (*member.limit).clone());
    let entry = view.generation.limits.entry(key.key.limit);
    let to_store = handle.member(view, entry, key.key, (limit, key.tag), member.factor);
    StoreMember { cost: member.cost, mode: shared_mode(member, spends), ..to_store }
}

/// Gives one member of a batch its units back, or makes its bucket full.
async fn give(limiter: &Limiter, member: &Member<'_>, refunds: bool) -> Result<Decision, Error> {
    let Member { handle: limit, id, cost, factor, terms, .. } = *member;
    let mode = terms.mode();
    if refunds {
        let cost = if mode == MemberMode::CheckOnly { 0 } else { cost };
        return ScaledSharedLimit { limit, factor }.refund(id, cost).await;
    }
    if mode != MemberMode::CheckOnly {
        return ScaledSharedLimit { limit, factor }.reset(id).await;
    }
    let place = || limit.place_scaled(id, 0, factor);
    let looked = |_: &KeyedLimit, changed: Result<ChangedBucket, Error>| Ok(changed?.check());
    let ask = |place| Ok(limit.change(place, Step::Look, looked));
    here_or_in_store(place, || limiter.batch(&[*member]).reset(), ask).await
}

impl AskedBatch {
    /// Hands the batch to the store; returns where its answer will come.
    pub(crate) fn ask(self: Box<Self>) -> Answer<DecidedBatch> {
        self.ask_as(|decided| decided)
    }

    /// As [`ask`](Self::ask), for a caller that takes nothing if it goes away.
    pub(super) fn ask_unclaimed(self: Box<Self>) -> Answer<Unclaimed> {
        self.ask_as(Unclaimed::new)
    }

    fn ask_as<T: Send + 'static>(
        self: Box<Self>,
        wrap: impl FnOnce(DecidedBatch) -> T + Send + 'static,
    ) -> Answer<T> {
        let (tell, answer) = oneshot::channel();
        let (store, members) = (self.store.clone(), self.members.clone());
        store.charge_and_tell(
            members,
            // The caller may have dropped its future.
            Box::new(move |found| drop(tell.send(self.decide_by(found).map(wrap)))),
        );
        answer
    }
}
