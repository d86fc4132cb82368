//! Batches with members that several nodes share.

use std::iter;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::algorithm::factor::Factor;
use crate::core::shared::gate::Passed;
use crate::core::shared::{SharedMember, StoreHandle};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::{
    Batch, INLINE_MEMBERS, Prepared, PreparedMembers, count, look, prepare_all, returned_on_panic,
    spend, strictest,
};
use crate::limiter::needs_store::needs_store;
use crate::limiter::reserve::Claim;
use crate::limiter::shared::answered::answer;
use crate::limiter::shared::asked::{AskedBatch, Counted, LocalCharges, SharedCall, shared_mode};
use crate::limiter::shared::kept::DecidedBatch;
use crate::limiter::shared::lease::{LeasedMember, answer_by_lease, is_answered_here};
use crate::limiter::shared::{no_store, policy};
use crate::limits::Scratch;
use crate::store::Outdated;

/// Where the answer of a batch will come.
pub(super) type AnswerOfBatch = oneshot::Receiver<Result<DecidedBatch, Error>>;

/// How far a batch came without the store.
pub(super) enum Begun {
    /// No member is shared.
    Local,
    /// It is decided: a local member has denied it, or the limiter is off.
    Decided(DecidedBatch),
    Asks(AskedBatch),
}

