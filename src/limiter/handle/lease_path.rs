//! Decides calls for one bucket from the units that the node has taken ahead, without the store.

use std::marker::PhantomData;

use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::core::lease_words::word::{LeaseAnswer, LeaseWord};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::{Id, WithBytes, visit_plain_bytes};
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Guard, Known, Table, read};

/// The result of a call that a lease decides, and the next step of one that no lease decides.
trait LeaseFirst {
    type Result;
    fn decided(decision: Decision) -> Self::Result;
    /// `id`: in normal form.
    fn not_decided(handle: &KeyedLimit, id: &[u8], call: Call) -> Self::Result;
    fn not_encoded(handle: &KeyedLimit, id: Id<'_>, call: Call) -> Self::Result;
}

/// The call goes on as for any other limit.
struct ElseCall;

impl LeaseFirst for ElseCall {
    type Result = Result<Decision, Error>;

    #[inline(always)]
    fn decided(decision: Decision) -> Self::Result {
        Ok(decision)
    }

    #[cold]
    #[inline(never)]
    fn not_decided(handle: &KeyedLimit, id: &[u8], call: Call) -> Self::Result {
        let inner = &*handle.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let now_ns = inner.clock.now_ns();
        // Whether the id is blocked is decided there.
        let fingerprint = handle.fingerprint_of_any(id);
        Ok(handle.slow_path(id, fingerprint, Factor::ONE, call, now_ns)?.decision)
    }

    fn not_encoded(handle: &KeyedLimit, id: Id<'_>, call: Call) -> Self::Result {
        handle.call_with_checks(id, call, None)
    }
}

/// The caller asks the store.
struct ElseNone;

impl LeaseFirst for ElseNone {
    type Result = Option<Decision>;

    #[inline(always)]
    fn decided(decision: Decision) -> Self::Result {
        Some(decision)
    }

    #[inline(always)]
    fn not_decided(_: &KeyedLimit, _: &[u8], _: Call) -> Self::Result {
        None
    }

    #[inline(always)]
    fn not_encoded(_: &KeyedLimit, _: Id<'_>, _: Call) -> Self::Result {
        None
    }
}

/// Looks for an id's lease. Inlined for each type of id, as for a local bucket.
struct FindLease<'c, E> {
    handle: &'c KeyedLimit,
    id: Id<'c>,
    call: Call,
    otherwise: PhantomData<E>,
}

impl<E: LeaseFirst> WithBytes<E::Result> for FindLease<'_, E> {
    #[inline(always)]
    fn with(self, id: &[u8]) -> E::Result {
        let FindLease { handle, call, .. } = self;
        let inner = &*handle.limiter.inner;
        if let Some(table) = inner.leases.as_ref().and_then(|leases| leases.words.table())
            && inner.is_enabled()
        {
            let fingerprint = table.fingerprint(KeyRef { limit: handle.index, id });
            if let Some(guard) = read()
                && let Some(Found { mut known, limit, now_ns }) =
                    handle.find_lease(&guard, table, fingerprint)
            {
                // Each exit writes the result where the caller wants it, as for a local bucket.
                loop {
                    match LeaseWord::from_word(known.word()).answer(now_ns, call.cost()) {
                        LeaseAnswer::Spends { word, left } => {
                            if call.is_spend() && call.cost() > 0 && !known.swap(word) {
                                if known.read_again() {
                                    continue;
                                }
                                break;
                            }
                            let decision = allowed(limit, left);
                            handle.count_by_lease(id, &decision, limit, call, now_ns);
                            return E::decided(decision);
                        }
                        // Another cost is an error.
                        LeaseAnswer::Denies { retry_in_ns, is_blocked }
                            if call.cost() <= limit.burst() =>
                        {
                            let decision = denied(limit, retry_in_ns, is_blocked);
                            handle.count_by_lease(id, &decision, limit, call, now_ns);
                            return E::decided(decision);
                        }
                        LeaseAnswer::Denies { .. } | LeaseAnswer::Asks => break,
                    }
                }
            }
        }
        E::not_decided(handle, id, call)
    }

    /// The slow path converts the id, and looks for its lease.
    #[inline(always)]
    fn without(self) -> E::Result {
        E::not_encoded(self.handle, self.id, self.call)
    }
}

/// The word of a lease, the limit that it was granted under, and the call's time.
struct Found<'g> {
    known: Known<'g>,
    limit: &'g Limit,
    now_ns: u64,
}

