//! The rollback ledger: what lowered a bucket's word between a charge and its rollback.
//!
//! A word does not say which charges it contains. A rollback computes from the word how much may go back. For that it has
//! to know by how much other calls have lowered the word since its charge. So each call that lowers a word records that
//! here before its swap: a settlement and a rollback add the amount, a refund and a reset count themselves. Buckets share
//! the entries of a fixed array. Another bucket of the same entry can only make a rollback give back less.
//! docs/internals/rollback.md has the rule.

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

/// The number of entries, a power of two. With more entries fewer buckets share one.
const ENTRIES: usize = if cfg!(tollgate_loom) { 1 } else { 4096 };

/// By how much, and how often, calls have lowered the words of the entry's buckets since the limiter was made.
pub(crate) struct Entry {
    /// The sum by which rollbacks beneath later charges and settlements of a part of a charge have lowered words, in ns
    /// or units. It wraps, after 584 years of ns.
    lowered: AtomicU64,
    /// The number of refunds and resets.
    refunds: AtomicU64,
}

/// A reading of an entry, made before a charge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerMark {
    lowered: u64,
    refunds: u64,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        let entry = || Entry { lowered: AtomicU64::new(0), refunds: AtomicU64::new(0) };
        Ledger { entries: (0..ENTRIES).map(|_| entry()).collect(), hasher: RandomState::new() }
    }

    /// Returns the entry of a key's own bucket.
    pub(crate) fn entry(&self, key: &StoreKey<'_>) -> &Entry {
        self.entry_by_fingerprint(key.fingerprint, key.key)
    }

    /// Returns the entry of a key's own bucket. `key` counts only if the store has no fingerprints.
    #[inline]
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
        // Relaxed: the charge comes later. A reading that is older than the charge's swap only overestimates by how much
        // words were lowered since.
        let (lowered, refunds) = (Ordering::Relaxed, Ordering::Relaxed);
        LedgerMark { lowered: self.lowered.load(lowered), refunds: self.refunds.load(refunds) }
    }

    /// Returns whether a refund or a reset was made since `mark`.
    pub(crate) fn is_refunded_since(&self, mark: LedgerMark) -> bool {
        // Relaxed: the caller has read the word with Acquire, and so comes after every refund that the word contains:
        // each was counted before the Release of its swap.
        self.refunds.load(Ordering::Relaxed) != mark.refunds
    }

    /// Counts a refund or a reset, once for each attempt to lower the word, before its swap.
    pub(crate) fn count_refund(&self) {
        if !fault::active(Fault::RefundNotCounted) {
            // Relaxed: published by the word's swap.
            self.refunds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns an upper bound of the sum by which words were lowered since `mark`.
    pub(crate) fn lowered_since(&self, mark: LedgerMark) -> u64 {
        // Relaxed: as in `is_refunded_since`.
        self.lowered.load(Ordering::Relaxed).wrapping_sub(mark.lowered)
    }

    /// Adds the amount `by`, once for each attempt to lower a word by it, before its swap. A call that charged before the
    /// word was read finds the amount; a call that charges after that makes the attempt fail. Returns the sum by which
    /// words had been lowered since `mark`, without `by`. Of two rollbacks at once the second to add knows of the first,
    /// even if the word returns to its former value; the first does not know of the second.
    pub(crate) fn announce(&self, by: u64, mark: LedgerMark) -> u64 {
        if fault::active(Fault::LoweringNotCounted) {
            return self.lowered_since(mark);
        }
        // Relaxed: published by the word's swap. Two announcements meet in this one location.
        self.lowered.fetch_add(by, Ordering::Relaxed).wrapping_sub(mark.lowered)
    }
}

impl LedgerMark {
    /// Returns the mark for a call that has itself announced `by` since.
    pub(crate) fn with_own(self, by: u64) -> LedgerMark {
        LedgerMark { lowered: self.lowered.wrapping_add(by), ..self }
    }
}