impl Batch<'_> {
    /// Like [`spend`](Batch::spend), for members of which some are [shared](crate::limits::Shared): charges all members,
    /// on this node and in the store, or none. Ready at its first poll if no member is shared.
    ///
    /// The local members are charged first. If one of them denies the batch, the store is not asked, and the decision
    /// is that of the local members alone. If the store denies the batch or fails, the local charges are given back.
    ///
    /// A future that is dropped before its first poll has charged nothing. One that is dropped later goes on without its
    /// caller: the batch is charged if it is allowed.
    ///
    /// # Errors
    ///
    /// See [`Batch`]; and [`Error::is_store_failure`] if the store has a text that is no bucket, or ends. Nothing is charged
    /// then on this node; in the store all members may be charged or none. If the store does not answer in time, or refuses
    /// all calls, it is no error: each shared limit's [policy](crate::limits::LimitOptions::on_error) decides its members.
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
    /// let limiter = Limiter::with_options(limits, options);
    /// let (clients, teams) = (limiter.limit("PerClient")?, limiter.limit("PerTeam")?);
    /// let members = [clients.member("alice"), teams.member("red")];
    /// assert_eq!(limiter.batch(&members).spend_shared().await?.remaining(), Some(1));
    /// assert!(limiter.batch(&members).spend().unwrap_err().needs_store());
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn spend_shared(&self) -> Result<Decision, Error> {
        self.call_shared(SharedCall::SPEND).await
    }

    /// Like [`check`](Batch::check), for members of which some are [shared](crate::limits::Shared): returns the decision that
    /// [`spend_shared`](Batch::spend_shared) would get, and changes nothing. If a member of this node denies the batch, the
    /// store is not asked.
    ///
    /// # Errors
    ///
    /// See [`spend_shared`](Batch::spend_shared).
    pub async fn check_shared(&self) -> Result<Decision, Error> {
        self.call_shared(SharedCall::CHECK).await
    }

    /// Decides the batch from leases of this node, without I/O; an error if the store has to be asked. `None`: no member is
    /// shared.
    pub(in crate::limiter) fn call_by_leases(
        &self,
        spends: bool,
    ) -> Result<Option<Decision>, Error> {
        let call = if spends { SharedCall::SPEND } else { SharedCall::CHECK };
        Ok(match self.begin(SharedCall { asks: false, ..call })? {
            Begun::Decided(decided) => Some(decided.decision),
            Begun::Local | Begun::Asks(_) => None,
        })
    }

    async fn call_shared(&self, call: SharedCall) -> Result<Decision, Error> {
        loop {
            if let Some(decision) = self.ask_store(call).await? {
                return Ok(decision);
            }
            match if call.spends { self.spend() } else { self.check() } {
                // A reload has come between, and has made a member a shared one.
                Err(error) if error.needs_store() => {}
                decision => return decision,
            }
        }
    }

    /// Decides the batch by the store; `None` if no member is shared.
    pub(super) async fn ask_store(&self, call: SharedCall) -> Result<Option<Decision>, Error> {
        match self.begin(call)? {
            Begun::Local => Ok(None),
            Begun::Decided(decided) => Ok(Some(decided.decision)),
            Begun::Asks(asked) => Ok(Some(answer(self.ask(asked)?).await?.decision)),
        }
    }

    /// Hands the batch to the store; returns where its answer will come.
    pub(super) fn ask(&self, asked: AskedBatch) -> Result<AnswerOfBatch, Error> {
        let StoreHandle { store, .. } = self.store_handle(&asked)?;
        let (tell, answer) = oneshot::channel();
        let by = (store.clone(), store.charge(asked.members.clone()));
        store.run(Box::pin(async move {
            // The caller may have dropped its future.
            let _ = tell.send(asked.decide_by(by).await);
        }));
        Ok(answer)
    }

    fn store_handle(&self, asked: &AskedBatch) -> Result<&StoreHandle, Error> {
        self.limiter.inner.shared.as_ref().ok_or_else(|| no_store(asked.first_name()))
    }

    /// Prepares the batch under one view of the limits, and charges its local members if it has shared ones too.
    pub(super) fn begin(&self, call: SharedCall) -> Result<Begun, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Begun::Decided(DecidedBatch::UNLIMITED));
        }
        inner.with_view(|view| {
            let mut scratches: SmallVec<[Scratch; INLINE_MEMBERS]> = SmallVec::new();
            scratches.resize_with(self.members.len(), Scratch::new);
            match prepare_all(self.limiter, self.members, view, &mut scratches, true) {
                Ok(members) => self.begin_with(view, members, call),
                Err(error) => Ok(Err(error)),
            }
        })
    }

    fn begin_with(
        &self,
        view: LimitsView<'_>,
        members: PreparedMembers<'_>,
        call: SharedCall,
    ) -> Result<Result<Begun, Error>, Outdated> {
        let is_shared = |member: &Prepared<'_>| member.is_shared(view);
        let Some(first) = members.iter().find(|member| is_shared(member)) else {
            return Ok(Ok(Begun::Local));
        };
        let Some(handle) = &view.inner.shared else {
            first.handle.tally.count_error();
            return Ok(Err(no_store(first.handle.name())));
        };
        let (mut shared, mut locals) = (PreparedMembers::new(), PreparedMembers::new());
        for member in members {
            if is_shared(&member) { shared.push(member) } else { locals.push(member) }
        }
        if !(call.asks && call.spends) {
            look(view, &mut locals)?;
            let decision = strictest(&locals, |member| member.can_deny());
            if !decision.allowed() && !call.spends {
                return Ok(Ok(Begun::Decided(DecidedBatch::denied_here(decision, iter::empty()))));
            }
            // Before the local members are charged: an error writes nothing. A denial by one of them needs no store.
            for member in &shared {
                if !call.asks && decision.allowed() && !is_answered_here(view, member)? {
                    member.handle.tally.count_error();
                    return Ok(Err(needs_store(member.handle.name())));
                }
            }
        }
        let mut begin = |locals: &[Prepared<'_>], claims| {
            let handle_and_call = (handle, call);
            self.begin_shared(view, handle_and_call, locals, &mut shared, claims)
        };
        if !call.spends {
            return begin(&locals, Vec::new());
        }
        returned_on_panic(view, &mut locals, |locals| {
            let (decision, now_ns) = spend(view, locals)?;
            if !decision.allowed() {
                count(view.inner, locals, &decision, now_ns);
                let locals = locals.iter().map(|member| Counted::new(member, call));
                return Ok(Ok(Begun::Decided(DecidedBatch::denied_here(decision, locals))));
            }
            // Taken: from here on a panic rolls the charges back by their claims.
            let claims = locals.iter_mut().filter_map(|member| {
                let spent = member.spent.take()?;
                let Prepared { key, cost, factor, .. } = member;
                let claim = Claim::new(self.limiter, view, key, *cost, *factor, spent);
                Some((member.position, claim))
            });
            let claims = claims.collect();
            begin(locals, claims)
        })
    }

    /// Answers shared members by the leases of this node, and prepares the others for the store. The local members are
    /// charged.
    ///
    /// Without I/O it returns an error if the store has to be asked.
    fn begin_shared(
        &self,
        view: LimitsView<'_>,
        (handle, call): (&StoreHandle, SharedCall),
        locals: &[Prepared<'_>],
        shared: &mut [Prepared<'_>],
        claims: Vec<(usize, Claim)>,
    ) -> Result<Result<Begun, Error>, Outdated> {
        let mut asked = AskedBatch {
            locals: locals.iter().map(|member| Counted::new(member, call)).collect(),
            claims: LocalCharges::new(claims),
            shared: Vec::new(),
            members: Arc::default(),
            leased: Vec::new(),
            policies: Box::default(),
            call,
            passed: Passed::default(),
        };
        // Read when the charges are in `asked`, which gives them back if the clock panics.
        let now_ns = view.inner.clock.now_ns();
        let mut to_ask: SmallVec<[&Prepared<'_>; INLINE_MEMBERS]> = SmallVec::new();
        let mut is_denied = false;
        for member in shared {
            let mode = shared_mode(member, call.spends);
            match answer_by_lease(view, member, mode, now_ns)? {
                Some(taken) => {
                    asked.locals.push(Counted::by_lease(member, call));
                    taken.into_iter().for_each(|taken| asked.claims.add(member.position, taken));
                    is_denied |= member.can_deny() && !member.decision.allowed();
                }
                None => to_ask.push(member),
            }
        }
        if is_denied || to_ask.is_empty() {
            return Ok(Ok(Begun::Decided(asked.decide_here())));
        }
        if let (false, Some(member)) = (call.asks, to_ask.first()) {
            member.handle.tally.count_error();
            return Ok(Err(needs_store(member.handle.name())));
        }
        let as_asked = |member: &&Prepared<'_>| asked_member(view, handle, member, call.spends);
        let mut members: Vec<_> = to_ask.iter().map(as_asked).collect();
        let limits = &view.generation.limits;
        asked.policies =
            to_ask.iter().map(|member| policy(limits.entry(member.key.key.limit))).collect();
        asked.shared = to_ask.iter().map(|member| Counted::new(member, call)).collect();
        match handle.store.admit(&mut members.iter().map(|member| &*member.key)) {
            Ok(passed) => asked.passed = passed,
            Err(error) => {
                asked.members = members.into();
                return Ok(Ok(Begun::Decided(asked.decide_unasked(&error))));
            }
        }
        let may_lease = !handle.store.is_split(&members);
        for (at, (member, to_store)) in to_ask.iter().zip(&mut members).enumerate() {
            let is_charged = to_store.mode.is_charged() && to_store.cost > 0;
            let may_ask = may_lease && is_charged && handle.store.is_ready(&to_store.key);
            let asks = (may_ask, !call.spends);
            if let Some(leased) = LeasedMember::new(view, member, &to_store.key, asks, now_ns)? {
                to_store.lease = leased.request();
                asked.leased.push((at, leased));
            }
        }
        asked.members = members.into();
        Ok(Ok(Begun::Asks(asked)))
    }
}

/// Makes the member as the store gets it.
fn asked_member(
    view: LimitsView<'_>,
    handle: &StoreHandle,
    member: &Prepared<'_>,
    spends: bool,
) -> SharedMember {
    let index = member.key.key.limit;
    let entry = view.generation.limits.entry(index);
    let limit = (*member.limit).clone();
    SharedMember {
        key: handle.key(entry, &limit, member.key.key.id),
        keep_ms: super::keep_ms(view, index, member.key.tag, &limit),
        lease: None,
        unscaled: (member.factor != Factor::ONE)
            .then(|| view.generation.limits.limit_at(member.key.tag).cloned().map(Box::new))
            .flatten(),
        limit,
        cost: member.cost,
        mode: shared_mode(member, spends),
    }
}
