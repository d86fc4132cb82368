//! Readers: calls of a few nanoseconds that protect what they read without a memory fence.
//!
//! A pin of crossbeam-epoch is a store and a fence. The fence keeps the loads that follow from
//! coming before the store, and takes about 3 ns of a call's 29. Here the freeing thread makes a
//! fence for all threads with a system call (`membarrier`), because frees are rare and calls are
//! not. There are two cases:
//!
//! - The reader's store comes before the system call interrupts its processor: the freeing thread
//!   sees it and waits.
//! - The store comes after: all loads of the reader come after as well, and do not find the
//!   unlinked segment.
//!
//! Readers complement crossbeam-epoch: retired values wait for its pins as well.

use std::ptr;

use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, AtomicU64, Ordering};

/// The records of all threads that may be readers.
pub(super) struct Readers {
    first: AtomicPtr<Reader>,
}

/// The record of one thread, on its own pair of cache lines.
#[repr(align(128))]
pub(super) struct Reader {
    /// How often the thread has entered and left a call: odd while it is in one. Only the thread
    /// writes it.
    state: AtomicU64,
    /// 1 while a thread owns the record.
    taken: AtomicU64,
    /// The record that was made before this one.
    next: Option<&'static Reader>,
}

/// The bit that is set in the state of a thread that is in a call.
const IN_CALL: u64 = 1;

