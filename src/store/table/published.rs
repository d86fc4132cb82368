//! Values that one thread replaces while other threads read them.

use std::ptr;
use std::sync::Arc;

use super::epoch::{Alive, Guard, Retired, active_readers};
use super::retired::When;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, Ordering};

/// A value behind one pointer. A call that reads it keeps that value; the next call reads the
/// newest.
pub(crate) struct Published<T: Send + Sync> {
    value: AtomicPtr<T>,
    /// The replaced values.
    retired: Retired<Arc<T>>,
    _alive: Alive,
}

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Published<T> {
        let value = AtomicPtr::new(Arc::into_raw(value).cast_mut());
        Published { value, retired: Retired::default(), _alive: Alive::default() }
    }

    /// Returns the current value, which is not freed while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the value")]
    pub(crate) fn get<'g>(&'g self, _: &'g Guard) -> &'g T {
        // Acquire: pairs with `replace`: the value is made.
        let order = if fault::active(Fault::PublishedRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        let value = self.value.load(order);
        // SAFETY: the pointer is from an `Arc` that `new` or `replace` took. The guard lives, and
        // the `Arc` is retired after the swap that removes the pointer, or dropped with `self`,
        // which is borrowed.
        unsafe { &*value }
    }

    /// Returns a share of the current value.
    #[expect(unsafe_code, reason = "adds a share of an `Arc`")]
    pub(crate) fn share(&self, guard: &Guard) -> Arc<T> {
        let value: *const T = self.get(guard);
        // SAFETY: from an `Arc`, as in `get`. `self` has a share of it while the guard lives.
        unsafe { Arc::increment_strong_count(value) };
        // SAFETY: the share that the line above added.
        unsafe { Arc::from_raw(value) }
    }

    /// Replaces the value. Callers hold a lock that only one of them can hold.
    #[expect(unsafe_code, reason = "takes a value that no call can reach")]
    pub(crate) fn replace(&self, guard: &Guard, value: Arc<T>) {
        // Release: pairs with `get`. No Acquire: this thread made the old value, or has held the
        // callers' lock after the thread that did.
        let old = self.value.swap(Arc::into_raw(value).cast_mut(), Ordering::Release);
        // The size is not known here. Replacing is rare, so the old value waits for no batch.
        const LARGE: usize = usize::MAX;
        // SAFETY: from an `Arc`. The swap unlinked it, and only this call got it.
        self.retired.push(LARGE, unsafe { Arc::from_raw(old) });
        self.collect(guard);
    }

    /// Returns whether a replaced value is not freed yet.
    pub(crate) fn is_any_retired(&self) -> bool {
        self.retired.is_any()
    }

    /// Frees replaced values that no call reads any more.
    pub(crate) fn collect(&self, guard: &Guard) {
        drop(self.retired.collect(guard, When::Any, active_readers));
    }
}

impl<T: Send + Sync> Drop for Published<T> {
    #[expect(unsafe_code, reason = "frees values that no other thread has")]
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // A model has failed. The destructors of its threads must not fail once more.
            return;
        }
        // Relaxed: borrowed exclusively.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: from an `Arc` that `new` or `replace` took, and no call reads it any more.
        drop(unsafe { Arc::from_raw(value) });
    }
}

/// Bins with at most one value each. Any thread can replace a value by one made from it, without a
/// lock.
pub(crate) struct ReplacedBins<T: Send> {
    bins: Box<[AtomicPtr<T>]>,
    /// The replaced values.
    retired: Retired<Box<T>>,
}

impl<T: Send + Sync + 'static> ReplacedBins<T> {
    /// Makes `bins` bins without values.
    pub(crate) fn new(bins: usize) -> ReplacedBins<T> {
        let bins = (0..bins).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        ReplacedBins { bins, retired: Retired::default() }
    }

    /// Returns the number of bins.
    pub(crate) fn len(&self) -> usize {
        self.bins.len()
    }

    /// Returns the current value of a bin, which is not freed while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the value")]
    pub(crate) fn get<'g>(&'g self, bin: usize, _: &'g Guard) -> Option<&'g T> {
        // Acquire: pairs with `replace`: the value is made.
        let value = self.bins[bin].load(Ordering::Acquire);
        // SAFETY: null, or from a `Box` that `replace` took. The guard lives, and a value is
        // retired after the swap that removes the pointer to it, or dropped with `self`, which is
        // borrowed.
        unsafe { value.as_ref() }
    }

    /// Replaces the value `found` in a bin by `new`, unless another thread has replaced it. Returns
    /// whether it did. Freeing `found` frees about `bytes` bytes.
    #[expect(unsafe_code, reason = "takes a value that no call can reach")]
    pub(crate) fn replace<'g>(
        &'g self,
        bin: usize,
        guard: &'g Guard,
        found: Option<&'g T>,
        new: Option<Box<T>>,
        bytes: usize,
    ) -> bool {
        let pointer = &self.bins[bin];
        // `found` is borrowed during this call, so that no other value can have its address.
        let found = found.map_or(ptr::null_mut(), |found| ptr::from_ref(found).cast_mut());
        let new = new.map_or(ptr::null_mut(), Box::into_raw);
        if fault::active(Fault::BlockByStore) {
            pointer.store(new, Ordering::Release);
            return true;
        }
        // Release: pairs with `get`. Relaxed on failure: this call does not use the other pointer.
        let order =
            if fault::active(Fault::BlockRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let Ok(old) = pointer.compare_exchange(found, new, order, Ordering::Relaxed) else {
            if !new.is_null() {
                // SAFETY: from the `Box` above, which was not published.
                drop(unsafe { Box::from_raw(new) });
            }
            return false;
        };
        if !old.is_null() {
            // SAFETY: from a `Box`. The swap unlinked it, and only this call got it.
            self.retired.push(bytes, unsafe { Box::from_raw(old) });
            drop(self.retired.collect(guard, When::Many, active_readers));
        }
        true
    }

    /// Frees replaced values that no call reads any more.
    pub(crate) fn collect(&self, guard: &Guard) {
        if self.retired.is_any() {
            drop(self.retired.collect(guard, When::Any, active_readers));
        }
    }
}

impl<T: Send> Drop for ReplacedBins<T> {
    #[expect(unsafe_code, reason = "frees values that no other thread has")]
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // As for `Published`.
            return;
        }
        for bin in &self.bins {
            // Relaxed: borrowed exclusively.
            let value = bin.load(Ordering::Relaxed);
            if !value.is_null() {
                // SAFETY: from a `Box` that `replace` took, and no call reads it any more.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}
