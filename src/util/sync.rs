//! The atomics and locks of the crate: std's, or loom's in its models.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// A switch that changes no bucket. loom does not explore it.
pub(crate) use std::sync::atomic::AtomicBool as Switch;

/// A figure for people, on which no correctness depends. loom does not explore it.
pub(crate) use std::sync::atomic::{AtomicU64 as Figure, AtomicUsize as FigureUsize};

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "tollgate keeps each bucket in one atomic 64-bit word, which this target does not have"
);

#[cfg(not(tollgate_loom))]
use super::lock::Mutex;

#[cfg(tollgate_loom)]
use loom::sync::Mutex;

/// A value behind a lock that calls only try to take: no call waits for it.
#[derive(Default)]
pub(crate) struct TryLock<T> {
    value: Mutex<T>,
    /// 1 while a call has the value. loom explores no interleaving in which `try_lock` of its own mutex fails, because
    /// an unlock is no step to it.
    #[cfg(tollgate_loom)]
    taken: AtomicUsize,
}

impl<T> TryLock<T> {
    #[cfg(not(tollgate_loom))]
    pub(crate) const fn new(value: T) -> TryLock<T> {
        TryLock { value: Mutex::new(value) }
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn new(value: T) -> TryLock<T> {
        TryLock { value: Mutex::new(value), taken: AtomicUsize::new(0) }
    }

    /// Calls `then` with the value. Returns `None` at once if another call has it.
    #[cfg(not(tollgate_loom))]
    pub(crate) fn try_with<R>(&self, then: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.value.try_lock().map(|mut held| then(&mut held))
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn try_with<R>(&self, then: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Relaxed, here and below: the mutex orders the accesses to the value.
        self.taken.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let result = self.value.lock().ok().map(|mut held| then(&mut held));
        self.taken.store(0, Ordering::Relaxed);
        result
    }
}
