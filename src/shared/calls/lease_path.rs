//! Decides calls for one bucket from the units that the node has taken ahead, without the store.

use crate::algorithm::factor::Factor;
use crate::core::lease_words::word::{LeaseWord, Spent};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::handle::{Call, KeyedLimit};
use crate::limits::{Id, WithBytes, visit_plain_bytes};
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
                while let Some(Spent { word, left }) =
                    LeaseWord::from_word(known.word()).spend(now_ns, call.cost())
                {
                    if call.is_spend() && call.cost() > 0 && !known.swap(word) {
                        if known.read_again() {
                            continue;
                        }
                        break;
                    }
                    handle.count_by_lease(limit, call);
                    return Some(allowed(limit, left));
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
    /// Decides a spend or a check from a lease. `None`: the node has no units for it, or the call has more to do.
    pub(super) fn call_by_lease(&self, id: Id<'_>, factor: Factor, call: Call) -> Option<Decision> {
        if factor != Factor::ONE {
            return None;
        }
        visit_plain_bytes(self.format, &id, FindLease { handle: self, call })
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
    fn count_by_lease(&self, limit: &Limit, call: Call) {
        if call.is_spend()
            && let Some(stripes) = &self.stripes
        {
            stripes.count_by_lease(true);
            // How much of its burst the bucket has left is not known, so the call is not counted as near the limit.
            stripes.count_allowed(&Decision::UNLIMITED, limit.burst(), call.cost());
        }
    }
}

/// Returns the decision of a call that a lease allows. The bucket has at least the units that are left of the lease, and is full
/// again at the latest after the time in which an empty one is.
#[inline(always)]
pub(super) fn allowed(limit: &Limit, left: u64) -> Decision {
    Decision::new(true, (left, 1), 0, limit.burst_offset_ns())
}
