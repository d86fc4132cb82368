//! The primitives that threads meet in: std's, or loom's where it explores their interleavings.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// Switches that an operator turns, by which no bucket is changed: loom does not explore them.
pub(crate) use std::sync::atomic::AtomicBool as Switch;

/// Figures for people, by which nothing is decided that has to be right: loom does not explore them.
pub(crate) use std::sync::atomic::{AtomicU64 as Figure, AtomicUsize as FigureUsize};

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "tollgate keeps each bucket in one atomic 64-bit word, which this target does not have"
);

#[cfg(not(tollgate_loom))]
use parking_lot::Mutex;

#[cfg(tollgate_loom)]
use loom::sync::Mutex;

/// A value behind a lock that nobody waits for.
#[derive(Default)]
pub(crate) struct Tried<T> {
    value: Mutex<T>,
    /// loom explores no call that finds a lock of its own taken, for giving one back is no step to it.
    #[cfg(tollgate_loom)]
    taken: AtomicUsize,
}

impl<T> Tried<T> {
    #[cfg(not(tollgate_loom))]
    pub(crate) const fn new(value: T) -> Tried<T> {
        Tried { value: Mutex::new(value) }
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn new(value: T) -> Tried<T> {
        Tried { value: Mutex::new(value), taken: AtomicUsize::new(0) }
    }

    /// Calls `then` with the value; `None`, at once, if another call has it.
    #[cfg(not(tollgate_loom))]
    pub(crate) fn try_with<R>(&self, then: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.value.try_lock().map(|mut held| then(&mut held))
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn try_with<R>(&self, then: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Relaxed, here and below: the lock within orders what is done.
        self.taken.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let result = self.value.lock().ok().map(|mut held| then(&mut held));
        self.taken.store(0, Ordering::Relaxed);
        result
    }
}
