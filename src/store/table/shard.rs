//! A shard: one pointer to the segment that has its keys.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::segment;
use super::segment::{Header, Segment};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, Ordering};

/// A segment's address, the logarithm of its slots, and whether cells are still being carried to it,
/// in one word: a known key's way touches no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(*mut Header);

impl Packed {
    pub(super) const NONE: Packed = Packed(ptr::null_mut());

    const MIGRATING: usize = 1;
    const LOG2_SHIFT: u32 = 1;
    const TAG: usize = align_of::<Header>() - 1;

    fn new(segment: Segment<'_>, migrating: bool) -> Packed {
        let (header, log2) = segment.parts();
        let tag =
            (usize::from(migrating) * Self::MIGRATING) | ((log2 as usize) << Self::LOG2_SHIFT);
        assert!(tag <= Self::TAG, "a segment of 2^{log2} slots");
        Packed(header.as_ptr().map_addr(|address| address | tag))
    }

    #[inline(always)]
    fn is_migrating(self) -> bool {
        self.0.addr() & Self::MIGRATING != 0
    }

    #[inline(always)]
    fn parts(self) -> Option<(NonNull<Header>, u32)> {
        let header = NonNull::new(self.0.map_addr(|address| address & !Self::TAG))?;
        Some((header, ((self.0.addr() & Self::TAG) >> Self::LOG2_SHIFT) as u32))
    }
}

/// The pointer of one shard.
pub(super) struct Shard(AtomicPtr<Header>);

/// What a shard's pointer was when it was read. Everything that it leads to is there while the guard
/// lives.
#[derive(Clone, Copy)]
pub(super) struct View<'g> {
    packed: Packed,
    guard: PhantomData<&'g Guard>,
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub(super) fn view<'g>(&self, _: &'g Guard) -> View<'g> {
        // Acquire: pairs with `publish` and `complete`: the header and the slots are made, and all that
        // was carried or dropped before is seen.
        let order =
            if fault::active(Fault::ViewRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        View { packed: Packed(self.0.load(order)), guard: PhantomData }
    }

    /// Asks the processor for the line in which the search for a key begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, fingerprint: Fingerprint) {
        // Relaxed: an address that is not read.
        let packed = Packed(self.0.load(Ordering::Relaxed));
        if let Some((header, log2)) = packed.parts() {
            segment::prefetch(header, log2, fingerprint);
        }
    }

    /// Makes `new` the shard's segment: one that cells are carried to if there was another before.
    /// If the pointer was changed first, nobody has seen `new`.
    pub(super) fn publish(&self, seen: View<'_>, new: Segment<'_>) -> bool {
        let packed = Packed::new(new, seen.packed != Packed::NONE);
        // Release: pairs with `view`: the header and the slots are made. Relaxed on failure: the
        // pointer is read anew.
        let order = if fault::active(Fault::PublishRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.swap(seen.packed, packed, order)
    }

    /// Says that all is carried. Returns whether this call did it: then the old segment, which was
    /// reached through a pointer with the mark alone, is unreachable for who pins from now on.
    pub(super) fn complete(&self, seen: View<'_>) -> bool {
        let Some(newest) = seen.newest() else { return false };
        // Release: pairs with `view`: all that was carried and dropped is seen. Relaxed on failure:
        // the pointer is read anew.
        let order = if fault::active(Fault::CompleteRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.swap(seen.packed, Packed::new(newest, false), order)
    }

    fn swap(&self, from: Packed, to: Packed, order: Ordering) -> bool {
        self.0.compare_exchange(from.0, to.0, order, Ordering::Relaxed).is_ok()
    }

    #[cfg(tollgate_loom)]
    fn swap_none(&self) -> *mut Header {
        let none = ptr::null_mut();
        let now = self.0.compare_exchange(none, none, Ordering::Acquire, Ordering::Acquire);
        now.unwrap_or_else(|now| now)
    }

    /// Whether the pointer, as it is now, leads to a segment.
    #[cfg(tollgate_loom)]
    pub(super) fn leads_to(&self, segment: Segment<'_>) -> bool {
        // A swap reads what is newest.
        let now = self.swap_none();
        let view = View { packed: Packed(now), guard: PhantomData };
        let is = |other: Option<Segment<'_>>| other.is_some_and(|it| it.parts() == segment.parts());
        is(view.newest()) || is(view.old())
    }

    /// Frees the segments, with the table.
    #[expect(unsafe_code, reason = "frees what nobody else has any more")]
    pub(super) fn free(&mut self, guard: &Guard) {
        let view = self.view(guard);
        for segment in [view.old(), view.newest()].into_iter().flatten() {
            // SAFETY: the shard is borrowed exclusively: no other thread has a view of it, or will.
            drop(unsafe { segment.into_block() });
        }
    }
}

impl<'g> View<'g> {
    /// Whether cells are being carried from `old` to `newest`.
    #[inline(always)]
    pub(super) fn is_migrating(self) -> bool {
        self.packed.is_migrating()
    }

    /// Whether both are the same.
    pub(super) fn is(self, other: View<'_>) -> bool {
        self.packed == other.packed
    }

    /// The segment that keys are inserted in. `None`: there was never any.
    #[inline(always)]
    #[expect(unsafe_code, reason = "turns a pointer into what may be read")]
    pub(super) fn newest(self) -> Option<Segment<'g>> {
        let (header, log2) = self.packed.parts()?;
        // SAFETY: the pointer was read from the shard under the guard. A segment is retired after the
        // swap of `complete` by which the last pointer to it went: not before the guard ends.
        Some(unsafe { Segment::from_parts(header, log2) })
    }

    /// The segment that cells are carried from, while they are.
    #[expect(unsafe_code, reason = "turns a pointer into what may be read")]
    pub(super) fn old(self) -> Option<Segment<'g>> {
        if !self.is_migrating() {
            return None;
        }
        let (header, log2) = self.newest()?.header().old.parts()?;
        // SAFETY: the pointer that was read under the guard has the mark, so that `complete`, after
        // which `old` is retired, had not happened when it was read: not before the guard ends.
        Some(unsafe { Segment::from_parts(header, log2) })
    }

    /// The newest segment's pointer, for its successor to find it by.
    pub(super) fn as_old(self) -> Packed {
        self.packed
    }
}
