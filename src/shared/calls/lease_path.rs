//! Decides calls for one bucket from the units that the node has taken ahead, without the store.

use crate::algorithm::factor::Factor;
use crate::core::lease_words::word::{LeaseAnswer, LeaseWord};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limits::{Id, Scratch, WithBytes, visit_plain_bytes};
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Guard, Known, Table, read};

/// Looks for an id's lease. Inlined for each type of id, as for a local bucket.
struct FindLease<'c> {
    handle: &'c KeyedLimit,
    call: Call<'c>,
}

impl WithBytes<Option<Decision>> for FindLease<'_> {
    #[inline(always)]
    fn with(self, id: &[u8]) -> Option<Decision> {
        let FindLease { handle, call } = self;
        let inner = &*handle.limiter.inner;
        if let Some(table) = inner.leases().and_then(|leases| leases.words.table())
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
                            return Some(decision);
                        }
                        // Another cost is an error.
                        LeaseAnswer::Denies { retry_in_ns, is_blocked }
                            if call.cost() <= limit.burst() =>
                        {
                            let decision = denied(limit, retry_in_ns, is_blocked);
                            handle.count_by_lease(id, &decision, limit, call, now_ns);
                            return Some(decision);
                        }
                        LeaseAnswer::Denies { .. } | LeaseAnswer::Asks => break,
                    }
                }
            }
        }
        None
    }

    /// The call converts the id, and looks for its lease then.
    #[inline(always)]
    fn without(self) -> Option<Decision> {
        None
    }
}

/// The word of a lease, the limit that it was granted under, and the call's time.
struct Found<'g> {
    known: Known<'g>,
    limit: &'g Limit,
    now_ns: u64,
}

impl KeyedLimit {
    /// Decides a spend or a check from a lease, or by a denial that the store has made. `None`: the node has neither, or
    /// the call has more to do.
    pub(super) fn call_by_lease(&self, id: Id<'_>, factor: Factor, call: Call) -> Option<Decision> {
        if factor != Factor::ONE {
            return None;
        }
        visit_plain_bytes(self.format, &id, FindLease { handle: self, call })
    }

    /// Decides a call by a lease or a denial that the store has made, on any clock and for any id. For tests.
    pub(super) fn decide_here(&self, id: Id<'_>, (cost, spends): (u64, bool)) -> Option<Decision> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Some(Decision::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch).ok()?;
        let now_ns = inner.clock.now_ns();
        inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let Some((limit, tag)) = entry.limit_for(id, view.limits_ns(now_ns)) else {
                return Ok(Some(Decision::UNLIMITED));
            };
            let Some(leases) = inner.leases().filter(|_| entry.is_shared()) else {
                return Ok(None);
            };
            if cost > limit.burst() {
                return Ok(None);
            }
            let key = leases.words.key(view, KeyRef { limit: self.index, id }, tag);
            let (answer, _) = leases.words.answer(view, &key, (cost, spends), now_ns)?;
            Ok(lease_decision(limit, answer))
        })
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
pub(super) fn lease_decision(limit: &Limit, answer: LeaseAnswer) -> Option<Decision> {
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
