//! Blocks of zeroed memory for segments: where they come from, and how they go, a piece at a time.
//!
//! A large block is a mapping of its own, smaller ones share [regions](super::region). An allocator may
//! hand out used memory, and clearing a mebibyte of it is a pause of a tenth of a millisecond; and what it
//! takes back it may return to the system together with all that has gathered around it, which has taken
//! five milliseconds.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use memmap2::MmapMut;

use super::region::Cut;

/// Blocks of so many bytes and more are mappings.
pub(super) const MAPPED_BYTES: usize = 64 << 10;

/// A block of zeroed memory that starts at a multiple of [`Block::ALIGN`].
pub(super) struct Block {
    memory: Memory,
    bytes: usize,
}

enum Memory {
    Allocated(Allocated),
    Cut(Cut),
    Mapped(Mapped),
}

/// A mapping, and how many of its bytes, from its start, have not gone back to the system.
struct Mapped {
    mapping: MmapMut,
    left: usize,
}

/// What the allocator gave.
struct Allocated {
    given: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is owned: nobody else has its address, and memory is freed on any thread.
#[expect(unsafe_code, reason = "a pointer that owns")]
unsafe impl Send for Allocated {}

impl Block {
    /// A cache line.
    pub(super) const ALIGN: usize = 64;

    /// The block that is a cut.
    pub(super) fn of(cut: Cut) -> Block {
        let bytes = cut.bytes();
        Block { memory: Memory::Cut(cut), bytes }
    }

    /// A block with room for so many bytes, all 0.
    pub(super) fn new(bytes: usize) -> Block {
        if bytes >= MAPPED_BYTES
            && let Ok(mapping) = MmapMut::map_anon(bytes)
        {
            // The mapping has whole pages.
            let left = page_bytes().map_or(bytes, |page_bytes| bytes.next_multiple_of(page_bytes));
            return Block { memory: Memory::Mapped(Mapped { mapping, left }), bytes };
        }
        // What the system has no mapping for, the allocator may still have.
        Block { memory: Memory::Allocated(Allocated::new(bytes)), bytes }
    }

    /// Where it starts.
    pub(super) fn start(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Allocated(allocated) => allocated.start(),
            Memory::Cut(cut) => cut.start(),
            Memory::Mapped(mapped) => mapped.mapping.as_mut_ptr(),
        }
    }

    /// The bytes that were asked for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of these, what was mapped: no allocator has seen it.
    pub(super) fn mapped_bytes(&self) -> usize {
        if matches!(self.memory, Memory::Allocated(_)) { 0 } else { self.bytes }
    }

    /// Of these, what [`shrink`](Block::shrink) has left, in whole pages.
    pub(super) fn left_bytes(&self) -> usize {
        match &self.memory {
            Memory::Allocated(_) | Memory::Cut(_) => self.bytes,
            Memory::Mapped(mapped) => mapped.left,
        }
    }

    /// Gives some of the last `bytes` of a mapped block back, as many as are whole pages; `false` if there is
    /// not more than that, or it cannot be done: what is left is to go as a whole.
    pub(super) fn shrink(&mut self, bytes: usize) -> bool {
        let Memory::Mapped(Mapped { mapping, left }) = &mut self.memory else { return false };
        let bytes = bytes.max(page_bytes().unwrap_or(0));
        if *left <= bytes {
            return false;
        }
        #[expect(unsafe_code, reason = "memory that changes by itself")]
        // SAFETY: the block is borrowed exclusively, and nobody keeps what `start` gave once it is unused.
        let given_back = unsafe { give_back(mapping, *left - bytes, *left) };
        *left = given_back.unwrap_or(*left);
        given_back.is_some()
    }
}

