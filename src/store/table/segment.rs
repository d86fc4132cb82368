//! A segment: one block of memory with slots, a power of two of them, and what is known of them all.

use std::array;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::block::Block;
use super::epoch::Guard;
use super::fingerprint::Fingerprint;
use super::memory::Memory;
use super::shard::Packed;
use super::slot::{A_LINE, Is, Slot};
use crate::store::cell::Word;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering};

/// What is known of a segment's slots. Known keys never touch it.
#[repr(C, align(64))]
pub(super) struct Header {
    /// The block that this is the start of.
    pub(super) block: Block,
    /// The segment that this one was made to replace, for those who find it while that goes on.
    pub(super) old: Packed,
    /// The most cells that `old` can send here.
    pub(super) moved_bound: u64,
    /// The generation of limits in whose units all words here are.
    generation: u64,
    /// Slots that fresh keys have claimed, and the mark that no more may.
    claims: AtomicU64,
    /// Slots that carried keys have claimed.
    moved: AtomicU64,
    /// Cells of this segment that were buried.
    buried: AtomicU64,
    /// Read with the rest: loom then sees whether all of it was made before.
    #[cfg(tollgate_loom)]
    made: loom::cell::Cell<bool>,
    /// The slots before it have been carried to the successor.
    pub(super) frontier: AtomicU64,
}

/// Of [`Header::claims`]: nobody may claim any more, for the number is being used.
const SEALED: u64 = 1 << 63;

/// A segment that cannot be freed while the guard lives.
#[derive(Clone, Copy)]
pub(super) struct Segment<'g> {
    header: NonNull<Header>,
    log2: u32,
    guard: PhantomData<&'g Guard>,
}

/// A segment that was unlinked. Dropped, it is freed.
pub(super) struct Unlinked {
    header: NonNull<Header>,
    log2: u32,
}

// SAFETY: it owns its block, which is freed on any thread.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Send for Unlinked {}

impl Unlinked {
    /// # Safety
    ///
    /// - No call that begins from now on can reach the segment, and this is done once.
    /// - What is returned is kept until no other thread can read the segment.
    #[expect(unsafe_code, reason = "what `into_block` and `drop` need")]
    pub(super) unsafe fn new(segment: Segment<'_>) -> Unlinked {
        Unlinked { header: segment.header, log2: segment.log2 }
    }

    /// The bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(self.log2)
    }

    /// Its block.
    pub(super) fn into_block(self) -> Block {
        ManuallyDrop::new(self).end()
    }

    #[expect(unsafe_code, reason = "takes what no other thread has any more")]
    fn end(&self) -> Block {
        // SAFETY: the contract of `new`; called once, by `into_block` or `drop`.
        unsafe { Segment::from_parts(self.header, self.log2).into_block() }
    }
}

impl Drop for Unlinked {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// A claim of room for one fresh key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Claim {
    /// So many slots are claimed now, this one included.
    Granted(u64),
    /// A migration is about to begin, or has.
    Sealed,
    /// As many slots are claimed as may be.
    Full,
}