/// The readers that were in a call at one time, with their states then.
pub(super) struct ActiveReaders(Vec<(&'static Reader, u64)>);

impl Readers {
    #[cfg(not(tollgate_loom))]
    pub(super) const fn new() -> Readers {
        Readers { first: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cfg(tollgate_loom)]
    pub(super) fn new() -> Readers {
        Readers { first: AtomicPtr::new(ptr::null_mut()) }
    }

    #[expect(unsafe_code, reason = "a list whose members stay")]
    fn first(&self) -> Option<&'static Reader> {
        // Acquire: pairs with `join`: the record is made.
        let first = self.first.load(Ordering::Acquire);
        // SAFETY: null, or a record from `join`, which is never freed.
        unsafe { first.as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &'static Reader> {
        std::iter::successors(self.first(), |reader| reader.next)
    }

    /// Returns a record for this thread: one that an earlier thread has released, or a new one that
    /// is never freed. So there are at most as many records as there were threads at one time.
    #[expect(unsafe_code, reason = "a list whose members stay")]
    pub(super) fn join(&self) -> &'static Reader {
        if let Some(reader) = self.all().find(|reader| reader.acquire()) {
            debug_assert_eq!(
                reader.state.load(Ordering::Relaxed) & IN_CALL,
                0,
                "the record was released in a call"
            );
            return reader;
        }
        let (state, taken) = (AtomicU64::new(0), AtomicU64::new(1));
        let reader = Box::leak(Box::new(Reader { state, taken, next: None }));
        // Repeats only when another thread has joined.
        loop {
            reader.next = self.first();
            let next = reader.next.map_or(ptr::null(), ptr::from_ref).cast_mut();
            let this = ptr::from_mut(reader);
            // Release: pairs with `first`. Relaxed on failure: the loop reads it again.
            let joined =
                self.first.compare_exchange(next, this, Ordering::Release, Ordering::Relaxed);
            if joined.is_ok() {
                // SAFETY: as in `first`, through the same pointer that other threads use.
                return unsafe { &*this };
            }
        }
    }

    /// Returns the number of records.
    #[cfg(all(test, tollgate_loom))]
    pub(super) fn count(&self) -> usize {
        self.all().count()
    }

    /// Returns the readers that are in a call: all that may have a pointer to a value unlinked
    /// before. `None` if the system refuses the fence.
    pub(super) fn active(&self) -> Option<ActiveReaders> {
        if !heavy_fence() && !fault::active(Fault::NoBarrier) {
            return None;
        }
        let active = self.all().filter_map(|reader| {
            // Acquire: pairs with `leave`: the reads of a call that is over come before the free.
            let state = reader.state.load(Ordering::Acquire);
            (state & IN_CALL != 0).then_some((reader, state))
        });
        Some(ActiveReaders(active.collect()))
    }
}

impl ActiveReaders {
    /// No readers, where threads only pin.
    #[allow(dead_code, reason = "for models and tests of pins alone")]
    pub(super) fn none() -> ActiveReaders {
        ActiveReaders(Vec::new())
    }

    /// Returns whether all of them have left their calls since.
    pub(super) fn are_over(&mut self) -> bool {
        // Acquire: as in `Readers::active`.
        self.0.retain(|(reader, seen)| reader.state.load(Ordering::Acquire) == *seen);
        self.0.is_empty()
    }
}

impl Reader {
    fn acquire(&self) -> bool {
        // Acquire: pairs with `release`: the state is the last one of the previous owner. Relaxed
        // on failure: another thread owns the record.
        let taken =
            if fault::active(Fault::RecordRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        self.taken.compare_exchange(0, 1, taken, Ordering::Relaxed).is_ok()
    }

    /// Releases the record to a later thread. The owner is in no call.
    pub(super) fn release(&self) {
        // Release: pairs with `acquire`.
        self.taken.store(0, Ordering::Release);
    }

    /// Enters a call. Values that the thread finds from here on are not freed before
    /// [`leave`](Reader::leave). Returns `false`, and does nothing, if the thread is in a call
    /// already: the caller then pins in place of it.
    #[inline(always)]
    #[must_use]
    pub(super) fn enter(&self) -> bool {
        // Relaxed: no other thread writes it.
        let state = self.state.load(Ordering::Relaxed);
        if state & IN_CALL != 0 && !fault::active(Fault::EnterNested) {
            return false;
        }
        // Release: as in `leave`, because a freeing thread that sees the new call concludes that
        // the last one is over. The fence keeps the loads of the new call after this store.
        let order =
            if fault::active(Fault::EnterRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.state.store(state + 1, order);
        light_fence();
        true
    }

    /// Leaves the call that [`enter`](Reader::enter) has begun.
    #[inline(always)]
    pub(super) fn leave(&self) {
        // Relaxed: no other thread writes it.
        let state = self.state.load(Ordering::Relaxed);
        // Release: pairs with `active` and `are_over`.
        self.state.store(state + 1, Ordering::Release);
    }
}

/// The reader's half of the fence: for the compiler only.
#[cfg(not(tollgate_loom))]
#[inline(always)]
fn light_fence() {
    crate::util::sync::compiler_fence(Ordering::SeqCst);
}

/// loom has no fence that one thread makes for another. In models each reader makes its own.
#[cfg(tollgate_loom)]
fn light_fence() {
    if !fault::active(Fault::ReaderUnfenced) {
        crate::util::sync::fence(Ordering::SeqCst);
    }
}

#[cfg(tollgate_loom)]
fn heavy_fence() -> bool {
    if fault::active(Fault::NoBarrier) {
        return false;
    }
    crate::util::sync::fence(Ordering::SeqCst);
    true
}

/// The freeing thread's half: a fence of every thread of this process between begin and end of this
/// call. Returns `false` if the system refuses it. Without readers, no fence is needed.
#[cfg(not(tollgate_loom))]
fn heavy_fence() -> bool {
    !system::has_fence() || system::fence()
}

#[cfg(not(tollgate_loom))]
pub(super) use system::prepare;

/// The system call.
#[cfg(all(not(tollgate_loom), target_os = "linux", not(miri)))]
mod system {
    use std::sync::OnceLock;

    /// Whether the system has the fence. This is decided before any value can be read.
    static HAS_FENCE: OnceLock<bool> = OnceLock::new();

    /// Registers the process for the fence. This may take milliseconds, so no call of a limiter
    /// does it.
    pub(in super::super) fn prepare() {
        HAS_FENCE.get_or_init(register);
    }

    pub(super) fn has_fence() -> bool {
        HAS_FENCE.get() == Some(&true)
    }

    pub(super) fn fence() -> bool {
        let fence = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        // A forked process may have to register again.
        fence() || (register() && fence())
    }

    fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    #[expect(unsafe_code, reason = "a system call that the standard library does not have")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes three numbers and touches no memory. If the system lacks it (Linux
        // before 4.14) or forbids it, it returns an error.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(any(tollgate_loom, all(target_os = "linux", not(miri)))))]
mod system {
    pub(in super::super) fn prepare() {}

    pub(super) fn has_fence() -> bool {
        false
    }

    pub(super) fn fence() -> bool {
        false
    }
}

#[cfg(not(tollgate_loom))]
pub(super) use threads::READERS;
#[cfg(not(tollgate_loom))]
pub(crate) use threads::Reading;

/// The records of this process's threads.
#[cfg(not(tollgate_loom))]
mod threads {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::{Reader, Readers, system};

    /// All records of this process.
    pub(in super::super) static READERS: Readers = Readers::new();

    thread_local! {
        static OWN: Cell<Option<&'static Reader>> = const { Cell::new(None) };
        static END: End = const { End(Cell::new(None)) };
    }

    /// Releases the thread's record when the thread ends.
    struct End(Cell<Option<&'static Reader>>);

    impl Drop for End {
        fn drop(&mut self) {
            // Calls from later destructors of this thread have no record, and pin.
            OWN.set(None);
            self.0.take().into_iter().for_each(Reader::release);
        }
    }

    /// A call of this thread. Values that the thread reads are not freed while it lives.
    pub(crate) struct Reading {
        reader: &'static Reader,
        /// Not `Send`: the call ends on the thread on which it began.
        of_thread: PhantomData<*const ()>,
    }

    impl Reading {
        /// Begins a call. `None` in a thread's first call, within a call, and on systems without the
        /// fence.
        #[inline(always)]
        pub(in super::super) fn begin() -> Option<Reading> {
            let Some(reader) = OWN.get() else {
                join();
                return None;
            };
            reader.enter().then(|| Reading { reader, of_thread: PhantomData })
        }
    }

    impl Drop for Reading {
        #[inline(always)]
        fn drop(&mut self) {
            self.reader.leave();
        }
    }

    #[cold]
    #[inline(never)]
    fn join() {
        // Fails in the destructors of a thread that ends.
        let _ = END.try_with(|end| {
            if system::has_fence() {
                let reader = READERS.join();
                end.0.set(Some(reader));
                OWN.set(Some(reader));
            }
        });
    }
}
