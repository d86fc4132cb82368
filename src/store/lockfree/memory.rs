//! The memory that a table's segments take, and its way back to the system.

use parking_lot::Mutex;

use super::block::Block;
use crate::sync::{FigureUsize, Ordering};

/// Segments that may be unlinked and not freed, because some thread that is pinned might read them; and
/// their bytes, if that is more than what all segments take that are not retired. Past either no
/// migration begins but one that grows, up to the size that the cap on keys can need.
pub(super) const MOST_RETIRED: usize = 65_536;
const MOST_RETIRED_BYTES: usize = 16 << 20;

/// What the segments take. Shared with what frees them, which may come after the table.
#[derive(Default)]
pub(super) struct Memory {
    bytes: FigureUsize,
    mapped_bytes: FigureUsize,
    /// Segments that are unlinked and not freed yet.
    retired: FigureUsize,
    retired_bytes: FigureUsize,
    /// Of the retired, those that nobody reads any more, on their way back to the system. Nobody waits
    /// for the lock: who finds it taken frees its own block at once, or none.
    unread: Mutex<Vec<Block>>,
    unread_count: FigureUsize,
}

impl Memory {
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
        let Some(mut blocks) = self.unread.try_lock() else { return self.free(block) };
        blocks.push(block);
        self.unread_count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Frees one piece of what nobody reads: at most some 20 pages, so that no call does much of it.
    pub(super) fn free_piece(&self) {
        if self.unread_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut blocks) = self.unread.try_lock() else { return };
        if blocks.last_mut().is_none_or(Block::shrink) {
            return;
        }
        let block = blocks.pop();
        self.unread_count.store(blocks.len(), Ordering::Relaxed);
        drop(blocks);
        block.into_iter().for_each(|block| self.free(block));
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
        assert_eq!(pieces, Some(if cfg!(target_os = "linux") { 5 } else { 1 }));
        assert_eq!((memory.bytes(), memory.mapped_bytes()), (0, 0));
        memory.free_piece();
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
