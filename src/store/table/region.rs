//! Regions: mappings of 256 KiB, each cut into small blocks of about one size: from a power of two to below the next.
//!
//! With blocks from the heap, glibc gathered the memory that a growing table had freed, and
//! returned mebibytes of it in one call that took a millisecond (docs/internals/reclamation.md,
//! "Where memory comes from").

use std::sync::{Arc, Weak};

use memmap2::{MmapMut, MmapRaw};

use super::block::{Block, MAPPED_BYTES, give_back};

/// A mapping that is freed with the last of its blocks.
struct Region(MmapRaw);

/// A part of a region, zeroed at first. Dropping it returns the pages that it shares with no other
/// block to the system. (On systems other than Linux, pages are freed with the region.)
pub(super) struct RegionBlock {
    region: Arc<Region>,
    at: usize,
    bytes: usize,
}

/// For each power of two, the region from which the next block of that size, to below twice that size, comes.
#[derive(Default)]
pub(super) struct OpenRegions([Option<OpenRegion>; CLASSES]);

/// A region whose bytes from `at` on are in no block yet.
struct OpenRegion {
    region: Weak<Region>,
    at: usize,
}

const REGION_BYTES: usize = 4 * MAPPED_BYTES;

/// Smaller blocks hardly fill a page, and come from the heap.
const MIN_LOG2: u32 = 13;
const CLASSES: usize = (MAPPED_BYTES.ilog2() - MIN_LOG2) as usize;

impl Region {
    fn new() -> Option<Arc<Region>> {
        Some(Arc::new(Region(MmapMut::map_anon(REGION_BYTES).ok()?.into())))
    }
}

impl OpenRegions {
    /// Cuts a block of `bytes` from a region; `None` if regions have no blocks of this size, or the
    /// system has no memory.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<RegionBlock> {
        let size = bytes.checked_ilog2()?.checked_sub(MIN_LOG2)?;
        let open = self.0.get_mut(size as usize)?;
        let begun = open.take().and_then(|open| Some((open.region.upgrade()?, open.at)));
        let begun = begun.filter(|(_, at)| at + bytes <= REGION_BYTES);
        let (region, at) = begun.or_else(|| Some((Region::new()?, 0)))?;
        let after = (at + bytes).next_multiple_of(Block::ALIGN);
        *open = Some(OpenRegion { region: Arc::downgrade(&region), at: after });
        Some(RegionBlock { region, at, bytes })
    }
}

impl RegionBlock {
    pub(super) fn start(&self) -> *mut u8 {
        // Within the region: `allocate` has checked it.
        self.region.0.as_mut_ptr().wrapping_add(self.at)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for RegionBlock {
    #[expect(unsafe_code, reason = "memory that changes by itself")]
    fn drop(&mut self) {
        // SAFETY: the block is borrowed exclusively, and dropped after this. The remaining pages
        // are freed with the region.
        let _ = unsafe { give_back(&self.region.0, self.at, self.at + self.bytes) };
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// A segment of 1,024 slots.
    const BYTES: usize = (32 << 10) + 128;

    #[test]
    fn blocks_of_a_size_share_a_region() {
        let mut open_regions = OpenRegions::default();
        for bytes in [0, 64, (1 << MIN_LOG2) - 1, MAPPED_BYTES, 4 * MAPPED_BYTES] {
            assert!(open_regions.allocate(bytes).is_none(), "{bytes} bytes");
        }
        let mut blocks: Vec<RegionBlock> =
            (0..8).map(|_| open_regions.allocate(BYTES).unwrap()).collect();
        for (i, pair) in blocks.windows(2).enumerate() {
            let apart = pair[1].start().addr().wrapping_sub(pair[0].start().addr());
            let is_of_one = Arc::ptr_eq(&pair[0].region, &pair[1].region);
            assert_eq!((is_of_one, apart == BYTES), (i < 6, i < 6), "seven have room");
        }
        let other = open_regions.allocate(9000).unwrap();
        assert!(
            blocks.iter().all(|block| !Arc::ptr_eq(&block.region, &other.region)),
            "each size has its regions"
        );
        assert_eq!((other.bytes(), other.start().align_offset(Block::ALIGN)), (9000, 0));
        blocks.truncate(7);
        assert_eq!(
            open_regions.allocate(BYTES).unwrap().at,
            0,
            "the region of the eighth is freed, so this one is new"
        );
    }

    #[test]
    fn freeing_a_block_leaves_its_neighbours() {
        let mut open_regions = OpenRegions::default();
        let mut blocks: Vec<RegionBlock> =
            (0..3).map(|_| open_regions.allocate(BYTES).unwrap()).collect();
        let all = |block: &RegionBlock, byte| {
            // SAFETY: this test owns the block and has one thread.
            #[expect(unsafe_code, reason = "what a segment does")]
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.start(), block.bytes()) };
            let was = bytes[0];
            assert!(bytes.iter().all(|&byte| byte == was));
            bytes.fill(byte);
            was
        };
        assert!(blocks.iter().all(|block| all(block, 7) == 0), "zeroes at first");
        drop(blocks.remove(1));
        assert!(blocks.iter().all(|block| all(block, 8) == 7));
        assert_eq!(
            all(&open_regions.allocate(BYTES).unwrap(), 9),
            0,
            "freed memory is not used again: the next block is zeroed"
        );
    }
}
