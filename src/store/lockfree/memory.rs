//! The memory that a table's segments take, and its way back to the system.

use parking_lot::Mutex;

use super::block::Block;
use super::region::Rests;
use crate::sync::{FigureUsize, Ordering, Switch};

/// Segments that may be unlinked and not freed, because some thread that is pinned might read them; and
/// their bytes, if that is more than what all segments take that are not retired. Past either no
/// migration begins but one that grows, up to the size that the cap on keys can need.
pub(super) const MOST_RETIRED: usize = 65_536;
const MOST_RETIRED_BYTES: usize = 16 << 20;

/// So much goes back to the system in a call for a key: some 5 us.
const PIECE_BYTES: usize = 16 << 10;
/// And in a step of a sweep or of a reload, for which nobody waits. Each time all processors that run a
/// thread of this process are interrupted: seldom and much is kinder to their calls.
const LARGE_PIECE_BYTES: usize = 512 << 10;
/// Of small blocks, so many in such a step.
const MOST_BLOCKS: usize = 64;
/// And at the end of a pass or a reload so many steps' work: 64 MiB, some milliseconds.
const MOST_PIECES_AT_END: usize = 128;
/// While a sweep or a reload is under way, calls for keys leave it this much: too little to put off a
/// migration, though the sweep stops and all of it is of segments without slots.
const MOST_LEFT_BYTES: usize = 4 << 20;

/// What the segments take. Shared with what frees them, which may come after the table.
#[derive(Default)]
pub(super) struct Memory {
    bytes: FigureUsize,
    mapped_bytes: FigureUsize,
    /// Segments that are unlinked and not freed yet.
    retired: FigureUsize,
    retired_bytes: FigureUsize,
    /// Of the retired, those that nobody reads any more, on their way back to the system. Nobody waits
    /// for the lock, which is held for no call of the system: who finds it taken frees its own block at
    /// once, or none.
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

    /// Counts a segment that was unlinked.
    pub(super) fn retired(&self, bytes: usize) {
        self.retired.fetch_add(1, Ordering::Relaxed);
        self.retired_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes the block of a retired segment that nobody reads any more.
    pub(super) fn unread(&self, block: Block) {
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
        let left = if is_seen_to { MOST_LEFT_BYTES } else { 0 };
        if self.unread_bytes.load(Ordering::Relaxed) > left {
            let _ = self.free_up_to(PIECE_BYTES);
        }
    }

    /// Frees some of what nobody reads, in the middle of a sweep or a reload, and says that this is under way.
    /// Returns whether there was anything.
    pub(super) fn free_some(&self) -> bool {
        self.is_seen_to.store(true, Ordering::Relaxed);
        let mut freed = 0;
        for _ in 0..MOST_BLOCKS {
            if freed >= LARGE_PIECE_BYTES {
                break;
            }
            let Some(more) = self.free_up_to(LARGE_PIECE_BYTES - freed) else { break };
            freed += more;
        }
        freed > 0
    }

    /// Frees so much, and more, so that what waits gets less.
    pub(super) fn free_more_than(&self, bytes: usize) {
        let pieces = bytes / LARGE_PIECE_BYTES + 1;
        let _ = (0..pieces).take_while(|_| self.free_some()).count();
    }

    /// Frees what is left at the end of it, within a bound, and leaves the rest to calls.
    pub(super) fn free_rest(&self) {
        // At most so many times: it may be that others go on adding.
        let _ = (0..MOST_PIECES_AT_END).take_while(|_| self.free_some()).count();
        self.is_seen_to.store(false, Ordering::Relaxed);
    }

    /// Frees one block, or a piece of a larger one; how many bytes. `None`: there is nothing to free.
    fn free_up_to(&self, bytes: usize) -> Option<usize> {
        let mut block = self.take()?;
        if block.shrink(bytes) {
            self.unread(block);
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
        self.retired_bytes.fetch_sub(block.bytes(), Ordering::Relaxed);
    }

    /// Whether so much is retired that migrations have to wait.
    pub(super) fn is_too_much_retired(&self) -> bool {
        let retired = self.retired_bytes.load(Ordering::Relaxed);
        let in_use = self.bytes().saturating_sub(retired);
        self.retired_count() >= MOST_RETIRED || retired > in_use.max(MOST_RETIRED_BYTES)
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
        memory.retired(bytes);
        block
    }

    #[test]
    fn a_block_goes_piece_by_piece_and_is_counted_until_the_last() {
        let memory = Memory::default();
        let (large, small) = (retired(&memory, 300 << 10), retired(&memory, 1000));
        memory.unread(large);
        memory.unread(small);
        memory.free_piece();
        assert_eq!((memory.bytes(), memory.retired_count()), (300 << 10, 1), "the small one");
        assert_eq!(memory.mapped_bytes(), 300 << 10);
        let pieces = (1..100).find(|_| {
            memory.free_piece();
            memory.retired_count() == 0
        });
        assert_eq!(pieces, Some(if cfg!(target_os = "linux") { 19 } else { 1 }));
        assert_eq!((memory.bytes(), memory.mapped_bytes()), (0, 0));
        memory.free_piece();
    }

    #[test]
    fn a_step_frees_a_large_piece_or_many_blocks_and_the_end_the_rest() {
        let memory = Memory::default();
        memory.unread(retired(&memory, 700 << 10));
        (0..3).for_each(|_| memory.unread(retired(&memory, 1000)));
        assert!(memory.free_some());
        assert_eq!(memory.retired_count(), usize::from(cfg!(target_os = "linux")), "the large one");
        memory.free_some();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        (0..=MOST_BLOCKS).for_each(|_| memory.unread(retired(&memory, 64)));
        assert!(memory.free_some());
        assert_eq!(memory.retired_count(), 1);
        (0..70).for_each(|_| memory.unread(retired(&memory, 1 << 20)));
        memory.free_rest();
        assert!((6..=71 - 64).contains(&memory.retired_count()), "{}", memory.retired_count());
        memory.free_rest();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
        assert!(!memory.free_some());
    }

    #[test]
    fn calls_leave_a_sweep_its_work_but_not_more_than_a_bound() {
        let memory = Memory::default();
        memory.free_some();
        (0..4).for_each(|_| memory.unread(retired(&memory, 1 << 20)));
        memory.free_piece();
        assert_eq!(memory.unread.lock().iter().map(Block::left_bytes).sum::<usize>(), 4 << 20);
        // A sweep that has stopped does not free the next.
        memory.unread(retired(&memory, 1000));
        memory.free_piece();
        memory.free_piece();
        assert_eq!(memory.retired_count(), 4);
        assert!(memory.free_some());
        assert!(memory.unread.lock().iter().map(Block::left_bytes).sum::<usize>() < 4 << 20);
        memory.free_rest();
        memory.unread(retired(&memory, 1000));
        memory.free_piece();
        assert_eq!((memory.bytes(), memory.retired_count()), (0, 0));
    }

    #[test]
    fn who_finds_the_lock_taken_frees_its_own_block() {
        let memory = Memory::default();
        let (one, other) = (retired(&memory, 1000), retired(&memory, 1000));
        memory.unread(one);
        let taken = memory.unread.lock();
        memory.unread(other);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 1);
        drop(taken);
        memory.free_piece();
        assert_eq!(memory.retired_count(), 0);
    }
}
