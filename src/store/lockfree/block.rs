//! Blocks of zeroed memory for segments: where they come from, and how they go, a piece at a time.
//!
//! A large block is a mapping of its own, smaller ones share [regions](super::region). An allocator may hand out used memory, and clearing a mebibyte
//! of it is a pause of a tenth of a millisecond; and what it takes back it may return to the system
//! together with all that has gathered around it, which has taken five milliseconds.

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
    Mapped(MmapMut),
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
            return Block { memory: Memory::Mapped(mapping), bytes };
        }
        // What the system has no mapping for, the allocator may still have.
        Block { memory: Memory::Allocated(Allocated::new(bytes)), bytes }
    }

    /// Where it starts.
    pub(super) fn start(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Allocated(allocated) => allocated.start(),
            Memory::Cut(cut) => cut.start(),
            Memory::Mapped(mapping) => mapping.as_mut_ptr(),
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

    /// Of these, what [`shrink`](Block::shrink) has left.
    pub(super) fn left_bytes(&self) -> usize {
        match &self.memory {
            Memory::Allocated(_) | Memory::Cut(_) => self.bytes,
            Memory::Mapped(mapping) => mapping.len(),
        }
    }

    /// Gives the last `bytes` of a mapped block back, whole pages; `false` if there is not more than that:
    /// what is left is to go as a whole.
    pub(super) fn shrink(&mut self, bytes: usize) -> bool {
        match &mut self.memory {
            Memory::Allocated(_) | Memory::Cut(_) => false,
            #[cfg(target_os = "linux")]
            Memory::Mapped(mapping) if mapping.len() > bytes => {
                let options = memmap2::RemapOptions::new();
                #[expect(unsafe_code, reason = "memory that is unmapped must not be used any more")]
                // SAFETY: the block is borrowed exclusively, and nobody keeps what `start` gave once it
                // is unused.
                let shrunk = unsafe { mapping.remap(mapping.len() - bytes, options) };
                shrunk.is_ok()
            }
            Memory::Mapped(_) => false,
        }
    }
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
    fn blocks_are_aligned_and_zeroed_and_go_in_pieces() {
        const PIECE_BYTES: usize = 16 << 10;
        for bytes in [64, 4096, MAPPED_BYTES - 1, MAPPED_BYTES, 10 * PIECE_BYTES + 64] {
            let mut block = Block::new(bytes);
            assert_eq!(block.start().align_offset(Block::ALIGN), 0, "{bytes} bytes");
            assert_eq!(matches!(block.memory, Memory::Mapped(_)), bytes >= MAPPED_BYTES);
            if let Memory::Mapped(mapping) = &mut block.memory {
                assert!(mapping.iter().all(|byte| *byte == 0));
                mapping.fill(1);
            }
            let is_cut = cfg!(target_os = "linux") && bytes >= MAPPED_BYTES;
            let pieces = if is_cut { bytes.div_ceil(PIECE_BYTES) } else { 1 };
            let shrunk = (0..100).take_while(|_| block.shrink(PIECE_BYTES)).count();
            assert_eq!(shrunk, pieces - 1, "{bytes} bytes");
            assert_eq!(block.left_bytes(), bytes - shrunk * PIECE_BYTES, "{bytes} bytes");
        }
    }
}
