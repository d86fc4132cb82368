//! The memory of a table's segments: counts it, and returns it to the system in bounded pieces.
//!
//! Freeing a mebibyte at once stalls the call that does it (docs/internals/reclamation.md, "How it
//! goes back"). Each call therefore frees a few KiB, and sweeps and reloads free the rest.

use std::sync::Arc;

use super::arena::Arena;
use super::block::Block;
use super::epoch::{Guard, Retired, active_readers};
use super::region::OpenRegions;
use super::retired::When;
use super::segment::Unlinked;
use crate::util::lock::Mutex;
use crate::util::sync::{FigureUsize, Ordering, Switch};

/// The most bytes of retired segments that readers may hold back, unless the segments in use take
/// more. Above it, a migration begins only if live cells need a larger segment.
const MAX_HELD_BYTES: usize = 16 << 20;
/// A reload does not wait for fewer bytes.
const MIN_WAITING_BYTES: usize = 64 << 10;
/// The approximate bytes of a retired segment's entry in the list.
const LISTED_BYTES: usize = 64;

/// The bytes that a call for a key frees, in about 5 us: twice the bytes of the eight chunks that a
/// migration moves between two such pieces.
const PIECE_BYTES: usize = 16 << 10;
/// The bytes that a step of a sweep or of a reload frees. Each time the system interrupts all
/// processors that run a thread of this process, so few large pieces disturb calls less.
const LARGE_PIECE_BYTES: usize = 512 << 10;
/// The most blocks in a piece of either size.
const MAX_BLOCKS: usize = 64;
/// The most large pieces at the end of a pass or a reload: 64 MiB, a few milliseconds.
const MAX_PIECES_AT_END: usize = 128;
/// The bytes that calls for keys leave to a sweep or a reload that is under way. If it stops, so
/// few bytes delay no migration, even if all of them belong to segments without slots.
const MAX_LEFT_BYTES: usize = 4 << 20;

/// The memory of a table's segments. It owns the retired ones, so that dropping the table frees
/// them.
#[derive(Default)]
pub(super) struct Memory {
    /// The blocks for segments of the reserved size.
    arena: Option<Arc<Arena>>,
    bytes: FigureUsize,
    mapped_bytes: FigureUsize,
    /// The number of segments that are retired and not freed.
    retired: FigureUsize,
    /// The retired segments that a thread may still read.
    waiting: Retired<Unlinked>,
    waiting_bytes: FigureUsize,
    /// The blocks of the other retired segments. No thread waits for the lock: a thread that finds
    /// it taken frees its own block at once, or none.
    unused: Mutex<Vec<Block>>,
    unused_bytes: FigureUsize,
    /// The regions for small blocks. No thread waits for this lock either.
    open_regions: Mutex<OpenRegions>,
    /// Whether a sweep or a reload, which frees unused blocks, is under way. It may stop at any
    /// step.
    is_bulk_freeing: Switch,
}

impl Memory {
    /// Reserves blocks for this number of segments of `bytes` bytes. Returns whether the system had
    /// the memory.
    pub(super) fn reserve(&mut self, segments: usize, bytes: usize) -> bool {
        /// The most retired segments, and their bytes, that the list may have before it looks for
        /// their readers, three times.
        const LISTED: usize = 192;
        const LISTED_BYTES: usize = 4 << 20;
        // A migration takes a segment more. Beside a reload, an eighth of the table waits for readers.
        let spare = segments.div_ceil(8) + (LISTED_BYTES / bytes).clamp(2, LISTED);
        self.arena = Arena::new(segments + spare, bytes);
        self.arena.is_some()
    }

