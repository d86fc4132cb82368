//! The primitives that threads meet in: std's, or loom's where it explores their interleavings.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// Figures for people, by which nothing is decided that has to be right: loom does not explore them.
pub(crate) use std::sync::atomic::{AtomicU64 as Figure, AtomicUsize as FigureUsize};

/// A switch for people, which may be seen a moment late.
#[cfg(feature = "tower")]
pub(crate) use std::sync::atomic::AtomicBool as Flag;

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "tollgate keeps each bucket in one atomic 64-bit word, which this target does not have"
);
