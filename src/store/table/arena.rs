//! The memory that a table reserves at the start: blocks of one size for segments.
//!
//! The pages are touched when the arena is made, so that no call waits for the system to find one.
//! A bit for each block says whether it is free. A free block has zeroes: the bytes of a used one
//! are cleared piece by piece before it is free again.

use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

use super::block::Block;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Ordering, Switch};

/// The memory of a table's reserved blocks.
pub(super) struct Arena {
    mapping: MmapRaw,
    /// Where the first block begins in the mapping.
    padding: usize,
    /// The bytes of a block.
    block_bytes: usize,
    free: FreeBlocks,
    /// Whether the table is being dropped, so that no block is used again.
    is_ending: Switch,
}

/// A block of an arena. Dropping it clears it and makes it free.
pub(super) struct ArenaBlock {
    arena: Arc<Arena>,
    index: usize,
    /// The first bytes, which are not cleared yet.
    used_bytes: usize,
}

/// Huge pages have this size on the systems that have them, and begin at a multiple of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// No system has smaller pages.
const MIN_PAGE_BYTES: usize = 4 << 10;

impl Arena {
    /// Makes an arena of `blocks` blocks of `block_bytes` bytes, and touches all its pages. `None`
    /// if the system does not have the memory.
    pub(super) fn new(blocks: usize, block_bytes: usize) -> Option<Arc<Arena>> {
        let bytes = block_bytes.next_multiple_of(Block::ALIGN).checked_mul(blocks)?;
        let mut mapping = MmapMut::map_anon(bytes.checked_add(HUGE_PAGE_BYTES)?).ok()?;
        // Systems without huge pages refuse, and ordinary pages do as well.
        #[cfg(all(target_os = "linux", not(miri)))]
        let _ = mapping.advise(memmap2::Advice::HugePage);
        let padding = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let used = mapping.get_mut(padding..padding + bytes)?;
        // A page gets memory when it is written.
        used.iter_mut().step_by(MIN_PAGE_BYTES).for_each(|byte| *byte = 0);
        // From here on no reference covers the mapping: its blocks have owners.
        let mapping = MmapRaw::from(mapping);
        let (free, is_ending) = (FreeBlocks::new(blocks), Switch::new(false));
        Some(Arc::new(Arena { mapping, padding, block_bytes, free, is_ending }))
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the bytes of the arena.
    pub(super) fn bytes(&self) -> usize {
        self.mapping.len()
    }

    /// Takes a free block, whose bytes are zeroes.
    pub(super) fn take(self: &Arc<Arena>) -> Option<ArenaBlock> {
        let index = self.free.take()?;
        Some(ArenaBlock { arena: self.clone(), index, used_bytes: self.block_bytes })
    }

    /// Returns whether a block is free. Another thread may take it.
    pub(super) fn has_free(&self) -> bool {
        self.free.is_any()
    }

    /// Blocks that are dropped from now on are neither cleared nor used again.
    pub(super) fn end(&self) {
        // Relaxed: the caller drops the table, so that no other thread has a block.
        self.is_ending.store(true, Ordering::Relaxed);
    }
}

impl ArenaBlock {
    pub(super) fn start(&self) -> *mut u8 {
        let Arena { mapping, padding, block_bytes, .. } = &*self.arena;
        // Within the mapping, which has room for all blocks.
        let at = padding + self.index * block_bytes.next_multiple_of(Block::ALIGN);
        mapping.as_mut_ptr().wrapping_add(at)
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.block_bytes
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Clears the last `bytes` of the bytes in use, or all of them if there are no more.
    #[expect(unsafe_code, reason = "memory without a type")]
    pub(super) fn clear(&mut self, bytes: usize) {
        let left = self.used_bytes.saturating_sub(bytes);
        // SAFETY: the bytes belong to this block, which is borrowed exclusively, and no segment
        // uses the address from `start` any more.
        unsafe { self.start().wrapping_add(left).write_bytes(0, self.used_bytes - left) };
        self.used_bytes = left;
    }
}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        if !self.arena.is_ending.load(Ordering::Relaxed) {
            self.clear(self.used_bytes);
            self.arena.free.put(self.index);
        }
    }
}

