//! Regions: mappings from which small blocks of one size are cut, one after the other.
//!
//! From an allocator they would come and go one by one, and what a growing table leaves would gather in
//! it: mebibytes, which it gives back to the system in one call, a millisecond long.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use memmap2::MmapMut;

use super::block::{Block, MAPPED_BYTES, give_back};

/// A mapping. It goes with the last of its blocks.
struct Region {
    start: NonNull<u8>,
    mapping: MmapMut,
}

// SAFETY: a region does nothing with its address but to tell it. What is there is its cuts', none of which
// overlaps another.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Send for Region {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Sync for Region {}

/// A part of a region, of zeroes at first. When it goes, its pages go back to the system, but for those that
/// it shares with its neighbours. (Not on Linux: all go with the region.)
pub(super) struct Cut {
    region: Arc<Region>,
    at: usize,
    bytes: usize,
}

/// Where the next cuts come from, for each size.
#[derive(Default)]
pub(super) struct Rests([Option<Rest>; SIZES]);

/// The part of a region from `at` on is nobody's yet.
struct Rest {
    region: Weak<Region>,
    at: usize,
}

const REGION_BYTES: usize = 4 * MAPPED_BYTES;

/// Smaller blocks have hardly a page of their own. They are the allocator's.
const MIN_LOG2: u32 = 13;
const SIZES: usize = (MAPPED_BYTES.ilog2() - MIN_LOG2) as usize;

impl Region {
    fn new() -> Option<Arc<Region>> {
        let mut mapping = MmapMut::map_anon(REGION_BYTES).ok()?;
        let start = NonNull::new(mapping.as_mut_ptr())?;
        Some(Arc::new(Region { start, mapping }))
    }
}

impl Rests {
    /// A cut of so many bytes; `None` if that is not a size for cuts, or the system has no memory.
    pub(super) fn cut(&mut self, bytes: usize) -> Option<Cut> {
        let size = bytes.checked_ilog2()?.checked_sub(MIN_LOG2)?;
        let rest = self.0.get_mut(size as usize)?;
        let begun = rest.take().and_then(|rest| Some((rest.region.upgrade()?, rest.at)));
        let begun = begun.filter(|(_, at)| at + bytes <= REGION_BYTES);
        let (region, at) = match begun {
            Some(begun) => begun,
            None => (Region::new()?, 0),
        };
        let after = (at + bytes).next_multiple_of(Block::ALIGN);
        *rest = Some(Rest { region: Arc::downgrade(&region), at: after });
        Some(Cut { region, at, bytes })
    }
}

impl Cut {
    pub(super) fn start(&self) -> *mut u8 {
        // Within the region: `cut` has looked.
        self.region.start.as_ptr().wrapping_add(self.at)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Cut {
    #[expect(unsafe_code, reason = "memory that changes by itself")]
    fn drop(&mut self) {
        // SAFETY: the cut is borrowed exclusively, and gone after this. Pages that stay, go with the region.
        let _ = unsafe { give_back(&self.region.mapping, self.at, self.at + self.bytes) };
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// A segment of 1,024 slots.
    const BYTES: usize = (32 << 10) + 128;

    #[test]
    fn cuts_of_one_size_share_regions_without_overlap() {
        let mut rests = Rests::default();
        for bytes in [0, 64, (1 << MIN_LOG2) - 1, MAPPED_BYTES, 4 * MAPPED_BYTES] {
            assert!(rests.cut(bytes).is_none(), "{bytes} bytes");
        }
        let mut cuts: Vec<Cut> = (0..8).map(|_| rests.cut(BYTES).unwrap()).collect();
        for (i, pair) in cuts.windows(2).enumerate() {
            let apart = pair[1].start().addr().wrapping_sub(pair[0].start().addr());
            let is_of_one = Arc::ptr_eq(&pair[0].region, &pair[1].region);
            assert_eq!((is_of_one, apart == BYTES), (i < 6, i < 6), "seven have room");
        }
        let other = rests.cut(9000).unwrap();
        assert!(cuts.iter().all(|cut| !Arc::ptr_eq(&cut.region, &other.region)), "a size its own");
        assert_eq!((other.bytes(), other.start().align_offset(Block::ALIGN)), (9000, 0));
        cuts.truncate(7);
        assert_eq!(rests.cut(BYTES).unwrap().at, 0, "of a new region: that of the eighth is gone");
    }

    #[test]
    fn what_goes_leaves_its_neighbours_as_they_are() {
        let mut rests = Rests::default();
        let mut cuts: Vec<Cut> = (0..3).map(|_| rests.cut(BYTES).unwrap()).collect();
        let all = |cut: &Cut, byte| {
            // SAFETY: the cut is this test's, which has one thread.
            #[expect(unsafe_code, reason = "what a segment does")]
            let bytes = unsafe { std::slice::from_raw_parts_mut(cut.start(), cut.bytes()) };
            let was = bytes[0];
            assert!(bytes.iter().all(|&byte| byte == was));
            bytes.fill(byte);
            was
        };
        assert!(cuts.iter().all(|cut| all(cut, 7) == 0), "zeroes at first");
        drop(cuts.remove(1));
        assert!(cuts.iter().all(|cut| all(cut, 8) == 7));
        assert_eq!(all(&rests.cut(BYTES).unwrap(), 9), 0, "not that place, but the next");
    }
}
