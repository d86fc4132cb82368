//! Lists the blocked keys, beside the buckets and independent of them.
//!
//! A key's hash picks one of 1,024 or more bins. A bin is a pointer: null, or to a sorted slice that never changes. A
//! thread that blocks an id copies the slice, changes the copy, and swaps the pointer by compare-and-swap. If another
//! thread has changed the bin meanwhile, it begins again. So no thread waits for another, and each repeat is due to
//! another thread's change. docs/internals/blocks.md has the rest.

use std::sync::Arc;

use crate::store::key::{Key, KeyRef};
use crate::store::{Guard, ReplacedBins, pin, pin_briefly};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering};

/// A key whose calls are denied until a time.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) key: Key,
    pub(crate) until_ns: u64,
    pub(crate) reason: Option<Box<str>>,
}

impl Block {
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }
}

/// The blocks of a limiter.
pub(crate) struct BlockList {
    /// Their number is a power of two.
    bins: ReplacedBins<Bin>,
    /// The number of blocks that are listed or about to be. A call raises it before it lists a block, and lowers it
    /// after it has removed one. So it is never too low: if it is 0, no block is listed.
    count: AtomicUsize,
    max: usize,
}

/// The blocks of the keys of one bin, sorted by key.
struct Bin {
    blocks: Box<[Arc<Block>]>,
    /// 1 once the slice is complete. Each reader checks it, so that loom finds a reader that comes too early.
    #[cfg(tollgate_loom)]
    made: crate::util::sync::AtomicU64,
}

/// The list has its maximum of blocks.
#[derive(Debug)]
pub(crate) struct Full;

impl Bin {
    fn new(blocks: Vec<Arc<Block>>) -> Bin {
        let bin = Bin {
            blocks: blocks.into(),
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
        };
        #[cfg(tollgate_loom)]
        bin.made.store(1, Ordering::Relaxed);
        bin
    }

    fn blocks(&self) -> &[Arc<Block>] {
        #[cfg(tollgate_loom)]
        assert_eq!(self.made.load(Ordering::Relaxed), 1, "blocks are read before they are made");
        &self.blocks
    }

    /// Returns about the bytes of the slice and its blocks, without long ids and reasons. Blocks that are also in the next slice
    /// are not freed with it.
    fn bytes(&self) -> usize {
        size_of::<Bin>() + self.blocks.len() * (size_of::<Arc<Block>>() + size_of::<Block>())
    }
}

/// Returns the blocks that are not over.
fn current(blocks: &[Arc<Block>], now_ns: u64) -> impl Iterator<Item = Arc<Block>> + '_ {
    blocks.iter().filter(move |block| !block.is_over(now_ns)).cloned()
}

/// Returns the position of the key's block, or the position at which it would be inserted.
fn position(blocks: &[Arc<Block>], key: KeyRef<'_>) -> Result<usize, usize> {
    blocks.binary_search_by(|block| block.key.as_ref().cmp(&key))
}

impl BlockList {
    /// Makes a list of at most `max` blocks.
    pub(crate) fn new(max: usize) -> BlockList {
        /// The most blocks that a bin of a full list has on average, as far as `MAX_BINS` allows it.
        const BLOCKS_PER_BIN: usize = 64;
        const MIN_BINS: usize = 1 << 10;
        const MAX_BINS: usize = 1 << 16;
        let bins = (max / BLOCKS_PER_BIN).clamp(MIN_BINS, MAX_BINS).next_power_of_two();
        let bins = if cfg!(tollgate_loom) { 1 } else { bins };
        BlockList { bins: ReplacedBins::new(bins), count: AtomicUsize::new(0), max }
    }

