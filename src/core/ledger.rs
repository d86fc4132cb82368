//! The rollback ledger: by how much other calls lowered a bucket's word between a charge and its rollback.
//!
//! A word does not say which charges it contains. A rollback computes from the word how many units it returns. For that
//! it needs the amount by which other calls have lowered the word since its charge. So each call that lowers a word
//! records this in the ledger before its swap: a settlement and a rollback add the amount, a refund and a reset add 1
//! to a count. A rollback of a whole charge that is still the bucket's last records nothing: it only undoes that
//! charge. A reservation that has to wait records the time of its grant. A charge with a factor below 1 records the units
//! that it lets drip out of a leaky bucket beyond those that drip out by the limit itself. Buckets share the entries of a
//! fixed array. Another bucket of the same entry can only make a rollback return less. docs/internals/rollback.md has the
//! rule.

use ahash::RandomState;

use crate::store::key::{KeyRef, LimitIndex};
use crate::store::{Fingerprint, StoreKey};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The rollback ledger of a limiter.
pub(crate) struct Ledger {
    entries: Box<[Entry]>,
    hasher: RandomState,
}

/// The number of entries, a power of two. With more entries, fewer buckets share an entry.
const ENTRIES: usize = if cfg!(tollgate_loom) { 1 } else { 4096 };

/// By how much, and how often, calls have lowered the words of the entry's buckets since the limiter was made.
pub(crate) struct Entry {
    /// The sum by which words were lowered by rollbacks beneath later charges and by settlements of a part of a charge:
    /// in the measure of `Charge::lowered`, which is ns for gcra and units for the algorithms that count. It wraps, in
    /// ns after 584 years.
    lowered: AtomicU64,
    /// The number of refunds and resets.
    refunds: AtomicU64,
    /// The latest time at which a reservation in the entry's buckets is granted, in ns; 0 if none had to wait.
    last_grant_ns: AtomicU64,
    /// The sum of the units in the measure of `Charge::drained_early`. It wraps.
    drained_early: AtomicU64,
}

/// A reading of an entry, made before a charge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerMark {
    lowered: u64,
    refunds: u64,
    drained_early: u64,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        let entry = || Entry {
            lowered: AtomicU64::new(0),
            refunds: AtomicU64::new(0),
            last_grant_ns: AtomicU64::new(0),
            drained_early: AtomicU64::new(0),
        };
        Ledger { entries: (0..ENTRIES).map(|_| entry()).collect(), hasher: RandomState::new() }
    }

    /// Returns the entry of a key's own bucket.
    pub(crate) fn entry(&self, key: &StoreKey<'_>) -> &Entry {
        self.entry_by_fingerprint(key.fingerprint, key.key)
    }

    /// Returns the entry of a key's own bucket. `key` is used only if the store computes no fingerprints.
    #[inline(always)]
    pub(crate) fn entry_by_fingerprint(&self, fingerprint: Fingerprint, key: KeyRef<'_>) -> &Entry {
        let bits =
            if fingerprint == Fingerprint::NONE { self.hash(key) } else { fingerprint.bits() };
        &self.entries[bits as usize % ENTRIES]
    }

    /// Returns the entry of a limit's shared bucket.
    pub(crate) fn shared_entry(&self, limit: LimitIndex) -> &Entry {
        &self.entries[self.hash(KeyRef { limit, id: &[] }) as usize % ENTRIES]
    }

    fn hash(&self, key: KeyRef<'_>) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl Entry {
    /// Reads the entry. A call does this before a charge that may be rolled back.
    pub(crate) fn mark(&self) -> LedgerMark {
        // Relaxed: this load comes before the charge's swap, which is a Release. What other calls add between the two
        // counts as later than the charge, so the rollback can only return less.
        let (lowered, refunds, drained) = (Ordering::Relaxed, Ordering::Relaxed, Ordering::Relaxed);
        LedgerMark {
            lowered: self.lowered.load(lowered),
            refunds: self.refunds.load(refunds),
            drained_early: self.drained_early.load(drained),
        }
    }

    /// Returns whether a refund or a reset was made since `mark`.
    pub(crate) fn is_refunded_since(&self, mark: LedgerMark) -> bool {
        // Relaxed: the caller has read the word with Acquire, and each refund in the word was counted before its swap,
        // a Release. So this load sees every such count.
        self.refunds.load(Ordering::Relaxed) != mark.refunds
    }

    /// Counts a refund or a reset, once for each attempt to lower the word, before its swap.
    pub(crate) fn count_refund(&self) {
        if !fault::active(Fault::RefundNotCounted) {
            // Relaxed: published by the word's swap.
            self.refunds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the time of a reservation's grant, once for each attempt to charge it, before the attempt's swap.
    pub(crate) fn record_grant(&self, at_ns: u64) {
        if !fault::active(Fault::GrantNotRecorded) {
            // Relaxed: published by the word's swap.
            self.last_grant_ns.fetch_max(at_ns, Ordering::Relaxed);
        }
    }

    /// Adds the units that a charge with a factor lets drip out early, once for each attempt to charge, before the
    /// attempt's swap.
    pub(crate) fn count_drained_early(&self, units: u64) {
        if units > 0 && !fault::active(Fault::DrainNotCounted) {
            // Relaxed: published by the word's swap.
            self.drained_early.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Returns an upper bound of the units that were drained early since `mark`.
    pub(crate) fn drained_early_since(&self, mark: LedgerMark) -> u64 {
        // Relaxed: as in `is_refunded_since`.
        self.drained_early.load(Ordering::Relaxed).wrapping_sub(mark.drained_early)
    }

    /// Returns an upper bound of the times at which reservations in the bucket are granted, or 0 if none had to wait.
    pub(crate) fn last_grant_ns(&self) -> u64 {
        // Relaxed: as in `is_refunded_since`.
        self.last_grant_ns.load(Ordering::Relaxed)
    }

    /// Returns an upper bound of the sum by which words were lowered since `mark`.
    pub(crate) fn lowered_since(&self, mark: LedgerMark) -> u64 {
        // Relaxed: as in `is_refunded_since`.
        self.lowered.load(Ordering::Relaxed).wrapping_sub(mark.lowered)
    }

    /// Adds the amount `by`, once for each attempt to lower a word by it, before the attempt's swap.
    ///
    /// If another call charged the bucket before the word was read, its mark is older than this addition, so its
    /// rollback finds the amount. If another call charges after the word was read, the swap of this attempt fails.
    pub(crate) fn announce(&self, by: u64) {
        if !fault::active(Fault::LoweringNotCounted) {
            // Relaxed: published by the word's swap.
            self.lowered.fetch_add(by, Ordering::Relaxed);
        }
    }
}

impl LedgerMark {
    /// Returns the mark for a call that has itself announced `by` since.
    pub(crate) fn with_own(self, by: u64) -> LedgerMark {
        LedgerMark { lowered: self.lowered.wrapping_add(by), ..self }
    }

    /// Returns the mark for a call whose own charge has drained `units` early.
    pub(crate) fn with_own_drain(self, units: u64) -> LedgerMark {
        LedgerMark { drained_early: self.drained_early.wrapping_add(units), ..self }
    }
}
