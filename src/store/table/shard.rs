//! A shard: one pointer to the segment that holds its keys.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::block::Block;
use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::segment;
use super::segment::{Header, Segment};
use super::slot::{A_LINE, Slot};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, Ordering};

/// A segment's address, with the number of its slots and two marks in the low bits. The fast path
/// needs no more, and reads no header.
///
/// ```text
/// bit  0..5  how far to shift a fingerprint to find a key's line: see `shift_of`
///      5     a migration to the segment is under way
///      6     the fast path cannot use the segment alone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPointer(*mut Header);

const _: () =
    assert!(Block::ALIGN.is_multiple_of(align_of::<Header>()), "a segment begins with its header");
const _: () = assert!(SegmentPointer::LOW_BITS >= 2 * SegmentPointer::NOT_ALONE - 1);

impl SegmentPointer {
    /// No segment.
    pub(super) const NONE: SegmentPointer =
        SegmentPointer(ptr::without_provenance_mut(Self::NOT_ALONE));

    const SHIFT_MASK: usize = 0b1_1111;
    const MIGRATING: usize = 1 << 5;
    const NOT_ALONE: usize = 1 << 6;
    const LOW_BITS: usize = align_of::<Header>() - 1;

    fn new(segment: Segment<'_>, migrating: bool) -> SegmentPointer {
        let (header, log2) = segment.parts();
        assert!(log2 < 32, "a segment of 2^{log2} slots");
        let mark = |is_set: bool, mark: usize| if is_set { mark } else { 0 };
        let low_bits = Self::shift_of(log2) as usize
            | mark(migrating, Self::MIGRATING)
            | mark(migrating || log2 < 2, Self::NOT_ALONE);
        SegmentPointer(header.as_ptr().map_addr(|address| address | low_bits))
    }

    /// Converts log2 of a segment's slots to the number of bits by which the upper half of a
    /// fingerprint's `hi` is shifted to find a key's line, and back. Segments of no line and of one
    /// need no such number: 0 and 1 stay as they are, and the fast path does not use the segments.
    #[inline(always)]
    pub(super) const fn shift_of(log2: u32) -> u32 {
        if log2 < 2 { log2 } else { 33 - log2 }
    }

    #[inline(always)]
    fn is_migrating(self) -> bool {
        self.0.addr() & Self::MIGRATING != 0
    }

    #[inline(always)]
    fn parts(self) -> Option<(NonNull<Header>, u32)> {
        let header = NonNull::new(self.0.map_addr(|address| address & !Self::LOW_BITS))?;
        Some((header, Self::shift_of((self.0.addr() & Self::SHIFT_MASK) as u32)))
    }
}

/// The pointer of one shard.
pub(super) struct Shard(AtomicPtr<Header>);

