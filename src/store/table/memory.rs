//! The memory that a table's segments take, and its way back to the system.

use parking_lot::Mutex;

use super::block::Block;
use super::epoch::{Guard, Retired, readers_in_calls};
use super::region::Rests;
use super::retired::When;
use super::segment::Unlinked;
use crate::util::sync::{FigureUsize, Ordering, Switch};

/// The bytes of segments that may be unlinked and not freed, because a thread that is pinned might read
/// them, if that is more than what all segments take that are not retired. Past it no migration begins but
/// one that live cells need to grow.
const MAX_HELD_BYTES: usize = 16 << 20;
/// A reload does not wait for less.
const MIN_WAITING_BYTES: usize = 64 << 10;
/// What it takes to keep one of them in a list, about.
const LISTED_BYTES: usize = 64;

/// So much goes back to the system in a call for a key: some 5 us. It is twice what the eight chunks of a
/// migration take that go with it.
const PIECE_BYTES: usize = 16 << 10;
/// And in a step of a sweep or of a reload, for which nobody waits. Each time all processors that run a
/// thread of this process are interrupted: seldom and much is kinder to their calls.
const LARGE_PIECE_BYTES: usize = 512 << 10;
/// Of small blocks, so many in either.
const MAX_BLOCKS: usize = 64;
/// And at the end of a pass or a reload so many steps' work: 64 MiB, some milliseconds.
const MAX_PIECES_AT_END: usize = 128;
/// While a sweep or a reload is under way, calls for keys leave it this much: too little to put off a
/// migration, though the sweep stops and all of it is of segments without slots.
const MAX_LEFT_BYTES: usize = 4 << 20;

/// What the segments take. It has those that are unlinked, so that all of them go with the table.
#[derive(Default)]
pub(super) struct Memory {
    bytes: FigureUsize,
    mapped_bytes: FigureUsize,
    /// Segments that are unlinked and not freed yet.
    retired: FigureUsize,
    /// Of these, those that a thread may still read.
    waiting: Retired<Unlinked>,
    waiting_bytes: FigureUsize,
    /// The others, on their way back to the system. No thread waits for the lock: a thread that finds it
    /// taken frees its own block at once, or none.
    unread: Mutex<Vec<Block>>,
    unread_bytes: FigureUsize,
    /// Where the next small blocks come from. Nobody waits for it, either.
    rests: Mutex<Rests>,
    /// Whether a sweep or a reload is under way, which frees what is unread. It may stop in the middle.
    is_seen_to: Switch,
}

impl Memory {
    /// A block with room for so many bytes, all 0.
    pub(super) fn block(&self, bytes: usize) -> Block {
        let cut = self.rests.try_lock().and_then(|mut rests| rests.cut(bytes));
        cut.map_or_else(|| Block::new(bytes), Block::of)
    }

    /// Counts the block of a new segment.
    pub(super) fn made(&self, block: &Block) {
        // Relaxed, here and below: figures, which only bound how much is held back.
        self.bytes.fetch_add(block.bytes(), Ordering::Relaxed);
        self.mapped_bytes.fetch_add(block.mapped_bytes(), Ordering::Relaxed);
    }

