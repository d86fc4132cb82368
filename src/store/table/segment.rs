//! A segment: one block of memory with a header and a power of two of slots.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::block::Block;
use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::memory::Memory;
use super::shard::SegmentPointer;
use super::slot::{A_LINE, KeyMatch, Slot};
use crate::store::cell::Word;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// The header of a segment. The fast path never reads it.
#[repr(C, align(128))]
pub(super) struct Header {
    /// The block that this header is the start of.
    pub(super) block: Block,
    /// The segment that this one replaces. Callers read it during the migration only.
    pub(super) old: SegmentPointer,
    /// The most cells that can move here from `old`.
    pub(super) moved_bound: u64,
    /// The generation of limits in whose units all words here are counted.
    generation: u64,
    /// The number of slots that new keys have claimed, with the mark [`SEALED`].
    claims: AtomicU64,
    /// The number of slots that migrated keys have claimed.
    moved: AtomicU64,
    /// The number of dead cells.
    dead: AtomicU64,
    /// Read with the header, so that loom sees whether the header was made before.
    #[cfg(tollgate_loom)]
    made: loom::cell::Cell<bool>,
    /// The slots before this index have been migrated to the successor.
    pub(super) frontier: AtomicU64,
}

/// The mark in [`Header::claims`] that ends all claims, because a successor is sized by their
/// number.
const SEALED: u64 = 1 << 63;

/// A segment that is not freed while the guard lives.
#[derive(Clone, Copy)]
pub(super) struct Segment<'g> {
    header: NonNull<Header>,
    log2: u32,
    guard: PhantomData<&'g Guard>,
}

/// A segment that no pointer leads to. Dropping it frees it.
pub(super) struct Unlinked {
    header: NonNull<Header>,
    log2: u32,
}

// SAFETY: the segment owns its block, and any thread may free it.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Send for Unlinked {}

impl Unlinked {
    /// # Safety
    ///
    /// - No call that begins from now on can reach the segment, and the caller does this once.
    /// - The caller keeps the returned value until no other thread can read the segment.
    #[expect(unsafe_code, reason = "what `into_block` and `drop` need")]
    pub(super) unsafe fn new(segment: Segment<'_>) -> Unlinked {
        Unlinked { header: segment.header, log2: segment.log2 }
    }

    /// Returns the bytes that the segment takes.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(self.log2)
    }

    /// Ends the segment and returns its block.
    pub(super) fn into_block(self) -> Block {
        ManuallyDrop::new(self).end()
    }

    #[expect(unsafe_code, reason = "frees a segment that no other thread can reach")]
    fn end(&self) -> Block {
        // SAFETY: the contract of `new`. Either `into_block` or `drop` calls this, once.
        unsafe { Segment::from_parts(self.header, self.log2).into_block() }
    }
}

impl Drop for Unlinked {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// The outcome of a claim of one slot for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ClaimOutcome {
    /// Granted. The value is the number of claimed slots, this one included.
    Granted(u64),
    /// A migration has begun or is about to.
    Sealed,
    /// The most slots are claimed already.
    Full,
}