/// What a key has in a segment.
#[derive(Clone, Copy)]
#[must_use]
pub(super) enum Found<'g> {
    Absent,
    /// A cell, with its word when it was met.
    Live(&'g Slot, u64),
    /// A cell whose word has moved on: the word as it was then.
    Moved(&'g Slot, u64),
}

/// The number of slots: none, or a power of two.
pub(super) const fn slots_of(log2: u32) -> usize {
    if log2 == 0 { 0 } else { 1 << log2 }
}

impl<'g> Segment<'g> {
    /// Makes a segment that nobody else knows.
    #[expect(unsafe_code, reason = "a block with a header and a number of slots known at run time")]
    pub(super) fn new(
        memory: &Memory,
        log2: u32,
        old: Packed,
        moved_bound: u64,
        generation: u64,
    ) -> Segment<'g> {
        let mut block = memory.block(bytes_of(log2));
        let header = block.start().cast::<Header>();
        let known = Header {
            block,
            old,
            moved_bound,
            generation,
            claims: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            buried: AtomicU64::new(0),
            frontier: AtomicU64::new(0),
            #[cfg(tollgate_loom)]
            made: loom::cell::Cell::new(true),
        };
        // SAFETY: where a block starts it is aligned, it has room, and it is nobody else's.
        unsafe { header.write(known) };
        // SAFETY: the start of a block.
        let header = unsafe { NonNull::new_unchecked(header) };
        let segment = Segment { header, log2, guard: PhantomData };
        #[cfg(tollgate_loom)]
        for at in 0..slots_of(log2) {
            // SAFETY: within the block, and nobody else's. (Elsewhere a slot of zeroes is a vacant one.)
            unsafe { segment.slot_pointer(at).as_ptr().write(Slot::new()) };
        }
        segment
    }

    /// Ends a segment; its block is what is left.
    ///
    /// # Safety
    ///
    /// - Nobody else can reach it, now or later.
    #[cfg(not(tollgate_loom))]
    #[expect(unsafe_code, reason = "takes what `new` put there")]
    pub(super) unsafe fn into_block(self) -> Block {
        // SAFETY: written by `new`, and read once: nobody else can reach it by this function's
        // contract. Headers and slots are numbers otherwise: there is nothing to drop.
        unsafe { (&raw const (*self.header.as_ptr()).block).read() }
    }

    /// As above; in a model the block is marked, and kept: loom sees who reads it at the same time, and
    /// the mark who does later.
    #[cfg(tollgate_loom)]
    #[expect(unsafe_code, reason = "the same contract")]
    pub(super) unsafe fn into_block(self) -> Block {
        self.header().made.set(false);
        Block::new(0)
    }

    /// The segment that `new` made, and a shard's pointer has.
    ///
    /// # Safety
    ///
    /// - `header` and `log2` are those of a segment that is not freed while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "turns a pointer into what may be read")]
    pub(super) unsafe fn from_parts(header: NonNull<Header>, log2: u32) -> Segment<'g> {
        Segment { header, log2, guard: PhantomData }
    }

    pub(super) fn parts(self) -> (NonNull<Header>, u32) {
        (self.header, self.log2)
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn header(self) -> &'g Header {
        // SAFETY: a segment is made of a block that lives as long as the guard.
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

    /// The generation of limits in whose units all words here are.
    pub(super) fn generation(self) -> u64 {
        self.header().generation
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the address of a slot in the block")]
    fn slot_pointer(self, at: usize) -> NonNull<Slot> {
        debug_assert!(at < self.slots(), "slot {at} of {}", self.slots());
        // SAFETY: the slots follow the header, whose size is a multiple of theirs, in the same block.
        unsafe { self.header.add(1).cast::<Slot>().add(at) }
    }

    /// The slot that is `at` places after a key's home; `at` is below the number of slots.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn slot(self, home: usize, at: usize) -> &'g Slot {
        let place = (home + at) & (self.slots() - 1);
        // SAFETY: below the number of slots, all of which `new` made; the block lives as long as the
        // guard.
        unsafe { self.slot_pointer(place).as_ref() }
    }

    /// The line in which the search for a key begins. A segment that has any slots has a whole line.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the block")]
    pub(super) fn line(self, fingerprint: Fingerprint) -> [&'g Slot; A_LINE] {
        let home = fingerprint.home(self.log2);
        // SAFETY: a home is below the number of slots, and the first of a line. As in `slot`.
        array::from_fn(|at| unsafe { self.slot_pointer(home + at).as_ref() })
    }

    /// The slots from a key's home on, all of them, once.
    pub(super) fn slots_from_home(
        self,
        fingerprint: Fingerprint,
    ) -> impl Iterator<Item = &'g Slot> {
        self.slots_from(if self.log2 == 0 { 0 } else { fingerprint.home(self.log2) })
    }

    /// All slots once, from one on.
    pub(super) fn slots_from(self, first: usize) -> impl Iterator<Item = &'g Slot> {
        (0..self.slots()).map(move |at| self.slot(first, at))
    }

    /// Whether none of that many slots from a key's home on is vacant.
    pub(super) fn is_full_from_home(self, fingerprint: Fingerprint, slots: usize) -> bool {
        self.slots_from_home(fingerprint).take(slots).all(|slot| slot.to(fingerprint) != Is::Vacant)
    }

    /// What a key has here. Reads only.
    ///
    /// A cell whose word has moved on is the key's as long as no later one has a word: the word may be on its
    /// way to a later slot of this segment.
    pub(super) fn find(self, fingerprint: Fingerprint) -> Found<'g> {
        let mut moved = None;
        for slot in self.slots_from_home(fingerprint) {
            match slot.to(fingerprint) {
                Is::Vacant | Is::Closed => break,
                Is::Own => match slot.word() {
                    Word::Live(0) if moved.is_some() => break,
                    Word::Live(word) => return Found::Live(slot, word),
                    // Dropped, or left without a charge: the key may have come back further on.
                    Word::Frozen(0) => {}
                    Word::Frozen(word) => moved = Some((slot, word)),
                },
                Is::Half | Is::Foreign => {}
            }
        }
        moved.map_or(Found::Absent, |(slot, word)| Found::Moved(slot, word))
    }

    /// The slots that the search for a key comes to after one of its own.
    pub(super) fn slots_after(
        self,
        slot: &Slot,
        fingerprint: Fingerprint,
    ) -> impl Iterator<Item = &'g Slot> {
        let mut slots = self.slots_from_home(fingerprint);
        let _ = slots.by_ref().find(|it| ptr::eq(*it, slot));
        slots
    }

    /// Whether a cell is the one that an earlier cell's word is on its way to.
    pub(super) fn is_awaited(self, slot: &Slot, fingerprint: Fingerprint) -> bool {
        let mut before = self.slots_from_home(fingerprint).take_while(|it| !ptr::eq(*it, slot));
        before.any(|it| it.to(fingerprint) == Is::Own && matches!(it.word(), Word::Frozen(1..)))
    }

    /// Claims room for a fresh key. While cells are carried here, all that may come have theirs.
    pub(super) fn claim(self, is_target: bool) -> Claim {
        let header = self.header();
        let carried = if fault::active(Fault::NoRoomForMoved) {
            0
        } else if is_target {
            header.moved_bound
        } else {
            // Relaxed: it does not rise any more, for the caller's pointer says that all is carried;
            // late claims that are given back make it too high at worst.
            header.moved.load(Ordering::Relaxed)
        };
        // Acquire: pairs with `seal`: whoever is refused by it then finds the shard's pointer as it was
        // sealed, or newer, and can begin the migration. That no claim comes after the seal is the
        // order of this one location.
        let before = header.claims.fetch_add(1, Ordering::Acquire);
        let claims = (before & !SEALED) + carried + 1;
        if before & SEALED != 0 && !fault::active(Fault::ClaimSealed) {
            self.give_back();
            Claim::Sealed
        } else if claims > most_claims(self.slots()) {
            self.give_back();
            Claim::Full
        } else {
            Claim::Granted(claims)
        }
    }

    /// Gives a claim back that was not used. Late is harmless: it counts too much until then.
    pub(super) fn give_back(self) {
        // Relaxed: as in `claim`.
        self.header().claims.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims room for a cell that is carried here: it always has it.
    pub(super) fn claim_moved(self) {
        // Relaxed: as in `claim`; before the slot is taken, so that the number is never too low.
        self.header().moved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back_moved(self) {
        // Relaxed: as in `claim`.
        self.header().moved.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count_buried(self) {
        // Relaxed: a number that is too low is safe: room is kept for what is gone.
        self.header().buried.fetch_add(1, Ordering::Relaxed);
    }

    /// An upper bound of the cells that are not buried. It may rise until the segment is sealed.
    pub(super) fn used(self) -> u64 {
        self.used_of(self.header().claims.load(Ordering::Relaxed))
    }

    /// Whether the segment of the table's `nth` shard has enough dead cells to be cleared out.
    ///
    /// The override of an account ends for all of its keys, so all shards fill up equally fast, and a shard that is
    /// cleared out has two segments meanwhile. Shards therefore begin at different times: when the dead cells are five,
    /// six, seven or eight eighths of the room that is left, depending on the shard's number.
    pub(super) fn is_worth_clearing(self, nth: usize) -> bool {
        /// A smaller one is cleared out by two calls.
        const MIN_SLOTS: usize = 64;
        let room = most_claims(self.slots()).saturating_sub(self.used());
        let buried = self.header().buried.load(Ordering::Relaxed);
        self.slots() >= MIN_SLOTS && buried * 8 >= room * (5 + nth as u64 % 4)
    }

    /// Ends all claims, and returns the bound, which does not rise any more.
    pub(super) fn seal(self) -> u64 {
        if fault::active(Fault::NoSeal) {
            return self.used();
        }
        // Release: pairs with `claim`.
        self.used_of(self.header().claims.fetch_or(SEALED, Ordering::Release))
    }

    fn used_of(self, claims: u64) -> u64 {
        let header = self.header();
        // Relaxed: the caller's pointer says that nothing is carried here any more; `buried` may be
        // too low, which is safe.
        let moved = header.moved.load(Ordering::Relaxed);
        let buried = header.buried.load(Ordering::Relaxed);
        ((claims & !SEALED) + moved).saturating_sub(buried)
    }
}

/// Asks the processor for the line in which a key's search begins, and the next, in a segment that may be
/// gone.
#[inline(always)]
pub(super) fn prefetch(header: NonNull<Header>, log2: u32, fingerprint: Fingerprint) {
    let home = if log2 == 0 { 0 } else { fingerprint.home(log2) };
    let line = header.as_ptr().wrapping_add(1).cast::<Slot>().wrapping_add(home);
    prefetch_line(line);
    // The search may go on there. After the last line it is no slot: no harm.
    prefetch_line(line.wrapping_add(A_LINE));
}

#[inline(always)]
fn prefetch_line(line: *mut Slot) {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "an intrinsic")]
    // SAFETY: a prefetch reads nothing and faults for no address; x86-64 has it always.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The most slots that may be claimed: the searches have to end somewhere.
pub(super) const fn most_claims(slots: usize) -> u64 {
    (slots - slots / 8) as u64 - if cfg!(tollgate_loom) && slots > 1 { 1 } else { 0 }
}

/// The number of claimed slots at which one caller sees to a successor.
pub(super) const fn enough_claims(slots: usize) -> u64 {
    let enough = (slots - slots / 4) as u64;
    if enough < most_claims(slots) { enough } else { most_claims(slots) }
}

/// The bytes that a segment takes.
const fn bytes_of(log2: u32) -> usize {
    size_of::<Header>() + slots_of(log2) * size_of::<Slot>()
}