    /// Takes a segment that was unlinked, and frees about as much as it takes of what no thread can read
    /// any more: together with [`free_piece`](Memory::free_piece), which each eighth chunk of its migration
    /// calls, at least as much, so that no pattern of migrations piles it up.
    pub(super) fn retire(&self, guard: &Guard, segment: Unlinked) {
        let bytes = segment.bytes();
        self.retired.fetch_add(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(bytes + LISTED_BYTES, Ordering::Relaxed);
        self.waiting.push(bytes, segment);
        self.collect(guard, When::Many);
        self.free_piece();
    }

    /// Finds segments that no thread can read any more, and looks for those who read others.
    pub(super) fn collect(&self, guard: &Guard, when: When) {
        // Held for a call of the system at most: whoever finds it taken frees nothing this time.
        let Some(mut unread) = self.unread.try_lock() else { return };
        for segment in self.waiting.collect(guard, when, readers_in_calls) {
            let block = segment.into_block();
            self.waiting_bytes.fetch_sub(block.bytes() + LISTED_BYTES, Ordering::Relaxed);
            self.unread_bytes.fetch_add(block.bytes(), Ordering::Relaxed);
            unread.push(block);
        }
    }

    /// Takes back what is left of an unread block.
    fn put_back(&self, block: Block) {
        if let Err(block) = self.put(block) {
            self.free(block);
        }
    }

    fn put(&self, block: Block) -> Result<(), Block> {
        let Some(mut blocks) = self.unread.try_lock() else { return Err(block) };
        self.unread_bytes.fetch_add(block.bytes(), Ordering::Relaxed);
        blocks.push(block);
        Ok(())
    }

    fn take(&self) -> Option<Block> {
        if self.unread_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let block = self.unread.try_lock()?.pop()?;
        self.unread_bytes.fetch_sub(block.bytes(), Ordering::Relaxed);
        Some(block)
    }

    /// Frees a small piece of what nobody reads, so that no call does much of it; or leaves it to the sweep
    /// that is under way.
    pub(super) fn free_piece(&self) {
        let is_seen_to = self.is_seen_to.load(Ordering::Relaxed);
        let left = if is_seen_to { MAX_LEFT_BYTES } else { 0 };
        if self.unread_bytes.load(Ordering::Relaxed) > left {
            let _ = self.free_about(PIECE_BYTES);
        }
    }

    /// Frees about that many bytes, of a bounded number of blocks; returns whether there were any.
    fn free_about(&self, bytes: usize) -> bool {
        let mut freed = 0;
        for _ in 0..MAX_BLOCKS {
            if freed >= bytes {
                break;
            }
            let Some(more) = self.free_up_to(bytes - freed) else { break };
            freed += more;
        }
        freed > 0
    }

    /// Frees some of what nobody reads, in the middle of a sweep or a reload, and says that this is under way.
    /// Returns whether there was anything.
    pub(super) fn free_some(&self) -> bool {
        self.is_seen_to.store(true, Ordering::Relaxed);
        self.free_about(LARGE_PIECE_BYTES)
    }

    /// Frees so much, and more, so that what waits gets less.
    pub(super) fn free_more_than(&self, bytes: usize) {
        let pieces = bytes / LARGE_PIECE_BYTES + 1;
        let _ = (0..pieces).take_while(|_| self.free_some()).count();
    }

    /// Frees what is left at the end of it, within a bound, and leaves the rest to calls.
    pub(super) fn free_rest(&self) {
        // At most so many times: it may be that others go on adding.
        let _ = (0..MAX_PIECES_AT_END).take_while(|_| self.free_some()).count();
        self.is_seen_to.store(false, Ordering::Relaxed);
    }

    /// Frees one block, or a piece of a larger one; how many bytes. `None`: there is nothing to free.
    fn free_up_to(&self, bytes: usize) -> Option<usize> {
        let mut block = self.take()?;
        if block.shrink(bytes) {
            self.put_back(block);
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

    /// Whether threads may still read so much that migrations have to wait.
    pub(super) fn is_too_much_held(&self) -> bool {
        let (waiting, in_use) = self.waiting_and_in_use();
        waiting > in_use.max(MAX_HELD_BYTES)
    }

    /// Whether threads may still read more than a reload lets gather.
    pub(super) fn is_much_waiting(&self) -> bool {
        let (waiting, in_use) = self.waiting_and_in_use();
        waiting > (in_use / 8).max(MIN_WAITING_BYTES)
    }

    /// The bytes that threads may still read, and those of segments that are not retired.
    fn waiting_and_in_use(&self) -> (usize, usize) {
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        (waiting, self.bytes().saturating_sub(waiting).saturating_sub(unread))
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
        memory.made(&block);
        memory.retired.fetch_add(1, Ordering::Relaxed);
        block
    }

    #[test]
    fn freed_block_counts_until_its_last_piece() {
        let memory = Memory::default();
        let (large, small) = (retired(&memory, 300 << 10), retired(&memory, 1000));
        memory.put_back(large);
        memory.put_back(small);
        memory.free_piece();
        let is_linux = cfg!(target_os = "linux");
        let left = if is_linux { (300 << 10, 1) } else { (0, 0) };
        assert_eq!((memory.bytes(), memory.retired_count()), left, "the small one, and a piece");
        let pieces = (1..100).find(|_| {
            memory.free_piece();
            memory.retired_count() == 0
        });
        // Of 300 KiB 16 at a time, less what came with the small one.
        assert_eq!(pieces, Some(if is_linux { 18 } else { 1 }));
        assert_eq!((memory.bytes(), memory.mapped_bytes()), (0, 0));
        memory.free_piece();
    }

    #[test]
    fn step_frees_large_piece_or_many_small_blocks() {
        let memory = Memory::default();
        memory.put_back(retired(&memory, 700 << 10));
        (0..3).for_each(|_| memory.put_back(retired(&memory, 1000)));
        assert!(memory.free_some());
        assert_eq!(memory.retired_count(), usize::from(cfg!(target_os = "linux")), "the large one");
        memory.free_some();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        (0..=MAX_BLOCKS).for_each(|_| memory.put_back(retired(&memory, 64)));
        assert!(memory.free_some());
        assert_eq!(memory.retired_count(), 1);
        (0..70).for_each(|_| memory.put_back(retired(&memory, 1 << 20)));
        memory.free_rest();
        assert!((6..=71 - 64).contains(&memory.retired_count()), "{}", memory.retired_count());
        memory.free_rest();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        assert!(!memory.free_some());
    }

    #[test]
    fn calls_leave_bounded_work_to_the_sweep() {
        let memory = Memory::default();
        memory.free_some();
        (0..4).for_each(|_| memory.put_back(retired(&memory, 1 << 20)));
        memory.free_piece();
        assert_eq!(memory.unread.lock().iter().map(Block::left_bytes).sum::<usize>(), 4 << 20);
        // A sweep that has stopped does not free the next.
        memory.put_back(retired(&memory, 1000));
        memory.free_piece();
        memory.free_piece();
        assert_eq!(memory.retired_count(), 4);
        assert!(memory.free_some());
        assert!(memory.unread.lock().iter().map(Block::left_bytes).sum::<usize>() < 4 << 20);
        memory.free_rest();
        memory.put_back(retired(&memory, 1000));
        memory.free_piece();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
    }

    #[test]
    fn caller_without_the_lock_frees_its_block() {
        let memory = Memory::default();
        let (one, other) = (retired(&memory, 1000), retired(&memory, 1000));
        memory.put_back(one);
        let taken = memory.unread.lock();
        memory.put_back(other);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 1);
        drop(taken);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 0);
    }
}
