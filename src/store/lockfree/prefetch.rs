//! Asking the processor for a line before it is read.

use super::slot::Slot;

/// Asks for the line that a slot begins. Where the processor cannot be asked, nothing.
#[inline(always)]
pub(super) fn line_of(slot: &Slot) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = std::ptr::from_ref(slot).cast::<i8>();
        #[expect(unsafe_code, reason = "an intrinsic")]
        // SAFETY: a prefetch changes nothing and faults for no address; x86-64 has it always.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}
