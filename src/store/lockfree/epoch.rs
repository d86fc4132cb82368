//! Reclamation: the one place that knows crossbeam-epoch. Pin, protect, retire.
//!
//! What is retired waits for all pins, and then for all [readers](super::readers).

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(crate) use real::{Guard, is_any_unread, pin, pin_briefly, prepare};

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(crate) use modelled::{Guard, is_any_unread, pin, pin_briefly, prepare};

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
mod real {
    #[cfg(not(tollgate_loom))]
    use crate::store::lockfree::readers::{self, Reading};
    #[cfg(not(tollgate_loom))]
    use crate::store::lockfree::unread::Free;

    /// While it lives, nothing that could be reached when it was made is freed.
    pub(crate) enum Guard {
        Pinned(crossbeam_epoch::Guard),
        #[cfg(not(tollgate_loom))]
        Reading(#[expect(dead_code, reason = "what it does when it goes is all")] Reading),
    }

    /// Pins this thread. Free of locks; within another pin it costs no fence.
    #[inline(always)]
    pub(crate) fn pin() -> Guard {
        Guard::Pinned(crossbeam_epoch::pin())
    }

    /// As [`pin`], without a fence where that can be: for a few nanoseconds, in which nothing is waited for.
    #[inline(always)]
    pub(crate) fn pin_briefly() -> Guard {
        #[cfg(not(tollgate_loom))]
        if let Some(reading) = Reading::begin() {
            return Guard::Reading(reading);
        }
        pin()
    }

    /// What takes too long for the way of a call, and is to be done before.
    pub(crate) fn prepare() {
        #[cfg(not(tollgate_loom))]
        readers::prepare();
    }

    /// Whether anything waits for readers, of any table.
    pub(crate) fn is_any_unread() -> bool {
        #[cfg(not(tollgate_loom))]
        return readers::UNREAD.is_any();
        #[cfg(tollgate_loom)]
        false
    }

    impl Guard {
        /// Calls `free`, which frees about so many bytes, once no guard is left that was there at this call.
        ///
        /// # Safety
        ///
        /// - What `free` frees cannot be reached any more by who pins from now on.
        /// - `free` may run on any thread, and after everything that the caller borrows is gone.
        #[expect(unsafe_code, reason = "crossbeam-epoch's own contract, passed on")]
        pub(crate) unsafe fn retire(&self, bytes: usize, free: impl FnOnce() + 'static) {
            #[cfg(not(tollgate_loom))]
            let free = move || {
                // SAFETY: this function's contract.
                once_unread(unsafe { Free::new(bytes, free) });
            };
            #[cfg(tollgate_loom)]
            let _ = bytes;
            self.with_pin(|pinned| {
                // SAFETY: this function's contract is that of `defer_unchecked`.
                unsafe { pinned.defer_unchecked(free) };
                // What eight such calls handed over, at most.
                pinned.flush();
            });
        }

        /// A pin of a collector of its own.
        #[cfg(all(test, tollgate_loom))]
        pub(crate) fn of(handle: &crossbeam_epoch::LocalHandle) -> Guard {
            Guard::Pinned(handle.pin())
        }

        /// Frees what can be freed, a bounded part of it: what eight calls of `retire` handed over, and what
        /// waits for readers.
        pub(crate) fn collect(&self) {
            self.with_pin(crossbeam_epoch::Guard::flush);
            #[cfg(not(tollgate_loom))]
            readers::UNREAD.free_some();
        }

        /// As [`collect`](Guard::collect), by who comes again soon: readers are looked for only when much waits.
        pub(crate) fn collect_if_much(&self) {
            self.with_pin(crossbeam_epoch::Guard::flush);
            #[cfg(not(tollgate_loom))]
            readers::UNREAD.free_if_much();
        }

        fn with_pin(&self, then: impl FnOnce(&crossbeam_epoch::Guard)) {
            match self {
                Guard::Pinned(pinned) => then(pinned),
                #[cfg(not(tollgate_loom))]
                Guard::Reading(_) => then(&crossbeam_epoch::pin()),
            }
        }
    }

    /// Frees a thing that nobody is pinned for, once nobody reads it.
    #[cfg(not(tollgate_loom))]
    fn once_unread(free: Free) {
        if let Err(free) = readers::UNREAD.push(free) {
            // Some other time, when this thread pins again: what is deferred owns all that it uses.
            crossbeam_epoch::pin().defer(move || once_unread(free));
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

    pub(crate) fn pin_briefly() -> Guard {
        Guard(())
    }

    pub(crate) fn prepare() {}

    pub(crate) fn is_any_unread() -> bool {
        false
    }

    impl Guard {
        #[expect(unsafe_code, reason = "as the real one")]
        pub(crate) unsafe fn retire<'a>(&self, _: usize, free: impl FnOnce() + 'a) {
            let free: Box<dyn FnOnce() + 'a> = Box::new(free);
            // SAFETY: the contract says that `free` may run after all that it borrows is gone.
            let free = unsafe {
                std::mem::transmute::<Box<dyn FnOnce() + 'a>, Box<dyn FnOnce() + 'static>>(free)
            };
            RETIRED.with_borrow_mut(|retired| retired.push(free));
        }

        pub(crate) fn collect(&self) {}

        pub(crate) fn collect_if_much(&self) {}
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
