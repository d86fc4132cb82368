//! Blocks of zeroed memory for segments, which go back to the system piece by piece.
//!
//! A block comes from one of four sources:
//!
//! - the table's [arena](super::arena), if the table has reserved memory and the arena has a free
//!   block of this size;
//! - a separate mapping, from 64 KiB;
//! - a part of a [region](super::region), from 8 KiB;
//! - the heap, below 8 KiB, or if the block cannot come from a region or a mapping.
//!
//! With larger blocks from the heap, calls paused: to clear a used mebibyte took 0.1 ms, and one
//! free took 5 ms, in which glibc returned all free memory around the block to the system
//! (docs/internals/reclamation.md, "Where memory comes from").

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapRaw};

use super::arena::ArenaBlock;
use super::region::RegionBlock;

/// Blocks of at least this many bytes are mappings.
pub(super) const MAPPED_BYTES: usize = 64 << 10;

/// A block of zeroed memory that starts at a multiple of [`Block::ALIGN`].
pub(super) struct Block {
    backing: Backing,
    bytes: usize,
}

enum Backing {
    Arena(ArenaBlock),
    Heap(HeapBlock),
    Region(RegionBlock),
    Mapped(MappedBlock),
}

/// A mapping. Its first `left` bytes are in use; the pages after them are back with the system.
struct MappedBlock {
    mapping: MmapRaw,
    left: usize,
}

/// A block from the allocator.
struct HeapBlock {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory, no other value has the address, and any thread may free it.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Send for HeapBlock {}

impl Block {
    /// Two cache lines. So the low bits of a segment's address are 0, and
    /// [`SegmentPointer`](super::shard::SegmentPointer) uses them.
    pub(super) const ALIGN: usize = 128;

    pub(super) fn from_arena(block: ArenaBlock) -> Block {
        let bytes = block.bytes();
        Block { backing: Backing::Arena(block), bytes }
    }

    pub(super) fn from_region(block: RegionBlock) -> Block {
        let bytes = block.bytes();
        Block { backing: Backing::Region(block), bytes }
    }

    /// Makes a block of `bytes` zeroes.
    pub(super) fn new(bytes: usize) -> Block {
        if bytes >= MAPPED_BYTES
            && let Ok(mapping) = MmapMut::map_anon(bytes)
        {
            // The mapping has whole pages.
            let left = page_bytes().map_or(bytes, |page_bytes| bytes.next_multiple_of(page_bytes));
            let mapping = MmapRaw::from(mapping);
            return Block { backing: Backing::Mapped(MappedBlock { mapping, left }), bytes };
        }
        // The heap may still have memory when the system maps none.
        Block { backing: Backing::Heap(HeapBlock::new(bytes)), bytes }
    }

    /// Returns the address of the first byte.
    pub(super) fn start(&mut self) -> *mut u8 {
        match &mut self.backing {
            Backing::Arena(block) => block.start(),
            Backing::Heap(block) => block.start(),
            Backing::Region(block) => block.start(),
            Backing::Mapped(block) => block.mapping.as_mut_ptr(),
        }
    }

    /// Returns the bytes that the caller asked for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the part of [`bytes`](Block::bytes) that does not come from the heap.
    pub(super) fn mapped_bytes(&self) -> usize {
        if matches!(self.backing, Backing::Heap(_)) { 0 } else { self.bytes }
    }

    /// Returns the size of the block after all calls of [`shrink`](Block::shrink): whole pages, if
    /// the block is a mapping.
    pub(super) fn left_bytes(&self) -> usize {
        match &self.backing {
            Backing::Arena(block) => block.used_bytes(),
            Backing::Heap(_) | Backing::Region(_) => self.bytes,
            Backing::Mapped(block) => block.left,
        }
    }

