//! A slot of a segment: the fingerprint of a key, its cell and its limit tag.
//!
//! The state of a slot only moves forward, and no slot is used for a second key:
//!
//! ```text
//! vacant (lo 0) -> claimed (lo, hi 0) -> live (lo, hi, word) -> frozen (word with its top bit)
//! vacant -> closed (lo 1)    claimed -> poisoned (hi 1)
//! ```
//!
//! The tag is set while the slot is claimed, and does not change from then on. So every thread that finds the key finds
//! the tag, and knows where the cell is counted. Two keys with the same low half that claim a slot at the same time could
//! get one's tag with the other's key: no two of the keys of a table have 63 equal bits.

use std::ops::ControlFlow;

use super::fingerprint::Fingerprint;
use crate::store::cell::{Cell, Word};
use crate::store::key::LimitTag;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The low half of a slot that no key can claim any more.
pub(super) const CLOSED: u64 = 1;
/// The high half of a slot whose insert a migration has stopped half-way.
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

/// The state of a slot as the search for one key sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum KeyMatch {
    /// Any key can claim it.
    Vacant,
    /// No key can claim it, and the search ends here.
    Closed,
    /// Claimed by this key, or by another with the same low half.
    Claimed,
    /// It belongs to another key.
    Foreign,
    /// It belongs to this key.
    Own,
}

/// The contents of a slot, for any key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum SlotContents {
    Vacant,
    /// Closed or poisoned.
    NoKey,
    /// A low half without a high half.
    Claimed,
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

    /// Returns the word if the slot belongs to the key and its word is live and not 0. The fast path
    /// asks this.
    #[inline(always)]
    pub(super) fn live_word(&self, fingerprint: Fingerprint) -> Option<u64> {
        // Relaxed: swaps set the halves, which publish nothing. If a half is read too early, the
        // slot does not match, and the caller takes the slow path.
        self.live_word_beside(self.lo.load(Ordering::Relaxed), fingerprint)
    }

    /// Makes one step of the search for a key: `Break` with its live word, `Break(None)` at a vacant slot, beyond which the key
    /// cannot be, and `Continue` at any other slot.
    #[inline(always)]
    pub(super) fn search(&self, fingerprint: Fingerprint) -> ControlFlow<Option<u64>> {
        // Relaxed: as in `live_word`.
        match self.lo.load(Ordering::Relaxed) {
            NONE => ControlFlow::Break(None),
            lo => match self.live_word_beside(lo, fingerprint) {
                None => ControlFlow::Continue(()),
                word => ControlFlow::Break(word),
            },
        }
    }

    #[inline(always)]
    fn live_word_beside(&self, lo: u64, fingerprint: Fingerprint) -> Option<u64> {
        // Relaxed: as in `live_word`.
        if lo != fingerprint.lo || self.hi.load(Ordering::Relaxed) != fingerprint.hi {
            return None;
        }
        match self.word() {
            Word::Live(word @ 1..) => Some(word),
            Word::Live(0) | Word::Frozen(_) => None,
        }
    }

    /// Compares the slot with a key.
    #[inline]
    pub(super) fn match_key(&self, fingerprint: Fingerprint) -> KeyMatch {
        match self.low() {
            NONE => KeyMatch::Vacant,
            CLOSED => KeyMatch::Closed,
            lo if lo == fingerprint.lo => match self.high() {
                NONE => KeyMatch::Claimed,
                hi if hi == fingerprint.hi => KeyMatch::Own,
                _ => KeyMatch::Foreign,
            },
            _ => KeyMatch::Foreign,
        }
    }

    /// Returns the contents.
    pub(super) fn contents(&self) -> SlotContents {
        match self.low() {
            NONE => SlotContents::Vacant,
            CLOSED => SlotContents::NoKey,
            lo => match self.high() {
                NONE => SlotContents::Claimed,
                POISONED => SlotContents::NoKey,
                hi => SlotContents::Key(Fingerprint { lo, hi }),
            },
        }
    }

    #[inline]
    fn low(&self) -> u64 {
        // Acquire: pairs with `close`. A caller that finds the slot closed reads the shard's
        // pointer again, and must not read the pointer from before the migration that closed the
        // slot.
        self.lo.load(Ordering::Acquire)
    }

    #[inline]
    fn high(&self) -> u64 {
        // Acquire: pairs with `poison` for the same reason, and with `take`.
        self.hi.load(Ordering::Acquire)
    }

    /// Claims a vacant slot for a key. On `false` another thread was faster, and the caller reads
    /// the slot again.
    pub(super) fn claim(&self, fingerprint: Fingerprint) -> bool {
        // Relaxed: the low half publishes nothing, and a thread that loses reads the slot again.
        let claimed =
            self.lo.compare_exchange(NONE, fingerprint.lo, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Gives a claimed slot to the key; any thread may have claimed it. The caller has set the tag. On
    /// `false` another thread was faster, and the caller reads the slot again.
    pub(super) fn take(&self, fingerprint: Fingerprint) -> bool {
        if fault::active(Fault::TakeByStore) {
            self.hi.store(fingerprint.hi, Ordering::Relaxed);
            return true;
        }
        // Release: pairs with `high`: a thread that finds a migrated cell sees that the cell was
        // counted before, and a thread that finds the new cell of a key sees the eviction time
        // floor at which the key's last cell was dropped. It also sees the tag.
        // Relaxed on failure: a thread that loses reads the slot again.
        let taken = if fault::active(Fault::TagUnpublished) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.hi.compare_exchange(NONE, fingerprint.hi, taken, Ordering::Relaxed).is_ok()
    }

    /// Closes a vacant slot. On `false` another thread was faster, and the caller reads the slot
    /// again.
    pub(super) fn close(&self) -> bool {
        // Release: pairs with `low`: a thread that finds the slot closed finds the pointer of the
        // migration that closed it.
        // Relaxed on failure: a thread that loses reads the slot again.
        let closed = self.lo.compare_exchange(NONE, CLOSED, Ordering::Release, Ordering::Relaxed);
        closed.is_ok()
    }

    /// Stops a half-done insert. On `false` another thread was faster, and the caller reads the
    /// slot again.
    pub(super) fn poison(&self) -> bool {
        // Release: pairs with `high`, as `close` with `low`.
        // Relaxed on failure: a thread that loses reads the slot again.
        let poisoned =
            self.hi.compare_exchange(NONE, POISONED, Ordering::Release, Ordering::Relaxed);
        poisoned.is_ok()
    }

    /// Returns the limit tag, which is set before the key is.
    #[inline(always)]
    pub(super) fn tag(&self) -> LimitTag {
        // Relaxed: the tag is written before the key's high half and before the first word. The caller has read one of
        // these with Acquire.
        LimitTag::from_bits(self.tag.load(Ordering::Relaxed))
    }

    /// Sets the limit tag unless it is set, and returns the slot's. Callers do this before they take the slot.
    pub(super) fn set_tag(&self, tag: LimitTag) -> LimitTag {
        // Relaxed: the swap of `take` publishes the tag with Release. All callers that set a tag take it from the
        // registry.
        if self.tag.load(Ordering::Relaxed) == NONE {
            if fault::active(Fault::TagByStore) {
                self.tag.store(tag.bits(), Ordering::Relaxed);
                return tag;
            }
            let _ =
                self.tag.compare_exchange(NONE, tag.bits(), Ordering::Relaxed, Ordering::Relaxed);
        }
        self.tag()
    }

    /// Reads the word, with its mark.
    #[inline]
    pub(super) fn word(&self) -> Word {
        self.cell.word()
    }
}
