//! A slot of a segment: a key's fingerprint, its cell, and which numbers apply to it.
//!
//! A slot goes one way only, and is never used for another key:
//!
//! ```text
//! vacant (lo 0) -> claimed (lo, hi 0) -> live (lo, hi, word) -> gone (word with its top bit)
//! vacant -> closed (lo 1)    claimed -> poisoned (hi 1)
//! ```

use super::fingerprint::Fingerprint;
use crate::store::cell::{Cell, Word};
use crate::store::key::LimitTag;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The low half of a slot in which no key will ever be.
pub(super) const CLOSED: u64 = 1;
/// The high half of a slot whose insert was broken off.
pub(super) const POISONED: u64 = 1;
const NONE: u64 = 0;

/// Slots in a cache line.
pub(super) const A_LINE: usize = 2;

#[repr(C, align(32))]
pub(super) struct Slot {
    lo: AtomicU64,
    hi: AtomicU64,
    pub(super) cell: Cell,
    tag: AtomicU64,
}

#[cfg(not(tollgate_loom))]
const _: () = assert!(size_of::<Slot>() * A_LINE == 64 && align_of::<Slot>() == 32);

/// What a slot is to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Is {
    /// Free for any key.
    Vacant,
    /// Free for none, and nothing comes after it.
    Closed,
    /// Claimed by a key with the same low half, this one or another.
    Half,
    /// Another key's.
    Foreign,
    /// The key's own.
    Own,
}

/// What is in a slot, whosever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Holds {
    Nothing,
    /// Closed or poisoned.
    NoKey,
    /// A low half, without the high one.
    Half,
    Key(Fingerprint),
}

impl Slot {
    #[cfg(tollgate_loom)]
    pub(super) fn new() -> Slot {
        Slot {
            lo: AtomicU64::new(NONE),
            hi: AtomicU64::new(NONE),
            cell: Cell::new(),
            tag: AtomicU64::new(NONE),
        }
    }

    /// Whether this is the key's own slot, with a word: the way of a known key.
    #[inline(always)]
    pub(super) fn is_live(&self, fingerprint: Fingerprint) -> bool {
        // Relaxed: a fingerprint is decided by the swaps that set it, and publishes nothing; a slot that
        // is read as another's or as free only sends the caller to look again.
        self.lo.load(Ordering::Relaxed) == fingerprint.lo
            && self.hi.load(Ordering::Relaxed) == fingerprint.hi
            && matches!(self.word(), Word::Live(1..))
    }

    /// What this slot is to the key.
    #[inline]
    pub(super) fn to(&self, fingerprint: Fingerprint) -> Is {
        match self.low() {
            NONE => Is::Vacant,
            CLOSED => Is::Closed,
            lo if lo == fingerprint.lo => match self.high() {
                NONE => Is::Half,
                hi if hi == fingerprint.hi => Is::Own,
                _ => Is::Foreign,
            },
            _ => Is::Foreign,
        }
    }

    /// What is in this slot.
    pub(super) fn holds(&self) -> Holds {
        match self.low() {
            NONE => Holds::Nothing,
            CLOSED => Holds::NoKey,
            lo => match self.high() {
                NONE => Holds::Half,
                POISONED => Holds::NoKey,
                hi => Holds::Key(Fingerprint { lo, hi }),
            },
        }
    }

    #[inline]
    fn low(&self) -> u64 {
        // Acquire: pairs with `close`. Who meets a closed slot reads the shard's pointer again, and it
        // must not be the one from before the migration that closed the slot.
        self.lo.load(Ordering::Acquire)
    }

    #[inline]
    fn high(&self) -> u64 {
        // Acquire: pairs with `poison`, for the same reason, and with `take`.
        self.hi.load(Ordering::Acquire)
    }

    /// Claims a vacant slot for a key. If another was faster, the slot is to be looked at again.
    pub(super) fn claim(&self, fingerprint: Fingerprint) -> bool {
        // Relaxed: the low half publishes nothing, and who loses looks again.
        let claimed =
            self.lo.compare_exchange(NONE, fingerprint.lo, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Makes a claimed slot the key's, whoever claimed it. If another was faster, the slot is to be
    /// looked at again.
    pub(super) fn take(&self, fingerprint: Fingerprint) -> bool {
        if fault::active(Fault::TakeByStore) {
            self.hi.store(fingerprint.hi, Ordering::Relaxed);
            return true;
        }
        // Release: pairs with `high`: who meets a cell that was carried sees that it was counted
        // before, and who meets one that came back sees the floor at which it had been dropped. Relaxed
        // on failure: who loses looks again.
        self.hi.compare_exchange(NONE, fingerprint.hi, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Closes a vacant slot. If it was claimed first, it is to be looked at again.
    pub(super) fn close(&self) -> bool {
        // Release: pairs with `low`: who meets the mark finds the pointer of the migration that made
        // it. Relaxed on failure: who loses looks again.
        let closed = self.lo.compare_exchange(NONE, CLOSED, Ordering::Release, Ordering::Relaxed);
        closed.is_ok()
    }

    /// Breaks a half insert off. If it was completed first, the slot is to be looked at again.
    pub(super) fn poison(&self) -> bool {
        // Release: pairs with `high`, as `close` with `low`. Relaxed on failure: who loses looks again.
        let poisoned =
            self.hi.compare_exchange(NONE, POISONED, Ordering::Release, Ordering::Relaxed);
        poisoned.is_ok()
    }

    /// Which numbers apply: known as soon as the word is not 0.
    #[inline(always)]
    pub(super) fn tag(&self) -> LimitTag {
        // Relaxed: written before the first word, which the caller has read with Acquire.
        LimitTag::from_bits(self.tag.load(Ordering::Relaxed))
    }

    /// Says which numbers apply, unless it is said. Before the first word.
    pub(super) fn set_tag(&self, tag: LimitTag) {
        // Relaxed: the first word is swapped in with Release and publishes it. All who write one write
        // what the registry says of the key.
        if self.tag.load(Ordering::Relaxed) == NONE {
            if fault::active(Fault::NoteByStore) {
                return self.tag.store(tag.bits(), Ordering::Relaxed);
            }
            let _ =
                self.tag.compare_exchange(NONE, tag.bits(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The word, as far as it is one.
    #[inline]
    pub(super) fn word(&self) -> Word {
        self.cell.word()
    }
}