    /// Returns the bytes that are reserved.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.arena.as_ref().map_or(0, |arena| arena.bytes())
    }

    /// Returns whether a reserved block is free.
    pub(super) fn has_reserved_block(&self) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.has_free())
    }

    /// The table is being dropped, and gives all memory back.
    pub(super) fn end(&self) {
        if let Some(arena) = &self.arena {
            arena.end();
        }
    }

    /// Returns a block of `bytes` zeroes.
    pub(super) fn allocate(&self, bytes: usize) -> Block {
        if let Some(arena) = self.arena.as_ref().filter(|arena| arena.block_bytes() == bytes)
            && let Some(block) = arena.take()
        {
            return Block::from_arena(block);
        }
        let block =
            self.open_regions.try_lock().and_then(|mut open_regions| open_regions.allocate(bytes));
        block.map_or_else(|| Block::new(bytes), Block::from_region)
    }

    /// Counts the block of a new segment.
    pub(super) fn count_new(&self, block: &Block) {
        // Relaxed, here and below: these counts only bound the memory that is held back.
        self.bytes.fetch_add(block.bytes(), Ordering::Relaxed);
        self.mapped_bytes.fetch_add(block.mapped_bytes(), Ordering::Relaxed);
    }

    /// Retires a segment, and frees a piece of unused memory. Every eighth chunk of the segment's
    /// migration has called [`free_piece`](Memory::free_piece) as well: together they free at least
    /// the segment's bytes, so that no pattern of migrations piles memory up.
    pub(super) fn retire(&self, guard: &Guard, segment: Unlinked) {
        let bytes = segment.bytes();
        self.retired.fetch_add(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(bytes + LISTED_BYTES, Ordering::Relaxed);
        self.waiting.push(bytes, segment);
        self.collect(guard, When::Many);
        self.free_piece();
    }

    /// Moves segments that no thread can read any more to the unused blocks, and looks for the
    /// readers of others.
    pub(super) fn collect(&self, guard: &Guard, when: When) {
        // The lock is held for at most one system call. A thread that finds it taken frees nothing
        // this time.
        let Some(mut unused) = self.unused.try_lock() else { return };
        for segment in self.waiting.collect(guard, when, active_readers) {
            let block = segment.into_block();
            self.waiting_bytes.fetch_sub(block.bytes() + LISTED_BYTES, Ordering::Relaxed);
            self.unused_bytes.fetch_add(block.bytes(), Ordering::Relaxed);
            unused.push(block);
        }
    }

    /// Adds a block to the unused ones, or frees it if the lock is taken.
    fn add_unused(&self, block: Block) {
        if let Err(block) = self.try_add_unused(block) {
            self.free(block);
        }
    }

    fn try_add_unused(&self, block: Block) -> Result<(), Block> {
        let Some(mut blocks) = self.unused.try_lock() else { return Err(block) };
        self.unused_bytes.fetch_add(block.bytes(), Ordering::Relaxed);
        blocks.push(block);
        Ok(())
    }

    fn take_unused(&self) -> Option<Block> {
        if self.unused_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let block = self.unused.try_lock()?.pop()?;
        self.unused_bytes.fetch_sub(block.bytes(), Ordering::Relaxed);
        Some(block)
    }

    /// Frees a small piece of unused memory, so that no call frees much; or leaves it to the sweep
    /// or reload under way.
    pub(super) fn free_piece(&self) {
        let is_bulk_freeing = self.is_bulk_freeing.load(Ordering::Relaxed);
        let left = if is_bulk_freeing { MAX_LEFT_BYTES } else { 0 };
        if self.unused_bytes.load(Ordering::Relaxed) > left {
            let _ = self.free_about(PIECE_BYTES);
        }
    }

    /// Frees about `bytes` bytes in a bounded number of blocks. Returns whether it freed any.
    fn free_about(&self, bytes: usize) -> bool {
        let mut freed = 0;
        for _ in 0..MAX_BLOCKS {
            if freed >= bytes {
                break;
            }
            let Some(more) = self.free_one(bytes - freed) else { break };
            freed += more;
        }
        freed > 0
    }

    /// Frees a large piece of unused memory, and tells calls that a sweep or a reload is under way.
    /// Returns whether it freed any.
    pub(super) fn free_large_piece(&self) -> bool {
        self.is_bulk_freeing.store(true, Ordering::Relaxed);
        self.free_about(LARGE_PIECE_BYTES)
    }

    /// Frees more than `bytes` bytes, so that the unused memory gets less.
    pub(super) fn free_more_than(&self, bytes: usize) {
        let pieces = bytes / LARGE_PIECE_BYTES + 1;
        let _ = (0..pieces).take_while(|_| self.free_large_piece()).count();
    }

    /// Frees unused memory at the end of a pass or a reload, within a bound, and leaves the rest to
    /// calls.
    pub(super) fn free_rest(&self) {
        // Bounded, because other threads may go on adding blocks.
        let _ = (0..MAX_PIECES_AT_END).take_while(|_| self.free_large_piece()).count();
        self.is_bulk_freeing.store(false, Ordering::Relaxed);
    }

    /// Frees one block, or about `bytes` bytes of a larger one. Returns the freed bytes, or `None`
    /// if no block is unused.
    fn free_one(&self, bytes: usize) -> Option<usize> {
        let mut block = self.take_unused()?;
        if block.shrink(bytes) {
            self.add_unused(block);
            return Some(bytes);
        }
        let bytes = block.left_bytes();
        self.free(block);
        Some(bytes)
    }

    fn free(&self, block: Block) {
        self.bytes.fetch_sub(block.bytes(), Ordering::Relaxed);
        self.mapped_bytes.fetch_sub(block.mapped_bytes(), Ordering::Relaxed);
        self.retired.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether readers hold back so many bytes that migrations have to wait.
    pub(super) fn is_too_much_held(&self) -> bool {
        let (waiting, in_use) = self.waiting_and_in_use();
        waiting > in_use.max(MAX_HELD_BYTES)
    }

    /// Returns whether readers hold back so many bytes that a reload waits for them.
    pub(super) fn is_much_waiting(&self) -> bool {
        let (waiting, in_use) = self.waiting_and_in_use();
        waiting > (in_use / 8).max(MIN_WAITING_BYTES)
    }

    /// Returns the bytes of retired segments that readers hold back, and those of segments in use.
    fn waiting_and_in_use(&self) -> (usize, usize) {
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let unused = self.unused_bytes.load(Ordering::Relaxed);
        (waiting, self.bytes().saturating_sub(waiting).saturating_sub(unused))
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn mapped_bytes(&self) -> usize {
        self.mapped_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn retired_count(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn retired(memory: &Memory, bytes: usize) -> Block {
        let block = Block::new(bytes);
        memory.count_new(&block);
        memory.retired.fetch_add(1, Ordering::Relaxed);
        block
    }

    #[test]
    fn block_counts_until_last_piece_is_freed() {
        let memory = Memory::default();
        let (large, small) = (retired(&memory, 300 << 10), retired(&memory, 1000));
        memory.add_unused(large);
        memory.add_unused(small);
        memory.free_piece();
        let is_linux = cfg!(target_os = "linux");
        let left = if is_linux { (300 << 10, 1) } else { (0, 0) };
        assert_eq!((memory.bytes(), memory.retired_count()), left, "the small one, and a piece");
        let pieces = (1..100).find(|_| {
            memory.free_piece();
            memory.retired_count() == 0
        });
        // 300 KiB in pieces of 16 KiB, except the piece that came with the small one.
        assert_eq!(pieces, Some(if is_linux { 18 } else { 1 }));
        assert_eq!((memory.bytes(), memory.mapped_bytes()), (0, 0));
        memory.free_piece();
    }

    #[test]
    fn steps_free_large_pieces_end_frees_rest() {
        let memory = Memory::default();
        memory.add_unused(retired(&memory, 700 << 10));
        (0..3).for_each(|_| memory.add_unused(retired(&memory, 1000)));
        assert!(memory.free_large_piece());
        assert_eq!(memory.retired_count(), usize::from(cfg!(target_os = "linux")), "the large one");
        memory.free_large_piece();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        (0..=MAX_BLOCKS).for_each(|_| memory.add_unused(retired(&memory, 64)));
        assert!(memory.free_large_piece());
        assert_eq!(memory.retired_count(), 1);
        (0..70).for_each(|_| memory.add_unused(retired(&memory, 1 << 20)));
        memory.free_rest();
        assert!((6..=71 - 64).contains(&memory.retired_count()), "{}", memory.retired_count());
        memory.free_rest();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        assert!(!memory.free_large_piece());
    }

    #[test]
    fn calls_leave_a_bounded_amount_to_sweeps() {
        let memory = Memory::default();
        memory.free_large_piece();
        (0..4).for_each(|_| memory.add_unused(retired(&memory, 1 << 20)));
        memory.free_piece();
        assert_eq!(memory.unused.lock().iter().map(Block::left_bytes).sum::<usize>(), 4 << 20);
        // The sweep has stopped, and frees no more blocks.
        memory.add_unused(retired(&memory, 1000));
        memory.free_piece();
        memory.free_piece();
        assert_eq!(memory.retired_count(), 4);
        assert!(memory.free_large_piece());
        assert!(memory.unused.lock().iter().map(Block::left_bytes).sum::<usize>() < 4 << 20);
        memory.free_rest();
        memory.add_unused(retired(&memory, 1000));
        memory.free_piece();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
    }

    #[test]
    fn a_taken_lock_frees_the_callers_own_block() {
        let memory = Memory::default();
        let (one, other) = (retired(&memory, 1000), retired(&memory, 1000));
        memory.add_unused(one);
        let taken = memory.unused.lock();
        memory.add_unused(other);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 1);
        drop(taken);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 0);
    }
}
