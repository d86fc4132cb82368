//! Decides calls for one bucket from the units that the node has taken ahead, without the store.

use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::core::lease_words::word::{LeaseAnswer, LeaseWord};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limits::{Id, WithBytes, visit_plain_bytes};
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Guard, Table, pin, read};

/// Looks for an id's lease. Inlined for each type of id, as for a local bucket.
struct FindLease<'c> {
    handle: &'c KeyedLimit,
    call: Call,
}

impl WithBytes<Option<Decision>> for FindLease<'_> {
    #[inline(always)]
    fn with(self, id: &[u8]) -> Option<Decision> {
        let handle = self.handle;
        let table = handle.limiter.inner.leases.as_ref()?.words.table()?;
        let fingerprint = table.fingerprint(KeyRef { limit: handle.index, id });
        let guard = read().unwrap_or_else(pin);
        handle.call_by_lease_in(&guard, table, (id, fingerprint), self.call)
    }

    /// The slow path converts the id, and looks for its lease.
    #[inline(always)]
    fn without(self) -> Option<Decision> {
        None
    }
}

impl KeyedLimit {
    /// Decides a spend or a check from a lease, or by a denial that the store has made. `None`: the node has neither, or
    /// the call has more to do.
    #[inline(always)]
    pub(crate) fn call_by_lease(&self, id: Id<'_>, call: Call) -> Option<Decision> {
        let inner = &*self.limiter.inner;
        if !matches!(call, Call::Spend(_) | Call::Check(_))
            || !inner.is_enabled()
            || !inner.clock.is_quick()
        {
            return None;
        }
        visit_plain_bytes(self.format, &id, FindLease { handle: self, call })
    }

    #[inline(always)]
    fn call_by_lease_in(
        &self,
        guard: &Guard,
        table: &Table,
        (id, fingerprint): (&[u8], Fingerprint),
        call: Call,
    ) -> Option<Decision> {
        let inner = &*self.limiter.inner;
        let home = table.home(guard, fingerprint)?;
        let entry = inner.view(guard).generation.limits.entry(self.index);
        let now_ns = inner.clock.quick_now_ns()?;
        let mut known = home.known()?;
        // `None` for a word from before a reload, and for an override that has ended.
        let limit = entry.limit_at(known.tag(), now_ns)?;
        loop {
            let answer = LeaseWord::from_word(known.word()).answer(now_ns, call.cost());
            if let LeaseAnswer::Spends { word, .. } = answer
                && call.is_spend()
                && call.cost() > 0
                && !known.swap(word)
            {
                if known.read_again() {
                    continue;
                }
                return None;
            }
            return self.decided_by_lease(limit, id, answer, call, now_ns);
        }
    }

    /// Decides any call for a leased limit in the slow path.
    pub(super) fn call_by_lease_of(
        &self,
        view: LimitsView<'_>,
        id: &[u8],
        (factor, call): (Factor, Call),
        now_ns: u64,
    ) -> Option<Decision> {
        if factor != Factor::ONE || !matches!(call, Call::Spend(_) | Call::Check(_)) {
            return None;
        }
        let leases = view.inner.leases.as_ref()?;
        let entry = view.generation.limits.entry(self.index);
        let (limit, tag) = entry.limit_for(id, view.limits_ns(now_ns))?;
        let key = leases.words.key(view, KeyRef { limit: self.index, id }, tag);
        let asked = (call.cost(), call.is_spend());
        let (answer, _) = leases.words.answer(view, &key, asked, now_ns).ok()?;
        self.decided_by_lease(limit, id, answer, call, now_ns)
    }

    #[inline(always)]
    fn decided_by_lease(
        &self,
        limit: &Limit,
        id: &[u8],
        answer: LeaseAnswer,
        call: Call,
        now_ns: u64,
    ) -> Option<Decision> {
        if call.cost() > limit.burst() {
            return None;
        }
        let decision = lease_decision(limit, answer)?;
        if call.is_spend()
            && let Some(stripes) = &self.stripes
        {
            match decision.allowed() {
                // How much of its burst the bucket has left is not known, so the call is not counted as near the limit.
                true => stripes.count_allowed(&Decision::UNLIMITED, limit.burst(), call.cost()),
                false => self.count_denied(stripes, id, &decision, now_ns),
            }
        }
        Some(decision)
    }
}

/// Returns the decision of an answer from a lease. The bucket has at least the units that are left of the lease, and is
/// full again at the latest after the time in which an empty one is.
#[inline(always)]
pub(crate) fn lease_decision(limit: &Limit, answer: LeaseAnswer) -> Option<Decision> {
    let full_in_ns = limit.burst_offset_ns();
    match answer {
        LeaseAnswer::Spends { left, .. } => Some(Decision::new(true, (left, 1), 0, full_in_ns)),
        LeaseAnswer::Denies { retry_in_ns, is_blocked: false } => {
            Some(Decision::new(false, (0, 1), retry_in_ns, full_in_ns))
        }
        LeaseAnswer::Denies { retry_in_ns, is_blocked: true } => {
            Some(Decision::new(true, (0, 1), 0, full_in_ns).under_block(retry_in_ns))
        }
        LeaseAnswer::Asks => None,
    }
}