    /// Frees the last `bytes` of the block. A mapping gives the whole pages among them back to the
    /// system, at least one page; a block of an arena clears them.
    ///
    /// Returns `false`, and frees nothing, if that would leave no byte, if the block is of the heap
    /// or of a region, or if the system does not take part of a mapping. The caller then drops the
    /// block.
    pub(super) fn shrink(&mut self, bytes: usize) -> bool {
        let MappedBlock { mapping, left } = match &mut self.backing {
            Backing::Mapped(block) => block,
            Backing::Arena(block) if block.used_bytes() > bytes => {
                block.clear(bytes);
                return true;
            }
            Backing::Arena(_) | Backing::Heap(_) | Backing::Region(_) => return false,
        };
        let bytes = bytes.max(page_bytes().unwrap_or(0));
        if *left <= bytes {
            return false;
        }
        #[expect(unsafe_code, reason = "memory that changes by itself")]
        // SAFETY: the block is borrowed exclusively, and no segment uses the address from `start`
        // any more.
        let given_back = unsafe { give_back(mapping, *left - bytes, *left) };
        *left = given_back.unwrap_or(*left);
        given_back.is_some()
    }
}

/// Returns the size of a page; `None` where the system takes back mappings only as a whole.
#[cfg(all(target_os = "linux", not(miri)))]
fn page_bytes() -> Option<usize> {
    #[expect(unsafe_code, reason = "a call of the system's library")]
    // SAFETY: the call takes a number and touches no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn page_bytes() -> Option<usize> {
    None
}

/// Gives the whole pages between two offsets of a mapping back to the system. Returns the offset of
/// the first of these pages; `None` if there is no whole page, or the system refuses.
///
/// The mapping keeps its length: for 64 KiB this takes 4 us, and to shorten the mapping takes 5 us.
///
/// # Safety
///
/// - No thread uses these bytes any more.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "memory that changes by itself")]
pub(super) unsafe fn give_back(mapping: &MmapRaw, from: usize, to: usize) -> Option<usize> {
    let page_bytes = page_bytes()?;
    // A mapping begins with a page.
    let (from, to) = (from.next_multiple_of(page_bytes), to / page_bytes * page_bytes);
    if from >= to {
        return None;
    }
    let advice = memmap2::UncheckedAdvice::DontNeed;
    // SAFETY: the contract of this function; the pages are within the mapping and between the
    // caller's offsets.
    unsafe { mapping.unchecked_advise_range(advice, from, to - from) }.ok().map(|()| from)
}

/// Does nothing: other systems take back a mapping as a whole.
///
/// # Safety
///
/// - As for Linux.
#[cfg(not(all(target_os = "linux", not(miri))))]
#[expect(unsafe_code, reason = "the same signature on all systems")]
pub(super) unsafe fn give_back(_: &MmapRaw, _: usize, _: usize) -> Option<usize> {
    None
}

impl HeapBlock {
    /// For this alignment the standard allocator gets zeroed memory, on 64-bit systems. For a larger
    /// one it writes the zeroes itself. So `new` asks for this one, and adds the padding.
    const HEAP_ALIGN: usize = 16;

    fn new(bytes: usize) -> HeapBlock {
        let size = bytes + Block::ALIGN - Self::HEAP_ALIGN;
        let layout = Layout::from_size_align(size, Self::HEAP_ALIGN);
        let layout = layout.expect("a block is far smaller than an address space");
        #[expect(unsafe_code, reason = "memory without a type")]
        // SAFETY: the size is above 0, because it includes the padding.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        HeapBlock { start, layout }
    }

    fn start(&mut self) -> *mut u8 {
        let padding = self.start.align_offset(Block::ALIGN);
        // Within the block: `new` asked for the padding.
        self.start.as_ptr().wrapping_add(padding)
    }
}

impl Drop for HeapBlock {
    #[expect(unsafe_code, reason = "memory without a type")]
    fn drop(&mut self) {
        // SAFETY: `new` got the address for this layout, and this value owns it.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(mapping: &mut MmapRaw) -> &mut [u8] {
        #[expect(unsafe_code, reason = "what a segment does")]
        // SAFETY: the test owns the mapping, which is borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(mapping.as_mut_ptr(), mapping.len())
        }
    }

    #[test]
    fn blocks_are_aligned_zeroed_and_freed_in_pieces() {
        const PIECE_BYTES: usize = 16 << 10;
        for bytes in [64, 4096, MAPPED_BYTES - 1, MAPPED_BYTES, 10 * PIECE_BYTES + 64] {
            let mut block = Block::new(bytes);
            assert_eq!(block.start().align_offset(Block::ALIGN), 0, "{bytes} bytes");
            assert_eq!(matches!(block.backing, Backing::Mapped(_)), bytes >= MAPPED_BYTES);
            if let Backing::Mapped(MappedBlock { mapping, .. }) = &mut block.backing {
                let zeroes = bytes_of(mapping);
                assert!(zeroes.iter().all(|byte| *byte == 0));
                zeroes.fill(1);
            }
            let is_mapped = cfg!(all(target_os = "linux", not(miri))) && bytes >= MAPPED_BYTES;
            let pieces = if is_mapped { bytes.div_ceil(PIECE_BYTES) } else { 1 };
            let shrunk = (0..100).take_while(|_| block.shrink(PIECE_BYTES)).count();
            assert_eq!(shrunk, pieces - 1, "{bytes} bytes");
            let left = block.left_bytes();
            assert!(
                if is_mapped { left <= PIECE_BYTES } else { left == bytes },
                "{left} of {bytes}"
            );
            if let Backing::Mapped(MappedBlock { mapping, .. }) = &mut block.backing {
                let (kept, back) = bytes_of(mapping).split_at(left.min(bytes));
                assert!(kept.iter().all(|byte| *byte == 1));
                assert!(back.iter().all(|byte| *byte == 0), "new pages from the system");
            }
        }
    }
}