/// The pointer of a shard, as one call has read it. The segments that it leads to are not freed
/// while the guard lives.
#[derive(Clone, Copy)]
pub(super) struct ShardView<'g> {
    pointer: SegmentPointer,
    guard: PhantomData<&'g Guard>,
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard(AtomicPtr::new(SegmentPointer::NONE.0))
    }

    #[inline(always)]
    pub(super) fn view<'g>(&self, _: &'g Guard) -> ShardView<'g> {
        // Acquire: pairs with `publish` and `complete`: the caller sees the header and the slots as
        // they were made, and all cells that were migrated or dropped before.
        let order =
            if fault::active(Fault::ViewRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        ShardView { pointer: SegmentPointer(self.0.load(order)), guard: PhantomData }
    }

    /// Prefetches the cache line in which the search for a key begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, fingerprint: Fingerprint) {
        // Relaxed: the prefetch reads nothing.
        let pointer = SegmentPointer(self.0.load(Ordering::Relaxed));
        if let Some((header, log2)) = pointer.parts() {
            segment::prefetch(header, log2, fingerprint);
        }
    }

    /// Makes `new` the shard's newest segment, and begins a migration to it if the shard had one.
    /// On `false` another thread has changed the pointer first, and no other thread has seen `new`.
    pub(super) fn publish(&self, seen: ShardView<'_>, new: Segment<'_>) -> bool {
        let pointer = SegmentPointer::new(new, seen.pointer != SegmentPointer::NONE);
        // Release: pairs with `view`: the header and the slots are made.
        // Relaxed on failure: the caller reads the pointer again.
        let order = if fault::active(Fault::PublishRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.swap(seen.pointer, pointer, order)
    }

    /// Removes the mark after the last chunk. If this call did it, no thread that pins from now on
    /// can reach the old segment, because only a pointer with the mark leads there.
    pub(super) fn complete(&self, seen: ShardView<'_>) -> bool {
        let Some(newest) = seen.newest() else { return false };
        // Release: pairs with `view`: callers see all cells that were migrated or dropped.
        // Relaxed on failure: the caller reads the pointer again.
        let order = if fault::active(Fault::CompleteRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.swap(seen.pointer, SegmentPointer::new(newest, false), order)
    }

    fn swap(&self, from: SegmentPointer, to: SegmentPointer, order: Ordering) -> bool {
        self.0.compare_exchange(from.0, to.0, order, Ordering::Relaxed).is_ok()
    }

    #[cfg(tollgate_loom)]
    fn swap_none(&self) -> *mut Header {
        let none = SegmentPointer::NONE.0;
        let now = self.0.compare_exchange(none, none, Ordering::Acquire, Ordering::Acquire);
        now.unwrap_or_else(|now| now)
    }

    /// Returns whether the current pointer leads to a segment.
    #[cfg(tollgate_loom)]
    pub(super) fn leads_to(&self, segment: Segment<'_>) -> bool {
        // A swap reads the newest value.
        let now = self.swap_none();
        let view = ShardView { pointer: SegmentPointer(now), guard: PhantomData };
        let is = |other: Option<Segment<'_>>| other.is_some_and(|it| it.parts() == segment.parts());
        is(view.newest()) || is(view.old())
    }

    /// Frees the segments when the table is dropped.
    #[expect(unsafe_code, reason = "frees segments that no other thread can reach")]
    pub(super) fn free(&mut self, guard: &Guard) {
        let view = self.view(guard);
        for segment in [view.old(), view.newest()].into_iter().flatten() {
            // SAFETY: the shard is borrowed exclusively, so that no other thread has a view of it,
            // now or later.
            drop(unsafe { segment.into_block() });
        }
    }
}

impl<'g> ShardView<'g> {
    /// Returns whether a migration from `old` to `newest` is under way.
    #[inline(always)]
    pub(super) fn is_migrating(self) -> bool {
        self.pointer.is_migrating()
    }

    /// Returns the cache line in which the search for a key begins. `None` during a migration,
    /// before the first segment, and if the newest segment has at most one line. Reads nothing.
    #[inline(always)]
    #[expect(unsafe_code, reason = "turns a pointer into a segment")]
    pub(super) fn line(self, fingerprint: Fingerprint) -> Option<&'g [Slot; A_LINE]> {
        let address = self.pointer.0.addr();
        if address & SegmentPointer::NOT_ALONE != 0 {
            return None;
        }
        let header = self.pointer.0.map_addr(|address| address & !SegmentPointer::LOW_BITS);
        let shift = (address & SegmentPointer::SHIFT_MASK) as u32;
        // SAFETY: a pointer without the mark is one from `SegmentPointer::new`, whose header is not
        // null. The segment is not freed before the guard ends, as in `newest`.
        let segment = unsafe {
            let header = NonNull::new_unchecked(header);
            Segment::from_parts(header, SegmentPointer::shift_of(shift))
        };
        Some(segment.line(fingerprint.line(shift)))
    }

    /// Returns whether both are the same pointer.
    pub(super) fn is_same(self, other: ShardView<'_>) -> bool {
        self.pointer == other.pointer
    }

    /// Returns the segment into which keys are inserted; `None` before the first.
    #[inline(always)]
    #[expect(unsafe_code, reason = "turns a pointer into a segment")]
    pub(super) fn newest(self) -> Option<Segment<'g>> {
        let (header, log2) = self.pointer.parts()?;
        // SAFETY: the pointer was read from the shard under the guard. A segment is retired after
        // the swap of `complete` that removes the last pointer to it, and is not freed before the
        // guard ends.
        Some(unsafe { Segment::from_parts(header, log2) })
    }

    /// Returns the segment that a migration leaves.
    #[expect(unsafe_code, reason = "turns a pointer into a segment")]
    pub(super) fn old(self) -> Option<Segment<'g>> {
        if !self.is_migrating() {
            return None;
        }
        let (header, log2) = self.newest()?.header().old.parts()?;
        // SAFETY: the pointer that was read under the guard has the mark, so that `complete` came
        // later. `old` is retired after `complete`, and is not freed before the guard ends.
        Some(unsafe { Segment::from_parts(header, log2) })
    }

    /// Returns the pointer to the newest segment, by which its successor finds it.
    pub(super) fn pointer(self) -> SegmentPointer {
        self.pointer
    }
}