/// A set of the blocks that are free.
pub(super) struct FreeBlocks(Box<[AtomicU64]>);

impl FreeBlocks {
    /// Makes the set of the blocks below `blocks`.
    pub(super) fn new(blocks: usize) -> FreeBlocks {
        let word = |at: usize| match blocks - 64 * at {
            rest @ 0..64 => (1 << rest) - 1,
            _ => u64::MAX,
        };
        FreeBlocks((0..blocks.div_ceil(64)).map(|at| AtomicU64::new(word(at))).collect())
    }

    fn is_any(&self) -> bool {
        // Relaxed: only a guess.
        self.0.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes a block out of the set.
    pub(super) fn take(&self) -> Option<usize> {
        for (at, word) in self.0.iter().enumerate() {
            // Relaxed: the swap below orders.
            let mut free = word.load(Ordering::Relaxed);
            // Repeats only when another thread has taken or put a block of this word.
            while free != 0 {
                let bit = free & free.wrapping_neg();
                // Acquire: pairs with `put`: the block is cleared, and its last owner does not
                // write to it any more.
                let acquire = if fault::active(Fault::TakeBlockRelaxed) {
                    Ordering::Relaxed
                } else {
                    Ordering::Acquire
                };
                let taken = word.compare_exchange(free, free & !bit, acquire, Ordering::Relaxed);
                match taken {
                    Ok(_) => return Some(64 * at + bit.trailing_zeros() as usize),
                    Err(now) => free = now,
                }
            }
        }
        None
    }

    /// Puts a block back that `take` has returned.
    pub(super) fn put(&self, block: usize) {
        let Some(word) = self.0.get(block / 64) else { return };
        let release = if fault::active(Fault::PutBlockRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        // Release: pairs with `take`.
        word.fetch_or(1 << (block % 64), release);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_taken_once() {
        for blocks in [1, 2, 63, 64, 65, 200] {
            let free = FreeBlocks::new(blocks);
            for _ in 0..2 {
                let mut taken: Vec<usize> = std::iter::from_fn(|| free.take()).collect();
                assert_eq!(taken, (0..blocks).collect::<Vec<_>>());
                taken.reverse();
                taken.into_iter().for_each(|block| free.put(block));
            }
        }
    }

    #[test]
    fn blocks_are_apart_and_zeroed_whenever_taken() {
        const BYTES: usize = 5000;
        let arena = Arena::new(3, BYTES).unwrap();
        assert!(arena.bytes() >= 3 * BYTES);
        let all = |block: &ArenaBlock, byte| {
            // SAFETY: this test owns the block and has one thread.
            #[expect(unsafe_code, reason = "what a segment does")]
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.start(), block.bytes()) };
            let was = bytes[0];
            assert!(bytes.iter().all(|&byte| byte == was));
            bytes.fill(byte);
            was
        };
        for round in 1..4 {
            let mut blocks: Vec<ArenaBlock> = std::iter::from_fn(|| arena.take()).collect();
            assert_eq!(blocks.len(), 3);
            assert!(blocks.iter().all(|it| it.start().align_offset(Block::ALIGN) == 0));
            assert!(blocks.iter().all(|it| all(it, round) == 0), "zeroes");
            assert!(blocks.iter().all(|it| all(it, round) == round), "no two overlap");
            blocks[0].clear(2000);
            assert_eq!(blocks[0].used_bytes(), 3000);
            blocks[1].clear(usize::MAX);
            assert_eq!(blocks[1].used_bytes(), 0);
        }
        let last = arena.take();
        arena.end();
        drop(last);
        assert_eq!(std::iter::from_fn(|| arena.take()).count(), 2);
    }
}
