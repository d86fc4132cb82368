//! The list of blocks: beside the buckets, which know nothing of it.
//!
//! A key's block is in one of some 1,024 bins, which its hash picks. A bin is a pointer: to nothing, or to a
//! sorted slice that never changes. A thread that blocks an id copies the slice, changes the copy and swaps the
//! pointer, if it is still the one that it copied; else it begins again. So no thread waits for another,
//! wherever that stands still, and a repeat is paid for by another's change.

use std::sync::Arc;

use crate::store::key::{Key, KeyRef};
use crate::store::{Guard, ReplacedBins, pin, pin_briefly};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering};

/// A key that is denied until a time.
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

/// The blocks of one limiter.
pub(crate) struct BlockList {
    /// A power of two.
    bins: ReplacedBins<Bin>,
    /// The blocks that are listed, and those that are about to be. A change counts before it lists and lists
    /// before it discounts, so that this is never too low: where it is 0, no block is listed.
    count: AtomicUsize,
    max: usize,
}

/// The blocks of the keys of one bin, sorted by key.
struct Bin {
    blocks: Box<[Arc<Block>]>,
    /// loom sees by it whether a reader finds the slice as it was made.
    #[cfg(tollgate_loom)]
    made: crate::util::sync::AtomicU64,
}

/// As many blocks are listed as may be.
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

    /// The bytes that the slice takes. Blocks that are in the next slice as well stay.
    fn bytes(&self) -> usize {
        size_of::<Bin>() + self.blocks.len() * (size_of::<Arc<Block>>() + size_of::<Block>())
    }
}

/// Where a block of the key is, or would be.
fn position(blocks: &[Arc<Block>], key: KeyRef<'_>) -> Result<usize, usize> {
    blocks.binary_search_by(|block| block.key.as_ref().cmp(&key))
}

impl BlockList {
    /// A list of at most `max` blocks.
    pub(crate) fn new(max: usize) -> BlockList {
        /// Blocks in a bin, where all that there may be are listed.
        const BLOCKS_PER_BIN: usize = 64;
        const MIN_BINS: usize = 1 << 10;
        const MAX_BINS: usize = 1 << 16;
        let bins = (max / BLOCKS_PER_BIN).clamp(MIN_BINS, MAX_BINS).next_power_of_two();
        let bins = if cfg!(tollgate_loom) { 1 } else { bins };
        BlockList { bins: ReplacedBins::new(bins), count: AtomicUsize::new(0), max }
    }

    /// The most blocks that there can be.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Whether there may be a block.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        // Relaxed: a call that begins after a block was listed reads the count of then, or a later one. Both
        // count that block.
        self.count.load(Ordering::Relaxed) != 0
    }

    fn bin(&self, hash: u64) -> usize {
        // The lowest bits may be marks.
        (hash >> 8) as usize & (self.bins.len() - 1)
    }

    /// When the block of the key with this hash ends, if there is one that is not over.
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

    /// Lists a block, unless it is over or its key has one that ends no earlier; returns the longer one. Repeats
    /// only when another thread has changed the bin.
    pub(crate) fn block(&self, hash: u64, block: Block, now_ns: u64) -> Result<Arc<Block>, Full> {
        let block = Arc::new(block);
        let mut reserved = Reserved { list: self, count: 0 };
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
            let is_kept = |other: &&Arc<Block>| !other.is_over(now_ns);
            let before = listed[..at].iter().filter(is_kept).cloned();
            let behind = listed[after..].iter().filter(is_kept).cloned();
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

    /// Drops the block of a key; returns whether it had one that was not over.
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

    /// All blocks that are not over, in no order, each as it was when its bin was looked at. Drops those that
    /// are over.
    pub(crate) fn all(&self, now_ns: u64) -> Vec<Arc<Block>> {
        self.drop_ended(now_ns);
        let mut all = Vec::new();
        if self.is_any() {
            for bin in 0..self.bins.len() {
                let guard = pin();
                let listed = self.bins.get(bin, &guard).map_or(&[][..], Bin::blocks);
                all.extend(listed.iter().filter(|block| !block.is_over(now_ns)).cloned());
            }
        }
        all
    }

    /// Drops the blocks that are over.
    pub(crate) fn drop_ended(&self, now_ns: u64) {
        if !self.is_any() {
            return;
        }
        for bin in 0..self.bins.len() {
            loop {
                let guard = pin();
                let found = self.bins.get(bin, &guard);
                let listed = found.map_or(&[][..], Bin::blocks);
                let is_kept = |block: &&Arc<Block>| !block.is_over(now_ns);
                let new: Vec<_> = listed.iter().filter(is_kept).cloned().collect();
                let ended = listed.len() - new.len();
                if ended == 0 {
                    break;
                }
                if self.replace(&guard, bin, found, new) {
                    coverage::hit(Race::EndedBlocksDropped);
                    self.release(ended);
                    break;
                }
            }
        }
    }

    /// Frees slices that were replaced and no call reads any more.
    pub(crate) fn collect(&self) {
        self.bins.collect(&pin());
    }

    /// Replaces a bin's blocks, unless others are there than were found.
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
            debug_assert!(before >= blocks, "a block was discounted twice");
        }
    }

    /// The count, for tests.
    #[cfg(all(test, any(feature = "snapshot", tollgate_loom)))]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// Room in the list for blocks that are about to be listed. Dropped, it releases the rest.
struct Reserved<'l> {
    list: &'l BlockList,
    count: usize,
}

impl Reserved<'_> {
    /// Reserves room for one. Where there is none, blocks that are over make room.
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