/// What the system gives and takes back at least, where it takes back parts of a mapping.
#[cfg(target_os = "linux")]
fn page_bytes() -> Option<usize> {
    #[expect(unsafe_code, reason = "a call of the system's library")]
    // SAFETY: it takes a number, and no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

#[cfg(not(target_os = "linux"))]
fn page_bytes() -> Option<usize> {
    None
}

/// Gives the whole pages between two places of a mapping back to the system; where they begin. `None`: there
/// are none, or they stay.
///
/// The mapping is as long as before: to make it shorter takes longer (5 us for 64 KiB, where this takes 4).
///
/// # Safety
///
/// - Nobody uses these bytes any more.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "memory that changes by itself")]
pub(super) unsafe fn give_back(mapping: &MmapMut, from: usize, to: usize) -> Option<usize> {
    let page_bytes = page_bytes()?;
    // A mapping begins with a page.
    let (from, to) = (from.next_multiple_of(page_bytes), to / page_bytes * page_bytes);
    if from >= to {
        return None;
    }
    let advice = memmap2::UncheckedAdvice::DontNeed;
    // SAFETY: this function's contract; the pages are within the mapping, and nobody else's.
    unsafe { mapping.unchecked_advise_range(advice, from, to - from) }.ok().map(|()| from)
}

/// Elsewhere a mapping goes as a whole.
///
/// # Safety
///
/// - As above.
#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "as above")]
pub(super) unsafe fn give_back(_: &MmapMut, _: usize, _: usize) -> Option<usize> {
    None
}

impl Allocated {
    /// What every allocator gives without padding of its own, or zeroing by hand.
    const GIVEN_ALIGN: usize = 16;

    fn new(bytes: usize) -> Allocated {
        let size = bytes + Block::ALIGN - Self::GIVEN_ALIGN;
        let layout = Layout::from_size_align(size, Self::GIVEN_ALIGN);
        let layout = layout.expect("a block is far smaller than an address space");
        #[expect(unsafe_code, reason = "memory without a type")]
        // SAFETY: the size is above 0: there is room for the padding at least.
        let given = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(given) = NonNull::new(given) else { handle_alloc_error(layout) };
        Allocated { given, layout }
    }

    fn start(&mut self) -> *mut u8 {
        let padding = self.given.align_offset(Block::ALIGN);
        // Within the block: that much room was asked for.
        self.given.as_ptr().wrapping_add(padding)
    }
}

impl Drop for Allocated {
    #[expect(unsafe_code, reason = "memory without a type")]
    fn drop(&mut self) {
        // SAFETY: given by `new` for this layout, and owned.
        unsafe { std::alloc::dealloc(self.given.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_zeroed_and_freed_in_pieces() {
        const PIECE_BYTES: usize = 16 << 10;
        for bytes in [64, 4096, MAPPED_BYTES - 1, MAPPED_BYTES, 10 * PIECE_BYTES + 64] {
            let mut block = Block::new(bytes);
            assert_eq!(block.start().align_offset(Block::ALIGN), 0, "{bytes} bytes");
            assert_eq!(matches!(block.memory, Memory::Mapped(_)), bytes >= MAPPED_BYTES);
            if let Memory::Mapped(Mapped { mapping, .. }) = &mut block.memory {
                assert!(mapping.iter().all(|byte| *byte == 0));
                mapping.fill(1);
            }
            let is_mapped = cfg!(target_os = "linux") && bytes >= MAPPED_BYTES;
            let pieces = if is_mapped { bytes.div_ceil(PIECE_BYTES) } else { 1 };
            let shrunk = (0..100).take_while(|_| block.shrink(PIECE_BYTES)).count();
            assert_eq!(shrunk, pieces - 1, "{bytes} bytes");
            let left = block.left_bytes();
            assert!(
                if is_mapped { left <= PIECE_BYTES } else { left == bytes },
                "{left} of {bytes}"
            );
            if let Memory::Mapped(Mapped { mapping, .. }) = &block.memory {
                assert!(mapping[..left].iter().all(|byte| *byte == 1));
                let back = mapping.get(left..).unwrap_or_default();
                assert!(back.iter().all(|byte| *byte == 0), "new pages from the system");
            }
        }
    }
}
