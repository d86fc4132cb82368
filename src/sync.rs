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

/// A value behind a lock, off the way of a request.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

#[cfg(not(tollgate_loom))]
use parking_lot::Mutex;

#[cfg(tollgate_loom)]
use loom::sync::Mutex;

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Locked<T> {
        Locked(Mutex::new(value))
    }

    /// Calls `then` with the value while no other call has it.
    pub(crate) fn with<R>(&self, then: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(tollgate_loom))]
        let mut held = self.0.lock();
        #[cfg(tollgate_loom)]
        let mut held = self.0.lock().expect("a model that panics has failed");
        then(&mut held)
    }
}