    /// Returns the largest number of blocks.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns whether any block may be listed.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        // Relaxed: a call that begins after a block was listed reads the count of that time or a later one. Both
        // contain that block.
        self.count.load(Ordering::Relaxed) != 0
    }

    fn bin(&self, hash: u64) -> usize {
        // The lowest bits of a fingerprint may be the table's marks.
        (hash >> 8) as usize & (self.bins.len() - 1)
    }

    /// Returns the end of the key's block, if it has one that is not over. `hash` is the key's.
    #[inline]
    pub(crate) fn end_ns(&self, hash: u64, key: KeyRef<'_>, now_ns: u64) -> Option<u64> {
        if self.is_any() { self.listed_end_ns(hash, key, now_ns) } else { None }
    }

    #[inline(never)]
    fn listed_end_ns(&self, hash: u64, key: KeyRef<'_>, now_ns: u64) -> Option<u64> {
        let guard = pin_briefly();
        let blocks = self.bins.get(self.bin(hash), &guard)?.blocks();
        let block = &blocks[position(blocks, key).ok()?];
        (!block.is_over(now_ns)).then_some(block.until_ns)
    }

    /// Lists a block, unless it is over or its key has one that ends at the same time or later. Returns the block that
    /// applies then.
    pub(crate) fn block(&self, hash: u64, block: Block, now_ns: u64) -> Result<Arc<Block>, Full> {
        let block = Arc::new(block);
        let mut reserved = Reserved { list: self, count: 0 };
        // Repeats only if another thread has changed the bin.
        loop {
            let guard = pin();
            let found = self.bins.get(self.bin(hash), &guard);
            let listed = found.map_or(&[][..], Bin::blocks);
            let known = position(listed, block.key.as_ref());
            if let Ok(at) = known
                && !listed[at].is_over(now_ns)
                && listed[at].until_ns >= block.until_ns
                && !fault::active(Fault::LaterBlockStays)
            {
                return Ok(listed[at].clone());
            }
            if block.is_over(now_ns) {
                return Ok(block);
            }
            let at = known.unwrap_or_else(|at| at);
            let after = at + usize::from(known.is_ok());
            let before = current(&listed[..at], now_ns);
            let behind = current(&listed[after..], now_ns);
            let new: Vec<_> = before.chain([block.clone()]).chain(behind).collect();
            if new.len() > listed.len() && reserved.count == 0 && !reserved.one_more(now_ns) {
                return Err(Full);
            }
            let (was, is) = (listed.len() + reserved.count, new.len());
            if self.replace(&guard, self.bin(hash), found, new) {
                reserved.count = was - is;
                return Ok(block);
            }
        }
    }

    /// Removes the block of a key. Returns whether it had one that was not over.
    pub(crate) fn unblock(&self, hash: u64, key: KeyRef<'_>, now_ns: u64) -> bool {
        loop {
            let guard = pin();
            let Some(found) = self.bins.get(self.bin(hash), &guard) else { return false };
            let Ok(at) = position(found.blocks(), key) else { return false };
            let was_blocked = !found.blocks()[at].is_over(now_ns);
            let mut new = found.blocks().to_vec();
            new.remove(at);
            if fault::active(Fault::BlockDiscountedEarly) {
                self.release(1);
            }
            if self.replace(&guard, self.bin(hash), Some(found), new) {
                if !fault::active(Fault::BlockDiscountedEarly) {
                    self.release(1);
                }
                return was_blocked;
            }
        }
    }

    /// Returns all blocks that are not over, in no order, each as it was when its bin was read. Removes ended blocks.
    pub(crate) fn all(&self, now_ns: u64) -> Vec<Arc<Block>> {
        self.drop_ended(now_ns);
        let mut all = Vec::new();
        if self.is_any() {
            for bin in 0..self.bins.len() {
                let guard = pin();
                let listed = self.bins.get(bin, &guard).map_or(&[][..], Bin::blocks);
                all.extend(current(listed, now_ns));
            }
        }
        all
    }

    /// Removes ended blocks.
    pub(crate) fn drop_ended(&self, now_ns: u64) {
        if !self.is_any() {
            return;
        }
        for bin in 0..self.bins.len() {
            loop {
                let guard = pin();
                let found = self.bins.get(bin, &guard);
                let listed = found.map_or(&[][..], Bin::blocks);
                let ended = listed.iter().filter(|block| block.is_over(now_ns)).count();
                if ended == 0 {
                    break;
                }
                let new: Vec<_> = current(listed, now_ns).collect();
                if self.replace(&guard, bin, found, new) {
                    coverage::hit(Race::EndedBlocksDropped);
                    self.release(ended);
                    break;
                }
            }
        }
    }

    /// Frees replaced slices that no call reads any more.
    pub(crate) fn collect(&self) {
        self.bins.collect(&pin());
    }

    /// Replaces a bin's slice if it is still `found`, and returns whether it was.
    fn replace<'g>(
        &'g self,
        guard: &'g Guard,
        bin: usize,
        found: Option<&'g Bin>,
        new: Vec<Arc<Block>>,
    ) -> bool {
        let new = if new.is_empty() { None } else { Some(Box::new(Bin::new(new))) };
        let replaced = self.bins.replace(bin, guard, found, new, found.map_or(0, Bin::bytes));
        if !replaced {
            coverage::hit(Race::BlockSwapLost);
        }
        replaced
    }

    fn reserve(&self) -> bool {
        if fault::active(Fault::CapUnreserved) {
            let count = self.count.load(Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
            return count < self.max;
        }
        // Relaxed: the count publishes nothing.
        let reserved = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < self.max).then_some(count + 1)
        });
        reserved.is_ok()
    }

    fn release(&self, blocks: usize) {
        if blocks > 0 {
            // Relaxed: as in `reserve`.
            let before = self.count.fetch_sub(blocks, Ordering::Relaxed);
            debug_assert!(before >= blocks, "a block was subtracted twice");
        }
    }

    /// Returns the count of blocks, for tests.
    #[cfg(all(test, any(feature = "snapshot", tollgate_loom)))]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// Reserved room for blocks that are about to be listed. Dropping it releases the room that is left.
struct Reserved<'l> {
    list: &'l BlockList,
    count: usize,
}

impl Reserved<'_> {
    /// Reserves room for one more block. If the list is full, removes ended blocks first.
    fn one_more(&mut self, now_ns: u64) -> bool {
        let is_reserved = self.list.reserve() || {
            self.list.drop_ended(now_ns);
            self.list.reserve()
        };
        self.count += usize::from(is_reserved);
        is_reserved
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.list.release(self.count);
    }
}