impl KeyedLimit {
    /// Decides a call from a lease, or by a denial that the store has made; any other as for other limits.
    #[inline(always)]
    pub(super) fn call_by_lease_first(&self, id: Id<'_>, call: Call) -> Result<Decision, Error> {
        if !call.is_for_leases() {
            return self.call_with_checks(id, call, None);
        }
        let find = FindLease { handle: self, id, call, otherwise: PhantomData::<ElseCall> };
        visit_plain_bytes(self.format, &id, find)
    }

    /// Decides a spend or a check from a lease, or by a denial that the store has made. `None`: the node has neither, or
    /// the call has more to do.
    pub(crate) fn call_by_lease(&self, id: Id<'_>, call: Call) -> Option<Decision> {
        let find = FindLease { handle: self, id, call, otherwise: PhantomData::<ElseNone> };
        if call.is_for_leases() { visit_plain_bytes(self.format, &id, find) } else { None }
    }

    #[inline(always)]
    fn find_lease<'g>(
        &'g self,
        guard: &'g Guard,
        table: &'g Table,
        fingerprint: Fingerprint,
    ) -> Option<Found<'g>> {
        let inner = &*self.limiter.inner;
        let home = table.home(guard, fingerprint)?;
        let entry = inner.view(guard).generation.limits.entry(self.index);
        // As on the fast path of a local bucket. The slow path reads clocks that may take long.
        let now_ns = inner.clock.quick_now_ns()?;
        let known = home.known()?;
        // `None` for a word from before a reload, and for an override that has ended.
        let limit = entry.limit_at(known.tag(), now_ns)?;
        Some(Found { known, limit, now_ns })
    }

    /// Decides any call for a leased limit in the slow path.
    pub(super) fn call_by_lease_of(
        &self,
        view: LimitsView<'_>,
        id: &[u8],
        (factor, call): (Factor, Call),
        now_ns: u64,
    ) -> Option<Decision> {
        if factor != Factor::ONE || !call.is_for_leases() {
            return None;
        }
        let leases = view.inner.leases.as_ref()?;
        let entry = view.generation.limits.entry(self.index);
        let (limit, tag) = entry.limit_for(id, view.limits_ns(now_ns))?;
        let key = leases.words.key(view, KeyRef { limit: self.index, id }, tag);
        let asked = (call.cost(), call.is_spend());
        if call.cost() > limit.burst() {
            return None;
        }
        let (answer, _) = leases.words.answer(view, &key, asked, now_ns).ok()?;
        let decision = lease_decision(limit, answer)?;
        self.count_by_lease(id, &decision, limit, call, now_ns);
        Some(decision)
    }

    #[inline(always)]
    fn count_by_lease(
        &self,
        id: &[u8],
        decision: &Decision,
        limit: &Limit,
        call: Call,
        now_ns: u64,
    ) {
        if call.is_spend()
            && let Some(stripes) = &self.stripes
        {
            stripes.count_by_lease(decision.allowed());
            match decision.allowed() {
                // How much of its burst the bucket has left is not known, so the call is not counted as near the limit.
                true => stripes.count_allowed(&Decision::UNLIMITED, limit.burst(), call.cost()),
                false => self.count_denied(stripes, id, decision, now_ns),
            }
        }
    }
}

/// Returns the decision of an answer from a lease.
pub(crate) fn lease_decision(limit: &Limit, answer: LeaseAnswer) -> Option<Decision> {
    match answer {
        LeaseAnswer::Spends { left, .. } => Some(allowed(limit, left)),
        LeaseAnswer::Denies { retry_in_ns, is_blocked } => {
            Some(denied(limit, retry_in_ns, is_blocked))
        }
        LeaseAnswer::Asks => None,
    }
}

/// The bucket has at least the units that are left of the lease, and is full again at the latest after the time in which
/// an empty one is.
#[inline(always)]
fn allowed(limit: &Limit, left: u64) -> Decision {
    Decision::new(true, (left, 1), 0, limit.burst_offset_ns())
}

#[inline(always)]
fn denied(limit: &Limit, retry_in_ns: u64, is_blocked: bool) -> Decision {
    let full_in_ns = limit.burst_offset_ns();
    match is_blocked {
        true => Decision::new(true, (0, 1), 0, full_in_ns).under_block(retry_in_ns),
        // A bucket may owe more than it holds, after a reload.
        false => Decision::new(false, (0, 1), retry_in_ns, full_in_ns.max(retry_in_ns)),
    }
}
