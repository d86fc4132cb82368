//! A counting allocator: the only unsafe code of this package.

#![expect(unsafe_code, reason = "an allocator cannot be had without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the bytes that were requested and not freed. The system's overhead per block
/// does not count.
pub(crate) struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn live_bytes() -> usize {
    // Relaxed: a figure that publishes nothing but itself.
    LIVE_BYTES.load(Ordering::Relaxed)
}

fn add(bytes: usize) {
    // Relaxed: as in `live_bytes`.
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

fn take(bytes: usize) {
    // Relaxed: as in `live_bytes`.
    LIVE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every method passes its arguments to `System` and returns the result unchanged; counting neither allocates
// nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, that `layout` is not empty, is `System`'s condition.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: the caller got `block` from this allocator with `layout`, so from `System`.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; that `new_bytes` is valid is the caller's promise.
        let moved = unsafe { System.realloc(block, layout, new_bytes) };
        if !moved.is_null() {
            add(new_bytes);
            take(layout.size());
        }
        moved
    }
}
