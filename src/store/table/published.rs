//! Values that are replaced whole while others read them.

use std::ptr;
use std::sync::Arc;

use super::epoch::{Alive, Guard, Retired, readers_in_calls};
use super::retired::When;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, Ordering};

/// A value behind one pointer. Who reads it keeps what it was; the next call finds what it is.
pub(crate) struct Published<T: Send + Sync> {
    value: AtomicPtr<T>,
    /// Values that were replaced.
    retired: Retired<Arc<T>>,
    _alive: Alive,
}

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Published<T> {
        let value = AtomicPtr::new(Arc::into_raw(value).cast_mut());
        Published { value, retired: Retired::default(), _alive: Alive::default() }
    }

    /// The value as it is now; it stays while the guard lives.
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
        let old = self.value.swap(Arc::into_raw(value).cast_mut(), Ordering::Release);
        // How large it is is not known here, and it is seldom: it does not wait for others.
        const LARGE: usize = usize::MAX;
        // SAFETY: from an `Arc`, unlinked by the swap, and taken by this call alone.
        self.retired.push(LARGE, unsafe { Arc::from_raw(old) });
        self.collect(guard);
    }

    /// Whether a replaced value waits for those who may read it.
    pub(crate) fn is_any_retired(&self) -> bool {
        self.retired.is_any()
    }

    /// Frees replaced values that no call reads any more.
    pub(crate) fn collect(&self, guard: &Guard) {
        drop(self.retired.collect(guard, When::Any, readers_in_calls));
    }
}

impl<T: Send + Sync> Drop for Published<T> {
    #[expect(unsafe_code, reason = "frees what nobody else has any more")]
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // As in the table: a model that has failed is not to fail once more.
            return;
        }
        // Relaxed: borrowed exclusively.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: from an `Arc` that was taken, and read for the last time.
        drop(unsafe { Arc::from_raw(value) });
    }
}

/// Values, each behind one pointer, or none there, that any thread replaces: without a lock, by a value that is made
/// of the one before.
pub(crate) struct ReplacedBins<T: Send> {
    bins: Box<[AtomicPtr<T>]>,
    /// Values that were replaced.
    retired: Retired<Box<T>>,
}

impl<T: Send + Sync + 'static> ReplacedBins<T> {
    /// So many bins without values.
    pub(crate) fn new(bins: usize) -> ReplacedBins<T> {
        let bins = (0..bins).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        ReplacedBins { bins, retired: Retired::default() }
    }

    /// The number of bins.
    pub(crate) fn len(&self) -> usize {
        self.bins.len()
    }

    /// The value of a bin as it is now; it stays while the guard lives.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the guard keeps the value")]
    pub(crate) fn get<'g>(&'g self, bin: usize, _: &'g Guard) -> Option<&'g T> {
        // Acquire: pairs with `replace`: the value is made.
        let value = self.bins[bin].load(Ordering::Acquire);
        // SAFETY: null, or from a `Box` that `replace` took. Read under a guard: a value is retired after the
        // swap by which the pointer to it went, or dropped with `self`, which is borrowed.
        unsafe { value.as_ref() }
    }

    /// Puts `new` in the place of what was `found` in a bin, unless another thread has replaced that; returns
    /// whether it did. About `bytes` are freed with what was found.
    #[expect(unsafe_code, reason = "takes what no thread can reach any more")]
    pub(crate) fn replace<'g>(
        &'g self,
        bin: usize,
        guard: &'g Guard,
        found: Option<&'g T>,
        new: Option<Box<T>>,
        bytes: usize,
    ) -> bool {
        let pointer = &self.bins[bin];
        // What was found is borrowed for as long as this takes: no other value can have its address.
        let found = found.map_or(ptr::null_mut(), |found| ptr::from_ref(found).cast_mut());
        let new = new.map_or(ptr::null_mut(), Box::into_raw);
        if fault::active(Fault::BlockByStore) {
            pointer.store(new, Ordering::Release);
            return true;
        }
        // Release: pairs with `get`. Relaxed on failure: the pointer that was there instead is not used.
        let order =
            if fault::active(Fault::BlockRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let Ok(old) = pointer.compare_exchange(found, new, order, Ordering::Relaxed) else {
            if !new.is_null() {
                // SAFETY: from the `Box` above, and not published.
                drop(unsafe { Box::from_raw(new) });
            }
            return false;
        };
        if !old.is_null() {
            // SAFETY: from a `Box`, unlinked by the swap, and taken by this call alone.
            self.retired.push(bytes, unsafe { Box::from_raw(old) });
            drop(self.retired.collect(guard, When::Many, readers_in_calls));
        }
        true
    }

    /// Frees values that were replaced and no call reads any more.
    pub(crate) fn collect(&self, guard: &Guard) {
        if self.retired.is_any() {
            drop(self.retired.collect(guard, When::Any, readers_in_calls));
        }
    }
}

impl<T: Send> Drop for ReplacedBins<T> {
    #[expect(unsafe_code, reason = "frees what no other thread has any more")]
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // As above.
            return;
        }
        for bin in &self.bins {
            // Relaxed: borrowed exclusively.
            let value = bin.load(Ordering::Relaxed);
            if !value.is_null() {
                // SAFETY: from a `Box` that was taken, and read for the last time.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}
