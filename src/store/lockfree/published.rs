//! A value that is replaced whole while others read it.

use std::sync::Arc;

use super::epoch::Guard;
use crate::probe::{Fault, broken};
use crate::sync::{AtomicPtr, Ordering};

/// A value behind one pointer. Who reads it keeps what it was; the next call finds what it is.
pub(crate) struct Published<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Published<T> {
        Published(AtomicPtr::new(Arc::into_raw(value).cast_mut()))
    }

    /// The value as it is now; it stays while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the value")]
    pub(crate) fn get<'g>(&'g self, _: &'g Guard) -> &'g T {
        // Acquire: pairs with `replace`: the value is made.
        let order =
            if broken(Fault::PublishedRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        let value = self.0.load(order);
        // SAFETY: from an `Arc` that `new` or `replace` took, and read under a guard: that is retired after
        // the swap by which the pointer to it went, or dropped with `self`, which is borrowed.
        unsafe { &*value }
    }

    /// The value as it is now, to be kept.
    #[expect(unsafe_code, reason = "one share more of what an `Arc` holds")]
    pub(crate) fn share(&self, guard: &Guard) -> Arc<T> {
        let value: *const T = self.get(guard);
        // SAFETY: from an `Arc`, as in `get`, of which `self` has a share while the guard lives.
        unsafe { Arc::increment_strong_count(value) };
        // SAFETY: the share that was just added.
        unsafe { Arc::from_raw(value) }
    }

    /// Puts another value in its place. Those who do so take turns, under a lock of their own.
    #[expect(unsafe_code, reason = "frees what nobody can reach any more")]
    pub(crate) fn replace(&self, guard: &Guard, value: Arc<T>) {
        // Release: pairs with `get`. What is let go was made by this thread, or one whose turn came before.
        let old = self.0.swap(Arc::into_raw(value).cast_mut(), Ordering::Release);
        let free = move || {
            // SAFETY: from an `Arc`, unlinked by the swap, and taken by this call alone.
            drop(unsafe { Arc::from_raw(old) });
        };
        // How large it is nobody knows here, and it is seldom: it does not wait for others.
        const LARGE: usize = usize::MAX;
        // SAFETY: unlinked by the swap. The `Arc` can go to any thread, and is all that `free` uses.
        unsafe { guard.retire(LARGE, free) };
    }
}

impl<T> Drop for Published<T> {
    #[expect(unsafe_code, reason = "frees what nobody else has any more")]
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // As in the table: a model that has failed is not to fail once more.
            return;
        }
        // Relaxed: borrowed exclusively.
        let value = self.0.load(Ordering::Relaxed);
        // SAFETY: from an `Arc` that was taken, and read for the last time.
        drop(unsafe { Arc::from_raw(value) });
    }
}
