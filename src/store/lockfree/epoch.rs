//! Reclamation: the one place that knows crossbeam-epoch. Pin, protect, retire.

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(crate) use real::{Guard, pin};

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(crate) use modelled::{Guard, pin};

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
mod real {
    /// While it lives, nothing that could be reached when it was made is freed.
    pub(crate) struct Guard(crossbeam_epoch::Guard);

    /// Pins this thread. Free of locks; within another pin it costs no fence.
    #[inline(always)]
    pub(crate) fn pin() -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    impl Guard {
        /// Calls `free` once no thread is pinned that was pinned at this call.
        ///
        /// # Safety
        ///
        /// - What `free` frees cannot be reached any more by who pins from now on.
        /// - `free` may run on any thread, and after everything that the caller borrows is gone.
        #[expect(unsafe_code, reason = "crossbeam-epoch's own contract, passed on")]
        pub(crate) unsafe fn retire(&self, free: impl FnOnce()) {
            // SAFETY: this function's contract is that of `defer_unchecked`.
            unsafe { self.0.defer_unchecked(free) };
            self.collect();
        }

        /// A pin of a collector of its own.
        #[cfg(all(test, tollgate_loom))]
        pub(crate) fn of(handle: &crossbeam_epoch::LocalHandle) -> Guard {
            Guard(handle.pin())
        }

        /// Frees what can be freed, a bounded part of it: what eight calls of `retire` handed over.
        pub(crate) fn collect(&self) {
            self.0.flush();
        }
    }
}

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
mod modelled {
    use std::cell::RefCell;

    /// A pin that frees nothing before the model ends: what models of the table show is that whatever
    /// is retired was unlinked before. That nothing is freed too early is `reclaim`'s, with the real one.
    pub(crate) struct Guard(());

    thread_local! {
        static RETIRED: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn pin() -> Guard {
        Guard(())
    }

    impl Guard {
        #[expect(unsafe_code, reason = "as the real one")]
        pub(crate) unsafe fn retire<'a>(&self, free: impl FnOnce() + 'a) {
            let free: Box<dyn FnOnce() + 'a> = Box::new(free);
            // SAFETY: the contract says that `free` may run after all that it borrows is gone.
            let free = unsafe {
                std::mem::transmute::<Box<dyn FnOnce() + 'a>, Box<dyn FnOnce() + 'static>>(free)
            };
            RETIRED.with_borrow_mut(|retired| retired.push(free));
        }

        pub(crate) fn collect(&self) {}
    }

    /// Leaves what was retired in an execution that failed.
    #[cfg(test)]
    pub(crate) fn forget_all() {
        RETIRED.take().into_iter().for_each(std::mem::forget);
    }

    /// Frees what was retired, at the end of an execution.
    #[cfg(test)]
    pub(crate) fn free_all() {
        let retired = RETIRED.take();
        retired.into_iter().for_each(|free| free());
    }
}
#[cfg(all(test, tollgate_loom, not(crossbeam_loom)))]
pub(crate) use modelled::{forget_all, free_all};