/// The outcome of a search for a key in a segment.
#[derive(Clone, Copy)]
#[must_use]
pub(super) enum Lookup<'g> {
    Absent,
    /// A live cell, with the word that the search read.
    Live(&'g Slot, u64),
    /// A frozen cell, with the word that it had. The word has moved, or is about to.
    Moved(&'g Slot, u64),
}

/// Returns the number of slots: 0 or a power of two.
pub(super) const fn slots_of(log2: u32) -> usize {
    if log2 == 0 { 0 } else { 1 << log2 }
}

impl<'g> Segment<'g> {
    /// Makes a segment that no other thread has a pointer to.
    #[expect(unsafe_code, reason = "a block with a header and a number of slots known at run time")]
    pub(super) fn new(
        memory: &Memory,
        log2: u32,
        old: SegmentPointer,
        moved_bound: u64,
        generation: u64,
    ) -> Segment<'g> {
        let mut block = memory.allocate(bytes_of(log2));
        let header = block.start().cast::<Header>();
        let contents = Header {
            block,
            old,
            moved_bound,
            generation,
            claims: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            frontier: AtomicU64::new(0),
            #[cfg(tollgate_loom)]
            made: loom::cell::Cell::new(true),
        };
        // SAFETY: the start of a block is aligned, the block has room for the header, and this call
        // owns it.
        unsafe { header.write(contents) };
        // SAFETY: the start of a block is not null.
        let header = unsafe { NonNull::new_unchecked(header) };
        let segment = Segment { header, log2, guard: PhantomData };
        #[cfg(tollgate_loom)]
        for at in 0..slots_of(log2) {
            // SAFETY: within the block, which this call owns. (Outside of loom zeroed memory is a
            // vacant slot.)
            unsafe { segment.slot_pointer(at).as_ptr().write(Slot::new()) };
        }
        segment
    }

    /// Ends a segment and returns its block.
    ///
    /// # Safety
    ///
    /// - No other thread can reach the segment, now or later.
    #[cfg(not(tollgate_loom))]
    #[expect(unsafe_code, reason = "takes the block from its own header")]
    pub(super) unsafe fn into_block(self) -> Block {
        // SAFETY: `new` wrote the block, and this reads it once: by the contract no other thread
        // can reach it. The other fields and the slots are numbers, which need no drop.
        unsafe { (&raw const (*self.header.as_ptr()).block).read() }
    }

    /// As above, but marks the block and keeps it: loom reports a read at the same time, and the
    /// mark fails a later read.
    #[cfg(tollgate_loom)]
    #[expect(unsafe_code, reason = "the same contract")]
    pub(super) unsafe fn into_block(self) -> Block {
        self.header().made.set(false);
        Block::new(0)
    }

    /// Returns the segment that `new` made and whose parts a shard's pointer has.
    ///
    /// # Safety
    ///
    /// - `header` and `log2` belong to a segment that is not freed while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "turns a pointer into a segment")]
    pub(super) unsafe fn from_parts(header: NonNull<Header>, log2: u32) -> Segment<'g> {
        Segment { header, log2, guard: PhantomData }
    }

    pub(super) fn parts(self) -> (NonNull<Header>, u32) {
        (self.header, self.log2)
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn header(self) -> &'g Header {
        // SAFETY: the block of a segment lives as long as the guard.
        let header = unsafe { self.header.as_ref() };
        #[cfg(tollgate_loom)]
        assert!(header.made.get(), "a segment is read after it was freed");
        header
    }

    #[inline(always)]
    pub(super) fn slots(self) -> usize {
        slots_of(self.log2)
    }

    #[inline(always)]
    pub(super) fn log2(self) -> u32 {
        self.log2
    }

    pub(super) fn generation(self) -> u64 {
        self.header().generation
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the address of a slot in the block")]
    fn slot_pointer(self, at: usize) -> NonNull<Slot> {
        debug_assert!(at < self.slots(), "slot {at} of {}", self.slots());
        // SAFETY: the slots follow the header in the same block, and the header's size is a
        // multiple of a slot's.
        unsafe { self.header.add(1).cast::<Slot>().add(at) }
    }

    /// Returns the slot `at` steps after the slot `home`, wrapping around; `at` is below the number
    /// of slots.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn slot(self, home: usize, at: usize) -> &'g Slot {
        let index = (home + at) & (self.slots() - 1);
        // SAFETY: the index is below the number of slots, `new` made all of them, and the block
        // lives as long as the guard.
        unsafe { self.slot_pointer(index).as_ref() }
    }

    /// Returns the cache line in which the search for a key begins, by its
    /// [index](Fingerprint::line).
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn line(self, line: usize) -> &'g [Slot; A_LINE] {
        // SAFETY: the line is below the number of lines, and the slots of a line follow each other;
        // otherwise as in `slot`.
        unsafe { self.slot_pointer(line * A_LINE).cast().as_ref() }
    }

    /// Returns all slots once, from a key's home on.
    pub(super) fn slots_from_home(
        self,
        fingerprint: Fingerprint,
    ) -> impl Iterator<Item = &'g Slot> {
        self.slots_from(if self.log2 == 0 { 0 } else { fingerprint.home(self.log2) })
    }

    /// Returns all slots once, from the slot `first` on.
    pub(super) fn slots_from(self, first: usize) -> impl Iterator<Item = &'g Slot> {
        (0..self.slots()).map(move |at| self.slot(first, at))
    }

    /// Returns whether none of the first `slots` slots from a key's home on is vacant.
    pub(super) fn is_full_from_home(self, fingerprint: Fingerprint, slots: usize) -> bool {
        self.slots_from_home(fingerprint)
            .take(slots)
            .all(|slot| slot.match_key(fingerprint) != KeyMatch::Vacant)
    }

    /// Searches for a key without writing.
    ///
    /// A frozen cell with a word counts unless a later cell of the key has a word, because the word
    /// may be about to move to a later slot of this segment.
    pub(super) fn find(self, fingerprint: Fingerprint) -> Lookup<'g> {
        let mut moved = None;
        for slot in self.slots_from_home(fingerprint) {
            match slot.match_key(fingerprint) {
                KeyMatch::Vacant | KeyMatch::Closed => break,
                KeyMatch::Own => match slot.word() {
                    Word::Live(0) if moved.is_some() => break,
                    Word::Live(word) => return Lookup::Live(slot, word),
                    // Dead: the key may have a later cell.
                    Word::Frozen(0) => {}
                    Word::Frozen(word) => moved = Some((slot, word)),
                },
                KeyMatch::Claimed | KeyMatch::Foreign => {}
            }
        }
        moved.map_or(Lookup::Absent, |(slot, word)| Lookup::Moved(slot, word))
    }

    /// Returns the slots that the search for a key visits after `slot`.
    pub(super) fn slots_after(
        self,
        slot: &Slot,
        fingerprint: Fingerprint,
    ) -> impl Iterator<Item = &'g Slot> {
        let mut slots = self.slots_from_home(fingerprint);
        let _ = slots.by_ref().find(|it| ptr::eq(*it, slot));
        slots
    }

    /// Returns whether the word of an earlier cell of the key is about to move to this slot.
    pub(super) fn is_awaited(self, slot: &Slot, fingerprint: Fingerprint) -> bool {
        let mut before = self.slots_from_home(fingerprint).take_while(|it| !ptr::eq(*it, slot));
        before.any(|it| {
            it.match_key(fingerprint) == KeyMatch::Own && matches!(it.word(), Word::Frozen(1..))
        })
    }

    /// Claims a slot for a new key. During a migration to this segment, room for all cells that may
    /// move here stays free.
    pub(super) fn claim(self, is_target: bool) -> ClaimOutcome {
        let header = self.header();
        let migrated = if fault::active(Fault::NoRoomForMoved) {
            0
        } else if is_target {
            header.moved_bound
        } else {
            // Relaxed: the number does not rise any more, because the caller's pointer says that
            // the migration is over. At worst it is too high, by claims that are given back late.
            header.moved.load(Ordering::Relaxed)
        };
        // Acquire: pairs with `seal`: a caller that the seal refuses then finds the shard's pointer
        // as it was at the seal or newer, and can begin the migration. The modification order of
        // this one location keeps claims before the seal.
        let before = header.claims.fetch_add(1, Ordering::Acquire);
        let claims = (before & !SEALED) + migrated + 1;
        if before & SEALED != 0 && !fault::active(Fault::ClaimSealed) {
            self.give_back();
            ClaimOutcome::Sealed
        } else if claims > max_claims(self.slots()) {
            self.give_back();
            ClaimOutcome::Full
        } else {
            ClaimOutcome::Granted(claims)
        }
    }

    /// Gives back an unused claim. Doing so late is harmless: until then the number is too high.
    pub(super) fn give_back(self) {
        // Relaxed: as in `claim`.
        self.header().claims.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a slot for a migrated cell, which always has room.
    pub(super) fn claim_moved(self) {
        // Relaxed: as in `claim`. Callers count before they take the slot, so that the number is
        // never too low.
        self.header().moved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back_moved(self) {
        // Relaxed: as in `claim`.
        self.header().moved.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count_dead(self) {
        // Relaxed: a number that is too low is safe, because it only keeps room for dead cells.
        self.header().dead.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of dead cells, or less.
    pub(super) fn dead(self) -> u64 {
        // Relaxed: only a guess.
        self.header().dead.load(Ordering::Relaxed)
    }

    /// Returns an upper bound of the cells that are not dead. It may rise until the segment is
    /// sealed.
    pub(super) fn used(self) -> u64 {
        self.used_of(self.header().claims.load(Ordering::Relaxed))
    }

    /// Returns whether a migration should clear out the dead cells. `shard_index` is the index of
    /// this segment's shard.
    ///
    /// When an account's override ends, it ends for all of the account's keys, so that all shards
    /// fill up equally fast. A shard has two segments during a migration. Shards therefore begin at
    /// different times: when the dead cells are five, six, seven or eight eighths of the remaining
    /// room, depending on the index.
    pub(super) fn is_worth_clearing(self, shard_index: usize) -> bool {
        /// In a smaller segment two calls do all of the migration.
        const MIN_SLOTS: usize = 64;
        let room = max_claims(self.slots()).saturating_sub(self.used());
        let dead = self.header().dead.load(Ordering::Relaxed);
        self.slots() >= MIN_SLOTS && dead * 8 >= room * (5 + shard_index as u64 % 4)
    }

    /// Ends all claims and returns the bound of [`used`](Segment::used), which does not rise any
    /// more.
    pub(super) fn seal(self) -> u64 {
        if fault::active(Fault::NoSeal) {
            return self.used();
        }
        // Release: pairs with `claim`.
        self.used_of(self.header().claims.fetch_or(SEALED, Ordering::Release))
    }

    fn used_of(self, claims: u64) -> u64 {
        let header = self.header();
        // Relaxed: the caller's pointer says that no migration to this segment is under way. `dead`
        // may be too low, which is safe.
        let moved = header.moved.load(Ordering::Relaxed);
        let dead = header.dead.load(Ordering::Relaxed);
        ((claims & !SEALED) + moved).saturating_sub(dead)
    }
}

/// Prefetches the cache line in which the search for a key begins, and the next line. The segment
/// may be freed.
#[inline(always)]
pub(super) fn prefetch(header: NonNull<Header>, log2: u32, fingerprint: Fingerprint) {
    let home = if log2 == 0 { 0 } else { fingerprint.home(log2) };
    prefetch_from(header.as_ptr().wrapping_add(1).cast::<Slot>().wrapping_add(home));
}

/// Prefetches a cache line of slots, and the next one.
#[inline(always)]
pub(super) fn prefetch_from(line: *const Slot) {
    prefetch_line(line);
    prefetch_line(line.wrapping_add(A_LINE));
}

/// Prefetches a cache line. After a segment's last line this is memory without slots, which is harmless.
#[inline(always)]
pub(super) fn prefetch_line(line: *const Slot) {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "an intrinsic")]
    // SAFETY: a prefetch reads nothing and faults for no address. All x86-64 processors have it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Returns the most slots that keys may claim. The rest stay vacant, so that searches end.
pub(super) const fn max_claims(slots: usize) -> u64 {
    (slots - slots / 8) as u64 - if cfg!(tollgate_loom) && slots > 1 { 1 } else { 0 }
}

/// Returns the number of claimed slots at which one caller begins a migration.
pub(super) const fn claims_to_grow(slots: usize) -> u64 {
    let enough = (slots - slots / 4) as u64;
    if enough < max_claims(slots) { enough } else { max_claims(slots) }
}

/// Returns the bytes that a segment takes.
pub(super) const fn bytes_of(log2: u32) -> usize {
    size_of::<Header>() + slots_of(log2) * size_of::<Slot>()
}
