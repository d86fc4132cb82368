//! The rollback ledger: what lowered a bucket's word between a charge and its rollback.
//!
//! A word does not say which charges are behind another. A rollback computes from the word how much may go
//! back, so it has to know by how much the word was lowered since its charge. Each call that lowers a word
//! says so here before its swap: a settlement and a rollback by how much, a refund and a reset that they do.
//! Buckets share the entries of a fixed array. What another bucket of the same entry notes only makes a
//! rollback give back less.

use ahash::RandomState;

use crate::store::key::{KeyRef, LimitIndex};
use crate::store::{Fingerprint, StoreKey};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The entries of a limiter.
pub(crate) struct Ledger {
    entries: Box<[Entry]>,
    hasher: RandomState,
}

/// A power of two. More entries mean fewer buckets whose settlements and refunds disturb each other.
const ENTRIES: usize = if cfg!(tollgate_loom) { 1 } else { 4096 };

/// What lowered the words of some of the buckets, since the limiter was made.
pub(crate) struct Entry {
    /// By how much rollbacks lowered words from beneath other charges, and settlements of part of a charge
    /// did: in ns, or units. It wraps, after 584 years of ns.
    lowered: AtomicU64,
    /// Refunds and resets.
    by_hand: AtomicU64,
}

/// An entry as it was before a charge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    lowered: u64,
    by_hand: u64,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        let entry = || Entry { lowered: AtomicU64::new(0), by_hand: AtomicU64::new(0) };
        Ledger { entries: (0..ENTRIES).map(|_| entry()).collect(), hasher: RandomState::new() }
    }

    /// The entry of a key's own bucket.
    pub(crate) fn of(&self, key: &StoreKey<'_>) -> &Entry {
        self.of_fingerprint(key.fingerprint, key.key)
    }

    /// As [`of`](Ledger::of). The key is looked at where the store has no fingerprints.
    #[inline]
    pub(crate) fn of_fingerprint(&self, fingerprint: Fingerprint, key: KeyRef<'_>) -> &Entry {
        let bits =
            if fingerprint == Fingerprint::NONE { self.hash(key) } else { fingerprint.bits() };
        &self.entries[bits as usize % ENTRIES]
    }

    /// The entry of the bucket that the newcomers of a limit share.
    pub(crate) fn of_shared(&self, limit: LimitIndex) -> &Entry {
        &self.entries[self.hash(KeyRef { limit, id: &[] }) as usize % ENTRIES]
    }

    fn hash(&self, key: KeyRef<'_>) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl Entry {
    /// To be called before a charge.
    pub(crate) fn note(&self) -> Noted {
        // Relaxed: read before a charge. An earlier sum than that which the charge's swap comes after
        // only makes more of what was lowered since.
        let (lowered, by_hand) = (Ordering::Relaxed, Ordering::Relaxed);
        Noted { lowered: self.lowered.load(lowered), by_hand: self.by_hand.load(by_hand) }
    }

    /// Whether a refund or a reset has come since.
    pub(crate) fn is_refunded_since(&self, noted: Noted) -> bool {
        // Relaxed: asked after the word was read, with Acquire, and so after every refund that is in it:
        // each was counted before the Release of its swap.
        self.by_hand.load(Ordering::Relaxed) != noted.by_hand
    }

    /// Before a refund or a reset lowers a word: called once for each attempt.
    pub(crate) fn note_by_hand(&self) {
        if !fault::active(Fault::RefundNotCounted) {
            // Relaxed: published by the word's swap.
            self.by_hand.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// By how much words were lowered since, at most.
    pub(crate) fn lowered_since(&self, noted: Noted) -> u64 {
        // Relaxed: as in `is_refunded_since`.
        self.lowered.load(Ordering::Relaxed).wrapping_sub(noted.lowered)
    }

    /// Before a word is lowered by so much: called once for each attempt, so that a call that has charged
    /// before the word was read counts it, and one that comes in between makes the attempt fail. Returns
    /// by how much words had been lowered since `noted`: of two that announce, the second knows of the
    /// first, also where the word comes back to what it was. The first does not know of the second.
    pub(crate) fn announce(&self, by: u64, noted: Noted) -> u64 {
        if fault::active(Fault::LoweringNotCounted) {
            return self.lowered_since(noted);
        }
        // Relaxed: published by the word's swap; two that announce meet in this one location.
        self.lowered.fetch_add(by, Ordering::Relaxed).wrapping_sub(noted.lowered)
    }
}

impl Noted {
    /// The same for a call that has itself announced so much since.
    pub(crate) fn and_own(self, by: u64) -> Noted {
        Noted { lowered: self.lowered.wrapping_add(by), ..self }
    }
}
